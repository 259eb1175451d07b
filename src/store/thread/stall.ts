/**
 * A storage that neither does what it is asked nor fails: a disk that is frozen, a database that is paused. Who waits for it
 * hears so in bounded time. What they asked for goes on, and those who keep what is in memory hear how it ends.
 */
import type { Stall } from '../contract/stall.ts';
import { StoreError } from '../store_error.ts';

/** How often it is looked whether something takes too long. */
const TICK_MS = 500;
/** Who comes after this much of a commit is refused. */
const STALLED_TICKS = 6;
/** Who waits for so long is answered without knowing. */
const PATIENCE_TICKS = 12;

/** Calls that change nothing that anybody remembers, and after how many ticks they are given up. */
const GIVEN_UP: { [name in string]?: number } = { 'storage.touch': STALLED_TICKS, 'sessions.find': PATIENCE_TICKS };

/** Names of the calls, `noun.method`, by which a storage tells that it stands still; all, where they follow one another. */
export type Telling = 'all' | ReadonlySet<string>;

/** How long a call has waited, and what that means. */
interface Patience {
  /** The tick at which it was made. */
  since: number;
  is_telling: boolean;
  ticks_max: number;
}

/** A call that waits for its answer. */
export interface Waiting extends Patience {
  method: string;
  resolve: (value: unknown) => void;
  reject: (error: Error) => void;
}

/** Time is counted in ticks, so that a process that stood still itself takes it for half a second and not for a stall. */
export class StallWatch implements Stall {
  readonly #waiting: readonly (Waiting | null)[];
  readonly #telling: Telling;
  readonly #listeners: ((is_long: boolean) => void)[] = [];
  #timer: NodeJS.Timeout | null = null;
  #tick = 0;
  #is_stalled = false;

  /** @param waiting the calls that wait, as they are at any time */
  constructor(waiting: readonly (Waiting | null)[], telling: Telling) {
    this.#waiting = waiting;
    this.#telling = telling;
  }

  get is_stalled(): boolean {
    return this.#is_stalled;
  }

  get holds_up_reading(): boolean {
    return this.#is_stalled && this.#telling === 'all';
  }

  onStall(listener: (is_long: boolean) => void): void {
    this.#listeners.push(listener);
  }

  /** A call is made. */
  begin(name: string): Patience {
    this.#timer ??= setInterval(() => this.#look(), TICK_MS).unref();
    const is_telling = this.#telling === 'all' || this.#telling.has(name);
    return { since: this.#tick, is_telling, ticks_max: GIVEN_UP[name] ?? Infinity };
  }

  /** Answers came. */
  answered(): void {
    if (this.#is_stalled) this.#is_stalled = this.#longest() > STALLED_TICKS;
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#is_stalled = false;
  }

  /** For how many ticks the longest of those that tell has waited. */
  #longest(): number {
    let longest = 0;
    for (const waiting of this.#waiting) {
      if (waiting?.is_telling === true) longest = Math.max(longest, this.#tick - waiting.since);
    }
    return longest;
  }

  #look(): void {
    this.#tick++;
    if (this.#waiting.every((waiting) => waiting === null)) return this.stop();
    const longest = this.#longest();
    this.#is_stalled = longest > STALLED_TICKS;
    for (const waiting of this.#waiting) {
      if (waiting === null || this.#tick - waiting.since <= waiting.ticks_max) continue;
      // Its answer may come, and nobody hears it then.
      waiting.ticks_max = Infinity;
      waiting.reject(inDoubt());
    }
    if (!this.#is_stalled) return;
    for (const listener of this.#listeners) listener(longest > PATIENCE_TICKS);
  }
}

/** Nothing was asked of the storage. */
export function stalled(): StoreError {
  return new StoreError('STORE_STALLED', 'the storage has not answered for 3 seconds');
}

/** It was asked, and nobody knows yet what it will do. */
export function inDoubt(): StoreError {
  return new StoreError('IN_DOUBT', 'the storage has not answered for 6 seconds, and may do it all the same');
}
