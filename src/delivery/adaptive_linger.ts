import { type Linger, LingerTimer } from '../store/linger.ts';

/**
 * No more requests are expected after a pause of at least QUIET_MS. A busy thread has long turns of the event loop, so
 * the pause must also be QUIET_GAPS times as long as the average gap between two turns with new requests.
 */
const QUIET_MS = 2;
const QUIET_GAPS = 6;
/** The weight of the latest gap in the average. */
const GAP_WEIGHT = 0.1;

/**
 * How long a batch of requests lingers, so that it can grow. Most senders wait for a response before they send again.
 * When all senders wait, no more requests are expected, and the batch starts at once. The class assumes that all
 * senders wait in two cases:
 *
 * - No batch is in flight, no request arrived while the last batch was in flight, and at least as many requests wait
 *   now as were in flight then.
 * - No request arrived for a while.
 */
export class AdaptiveLinger {
  readonly #linger: () => Linger;
  readonly #timer = new LingerTimer();
  /** Whether a request arrived since the last turn of the event loop. */
  #has_added = false;
  /** How many requests waited at the end of the last turn of the event loop. */
  #left = 0;
  #added_ms = -Infinity;
  /** The average time between two turns of the event loop that add requests to the same batch. */
  #gap_ms = 0;
  /**
   * How many requests were in flight right after the last batch started, and whether other requests arrived before that
   * batch ended.
   */
  #in_flight = 0;
  #others = false;

  /** @param linger called before each batch */
  constructor(linger: () => Linger) {
    this.#linger = linger;
  }

  /** @param is_busy whether requests are in flight */
  onAdd(is_busy: boolean): void {
    this.#has_added = true;
    if (is_busy) this.#others = true;
  }

  /**
   * How much longer the batch lingers, in milliseconds; 0 or less: it may start. Call it once in each turn of the event
   * loop.
   */
  delayMs(waiting: number, is_busy: boolean, now_ms: number): number {
    if (this.#has_added) {
      // The first requests of a batch follow the responses to the last batch. So the gap before them does not predict
      // when the next requests arrive.
      if (this.#left > 0) this.#gap_ms += (now_ms - this.#added_ms - this.#gap_ms) * GAP_WEIGHT;
      this.#added_ms = now_ms;
      this.#has_added = false;
    }
    this.#left = waiting;
    if (!is_busy && !this.#others && waiting >= this.#in_flight) return 0;
    const quiet_ms = this.#added_ms + Math.max(QUIET_MS, QUIET_GAPS * this.#gap_ms) - now_ms;
    return Math.min(quiet_ms, this.#timer.delayMs(this.#linger(), waiting, now_ms));
  }

  /**
   * A batch starts.
   *
   * @param items the items in the batch
   * @param in_flight the items in this batch and in the batches that are still in flight
   * @param left how many items wait for the next batch
   */
  onFlush(items: number, in_flight: number, left: number, now_ms: number): void {
    this.#timer.onFlush(items, now_ms);
    this.#in_flight = in_flight;
    this.#others = false;
    this.#left = left;
  }
}
