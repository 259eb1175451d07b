/** The share of its time that this thread works when it is saturated: below that, whatever is slow is not this thread. */
const SATURATED = 0.75;
/** How often that is measured. */
export const CHECK_MS = 100;
/**
 * Instances with a backlog whose turn it is at a time, and attempts in flight to such: so many while this thread is saturated,
 * because whatever else it does waits for as many responses; and otherwise more and more, up to a share of all attempts.
 */
const TURNS_MIN = 256;
const TURNS_SHARE = 0.75;
const TURNS_GROWTH = 1.5;

/** How busy this thread is, and how much of its work may therefore be backlog. */
export class Saturation {
  readonly #load: () => number;
  /** The most turns there may be, whatever the load. */
  readonly #turns_most: number;
  #turns_max: number;
  #is_saturated = false;
  #measured_at = -Infinity;

  /**
   * @param load the share of the time since it was last called that this thread was busy: 0 to 1
   * @param max_in_flight attempts in flight at a time, over all instances
   */
  constructor(load: () => number, max_in_flight: number) {
    this.#load = load;
    this.#turns_most = Math.ceil(max_in_flight * TURNS_SHARE);
    this.#turns_max = Math.min(TURNS_MIN, this.#turns_most);
  }

  /** Turns at a time, and attempts in flight in turns, as of the last measurement. */
  get turns_max(): number {
    return this.#turns_max;
  }

  /** Whether this thread is saturated; measured at most every `CHECK_MS`. */
  measure(now: number): boolean {
    if (now - this.#measured_at < CHECK_MS) return this.#is_saturated;
    this.#measured_at = now;
    this.#is_saturated = this.#load() >= SATURATED;
    const wanted = this.#is_saturated ? TURNS_MIN : Math.ceil(this.#turns_max * TURNS_GROWTH);
    this.#turns_max = Math.min(this.#turns_most, wanted);
    return this.#is_saturated;
  }
}
