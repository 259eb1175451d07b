import { type ClockNote, endOf, type Hold, NO_HOLD } from '../domain/expiry.ts';
import type { Clock } from './clock.ts';

/** At a start the service believes a jump of the clock of up to this share of the setting `expire_after`. */
const BELIEVED_SHARE = 1 / 3;

/**
 * Decides which deliveries have expired. The clock may be wrong when a process starts: if it were four days ahead,
 * everything pending would fail at once. So at a start, the clock is compared with the last time that a process noted.
 * When the clock is far ahead of that time, the jump between the two does not count for deliveries that were accepted
 * earlier: they keep their remaining time. The jump counts after all when the operator says that the clock is right, or
 * when the service has run for as long as a delivery may take. A short jump always counts.
 */
export class Expiry {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #expire_after_ms: number;
  #hold = NO_HOLD;

  constructor(clock: Pick<Clock, 'now'>, expire_after_ms: number) {
    this.#clock = clock;
    this.#expire_after_ms = expire_after_ms;
  }

  /**
   * A process starts.
   *
   * @param noted what an earlier process noted last; null when there was none
   * @param is_trusted the operator says that the clock is right
   * @param last_message_id the last message that was accepted
   */
  begin(noted: ClockNote | null, is_trusted: boolean, last_message_id: string | null): void {
    const now = this.#clock.now();
    const believed_ms = this.#expire_after_ms * BELIEVED_SHARE;
    const held_ms = noted === null || is_trusted ? 0 : now - noted.ran_until;
    if (noted === null || held_ms <= believed_ms) return;
    // A restart does not lengthen the time for which an earlier process holds its jump. A second jump begins anew.
    const has_jumped_again = held_ms - noted.held_ms > believed_ms;
    this.#hold = has_jumped_again
      ? { held_ms, held_since: now, held_up_to: last_message_id }
      : { held_ms, held_since: Math.min(noted.held_since, now), held_up_to: noted.held_up_to };
  }

  /** The jump of the clock that does not count now. */
  holdAt(now: number): Hold {
    return now < this.#hold.held_since + this.#expire_after_ms ? this.#hold : NO_HOLD;
  }

  /** How many milliseconds the clock seems to be ahead; 0 when it is trusted. */
  heldAt(now: number): number {
    return this.holdAt(now).held_ms;
  }

  /** When a delivery expires on the clock as it runs now. */
  endOf(delivery: { message_id: string; expires_at: number }, now: number): number {
    return endOf(delivery, this.holdAt(now));
  }

  /** What this process notes for the next one. */
  note(now: number): ClockNote {
    const hold = this.holdAt(now);
    return { ran_until: Math.round(now - hold.held_ms), ...hold };
  }
}
