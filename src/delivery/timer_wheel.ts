import type { Clock, Timer } from './clock.ts';
import { IntrusiveList, ListNode } from './intrusive_list.ts';

/** An entry ends late by at most this time, because all entries of a tick end together. */
const TICK_MS = 100;

/** An entry that ends at a time, unless it is deleted first. */
export abstract class WheelEntry extends ListNode {
  /** The tick in which it ends; written by its wheel. */
  tick = 0;
  /** Called when the time is up, at most once for each `add`. */
  abstract expire(): void;
}

/**
 * Deadlines of different lengths, for many entries of which most are deleted early. An entry is in the list of the tick
 * in which it ends. Adding or deleting an entry costs four assignments. All entries share one timer, and a deleted
 * entry leaves nothing behind.
 */
export class TimerWheel {
  readonly #clock: Clock;
  readonly #slots: IntrusiveList<WheelEntry>[];
  /** Ticks are counted from here, so that they are small integers. */
  readonly #started_at: number;
  /** The last tick whose entries have ended. */
  #ended = 0;
  #size = 0;
  #timer: Timer | null = null;
  #is_stopped = false;

  /** @param delay_ms_max the longest delay that `add` takes */
  constructor(clock: Clock, delay_ms_max: number) {
    this.#clock = clock;
    this.#started_at = clock.now();
    this.#slots = Array.from({ length: Math.ceil(delay_ms_max / TICK_MS) + 2 }, () => new IntrusiveList<WheelEntry>());
  }

  /** The number of the latest turn of the wheel. One turn ends all entries that are due. */
  get turn(): number {
    return this.#ended;
  }

  /** When the entry was added before, only the new time counts. */
  add(entry: WheelEntry, delay_ms: number): void {
    const now_ms = this.#clock.now() - this.#started_at;
    // While the wheel is empty, no turn counts its ticks.
    if (this.#size === 0) this.#ended = Math.floor(now_ms / TICK_MS);
    this.delete(entry);
    entry.tick = Math.ceil((now_ms + delay_ms) / TICK_MS);
    this.#put(entry);
    this.#arm();
  }

  /** Puts an entry into its slot: into the next one at the earliest, and into the last of this round at the latest. */
  #put(entry: WheelEntry): void {
    const latest = this.#ended + this.#slots.length - 1;
    this.#size++;
    this.#slotOf(Math.min(Math.max(entry.tick, this.#ended + 1), latest)).add(entry);
  }

  delete(entry: WheelEntry): void {
    if (entry.list?.delete(entry) === true) this.#size--;
  }

  /** Stops the timer: no entry expires after that. */
  stop(): void {
    this.#is_stopped = true;
    this.#timer?.cancel();
    this.#timer = null;
  }

  #slotOf(tick: number): IntrusiveList<WheelEntry> {
    return this.#slots[tick % this.#slots.length] as IntrusiveList<WheelEntry>;
  }

  #arm(): void {
    if (this.#timer !== null || this.#is_stopped) return;
    this.#timer = this.#clock.after(TICK_MS, () => this.#turn());
  }

  #turn(): void {
    this.#timer = null;
    const now = Math.floor((this.#clock.now() - this.#started_at) / TICK_MS);
    // Even after a long pause of the process, one whole round of the wheel covers all entries.
    const to = Math.min(now, this.#ended + this.#slots.length);
    const due = new IntrusiveList<WheelEntry>();
    for (let tick = this.#ended + 1; tick <= to; tick++) {
      const slot = this.#slotOf(tick);
      for (let entry = slot.first; entry !== null; entry = slot.first) due.add(entry);
    }
    this.#ended = Math.max(this.#ended, now);
    // `expire` may add entries, so it comes after the loop above: new entries belong to ticks after this turn, however
    // late the turn is.
    for (let entry = due.first; entry !== null; entry = due.first) {
      this.delete(entry);
      // While this turn was late, `add` may have put an entry with a long delay into the last slot of the round, which
      // is too early for the entry. Such an entry goes into a later slot now.
      if (entry.tick > now) this.#put(entry);
      else entry.expire();
    }
    if (this.#size > 0) this.#arm();
  }
}
