import type { Visibility } from '../domain/access.ts';
import { INSTANCE_STATES } from '../domain/instance.ts';
import type { DeliveryStore } from '../store/contract/deliveries.ts';
import type { InstanceCounts, InstanceStore } from '../store/contract/instances.ts';
import type { Clock } from './clock.ts';

/** The most instances that one call of the store counts. That takes some milliseconds, so no other call waits long. */
const INSTANCES_AT_ONCE = 2_000;
/**
 * Counts are kept 19 times as long as it took to count. So all callers with equal rights together take at most 5 % of
 * the store's time.
 */
const KEPT_TIMES = 19;
/** The most callers with different rights whose counts are kept. */
const CALLERS_MAX = 200;

export interface CountsParts {
  clock: Clock;
  store: {
    instances: Pick<InstanceStore, 'count'>;
    deliveries: Pick<DeliveryStore, 'countPending' | 'oldestPending'>;
  };
}

/** The counts of the rows that a caller may see, at one time. */
export interface Counted {
  /** The wall clock's time when the count began. */
  counted_at: number;
  instances: InstanceCounts;
  pending: number;
  oldest_pending_at: number | null;
}

/**
 * Counts instances and pending deliveries. The longer a count took, the longer it is kept. So the store spends a small
 * share of its time on counting, even with many instances. Callers with equal rights share the kept count.
 */
export class Counts {
  readonly #clock: Clock;
  readonly #store: CountsParts['store'];
  readonly #kept = new Map<string, { counted: Promise<Counted>; until: number }>();

  constructor({ clock, store }: CountsParts) {
    this.#clock = clock;
    this.#store = store;
  }

  of(visibility: Visibility | null): Promise<Counted> {
    const caller = JSON.stringify(visibility);
    const kept = this.#kept.get(caller);
    if (kept !== undefined && this.#clock.now() < kept.until) return kept.counted;
    const began = this.#clock.now();
    const entry = { counted: this.#count(visibility), until: Infinity };
    this.#kept.delete(caller);
    this.#kept.set(caller, entry);
    if (this.#kept.size > CALLERS_MAX) this.#kept.delete(this.#kept.keys().next().value as string);
    const ended = (): void => {
      const now = this.#clock.now();
      entry.until = now + KEPT_TIMES * (now - began);
    };
    entry.counted.then(ended, () => (entry.until = 0));
    return entry.counted;
  }

  async #count(visibility: Visibility | null): Promise<Counted> {
    const { instances, deliveries } = this.#store;
    const counted_at = this.#clock.wall();
    const sum: InstanceCounts = { unknown: 0, up: 0, failing: 0, down: 0, off: 0, connected: 0 };
    let after: string | null = null;
    do {
      const { counts, next }: { counts: InstanceCounts; next: string | null } = await instances.count(
        after,
        INSTANCES_AT_ONCE,
        visibility,
      );
      for (const state of [...INSTANCE_STATES, 'connected'] as const) sum[state] += counts[state];
      after = next;
    } while (after !== null);
    const [pending, oldest_pending_at] = await Promise.all([
      deliveries.countPending(visibility),
      deliveries.oldestPending(visibility),
    ]);
    return { counted_at, instances: sum, pending, oldest_pending_at };
  }
}
