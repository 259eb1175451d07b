import { type Linger, NO_LINGER, LingerTimer } from '../../store/linger.ts';
import type { DeliverySettlement, HealthSettlement, LockedRows } from '../../store/contract/deliveries.ts';
import { StoreError, WHO_LOCKS } from '../../store/store_error.ts';
import type { Store } from '../../store/store.ts';
import type { Clock, Timer } from '../clock.ts';
import type { Observer } from '../observer.ts';
import type { Recipient } from '../lanes/recipient.ts';

/** The most results of attempts that are not written yet. When there are more, no new attempt starts. */
export const UNSETTLED_MAX = 4_000;
/** Results gather for at least this long before they are written, unless a batch is full or `flush` is called. */
const LINGER_MS = 3;
/** The most results in one batch. */
const BATCH_MAX = 2_000;
/**
 * The most instances in one batch. In the second after a wide message, 10,000 instances may have a new time of their
 * last success. If one transaction wrote all of these times, the other calls of the store would wait as long for it as
 * for the message itself.
 */
const INSTANCES_MAX = 500;
/**
 * How long the time of the last success waits before it joins a batch. If every batch wrote the row of an instance
 * again, PostgreSQL would need more and more time to find that row.
 */
const SUCCESS_LINGER_MS = 1_000;
const RETRY_MS = 500;
/** How often the node tries again to write results whose rows another session of the database has locked. */
const LOCKED_AGAIN_MS = 500;

const rowsLocked = (): StoreError =>
  new StoreError(
    'ROWS_LOCKED',
    `Another session of the database has locked rows of deliveries or instances for over a second. Their results are kept, and written when the session ends its transaction; the other results are written now. ${WHO_LOCKS}`,
  );

/**
 * The results of attempts for deliveries and instances, until they are on disk. Nothing is dropped: when the storage
 * fails, the batch is tried again until it succeeds.
 */
export class Settlements {
  readonly #clock: Clock;
  readonly #store: Store;
  readonly #observer: Pick<Observer, 'storageFailed'>;
  readonly #onWritten: () => void;
  #deliveries: DeliverySettlement[] = [];
  #instances = new Set<Recipient>();
  /** Instances whose only change is the time of their last success. */
  readonly #succeeded = new Set<Recipient>();
  /**
   * What the last batch could not write, because its rows were locked. Each batch tries it again, in the same order.
   */
  #locked: { deliveries: DeliverySettlement[]; instances: Set<Recipient>; instance_ids: Set<string> } = nothingLocked();
  #writing: Promise<void> | null = null;
  #writing_count = 0;
  /**
   * How many changes were added, and how many of them are on disk or in `#locked`. Changes are written in the order in
   * which they were added, so two numbers are enough.
   */
  #added = { deliveries: 0, instances: 0 };
  #written = { deliveries: 0, instances: 0 };
  readonly #linger_timer = new LingerTimer();
  readonly #linger: Linger;
  #timer: Timer | null = null;
  #locked_timer: Timer | null = null;
  #success_timer: Timer | null = null;

  constructor(clock: Clock, store: Store, observer: Pick<Observer, 'storageFailed'>, onWritten: () => void) {
    this.#clock = clock;
    this.#store = store;
    this.#linger = (store.lingers ?? NO_LINGER).settle;
    this.#observer = observer;
    this.#onWritten = onWritten;
  }

  /** Settlements that are not on disk yet. */
  get unsettled(): number {
    return this.#deliveries.length + this.#locked.deliveries.length + this.#writing_count;
  }

  add(settlement: DeliverySettlement): void {
    // The settlement is a copy: the delivery itself changes with its next attempt.
    this.#deliveries.push(settlement);
    this.#added.deliveries++;
    this.#schedule();
  }

