import type { Clock } from '../../delivery/clock.ts';
import { ListNode, IntrusiveList } from '../../delivery/intrusive_list.ts';
import { Problem } from '../../domain/problem.ts';
import type { Exchange } from './connection.ts';

/**
 * A body may take this long, and one second more for each 64 KiB that arrived. That stops a client that sends byte by
 * byte, and stops no client on a slow network.
 */
const BODY_MS = 5_000;
const BODY_BYTES_PER_S_MIN = 65_536;

/**
 * Bodies below this size have a share of the budget for themselves, so that a few large bodies cannot block small ones.
 */
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

/** How often bodies in progress are checked for lateness. */
const LOOK_MS = 500;

/** A body that is being read. */
class Reading extends ListNode {
  readonly started_at: number;
  bytes = 0;
  refuse: (problem: Problem) => void;

  constructor(started_at: number, refuse: (problem: Problem) => void) {
    super();
    this.started_at = started_at;
    this.refuse = refuse;
  }
}

/**
 * Reads the bodies of requests. Their bytes count against the budget from their arrival until the response is written
 * or the connection is gone. A body beyond a limit is refused at once, before the rest arrives.
 */
export class BodyReader {
  readonly #budget: BodyBudget;
  readonly #clock: Clock;
  readonly #readings = new IntrusiveList<Reading>();
  #looking = false;

  constructor(budget: BodyBudget, clock: Clock) {
    this.#budget = budget;
    this.#clock = clock;
  }

  /**
   * @param done called once: with the bytes, or with Problem `body_too_large`, `overloaded`, `request_timeout` or
   * `malformed_request`
   */
  read(exchange: Exchange, body_bytes_max: number, done: (problem: Problem | null, bytes?: Buffer) => void): void {
    const { request, response } = exchange;
    const chunks: Buffer[] = [];
    let over = false;
    const reading = new Reading(this.#clock.now(), (problem) => refuse(problem));

    // The listeners are not removed: they end with the request, and removing four costs more than checking `over`.
    const stop = (): void => {
      over = true;
      exchange.refuseBody = null;
      this.#readings.delete(reading);
    };
    const release = (): void => {
      this.#budget.release(reading.bytes);
      reading.bytes = 0;
    };
    const refuse = (problem: Problem): void => {
      if (over) return;
      stop();
      chunks.length = 0;
      release();
      // The rest of the body is read and dropped. If the request is aborted, its error is ignored.
      request.resume();
      done(problem);
    };
    const take = (chunk: Buffer): void => {
      if (over) return;
      const bytes = reading.bytes + chunk.length;
      if (bytes > body_bytes_max) return refuse(tooLarge(body_bytes_max));
      if (!this.#budget.take(chunk.length, bytes)) return refuse(overloaded());
      reading.bytes = bytes;
      chunks.push(chunk);
    };
    const end = (): void => {
      if (over) return;
      stop();
      // Always a copy: a chunk may be a view of memory that the socket uses again.
      const bytes = Buffer.concat(chunks, reading.bytes);
      // Frees the chunks now, because the listeners live as long as the request.
      chunks.length = 0;
      done(null, bytes);
    };
    const cutOff = (): void => {
      if (!over) refuse(new Problem('malformed_request', 'The connection ended before the body did.'));
    };

    request.on('error', cutOff);
    if (Number(request.headers['content-length'] ?? 0) > body_bytes_max) return refuse(tooLarge(body_bytes_max));
    exchange.release = release;
    exchange.refuseBody = refuse;
    if (exchange.awaits_continue) response.writeContinue();
    this.#watch(reading);
    request.on('data', take).on('end', end).on('close', cutOff);
  }

  /** One timer for all bodies, because most are complete before the first check. */
  #watch(reading: Reading): void {
    this.#readings.add(reading);
    if (this.#looking) return;
    this.#looking = true;
    this.#clock.after(LOOK_MS, () => this.#look());
  }

  #look(): void {
    const now = this.#clock.now();
    for (const { started_at, bytes, refuse } of this.#readings.toArray()) {
      if (now - started_at < BODY_MS + (1000 * bytes) / BODY_BYTES_PER_S_MIN) continue;
      refuse(new Problem('request_timeout', 'The body did not arrive in time.'));
    }
    this.#looking = this.#readings.size > 0;
    if (this.#looking) this.#clock.after(LOOK_MS, () => this.#look());
  }
}

function tooLarge(body_bytes_max: number): Problem {
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
