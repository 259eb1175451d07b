/**
 * A thread that is busy for more than this share of its time is saturated. When deliveries wait although the thread is
 * less busy, something else is slow.
 */
const SATURATED = 0.75;
/** How often the load is measured. */
export const CHECK_MS = 100;

/** Measures whether this thread is saturated. */
export class Saturation {
  readonly #load: () => number;
  #is_saturated = false;
  #measured_at = -Infinity;

  /** @param load returns how busy this thread was since the last call: 0 to 1 */
  constructor(load: () => number) {
    this.#load = load;
  }

  /** Whether this thread is saturated; measured at most every `CHECK_MS`. */
  measure(now: number): boolean {
    if (now - this.#measured_at < CHECK_MS) return this.#is_saturated;
    this.#measured_at = now;
    this.#is_saturated = this.#load() >= SATURATED;
    return this.#is_saturated;
  }
}
