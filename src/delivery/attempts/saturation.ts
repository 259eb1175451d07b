/**
 * A thread that is busy for more than this share of its time is saturated. When deliveries wait although the thread is
 * less busy, something else is slow.
 */
const SATURATED = 0.75;
/** How often the load is measured. */
export const CHECK_MS = 100;
/**
 * The most attempts in flight to instances with a backlog, without those that hang, while this thread is saturated. The
 * limit is low, because the other work of the thread waits while the thread handles the responses to these attempts.
 * While the thread is not saturated, the limit grows, up to ATTEMPTS_SHARE of all attempts.
 */
const ATTEMPTS_SATURATED = 32;
const ATTEMPTS_SHARE = 0.75;
/**
 * The limit at the first step after a start, when V8 has compiled no code and everything must be read from the table.
 * From then on, the limit rises with the time.
 */
const ATTEMPTS_FIRST = 8;
/** How much the limit rises in each CHECK_MS. */
const GROWTH = 1.5;
const GROWTH_SATURATED = 1.1;

/** Measures how busy this thread is, and limits the attempts for backlogs accordingly. */
export class Saturation {
  readonly #load: () => number;
  /** The most attempts in flight to instances with a backlog, with those that hang, however idle this thread is. */
  readonly attempts_most: number;
  #attempts_max: number;
  #is_saturated = false;
  #measured_at: number | null = null;

  /**
   * @param load returns how busy this thread was since the last call: 0 to 1
   * @param max_in_flight attempts in flight at a time, over all instances
   */
  constructor(load: () => number, max_in_flight: number) {
    this.#load = load;
    this.attempts_most = Math.ceil(max_in_flight * ATTEMPTS_SHARE);
    this.#attempts_max = Math.min(ATTEMPTS_FIRST, this.attempts_most);
  }

  /** The most attempts in flight to instances with a backlog, without those that hang, as of the last measurement. */
  get attempts_max(): number {
    return this.#attempts_max;
  }

  /** Whether this thread is saturated; measured at most every `CHECK_MS`. */
  measure(now: number): boolean {
    const passed_ms = this.#measured_at === null ? CHECK_MS : now - this.#measured_at;
    if (passed_ms < CHECK_MS) return this.#is_saturated;
    this.#measured_at = now;
    this.#is_saturated = this.#load() >= SATURATED;
    const growth = (this.#is_saturated ? GROWTH_SATURATED : GROWTH) ** (passed_ms / CHECK_MS);
    const grown = Math.ceil(this.#attempts_max * growth);
    this.#attempts_max = Math.min(this.attempts_most, this.#is_saturated ? Math.min(ATTEMPTS_SATURATED, grown) : grown);
    return this.#is_saturated;
  }
}
