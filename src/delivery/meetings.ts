import { type GuardLimits, limitsInForce } from '../domain/guard_rule.ts';
import type { SetMeeting } from '../store/contract/meetings.ts';
import type { Store } from '../store/store.ts';

/** The most meetings in one read. */
const PAGE = 500;

export interface MeetingsParts {
  /** The limits of meetings that have none of their own. */
  limits: GuardLimits;
  store: Pick<Store, 'meetings'>;
  /** The storage failed: calls `again` later. */
  retryLater: (error: unknown, again: () => void) => void;
  /** The settings of a meeting, or its deliveries, changed. The settings are read next. */
  onChange: (meeting_id: string) => void;
  /**
   * The settings of meetings were read. The settings or the deliveries of these meetings may have changed. `resumed`:
   * one of these meetings may have resumed since the last read.
   */
  onRead: (meeting_ids: ReadonlySet<string>, resumed: boolean) => void;
  /** All settings that had to be read were read. */
  onCaughtUp: () => void;
}

/**
 * The settings of meetings, in memory. Few meetings have settings, so a node keeps all of them, and dispatch never
 * waits for a read. No attempt starts before the first read. A change is always read from the table: changes arrive
 * over many connections, so the change that arrives last may be an older change.
 */
export class Meetings {
  readonly #parts: MeetingsParts;
  #set = new Map<string, SetMeeting>();
  readonly #paused = new Set<string>();
  #is_loaded = false;
  #reads_all = false;
  /** The meetings to read. True: the meeting may have resumed. */
  readonly #to_read = new Map<string, boolean>();
  #reading: Promise<void> | null = null;

  constructor(parts: MeetingsParts) {
    this.#parts = parts;
  }

  /** Whether the settings are known. */
  get is_loaded(): boolean {
    return this.#is_loaded;
  }

  isPaused(meeting_id: string): boolean {
    return this.#paused.size > 0 && this.#paused.has(meeting_id);
  }

  /** The limits that hold for a meeting. */
  limitsOf(meeting_id: string): GuardLimits {
    const own = this.#set.get(meeting_id);
    return own === undefined ? this.#parts.limits : limitsInForce(own, this.#parts.limits);
  }

  /**
   * Reads all settings. Resolves when this node uses them, or when the store has failed. After a failure the settings
   * are read again later.
   */
  readAll(): Promise<void> {
    this.#reads_all = true;
    return this.#read();
  }

  /**
   * The settings of a meeting changed. Resolves when this node uses the new settings, or when the store has failed.
   *
   * @param resumed whether the change ends a pause. The settings do not show that: between two reads, a meeting may
   * have been paused and resumed. False for a change by another node, because that node does not say whether a pause
   * ended. The next scan of the table finds the deliveries aside of such a meeting.
   */
  changed(meeting_id: string, resumed: boolean): Promise<void> {
    this.#parts.onChange(meeting_id);
    this.#mustRead(meeting_id, resumed);
    return this.#read();
  }

  #mustRead(meeting_id: string, resumed: boolean): void {
    this.#to_read.set(meeting_id, resumed || this.#to_read.get(meeting_id) === true);
  }

  #read(): Promise<void> {
    if (this.#reading === null && (this.#reads_all || this.#to_read.size > 0)) this.#reading = this.#readPending();
    return this.#reading ?? Promise.resolve();
  }

  async #readPending(): Promise<void> {
    while (this.#reads_all || this.#to_read.size > 0) {
      const [change] = this.#to_read;
      const reads_one = change !== undefined && !this.#reads_all;
      this.#reads_all = false;
      if (reads_one) this.#to_read.delete(change[0]);
      try {
        await (reads_one ? this.#readOne(...change) : this.#readAllPages());
      } catch (error) {
        if (reads_one) this.#mustRead(...change);
        else this.#reads_all = true;
        this.#reading = null;
        this.#parts.retryLater(error, () => void this.#read());
        return;
      }
    }
    // The loop found nothing to read in this turn of the event loop. So a change that comes later finds no read in
    // progress, and begins one.
    this.#reading = null;
    this.#parts.onCaughtUp();
  }

  async #readOne(meeting_id: string, resumed: boolean): Promise<void> {
    const settings = await this.#parts.store.meetings.settings(meeting_id);
    if (settings === null) this.#set.delete(meeting_id);
    else this.#set.set(meeting_id, { meeting_id, ...settings });
    const differs = this.#notePause(meeting_id);
    this.#parts.onRead(new Set([meeting_id]), resumed || differs);
  }

  async #readAllPages(): Promise<void> {
    const found = new Map<string, SetMeeting>();
    for (let after: string | null = null; ;) {
      const page: SetMeeting[] = await this.#parts.store.meetings.allSettings(after, PAGE);
      for (const each of page) found.set(each.meeting_id, each);
      if (page.length < PAGE) break;
      after = (page.at(-1) as SetMeeting).meeting_id;
    }
    const previous = this.#set;
    this.#set = found;
    this.#is_loaded = true;
    const differing = new Set<string>();
    for (const meeting_id of new Set([...previous.keys(), ...found.keys()])) {
      // Calls `onRead` only for meetings that were paused or resumed. The limits of a meeting change no lane, because
      // dispatch looks them up each time.
      if (this.#notePause(meeting_id)) differing.add(meeting_id);
    }
    if (differing.size > 0) this.#parts.onRead(differing, true);
  }

  /** @returns whether the meeting was paused or resumed */
  #notePause(meeting_id: string): boolean {
    const was_paused = this.#paused.has(meeting_id);
    const is_paused = this.#set.get(meeting_id)?.paused === true;
    if (is_paused) this.#paused.add(meeting_id);
    else this.#paused.delete(meeting_id);
    return is_paused !== was_paused;
  }
}
