/** Changes of the registry, each with what the engine and the live feed have to hear of it. */
import type { OwnerScope } from '../domain/access.ts';
import type { AuditedStore } from '../store/store.ts';
import type { InstanceStore } from '../store/contract/instances.ts';
import { registeredEvent, removedEvent, settledEvent } from '../feed/events.ts';
import type { HttpContext } from './context.ts';

type RegistryParts = Pick<HttpContext, 'store' | 'engine' | 'feed' | 'clock'>;

/** Pending deliveries cancelled in one transaction, so that deleting an instance with many holds nobody up. */
const CANCEL_BATCH = 2_000;

/** @param instances of the store that leaves an entry in the audit log */
export async function registerInstance(
  { engine, feed, clock }: Omit<RegistryParts, 'store'>,
  instances: AuditedStore['instances'],
  registration: Parameters<InstanceStore['register']>[0],
  owner_scope: OwnerScope | null,
): ReturnType<InstanceStore['register']> {
  const registered = await instances.register(registration, clock.wall(), owner_scope);
  const { created, instance } = registered;
  engine.instanceChanged(instance, true);
  feed.publish(registeredEvent(instance, created, clock.wall()));
  return registered;
}

/**
 * Whether there was such an instance; what is pending for it is cancelled.
 *
 * @param instances of the store that leaves an entry in the audit log
 */
export async function removeInstance(
  { store, engine, feed, clock }: RegistryParts,
  instances: AuditedStore['instances'],
  instance_id: string,
  owner_scope: OwnerScope | null,
): Promise<boolean> {
  let existed = false;
  let cancelled = 0;
  // The first step switches it off for good; the others are part of that.
  let step: Pick<InstanceStore, 'remove'> = instances;
  for (let done = false; !done; step = store.instances) {
    const removed = await step.remove(instance_id, CANCEL_BATCH, clock.wall(), owner_scope).catch((error: unknown) => {
      // It may have been done all the same.
      engine.invalidateInstance(instance_id);
      throw error;
    });
    // What is not the caller's goes on undisturbed.
    if (removed.existed) engine.invalidateInstance(instance_id);
    existed ||= removed.existed;
    cancelled += removed.cancelled;
    done = removed.done;
  }
  if (!existed) return false;
  engine.instanceRemoved(instance_id, cancelled);
  const settled = { instance_id, meeting_id: null, state: 'cancelled', reason: 'instance_deleted' } as const;
  if (cancelled > 0) feed.publish(settledEvent({ ...settled, deliveries: cancelled }, clock.wall()));
  feed.publish(removedEvent(instance_id, clock.wall()));
  return true;
}
