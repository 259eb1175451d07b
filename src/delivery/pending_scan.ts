import type { LaneKey, PendingAside } from '../store/contract/deliveries.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from './clock.ts';
import type { Partition } from './cluster/partitions.ts';
import type { TimerQueue } from './timer_queue.ts';

/**
 * The most lanes, or instances, in a page. Each costs a search in the index, and messages that arrive meanwhile wait
 * until the page is read.
 */
const PAGE = 250;
/** How many due times one step sets at most. Messages that arrive meanwhile wait until the step is done, some 10 ms. */
const BOUND_AT_ONCE = 1_000;
/** How soon the scan tries again when the storage failed. */
const TRY_AGAIN_MS = 500;

export interface Found {
  /** A lane has pending deliveries. */
  lane(key: LaneKey): void;
  /** An instance has a delivery aside that is due at a time. */
  aside(instance_id: string, due_at: number): void;
  /** A page was read. */
  page(): void;
}

/** Repeats a read until it succeeds. */
type Read = <T>(page: () => Promise<T>) => Promise<T>;

/**
 * Finds pending deliveries in the table: after a start all of them, and later the deliveries that another node stored
 * without this node's knowledge.
 */
export class PendingScan {
  readonly #clock: Clock;
  readonly #wakes: TimerQueue;
  readonly #store: Store;
  readonly #onError: (error: unknown) => void;
  #stopped = false;

  constructor(clock: Clock, wakes: TimerQueue, store: Store, onError: (error: unknown) => void) {
    this.#clock = clock;
    this.#wakes = wakes;
    this.#store = store;
    this.#onError = onError;
  }

  /**
   * Finds all pending deliveries of partitions; rejects only after `stop`.
   *
   * @returns how many milliseconds the reads took, without the time in which the storage failed
   */
  async run(partitions: readonly Partition[], found: Found): Promise<number> {
    if (partitions.length === 0) return 0;
    let reading_ms = 0;
    const read: Read = async (page) => {
      const { value, took_ms } = await this.#persistently(page);
      reading_ms += took_ms;
      return value;
    };
    const only = numbersOf(partitions);
    await this.#findAside(only, found, read);
    let after: LaneKey | null = null;
    do {
      const key: LaneKey | null = after;
      const lanes: LaneKey[] = await read(() => this.#store.deliveries.pendingLanes(key, PAGE, only));
      for (const lane of lanes) found.lane(lane);
      found.page();
      after = lanes.at(-1) ?? null;
      if (lanes.length < PAGE) break;
    } while (!this.#stopped);
    return reading_ms;
  }

  /** Finds the pending deliveries aside; rejects only after `stop`. */
  async aside(partitions: readonly Partition[], found: Pick<Found, 'aside'>): Promise<void> {
    if (partitions.length === 0) return;
    await this.#findAside(numbersOf(partitions), found, async (page) => (await this.#persistently(page)).value);
  }

  async #findAside(only: number[] | undefined, found: Pick<Found, 'aside'>, read: Read): Promise<void> {
    let after: string | null = null;
    do {
      const last: string | null = after;
      const page: PendingAside[] = await read(() => this.#store.deliveries.pendingAside(last, PAGE, only));
      for (const { instance_id, next_at } of page) found.aside(instance_id, next_at);
      if (page.length < PAGE) break;
      after = page.at(-1)?.instance_id ?? null;
    } while (!this.#stopped);
  }

  /**
   * Sets the due times of deliveries aside to `latest_ms` where they are later: a process whose clock was ahead may
   * have written later times. Rejects only after `stop`.
   */
  async bound(partitions: readonly Partition[], latest_ms: number): Promise<void> {
    const only = numbersOf(partitions);
    let changed: number;
    do {
      const step = await this.#persistently(() => this.#store.deliveries.boundAside(latest_ms, BOUND_AT_ONCE, only));
      changed = step.value;
    } while (changed > 0 && !this.#stopped);
  }

  stop(): void {
    this.#stopped = true;
  }

  /**
   * Repeats a call until it succeeds: a scan must miss no pending delivery, also when the storage fails for a while.
   */
  async #persistently<T>(read: () => Promise<T>): Promise<{ value: T; took_ms: number }> {
    for (;;) {
      const from = this.#clock.now();
      try {
        return { value: await read(), took_ms: this.#clock.now() - from };
      } catch (error) {
        if (this.#stopped) throw error;
        this.#onError(error);
        await new Promise<void>((resolve) => this.#wakes.schedule(this.#clock.now() + TRY_AGAIN_MS, resolve));
      }
    }
  }
}

/** Undefined for a node without a cluster, which holds all partitions. */
function numbersOf(partitions: readonly Partition[]): number[] | undefined {
  return partitions[0]?.is_solo === true ? undefined : partitions.map(({ partition_no }) => partition_no);
}
