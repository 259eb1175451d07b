import type { DeliverySettlement, HealthSettlement, Store } from '../store/store.ts';
import type { Clock } from './clock.ts';
import type { Observer } from './engine.ts';
import type { InstanceLanes } from './lane.ts';

/** How long results gather before they are written. */
const LINGER_MS = 3;
const BATCH_MAX = 2_000;
const RETRY_MS = 500;

/**
 * What attempts made of deliveries and instances, on its way to the disk. Nothing is dropped: when the storage fails,
 * the batch is tried again until it succeeds.
 */
export class Settlements {
  readonly #clock: Clock;
  readonly #store: Store;
  readonly #observer: Pick<Observer, 'storageFailed'>;
  readonly #onWritten: () => void;
  #deliveries: DeliverySettlement[] = [];
  #instances = new Set<InstanceLanes>();
  #writing: Promise<void> | null = null;
  #writing_count = 0;
  #scheduled = false;

  constructor(clock: Clock, store: Store, observer: Pick<Observer, 'storageFailed'>, onWritten: () => void) {
    this.#clock = clock;
    this.#store = store;
    this.#observer = observer;
    this.#onWritten = onWritten;
  }

  /** Settlements that are not on disk yet. */
  get unsettled(): number {
    return this.#deliveries.length + this.#writing_count;
  }

  add(settlement: DeliverySettlement): void {
    // A copy of the list as it is now: the delivery goes on.
    this.#deliveries.push(settlement);
    this.#schedule();
  }

  /** The health of an instance changed; what is written is what it is then. */
  touch(instance: InstanceLanes): void {
    this.#instances.add(instance);
    this.#schedule();
  }

  /** Resolves when everything added so far is on disk. */
  async written(): Promise<void> {
    while (this.#writing !== null || this.#deliveries.length > 0 || this.#instances.size > 0) {
      this.#writing ??= this.#write();
      await this.#writing;
    }
  }

  #schedule(): void {
    if (this.#scheduled || this.#writing !== null) return;
    this.#scheduled = true;
    this.#clock.after(LINGER_MS, () => {
      this.#scheduled = false;
      this.#writing ??= this.#write();
    });
  }

  async #write(): Promise<void> {
    const deliveries = this.#deliveries.splice(0, BATCH_MAX);
    const healths = [...this.#instances].map(healthSettlementOf);
    this.#instances.clear();
    this.#writing_count = deliveries.length;
    for (;;) {
      try {
        await this.#store.deliveries.settle(deliveries, healths);
        break;
      } catch (error) {
        this.#observer.storageFailed(error);
        await new Promise<void>((resolve) => void this.#clock.after(RETRY_MS, resolve));
      }
    }
    this.#writing_count = 0;
    this.#writing = null;
    if (this.#deliveries.length > 0 || this.#instances.size > 0) this.#schedule();
    this.#onWritten();
  }
}

function healthSettlementOf(instance: InstanceLanes): HealthSettlement {
  const { health, gone, instance_id } = instance;
  instance.health_dirty = false;
  instance.gone = false;
  return { ...health, instance_id, gone };
}
