import type { onSendHookHandler } from 'fastify';
import type { Clock } from '../delivery/clock.ts';
import { Problem } from '../domain/problem.ts';

/** Up to this size an answer fits into the buffers of a socket: nobody has to read it for us to be rid of it. */
const SMALL_ANSWER_BYTES = 65_536;

const RETRY_AFTER_S = 2;

/** What larger answers may take: so long and a second more for each 64 KiB, and all of them together so much memory. */
export const ANSWER_LIMITS = { answer_ms: 30_000, bytes_per_s_min: 65_536, bytes_in_flight_max: 256 << 20 };

/** Cuts off who asks for a large answer and does not read it; while too many do, refuses to make more of them. */
export function limitSlowReaders(
  clock: Clock,
  { answer_ms, bytes_per_s_min, bytes_in_flight_max }: typeof ANSWER_LIMITS,
): onSendHookHandler {
  let bytes_in_flight = 0;
  return (_request, reply, payload, done) => {
    const bytes = typeof payload === 'string' ? Buffer.byteLength(payload) : 0;
    if (bytes <= SMALL_ANSWER_BYTES) return done();
    if (bytes_in_flight + bytes > bytes_in_flight_max) return done(overloaded());
    bytes_in_flight += bytes;
    const response = reply.raw;
    const timer = clock.after(answer_ms + (1000 * bytes) / bytes_per_s_min, () => response.destroy());
    response.once('close', () => {
      timer.cancel();
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
