import { type Linger, LingerTimer } from '../store/linger.ts';

/**
 * When nothing came for so long, and for so many times as long as it takes from one turn that brings something to the next
 * lately, more will not come. A thread that is busy has long turns.
 */
const QUIET_MS = 2;
const QUIET_GAPS = 6;
/** How much the latest counts in the average. */
const GAP_WEIGHT = 0.1;

/**
 * How long a batch of requests waits for more. Batches keep their distance, so that there is more in each; but most of those
 * who send wait for an answer before they send again, and when all of them wait, nothing else will come. That is known when
 *
 * - nothing came while the last batch was under way, so that all who send were in it, and as many wait again;
 * - or nothing came for a while.
 */
export class AdaptiveLinger {
  readonly #linger: () => Linger;
  readonly #timer = new LingerTimer();
  /** Since the last turn. */
  #has_added = false;
  /** How many were left waiting by the last turn. */
  #left = 0;
  #added_ms = -Infinity;
  /** From one turn that brings some of a batch to the next, on the average. */
  #gap_ms = 0;
  /** So many were under way when the last batch had started, and whether others came before its end. */
  #in_flight = 0;
  #others = false;

  /** @param distance asked before each batch */
  constructor(distance: () => Linger) {
    this.#linger = distance;
  }

  /** @param is_busy whether some are under way */
  onAdd(is_busy: boolean): void {
    this.#has_added = true;
    if (is_busy) this.#others = true;
  }

  /** To be asked once a turn. In milliseconds; 0 or less: it may start. */
  delayMs(waiting: number, is_busy: boolean, now_ms: number): number {
    if (this.#has_added) {
      // The first of a batch come when those of the last one were answered: that says nothing of when the next ones come.
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
   * @param items in it
   * @param under_way in it and before it
   * @param left so many wait for the next one
   */
  onFlush(items: number, under_way: number, left: number, now_ms: number): void {
    this.#timer.onFlush(items, now_ms);
    this.#in_flight = under_way;
    this.#others = false;
    this.#left = left;
  }
}
