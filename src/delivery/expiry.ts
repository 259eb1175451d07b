import { type ClockNote, endOf, heldOf, type Hold, NO_HOLD } from '../domain/clock_hold.ts';
import type { Clock } from './clock.ts';

/** The service believes a jump of the clock of up to this share of the setting `expire_after`. */
const BELIEVED_SHARE = 1 / 3;
/**
 * Two clocks that differ by less than this agree. The time that the call of the database took is added to this time.
 */
const AGREE_MS = 1_000;

/** What happens to the clock that the nodes share, for the log. */
export interface ExpiryObserver {
  /** The time of this node was behind the others by `behind_ms`, or ahead when negative; now it is right. */
  corrected(behind_ms: number): void;
  /** The time of this node seems to be behind the others, but by too much to believe. Called once for each jump. */
  doubted(behind_ms: number): void;
}

const SILENT: ExpiryObserver = { corrected() {}, doubted() {} };

/**
 * Decides which deliveries have expired. The clock may be wrong when a process starts: if it were four days ahead,
 * everything pending would fail at once. So at a start, the clock is compared with the last time that a process noted.
 * When the clock is far ahead of that time, the jump between the two does not count for deliveries that were accepted
 * earlier: they keep their remaining time. The jump counts after all when the operator says that the clock is right, or
 * when the service has run for as long as a delivery may take. A short jump always counts.
 *
 * In a cluster, one node writes when a delivery expires, and another node judges it. So these times are on a clock that
 * the nodes share: see `compare`. Without a cluster the shared clock is the steady clock.
 */
export class Expiry {
  readonly #clock: Pick<Clock, 'now' | 'wall' | 'steadyOf'>;
  readonly #expire_after_ms: number;
  readonly #observer: ExpiryObserver;
  #hold = NO_HOLD;
  /** How far the shared clock is ahead of the steady clock. */
  #offset_ms = 0;
  #is_doubting = false;
  /** How far the wall clock was ahead of the steady clock at the last `compare`; null: there was none. */
  #compared_ms: number | null = null;

  constructor(
    clock: Pick<Clock, 'now' | 'wall' | 'steadyOf'>,
    expire_after_ms: number,
    observer: ExpiryObserver = SILENT,
  ) {
    this.#clock = clock;
    this.#expire_after_ms = expire_after_ms;
    this.#observer = observer;
  }

