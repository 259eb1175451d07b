/**
 * Watches for a storage that neither completes a call nor fails, such as a frozen disk or a paused database. Callers
 * get an error in bounded time. The calls themselves continue, and the delivery engine learns how they end.
 */
import type { Stall } from '../contract/stall.ts';
import { StoreError } from '../store_error.ts';

/** How often the watch checks how long calls have waited. */
const TICK_MS = 250;
/**
 * When a call that shows a stall (see `StallSigns`) waits for more ticks than this, new messages and changes are
 * refused.
 */
const STALLED_TICKS = 12;
/**
 * When a call waits for more ticks than this, callers get an error: the result is unknown. A call begins between two
 * ticks, so callers get the error after 5.5 to 5.75 s.
 */
const LONG_TICKS = 22;
/**
 * During a stall the listeners are called once in each tick. This is the number of the first of these calls that says
 * `is_long`, counted from 1.
 */
export const LONG_SIGN = LONG_TICKS - STALLED_TICKS + 1;

/** Calls without a lasting effect. Each is rejected when it waits for more ticks than its number here. */
const REJECTED_AFTER_TICKS: { [name in string]?: number } = {
  'storage.touch': STALLED_TICKS,
  'sessions.find': LONG_TICKS,
};

/** The calls, as `store.method`, that show a stall when they wait long; `all` when calls run one after the other. */
export type StallSigns = 'all' | ReadonlySet<string>;

/** How long a call has waited, and how long it may wait. */
interface Wait {
  /** The tick at which the call was made. */
  since: number;
  is_sign: boolean;
  ticks_max: number;
}

/** A call that waits for its reply. */
export interface Waiting extends Wait {
  method: string;
  resolve: (value: unknown) => void;
  reject: (error: Error) => void;
}

/** Counts time in ticks. So a pause of the whole process counts as one tick, and not as a stall. */
export class StallWatch implements Stall {
  readonly #waiting: readonly (Waiting | null)[];
  readonly #signs: StallSigns;
  readonly #listeners: ((is_long: boolean, is_new: boolean) => void)[] = [];
  #timer: NodeJS.Timeout | null = null;
  #tick = 0;
  #is_stalled = false;

  /** @param waiting the list of waiting calls, which the caller keeps up to date */
  constructor(waiting: readonly (Waiting | null)[], signs: StallSigns) {
    this.#waiting = waiting;
    this.#signs = signs;
  }

  get is_stalled(): boolean {
    return this.#is_stalled;
  }

  get holds_up_reading(): boolean {
    return this.#is_stalled && this.#signs === 'all';
  }

  onStall(listener: (is_long: boolean, is_new: boolean) => void): void {
    this.#listeners.push(listener);
  }

  /** A call is made. */
  begin(name: string): Wait {
    this.#timer ??= setInterval(() => this.#look(), TICK_MS).unref();
    const is_sign = this.#signs === 'all' || this.#signs.has(name);
    return { since: this.#tick, is_sign, ticks_max: REJECTED_AFTER_TICKS[name] ?? Infinity };
  }

  onReplies(): void {
    if (this.#is_stalled) this.#is_stalled = this.#longest() > STALLED_TICKS;
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#is_stalled = false;
  }

  /** For how many ticks the oldest waiting call has waited, among the calls that show a stall. */
  #longest(): number {
    let longest = 0;
    for (const waiting of this.#waiting) {
      if (waiting?.is_sign === true) longest = Math.max(longest, this.#tick - waiting.since);
    }
    return longest;
  }

  #look(): void {
    this.#tick++;
    if (this.#waiting.every((waiting) => waiting === null)) return this.stop();
    const longest = this.#longest();
    const is_new = !this.#is_stalled;
    this.#is_stalled = longest > STALLED_TICKS;
    for (const waiting of this.#waiting) {
      if (waiting === null || this.#tick - waiting.since <= waiting.ticks_max) continue;
      // A reply that still arrives is ignored.
      waiting.ticks_max = Infinity;
      waiting.reject(this.#tick - waiting.since > LONG_TICKS ? inDoubt() : stalled());
    }
    if (!this.#is_stalled) return;
    for (const listener of this.#listeners) listener(longest > LONG_TICKS, is_new);
  }
}

/** The error of a call that did not reach the storage, or that would change nothing that lasts. */
export function stalled(): StoreError {
  return new StoreError('STORE_STALLED', 'the storage has not answered for 3 seconds');
}

/** The error of a call that reached the storage, and whose result is unknown. */
export function inDoubt(): StoreError {
  return new StoreError('IN_DOUBT', 'the storage has not answered for 6 seconds, and may still carry the call out');
}
