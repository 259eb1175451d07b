import type { IncomingMessage } from 'node:http';
import { ListNode } from '../../delivery/intrusive_list.ts';
import { Problem } from '../../domain/problem.ts';

/** A share of the budget is only for bodies up to this size, so that a few large bodies cannot block small ones. */
const SMALL_BODY_BYTES = 65_536;
const SMALL_BODIES_SHARE = 0.25;

const RETRY_AFTER_S = 1;

/** Limits how many bytes of request bodies are in memory at a time, over all connections. */
export class BodyBudget {
  readonly #bytes_max: number;
  #bytes = 0;

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  /** The bytes that are taken now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** @param body_bytes the bytes of the body so far, including `bytes` */
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

/** Called once, when the reading of a body is over: with a problem, or with the bytes of the body. */
export type BodyDone = (problem: Problem | null, bytes?: Buffer) => void;

/**
 * The body of a request. After the body was read, this object holds only the number of its bytes, because a request may
 * wait long for its response.
 */
export class Body extends ListNode {
  readonly #budget: BodyBudget;
  readonly #request: IncomingMessage;
  readonly #bytes_max: number;
  readonly started_at: number;
  /** Null when the reading of the body is over. */
  #done: BodyDone | null;
  #chunks: Buffer[] = [];
  /** How many bytes count against the budget. */
  #bytes = 0;

  constructor(budget: BodyBudget, request: IncomingMessage, bytes_max: number, started_at: number, done: BodyDone) {
    super();
    this.#budget = budget;
    this.#request = request;
    this.#bytes_max = bytes_max;
    this.started_at = started_at;
    this.#done = done;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether the rest of the body is awaited. */
  get is_awaited(): boolean {
    return this.#done !== null;
  }

  take(chunk: Buffer): void {
    if (this.#done === null) return;
    const bytes = this.#bytes + chunk.length;
    if (bytes > this.#bytes_max) return this.refuse(tooLarge(this.#bytes_max));
    if (!this.#budget.take(chunk.length, bytes)) return this.refuse(overloaded());
    this.#bytes = bytes;
    this.#chunks.push(chunk);
  }

  end(): void {
    if (this.#done === null) return;
    // Always a copy: a chunk may be a view of memory that the socket uses again.
    const bytes = Buffer.concat(this.#chunks, this.#bytes);
    this.#stop()(null, bytes);
  }

  /** Ends the reading of the body with a problem. */
  refuse(problem: Problem): void {
    if (this.#done === null) return;
    const done = this.#stop();
    this.release();
    // The rest of the body is read and dropped. If the request is aborted, its error is ignored.
    this.#request.resume();
    done(problem);
  }

  /** Called when the request fails or closes. Refuses the body, unless the reading of it is already over. */
  cutOff(): void {
    if (this.#done !== null) this.refuse(cutShort());
  }

  /** The bytes of this body no longer count against the budget. */
  release(): void {
    this.#budget.release(this.#bytes);
    this.#bytes = 0;
  }

  #stop(): BodyDone {
    const done = this.#done as BodyDone;
    this.#done = null;
    this.#chunks = NO_CHUNKS;
    this.list?.delete(this);
    return done;
  }
}

const NO_CHUNKS: Buffer[] = [];

function cutShort(): Problem {
  return new Problem('malformed_request', 'The connection ended before the body did.');
}

export function tooLarge(body_bytes_max: number): Problem {
  return new Problem(
    'body_too_large',
    `The body has more than ${body_bytes_max} bytes, the most that this route takes.`,
  );
}

function overloaded(): Problem {
  return new Problem(
    'overloaded',
    'Too many request bodies are arriving at once. Try again after the time in Retry-After.',
    { retry_after_s: RETRY_AFTER_S },
  );
}
