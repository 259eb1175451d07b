import type { Clock, Timer } from '../delivery/clock.ts';
import { Problem } from '../domain/problem.ts';
import type { Exchange } from './connections.ts';

/** A body gets this long, and a second more for each 64 KiB that came of it: who drips is cut off, who is far away is not. */
const BODY_MS = 5_000;
const BODY_BYTES_PER_S_MIN = 65_536;

/** Of the budget, this share is left to bodies that are smaller than this: a few large ones must not shut out all others. */
const SMALL_BODY_BYTES = 65_536;
const SMALL_BODIES_SHARE = 0.25;

const RETRY_AFTER_S = 1;

/** How many bytes of request bodies may be in memory at a time, over all connections. */
export class BodyBudget {
  readonly #bytes_max: number;
  #bytes = 0;

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  /** What is taken now, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** @param body_bytes what the body has come to, with these bytes */
  take(bytes: number, body_bytes: number): boolean {
    const share = body_bytes > SMALL_BODY_BYTES ? 1 - SMALL_BODIES_SHARE : 1;
    if (this.#bytes + bytes > this.#bytes_max * share) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/**
 * Reads the body of a request. Its bytes count against the budget as they arrive, and until the request is answered or
 * its connection is gone. What is beyond a limit is refused at once, and not waited for.
 *
 * @param done called once: with the bytes, or with Problem `body_too_large`, `overloaded`, `request_timeout` or
 * `malformed_request`
 */
export function readBody(
  exchange: Exchange,
  { body_bytes_max, budget, clock }: { body_bytes_max: number; budget: BodyBudget; clock: Clock },
  done: (problem: Problem | null, bytes?: Buffer) => void,
): void {
  const { request, response } = exchange;
  const chunks: Buffer[] = [];
  const started_at = clock.now();
  let bytes = 0;
  let timer: Timer | undefined;

  const stop = (): void => {
    timer?.cancel();
    exchange.refuseBody = null;
    request.off('data', take).off('end', end).off('error', cutOff).off('close', cutOff);
  };
  const refuse = (problem: Problem): void => {
    stop();
    chunks.length = 0;
    budget.release(bytes);
    bytes = 0;
    // An aborted request reports it as an error, which nobody waits for any more.
    request.on('error', () => {}).resume();
    done(problem);
  };
  const tooLarge = (): void =>
    refuse(
      new Problem('body_too_large', `The body has more than ${body_bytes_max} bytes, the most that is taken here.`),
    );
  const take = (chunk: Buffer): void => {
    if (bytes + chunk.length > body_bytes_max) return tooLarge();
    if (!budget.take(chunk.length, bytes + chunk.length)) return refuse(overloaded());
    bytes += chunk.length;
    chunks.push(chunk);
  };
  const end = (): void => {
    stop();
    // Always a copy: a chunk may be a view of what the socket reads into next.
    done(null, Buffer.concat(chunks, bytes));
  };
  const cutOff = (): void => refuse(new Problem('malformed_request', 'The connection ended before the body did.'));
  const look = (): void => {
    const left_ms = started_at + BODY_MS + (1000 * bytes) / BODY_BYTES_PER_S_MIN - clock.now();
    if (left_ms > 0) timer = clock.after(left_ms, look);
    else refuse(new Problem('request_timeout', 'The body did not arrive in time.'));
  };

  if (Number(request.headers['content-length'] ?? 0) > body_bytes_max) return tooLarge();
  response.once('close', () => budget.release(bytes));
  exchange.refuseBody = refuse;
  if (exchange.awaits_continue) response.writeContinue();
  timer = clock.after(BODY_MS, look);
  request.on('data', take).on('end', end).on('error', cutOff).on('close', cutOff);
}

function overloaded(): Problem {
  return new Problem(
    'overloaded',
    'Too many request bodies are arriving at once. Try again after the time in Retry-After.',
    { retry_after_s: RETRY_AFTER_S },
  );
}
