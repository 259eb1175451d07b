import type { Clock } from '../../delivery/clock.ts';
import { IntrusiveList } from '../../delivery/intrusive_list.ts';
import { Problem } from '../../domain/problem.ts';
import { Body, type BodyBudget, type BodyDone, tooLarge } from './body.ts';
import { EXCHANGE, type Exchange, type Watched } from './connection.ts';

/**
 * A body may take this long, and one second more for each 64 KiB that arrived. This limit stops a client that sends
 * byte by byte, and stops no client on a slow network.
 */
const BODY_MS = 5_000;
const BODY_BYTES_PER_S_MIN = 65_536;

/** How often the reader checks whether a body is late. */
const LOOK_MS = 500;

/**
 * The listeners of all requests with a body. Closures made for each request would hold the parts of that request for as
 * long as it waits. The listeners are never removed: removing four listeners costs more than the check that each of
 * them makes.
 */
function onData(this: Watched, chunk: Buffer): void {
  this[EXCHANGE]?.body?.take(chunk);
}

function onEnd(this: Watched): void {
  this[EXCHANGE]?.body?.end();
}

function onCutOff(this: Watched): void {
  this[EXCHANGE]?.body?.cutOff();
}

/**
 * Reads the bodies of requests. Their bytes count against the budget from their arrival until the response is made, or
 * the connection is gone. A body beyond a limit is refused at once, before the rest arrives.
 */
export class BodyReader {
  readonly #budget: BodyBudget;
  readonly #clock: Clock;
  readonly #awaited = new IntrusiveList<Body>();
  #looking = false;

  constructor(budget: BodyBudget, clock: Clock) {
    this.#budget = budget;
    this.#clock = clock;
  }

  /**
   * @param done called once: with the bytes, or with Problem `body_too_large`, `overloaded`, `request_timeout` or
   * `malformed_request`
   */
  read(exchange: Exchange, bytes_max: number, done: BodyDone): void {
    const { request, response } = exchange;
    const body = new Body(this.#budget, request, bytes_max, this.#clock.now(), done);
    exchange.body = body;
    request.on('error', onCutOff);
    if (Number(request.headers['content-length'] ?? 0) > bytes_max) return body.refuse(tooLarge(bytes_max));
    if (exchange.awaits_continue) response.writeContinue();
    this.#watch(body);
    request.on('data', onData).on('end', onEnd).on('close', onCutOff);
  }

  /** One timer for all bodies, because most are complete before the first check. */
  #watch(body: Body): void {
    this.#awaited.add(body);
    if (this.#looking) return;
    this.#looking = true;
    this.#clock.after(LOOK_MS, () => this.#look());
  }

  #look(): void {
    const now = this.#clock.now();
    for (const body of this.#awaited.toArray()) {
      if (now - body.started_at < BODY_MS + (1000 * body.bytes) / BODY_BYTES_PER_S_MIN) continue;
      body.refuse(new Problem('request_timeout', 'The body did not arrive in time.'));
    }
    this.#looking = this.#awaited.size > 0;
    if (this.#looking) this.#clock.after(LOOK_MS, () => this.#look());
  }
}
