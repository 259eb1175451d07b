import type { onSendHookHandler } from 'fastify';
import type { ServerResponse } from 'node:http';
import { Problem } from '../../domain/problem.ts';

/**
 * A response up to this size fits into the buffers of a socket, so it leaves the memory of this process even if nobody
 * reads it.
 */
const SMALL_ANSWER_BYTES = 65_536;

const RETRY_AFTER_S = 2;

/** The most memory for all larger responses together. connections.ts disconnects clients that do not read them. */
export const ANSWER_BYTES_IN_FLIGHT_MAX = 256 << 20;

/** The larger responses that are not written yet. Their bytes together have a limit. */
export class LargeResponses {
  readonly #bytes_max: number;
  #bytes = 0;

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  /** @returns null when the response may be made, or else the problem to respond with */
  admit(response: ServerResponse, payload: string): Problem | null {
    const bytes = Buffer.byteLength(payload);
    // Does not count the bytes for a client that has left: no `close` would give them back.
    if (bytes <= SMALL_ANSWER_BYTES || response.closed || response.destroyed) return null;
    if (this.#bytes + bytes > this.#bytes_max) return overloaded();
    this.#bytes += bytes;
    response.once('close', () => {
      this.#bytes -= bytes;
    });
    return null;
  }
}

/** Refuses to make more large responses while too many of them are unread. */
export function limitSlowReaders(large_responses: LargeResponses): onSendHookHandler {
  return (_request, reply, payload, done) => {
    // Streams and buffers do not count. A stream is read as it is sent, and a buffer is shared by all clients.
    const problem = typeof payload === 'string' ? large_responses.admit(reply.raw, payload) : null;
    if (problem === null) done();
    else done(problem);
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