  /** The health of an instance changed. The batch takes the health that the instance has when the batch is written. */
  markDirty(instance: Recipient): void {
    instance.registration.health_dirty = true;
    this.#succeeded.delete(instance);
    if (!this.#instances.has(instance)) this.#added.instances++;
    this.#instances.add(instance);
    this.#schedule();
  }

  /** An instance without failures had one more success. The time of this success joins a batch within a second. */
  markSucceeded(instance: Recipient): void {
    if (this.#instances.has(instance)) return;
    instance.registration.health_dirty = true;
    this.#success_timer ??= this.#clock.after(SUCCESS_LINGER_MS, () => this.#markAllSucceeded());
    this.#succeeded.add(instance);
  }

  #markAllSucceeded(): void {
    // A timer that is left would keep a stopping process alive for another second.
    this.#success_timer?.cancel();
    this.#success_timer = null;
    for (const instance of this.#succeeded) this.markDirty(instance);
  }

  /** Resolves when all changes so far are on disk, the times of successes included. */
  flushAll(): Promise<void> {
    this.#markAllSucceeded();
    return this.flush();
  }

  /**
   * Resolves when everything that was added so far is on disk. Does not wait for later additions: under load, additions
   * never end.
   *
   * @param of_instance does not wait for the locked rows of other instances than this one
   */
  async flush(of_instance: string | null = null): Promise<void> {
    const { deliveries, instances } = this.#added;
    while (this.#written.deliveries < deliveries || this.#written.instances < instances) {
      this.#writing ??= this.#write();
      await this.#writing;
    }
    const isLocked = (): boolean => {
      const { instance_ids } = this.#locked;
      return of_instance === null ? instance_ids.size > 0 : instance_ids.has(of_instance);
    };
    while (isLocked()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#clock.after(LOCKED_AGAIN_MS, resolve);
      await promise;
      this.#writing ??= this.#write();
      await this.#writing;
    }
  }

  #schedule(): void {
    if (this.#writing !== null) return;
    if (this.#deliveries.length >= BATCH_MAX) this.#writing = this.#write();
    else if (this.#timer === null) {
      const delay_ms = this.#linger_timer.delayMs(this.#linger, this.#deliveries.length, this.#clock.now());
      this.#timer = this.#clock.after(Math.max(LINGER_MS, delay_ms), () => {
        this.#timer = null;
        this.#writing ??= this.#write();
      });
    }
  }

  /** The instances of the next batch: those that changed first. */
  #takeInstances(): Set<Recipient> {
    const all = this.#instances;
    if (all.size <= INSTANCES_MAX) {
      this.#instances = new Set();
      return all;
    }
    const taken = new Set<Recipient>();
    for (const instance of all) {
      all.delete(instance);
      if (taken.add(instance).size === INSTANCES_MAX) break;
    }
    return taken;
  }

  async #write(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    this.#locked_timer?.cancel();
    const again = this.#locked;
    const added_deliveries = this.#deliveries.splice(0, BATCH_MAX);
    const instances = this.#takeInstances();
    const added = { deliveries: added_deliveries.length, instances: instances.size };
    // The earlier result of a delivery comes first.
    const deliveries = [...again.deliveries, ...added_deliveries];
    for (const instance of again.instances) instances.add(instance);
    this.#writing_count = added.deliveries;
    this.#linger_timer.onFlush(added.deliveries, this.#clock.now());
    for (;;) {
      try {
        // Each try writes the current health: between two tries, a new registration may have ended a back-off.
        const locked = await this.#store.deliveries.settle(deliveries, healthSettlementsOf(instances));
        if (locked !== null && again.instance_ids.size === 0) this.#observer.storageFailed(rowsLocked());
        this.#locked = locked === null ? nothingLocked() : lockedOf(locked, deliveries, instances);
        break;
      } catch (error) {
        this.#observer.storageFailed(error);
        await new Promise<void>((resolve) => void this.#clock.after(RETRY_MS, resolve));
      }
    }
    for (const instance of instances) {
      if (this.#instances.has(instance) || this.#succeeded.has(instance)) continue;
      if (this.#locked.instances.has(instance)) continue;
      instance.registration.health_dirty = false;
      instance.registration.gone_as_of = null;
    }
    this.#written.deliveries += added.deliveries;
    this.#written.instances += added.instances;
    this.#writing_count = 0;
    this.#writing = null;
    if (this.#deliveries.length > 0 || this.#instances.size > 0) this.#schedule();
    if (this.#locked.instance_ids.size > 0) {
      this.#locked_timer = this.#clock.after(LOCKED_AGAIN_MS, () => void (this.#writing ??= this.#write()));
    }
    this.#onWritten();
  }
}

function nothingLocked() {
  return { deliveries: [], instances: new Set<Recipient>(), instance_ids: new Set<string>() };
}

/** The part of a batch whose rows are locked. */
function lockedOf(locked: LockedRows, deliveries: readonly DeliverySettlement[], instances: Iterable<Recipient>) {
  const delivery_ids = new Set(locked.deliveries.map(({ delivery_id }) => delivery_id));
  const instance_ids = new Set(locked.instance_ids);
  return {
    deliveries: deliveries.filter(({ delivery_id }) => delivery_ids.has(delivery_id)),
    instances: new Set([...instances].filter(({ instance_id }) => instance_ids.has(instance_id))),
    instance_ids: new Set([...locked.instance_ids, ...locked.deliveries.map(({ instance_id }) => instance_id)]),
  };
}

/**
 * Leaves out instances that this node dropped: the id of a deleted instance may belong to another registration by now.
 */
function healthSettlementsOf(instances: Iterable<Recipient>): HealthSettlement[] {
  const settlements: HealthSettlement[] = [];
  for (const { instance_id, registration, dropped, partition } of instances) {
    const { target, health, gone_as_of } = registration;
    if (target === null || dropped) continue;
    settlements.push({ ...health, instance_id, webhook_url: target.url, gone_as_of, epoch: partition.epoch });
  }
  return settlements;
}
