import type { onSendHookHandler } from 'fastify';
import { Problem } from '../../domain/problem.ts';

/** Up to this size an answer fits into the buffers of a socket: nobody has to read it for us to be rid of it. */
const SMALL_ANSWER_BYTES = 65_536;

const RETRY_AFTER_S = 2;

/** So much memory all larger answers together may take. Those that do not read them are cut off in connections.ts. */
export const ANSWER_BYTES_IN_FLIGHT_MAX = 256 << 20;

/** While too many ask for large answers and do not read them, refuses to make more of them. */
export function limitSlowReaders(bytes_in_flight_max: number): onSendHookHandler {
  let bytes_in_flight = 0;
  return (_request, reply, payload, done) => {
    // Streams are read as they are sent, and bytes that are the same for everybody are there once.
    const bytes = typeof payload === 'string' ? Buffer.byteLength(payload) : 0;
    if (bytes <= SMALL_ANSWER_BYTES) return done();
    if (bytes_in_flight + bytes > bytes_in_flight_max) return done(overloaded());
    bytes_in_flight += bytes;
    reply.raw.once('close', () => {
      bytes_in_flight -= bytes;
    });
    done();
  };
}

function overloaded(): Problem {
  return new Problem(
    'overloaded',
    'Too many large answers wait for who asked for them. Try again after the time in Retry-After.',
    {
      retry_after_s: RETRY_AFTER_S,
    },
  );
}
