import type { Clock, Timer } from '../delivery/clock.ts';
import type { Expiry } from '../delivery/expiry.ts';
import type { Instance } from '../domain/instance.ts';
import type { InstanceStore } from '../store/contract/instances.ts';
import type { Store } from '../store/store.ts';
import type { Author } from './author.ts';
import type { InstanceChanges } from './instances.ts';

/**
 * When a key ends, everything that uses the key ends within a second. So the leases of its subscriptions end then too.
 * When a key expires, only this timer calls `look`. One look reads an index that has only the leases.
 */
const LOOK_EVERY_MS = 500;
/**
 * The `lease_until` that a revocation, or a rotation without overlap, writes for every subscription of the key.
 */
const LEASE_REVOKED = 0;
/** The most instances that are removed before the table is read again. */
const REMOVED_MAX = 100;

export interface SubscriptionLeasesParts {
  store: { instances: Pick<InstanceStore, 'endedLeases' | 'find'> } & Pick<Store, 'audited' | 'audit'>;
  instances: Pick<InstanceChanges, 'remove'>;
  clock: Clock;
  expiry: Pick<Expiry, 'heldAt'>;
  /** Called with an instance that was removed because its key was revoked, or rotated without overlap. */
  onRevoked: (instance: Instance) => Promise<void>;
  onError: (error: unknown) => void;
}

/** Removes instances whose lease has ended: subscriptions that nobody renewed, or whose token ended. */
export class SubscriptionLeases {
  readonly #parts: SubscriptionLeasesParts;
  #timer: Timer | null = null;
  #looking: Promise<void> | null = null;
  #again = false;
  #is_stopped = false;

  constructor(parts: SubscriptionLeasesParts) {
    this.#parts = parts;
  }

  start(): void {
    if (this.#is_stopped) return;
    this.#timer = this.#parts.clock.after(LOOK_EVERY_MS, () => {
      this.look();
      this.start();
    });
  }

  /** Removes at once the instances whose lease has ended. When a round is in progress, another round follows it. */
  look(): void {
    if (this.#is_stopped) return;
    if (this.#looking !== null) {
      this.#again = true;
      return;
    }
    this.#looking = this.#remove()
      .catch(this.#parts.onError)
      .then(() => {
        this.#looking = null;
        if (!this.#again) return;
        this.#again = false;
        this.look();
      });
  }

  async #remove(): Promise<void> {
    const { store, instances, clock, expiry, onRevoked, onError } = this.#parts;
    const wall_ms = clock.wall();
    // A clock that is wrong at a start ends no lease.
    const believed_ms = wall_ms - expiry.heldAt(clock.now());
    const notRead = (error: unknown): null => {
      onError(error);
      return null;
    };
    const ended = await store.instances.endedLeases(believed_ms, REMOVED_MAX);
    for (const instance_id of ended) {
      if (this.#is_stopped) return;
      // Also removes a row that cannot be read. Otherwise that row would end every round, and nothing would remove the
      // rows after it.
      const instance = await store.instances.find(instance_id).catch(notRead);
      const is_removed = await instances.remove(this.#authorOf(instance_id), instance_id, wall_ms);
      if (is_removed && instance?.lease_until === LEASE_REVOKED) onRevoked(instance).catch(onError);
    }
    this.#again ||= ended.length === REMOVED_MAX;
  }

  #authorOf(instance_id: string): Author {
    const { store, clock } = this.#parts;
    const subject = {
      principal: 'service',
      address: null,
      action: 'instance.delete',
      target_kind: 'instance',
      target_id: instance_id,
      details: { lease_ended: true },
    } as const;
    return {
      key_id: null,
      owner_scope: null,
      storeFor: (more) => store.audited({ subject: { ...subject, ...more }, wall_ms: clock.wall() }),
      assertStanding() {},
      record: async () => void (await store.audit.append({ ...subject, outcome: 'done', code: null }, clock.wall())),
    };
  }

  /** Begins no further removal. */
  stop(): void {
    this.#is_stopped = true;
    this.#timer?.cancel();
  }

  /** Resolves when the removal in progress has ended. With a database that does not respond, this may take long. */
  async ended(): Promise<void> {
    await this.#looking;
  }
}
