import type { Clock } from '../delivery/clock.ts';
import type { Engine } from '../delivery/engine.ts';
import type { AuditSubject } from '../domain/audit.ts';
import { changedEvent, registeredEvent, removedEvent, settledEvent } from '../feed/events.ts';
import type { Feed } from '../feed/feed.ts';
import {
  type InstancePatch,
  type InstanceRow,
  type InstanceStore,
  liftsBackoff,
  type Registration,
} from '../store/contract/instances.ts';
import type { Author } from './author.ts';
import { orReadAgain } from './in_doubt.ts';
import { orPartDone } from './part_done.ts';

/**
 * How many pending deliveries one transaction cancels at most, so that the deletion of an instance with very many of
 * them delays nobody.
 */
const CANCEL_BATCH = 2_000;

export interface InstanceChangesParts {
  store: { instances: Pick<InstanceStore, 'find' | 'heartbeat' | 'remove'> };
  engine: Pick<Engine, 'instanceChanged' | 'invalidateInstance' | 'removalStep' | 'instanceRemoved'>;
  feed: Pick<Feed, 'publish'>;
  clock: Clock;
}

export class InstanceChanges {
  readonly #parts: InstanceChangesParts;

  constructor(parts: InstanceChangesParts) {
    this.#parts = parts;
  }

  /** @throws Problem `instance_id_taken`, `quota_exceeded` */
  async register(
    author: Author,
    registration: Omit<Registration, 'owner_key_id'>,
  ): ReturnType<InstanceStore['register']> {
    const { engine, feed, clock } = this.#parts;
    const owned = { ...registration, owner_key_id: author.key_id };
    const registered = await this.#orReadAgain(
      registration.instance_id,
      author.storeFor().instances.register(owned, clock.wall(), author.owner_scope),
    );
    const { created, instance } = registered;
    engine.instanceChanged(instance, true);
    feed.publish(registeredEvent(instance, created, clock.wall()));
    return registered;
  }

  /** Changes the fields that `patch` has; null when there is no such instance. */
  async update(author: Author, instance_id: string, patch: InstancePatch): Promise<InstanceRow | null> {
    const { engine, feed, clock } = this.#parts;
    const { instances } = author.storeFor(handOver(patch));
    const patching = instances.patch(instance_id, patch, clock.wall(), author.owner_scope);
    const row = await this.#orReadAgain(instance_id, patching);
    if (row === null) return null;
    engine.instanceChanged(row, liftsBackoff(patch));
    feed.publish(changedEvent(row, givenFields(patch), clock.wall()));
    return row;
  }

  /**
   * Records a heartbeat. A heartbeat has no audit entry and no event, because every instance sends one each minute.
   * Null when there is no such instance.
   */
  async heartbeat({ owner_scope }: Author, instance_id: string): Promise<InstanceRow | null> {
    const { store, engine, clock } = this.#parts;
    const beating = store.instances.heartbeat(instance_id, clock.wall(), owner_scope);
    const row = await this.#orReadAgain(instance_id, beating);
    if (row !== null) engine.instanceChanged(row, true);
    return row;
  }

  /**
   * Makes `new_secret` the webhook secret; the old secret signs too for `overlap_ms`. Null when there is no such
   * instance.
   */
  async rotateSecret(
    author: Author,
    instance_id: string,
    new_secret: string,
    overlap_ms: number,
  ): Promise<InstanceRow | null> {
    const { engine, feed, clock } = this.#parts;
    const { instances } = author.storeFor();
    const rotating = instances.rotateSecret(instance_id, new_secret, overlap_ms, clock.wall(), author.owner_scope);
    const row = await this.#orReadAgain(instance_id, rotating);
    if (row === null) return null;
    engine.instanceChanged(row, false);
    feed.publish(changedEvent(row, ['webhook_secret'], clock.wall()));
    return row;
  }

  /**
   * Deletes an instance and cancels its pending deliveries. Returns whether the instance existed and is deleted now.
   *
   * @param lease_ended_at deletes the instance only if its lease had ended by this time; null: in any case
   */
  async remove(author: Author, instance_id: string, lease_ended_at: number | null = null): Promise<boolean> {
    const { store, engine, feed, clock } = this.#parts;
    let existed = false;
    let is_gone = false;
    const next = (): string | null => (existed ? 'repeat the call' : null);
    // The first step switches the instance off for good and writes the audit entry. The other steps complete the
    // removal.
    let step: Pick<InstanceStore, 'remove'> = author.storeFor().instances;
    for (let done = false; !done; step = store.instances) {
      const removing = step.remove(instance_id, CANCEL_BATCH, clock.wall(), author.owner_scope, lease_ended_at);
      const removed = await orPartDone(this.#orReadAgain(instance_id, removing), next());
      // For an instance of another owner, `remove` has done nothing.
      if (removed.existed) this.#removalStep(instance_id, removed.cancelled);
      existed ||= removed.existed;
      is_gone = removed.existed && removed.done;
      done = removed.done;
    }
    if (!existed) return false;
    if (!is_gone) {
      // Between two steps somebody renewed the lease, gave the instance to another owner, or completed the removal. In
      // the first two cases, the deliveries that are left stay pending.
      engine.invalidateInstance(instance_id);
      return (await orPartDone(store.instances.find(instance_id), next())) === null;
    }
    engine.instanceRemoved(instance_id);
    feed.publish(removedEvent(instance_id, clock.wall()));
    return true;
  }

  #removalStep(instance_id: string, cancelled: number): void {
    const { engine, feed, clock } = this.#parts;
    engine.removalStep(instance_id, cancelled);
    const settled = { instance_id, meeting_id: null, state: 'cancelled', reason: 'instance_deleted' } as const;
    if (cancelled > 0) feed.publish(settledEvent({ ...settled, deliveries: cancelled }, clock.wall()));
  }

  #orReadAgain<T>(instance_id: string, change: Promise<T>): Promise<T> {
    return orReadAgain(change, () => this.#parts.engine.invalidateInstance(instance_id));
  }
}

/** When an instance gets another owner, the audit entry has an action of its own, and names the new owner. */
function handOver({ owner_key_id }: InstancePatch): Partial<AuditSubject> {
  return owner_key_id === undefined ? {} : { action: 'instance.hand_over', details: { owner_key_id } };
}

function givenFields(patch: InstancePatch): string[] {
  return Object.entries(patch).flatMap(([name, value]) => (value === undefined ? [] : [name]));
}