  get #believed_ms(): number {
    return this.#expire_after_ms * BELIEVED_SHARE;
  }

  /**
   * A process starts.
   *
   * @param noted what an earlier process noted last; null when there was none
   * @param is_trusted the operator says that the clock is right
   * @param last_message_id the last message that was accepted
   */
  begin(noted: ClockNote | null, is_trusted: boolean, last_message_id: string | null): void {
    const now = this.sharedAt(this.#clock.now());
    const believed_ms = this.#believed_ms;
    const held_ms = noted === null || is_trusted ? 0 : now - noted.ran_until;
    if (noted === null || held_ms <= believed_ms) return;
    // A restart does not lengthen the time for which an earlier process holds its jump. A second jump begins anew.
    const has_jumped_again = held_ms - noted.held_ms > believed_ms;
    this.#hold = has_jumped_again
      ? { held_ms, held_since: now, held_up_to: last_message_id }
      : { held_ms, held_since: Math.min(noted.held_since, now), held_up_to: noted.held_up_to };
  }

  /**
   * The database told its time. The steady clock may be wrong for as long as the process runs: it begins with the wall
   * clock at the start, and stands still while the machine is suspended. So the shared clock follows the wall clock of
   * this node and the clock of the database, when these two agree. One wrong clock alone changes nothing. A jump ahead
   * that a start would not believe changes nothing either, because everything pending could fail.
   *
   * @param database_ms the time of the database, between `asked_at` and now
   * @param asked_at a time of the steady clock
   */
  compare(database_ms: number, asked_at: number): void {
    const now = this.#clock.now();
    const wall_ahead_ms = this.#clock.wall() - now;
    const database_ahead_ms = database_ms - (asked_at + now) / 2;
    const agree_ms = AGREE_MS + (now - asked_at);
    this.#compared_ms = wall_ahead_ms;
    if (Math.abs(wall_ahead_ms - database_ahead_ms) > agree_ms) return;
    const behind_ms = wall_ahead_ms - this.#offset_ms;
    const was_doubting = this.#is_doubting;
    this.#is_doubting = behind_ms > this.#believed_ms;
    if (this.#is_doubting) {
      if (!was_doubting) this.#observer.doubted(behind_ms);
    } else if (Math.abs(behind_ms) > agree_ms) {
      this.#correct(behind_ms);
      this.#observer.corrected(behind_ms);
    }
  }

  #correct(behind_ms: number): void {
    this.#offset_ms += behind_ms;
    if (this.#hold === NO_HOLD) return;
    // The jump that is held was measured with the wrong time.
    const held_ms = this.#hold.held_ms + behind_ms;
    const held_since = this.#hold.held_since + behind_ms;
    this.#hold = held_ms <= this.#believed_ms ? NO_HOLD : { ...this.#hold, held_ms, held_since };
  }

  /** The time of the shared clock. @param now a time of the steady clock, like every `now` in this class */
  sharedAt(now: number): number {
    return now + this.#offset_ms;
  }

  /**
   * When a delivery expires that is queued now, on the shared clock. A time that is longer than the setting
   * `expire_after` counts as `expire_after`; null means `expire_after`.
   */
  endOfNew(expires_in_ms: number | null = null): number {
    const now = this.#clock.now();
    return (
      Math.max(this.sharedAt(now), this.#awakeAt(now)) + Math.min(expires_in_ms ?? Infinity, this.#expire_after_ms)
    );
  }

  /**
   * The time of the wall clock, when it has jumped ahead since the last `compare`; otherwise -Infinity. Perhaps the
   * machine was suspended: then messages of waiting clients arrive before the next `compare`.
   */
  #awakeAt(now: number): number {
    if (this.#compared_ms === null) return -Infinity;
    const wall_ms = this.#clock.wall();
    const jumped_ms = wall_ms - now - this.#compared_ms;
    return jumped_ms > AGREE_MS && jumped_ms <= this.#believed_ms ? wall_ms : -Infinity;
  }

  /** The jump of the clock that does not count now. */
  holdAt(now: number): Hold {
    return this.sharedAt(now) < this.#hold.held_since + this.#expire_after_ms ? this.#hold : NO_HOLD;
  }

  /** How many milliseconds the clock seems to be ahead; 0 when it is trusted. */
  heldAt(now: number): number {
    return this.holdAt(now).held_ms;
  }

  /** Whether a delivery has expired. */
  hasExpired(delivery: { message_id: string; expires_at: number }, now: number): boolean {
    // Comes first, because each step of a lane calls this, and hardly any delivery has expired.
    if (delivery.expires_at > now + this.#offset_ms) return false;
    return this.endOf(delivery, now) <= now;
  }

  /** When a delivery expires, on the steady clock and as the clocks run now. */
  endOf(delivery: { message_id: string; expires_at: number }, now: number): number {
    return endOf(delivery, this.holdAt(now)) - this.#offset_ms;
  }

  /**
   * How long ago a message was accepted. Steps of the wall clock since the start of the process do not count, nor does
   * the jump that is held.
   */
  ageOf({ message_id, accepted_at }: { message_id: string; accepted_at: number }, now: number): number {
    return now - this.#clock.steadyOf(accepted_at) - heldOf(message_id, this.holdAt(now));
  }

  /** What this process notes for the next one. */
  note(now: number): ClockNote {
    const hold = this.holdAt(now);
    return { ran_until: Math.round(this.sharedAt(now) - hold.held_ms), ...hold };
  }
}
