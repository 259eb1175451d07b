import { BELIEVED_SHARE } from '../domain/delivery.ts';
import type { Clock } from './clock.ts';

/**
 * Decides which deliveries have expired. The clock may be wrong when a process starts: if it were four days ahead,
 * everything pending would fail at once. So at a start, the clock is compared with the last time that a process noted.
 * When the clock is far ahead of that time, the jump between the two does not count, and pending deliveries keep their
 * remaining time. The jump counts after all when the operator says that the clock is right, or when this process has
 * run for as long as a delivery may take. A short jump always counts.
 */
export class Expiry {
  readonly #clock: Clock;
  readonly #expire_after_ms: number;
  #held_ms = 0;
  #held_until = 0;

  constructor(clock: Clock, expire_after_ms: number) {
    this.#clock = clock;
    this.#expire_after_ms = expire_after_ms;
  }

  /**
   * A process starts.
   *
   * @param noted_at the last time that an earlier process noted; null when there was none
   * @param is_trusted the operator says that the clock is right
   */
  begin(noted_at: number | null, is_trusted: boolean): void {
    const now = this.#clock.now();
    const jump_ms = noted_at === null || is_trusted ? 0 : now - noted_at;
    this.#held_ms = jump_ms > this.#expire_after_ms * BELIEVED_SHARE ? jump_ms : 0;
    this.#held_until = now + this.#expire_after_ms;
  }

  /** How many milliseconds the clock seems to be ahead; 0 when it is trusted. */
  heldAt(now: number): number {
    return this.#held_ms === 0 || now >= this.#held_until ? 0 : this.#held_ms;
  }

  /** When a delivery with this `expires_at` expires on the clock as it runs now. */
  endOf(expires_at: number, now: number): number {
    return expires_at + this.heldAt(now);
  }

  /** The time to compare with `expires_at`: a delivery has expired when its `expires_at` is not later. */
  timeAt(now: number): number {
    return now - this.heldAt(now);
  }
}
