import type { AsidePlace, DeliveryStore } from '../../store/contract/deliveries.ts';
import type { Store } from '../../store/store.ts';
import type { Dispatcher } from '../attempts/dispatcher.ts';
import type { Settlements } from '../attempts/settlements.ts';
import type { Clock } from '../clock.ts';
import type { TimerQueue } from '../timer_queue.ts';
import { laneDeliveryOf } from './lane_delivery.ts';
import { LANE_PAGE } from './lane_loader.ts';
import type { LaneMemory } from './lane_memory.ts';
import type { Recipient } from './recipient.ts';

/** How soon due deliveries are read again, after a read that returned only deliveries that must wait. */
const PUT_OFF_MS = 1_000;

type AsidePage = Awaited<ReturnType<DeliveryStore['loadAside']>>;

export interface AsideDeliveriesParts {
  clock: Clock;
  timers: TimerQueue;
  store: Store;
  settlements: Settlements;
  memory: LaneMemory;
  dispatcher: Dispatcher;
  /** The latest time at which a delivery written now can be due. */
  latestDue: () => number;
}

/**
 * The deliveries that went aside. Each of them is on disk until it is due. Then an attempt on it is made again. For
 * each recipient, memory has the time at which the next delivery aside is due (`aside_due_at`). At that time a page of
 * due deliveries is read into the lane `aside`, which blocks no other lane. While this lane has a backlog, it has due
 * deliveries that are not read yet.
 */
export class AsideDeliveries {
  readonly #clock: Clock;
  readonly #timers: TimerQueue;
  readonly #store: Store;
  readonly #settlements: Settlements;
  readonly #memory: LaneMemory;
  readonly #dispatcher: Dispatcher;
  readonly #latestDue: () => number;

  constructor({ clock, timers, store, settlements, memory, dispatcher, latestDue }: AsideDeliveriesParts) {
    this.#clock = clock;
    this.#timers = timers;
    this.#store = store;
    this.#settlements = settlements;
    this.#memory = memory;
    this.#dispatcher = dispatcher;
    this.#latestDue = latestDue;
  }

  /** A delivery aside is due at a time. */
  schedule(recipient: Recipient, due_at: number): void {
    if (recipient.aside_due_at !== null && recipient.aside_due_at <= due_at) return;
    recipient.aside_due_at = due_at;
    this.check(recipient);
  }

  /**
   * All deliveries that were read must wait: their meetings are paused by now, or earlier attempts on them are in
   * flight. The next read would find them again, so it waits a little.
   */
  putOff(recipient: Recipient): void {
    const { aside_due_at } = recipient;
    if (aside_due_at !== null) recipient.aside_due_at = Math.max(aside_due_at, this.#clock.now() + PUT_OFF_MS);
    this.check(recipient);
  }

  /**
   * Starts a read of due deliveries, now or when the next delivery is due. Starts no read while memory has due
   * deliveries: `check` is called again after the last of them.
   */
  check(recipient: Recipient): void {
    const due_at = recipient.aside_due_at;
    if (recipient.dropped || due_at === null) return;
    const lane = recipient.aside;
    if (lane.queue.length > 0 || lane.isBusy || lane.backlog !== null) return;
    if (due_at > this.#clock.now()) {
      this.#timers.schedule(due_at, () => {
        this.check(recipient);
        this.#dispatcher.run();
      });
      return;
    }
    lane.spill();
    this.#dispatcher.offer(recipient, lane);
  }

  /**
   * Reads the due deliveries. Earlier results are written first, because otherwise deliveries that are settled already
   * would be read again.
   */
  async load(recipient: Recipient): Promise<void> {
    const lane = recipient.aside;
    const { generation } = lane;
    lane.begin('loading');
    lane.backlog = null;
    recipient.loads++;
    // From here on `schedule` may note a delivery that becomes due; the end of the read keeps that note.
    recipient.aside_due_at = null;
    try {
      await this.#settlements.flush(recipient.instance_id);
      const limit = this.#memory.isFull ? 1 : LANE_PAGE;
      const now = this.#clock.now();
      const page = this.#read(recipient, generation, now, limit);
      const { deliveries, next_at } = await page.finally(() => recipient.loads--);
      if (recipient.dropped) return;
      lane.end();
      if (lane.generation !== generation) this.schedule(recipient, now);
      else {
        const latest_due = this.#latestDue();
        for (const row of deliveries) this.#memory.appendRead(lane, laneDeliveryOf(row, latest_due));
      }
      if (next_at !== null) this.schedule(recipient, next_at);
      this.check(recipient);
      this.#dispatcher.wake(recipient, lane);
    } catch (error) {
      lane.end();
      // Keeps the recipient in memory until the next try.
      recipient.aside_due_at ??= this.#clock.now();
      this.#dispatcher.retryLater(error, () => {
        this.schedule(recipient, this.#clock.now());
        // Repeats the read. When due deliveries were noted while the lane was busy, `schedule` changes nothing, and
        // `check` starts the read.
        this.check(recipient);
        this.#dispatcher.offer(recipient, lane);
      });
    }
  }

  /**
   * Reads until it finds a due delivery, or has passed all deliveries of paused meetings. Stops when the lane was
   * invalidated during a read, because `load` then reads again.
   */
  async #read(recipient: Recipient, generation: number, now: number, limit: number) {
    let after: AsidePlace | null = null;
    for (;;) {
      const page: AsidePage = await this.#store.deliveries.loadAside(recipient.instance_id, now, limit, after);
      const is_stale = recipient.dropped || recipient.aside.generation !== generation;
      if (page.next === null || is_stale) return page;
      after = page.next;
    }
  }
}
