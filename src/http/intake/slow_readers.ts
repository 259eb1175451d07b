import type { onSendHookHandler } from 'fastify';
import { Problem } from '../../domain/problem.ts';

/**
 * A response up to this size fits into the buffers of a socket, so it leaves the memory of this process even if nobody
 * reads it.
 */
const SMALL_ANSWER_BYTES = 65_536;

const RETRY_AFTER_S = 2;

/** The most memory for all larger responses together. connections.ts disconnects clients that do not read them. */
export const ANSWER_BYTES_IN_FLIGHT_MAX = 256 << 20;

/** Refuses to make more large responses while too many of them are unread. */
export function limitSlowReaders(bytes_in_flight_max: number): onSendHookHandler {
  let bytes_in_flight = 0;
  return (_request, reply, payload, done) => {
    // Streams and buffers do not count. A stream is read as it is sent, and a buffer is shared by all clients.
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
