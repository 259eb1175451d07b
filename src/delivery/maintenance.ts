import { type ExpiredInLane, IDEMPOTENCY_MS, type LaneKey, type Store } from '../store/store.ts';
import type { Clock, Timer } from './clock.ts';
import { restAfter } from './pace.ts';

export interface MaintenanceSettings {
  retention_deliveries_ms: number;
  retention_messages_ms: number;
}

export interface MaintenanceObserver {
  /** Deliveries failed because their time was up. */
  expired(deliveries: ExpiredInLane[]): void;
  /** A round failed; the next one tries again. */
  failed(error: unknown): void;
}

const INTERVAL_MS = 60_000;
/** Small steps, so that what arrives meanwhile does not wait. */
const LANES_PER_STEP = 500;
const ROWS_PER_STEP = 500;

/** Fails what nobody could be reached for in time, and removes what was kept long enough; once a minute, unless that takes long. */
export class Maintenance {
  readonly #clock: Clock;
  readonly #store: Store;
  readonly #settings: MaintenanceSettings;
  readonly #observer: MaintenanceObserver;
  readonly #isMine: () => boolean;
  #timer: Timer | null = null;
  /** How long the last look for what has expired took. */
  #expiring_ms = 0;
  #stopped = false;

  /** @param isMine whether it is this node's turn: one of a cluster does it for all */
  constructor(
    clock: Clock,
    store: Store,
    settings: MaintenanceSettings,
    observer: MaintenanceObserver,
    isMine: () => boolean = () => true,
  ) {
    this.#isMine = isMine;
    this.#clock = clock;
    this.#store = store;
    this.#settings = settings;
    this.#observer = observer;
  }

  start(): void {
    this.#timer = this.#clock.after(restAfter(this.#expiring_ms, INTERVAL_MS), () => void this.#tick());
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  async #tick(): Promise<void> {
    try {
      if (this.#isMine()) await this.run();
    } catch (error) {
      this.#observer.failed(error);
    }
    if (!this.#stopped) this.start();
  }

  /** One round. */
  async run(): Promise<void> {
    const from = this.#clock.now();
    let after: LaneKey | null = null;
    do {
      const step = await this.#store.deliveries.expire(after, LANES_PER_STEP, this.#clock.now(), this.#clock.wall());
      after = step.next;
      if (step.expired.length > 0) this.#observer.expired(step.expired);
    } while (after !== null && !this.#stopped);
    this.#expiring_ms = this.#clock.now() - from;

    const wall_ms = this.#clock.wall();
    const before = {
      deliveries_ms: wall_ms - this.#settings.retention_deliveries_ms,
      messages_ms: wall_ms - this.#settings.retention_messages_ms,
      idempotency_ms: wall_ms - IDEMPOTENCY_MS,
    };
    let removed: number;
    do removed = await this.#store.deliveries.prune(before, ROWS_PER_STEP);
    while (removed > 0 && !this.#stopped);
  }
}
