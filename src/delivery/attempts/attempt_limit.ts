import { CHECK_MS, type Saturation } from './saturation.ts';

/** The share of all attempts in flight that turns may have, with those that hang. */
const TURNS_SHARE = 0.75;
/**
 * The most attempts in turns, without those that hang, while this thread is saturated. The limit is low, because the
 * other work of the thread waits while the thread handles the responses to these attempts. While the thread is not
 * saturated, the limit grows, up to TURNS_SHARE of all attempts.
 */
const YOUNG_SATURATED = 32;
/**
 * The limit after a start, when V8 has compiled no code and everything must be read from the table. From the first step
 * on, the limit rises with the time.
 */
const YOUNG_FIRST = 8;
/** How much the limit rises in each CHECK_MS. */
const GROWTH = 1.5;
const GROWTH_SATURATED = 1.1;

/** The limits of the attempts in turns: a fixed one, and one without attempts that hang, which follows the load. */
export class AttemptLimit {
  readonly #saturation: Saturation;
  /** The most attempts in turns, with those that hang, however idle this thread is. */
  readonly all_max: number;
  #young_max: number;
  #measured_at: number | null = null;

  /** @param max_in_flight attempts in flight at a time, over all instances */
  constructor(saturation: Saturation, max_in_flight: number) {
    this.#saturation = saturation;
    this.all_max = Math.ceil(max_in_flight * TURNS_SHARE);
    this.#young_max = Math.min(YOUNG_FIRST, this.all_max);
  }

  /** The most attempts in turns, without those that hang, as of the last call of `measure`. */
  get young_max(): number {
    return this.#young_max;
  }

  /** Adapts `young_max` to the load of this thread. */
  measure(now: number): void {
    const passed_ms = this.#measured_at === null ? CHECK_MS : now - this.#measured_at;
    if (passed_ms < CHECK_MS) return;
    this.#measured_at = now;
    const is_saturated = this.#saturation.measure(now);
    const growth = (is_saturated ? GROWTH_SATURATED : GROWTH) ** (passed_ms / CHECK_MS);
    const grown = Math.ceil(this.#young_max * growth);
    this.#young_max = Math.min(this.all_max, is_saturated ? Math.min(YOUNG_SATURATED, grown) : grown);
  }
}
