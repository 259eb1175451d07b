import { BELIEVED_SHARE } from '../domain/delivery.ts';
import type { Clock } from './clock.ts';

/**
 * By which time deliveries have expired. The clock may be wrong when a process starts: four days ahead, it would fail all that
 * is pending at once. So a jump ahead, since the time that was noted last, does not count, as if the clock had stood still
 * meanwhile: what was pending keeps the time that it had left. It counts when it is short, when whoever runs the service says
 * that the clock is right, and when the process has run for as long as a delivery may take.
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
   * @param noted_at the last time of the processes before; null when there was none
   * @param is_trusted whether the clock is right, whatever was noted
   */
  begin(noted_at: number | null, is_trusted: boolean): void {
    const now = this.#clock.now();
    const jump_ms = noted_at === null || is_trusted ? 0 : now - noted_at;
    this.#held_ms = jump_ms > this.#expire_after_ms * BELIEVED_SHARE ? jump_ms : 0;
    this.#held_until = now + this.#expire_after_ms;
  }

  /** By how much less than the clock says time went by. */
  heldAt(now: number): number {
    return this.#held_ms === 0 || now >= this.#held_until ? 0 : this.#held_ms;
  }

  /** What is to expire by a time has expired at `now` when that time is up to this. */
  timeAt(now: number): number {
    return now - this.heldAt(now);
  }
}
