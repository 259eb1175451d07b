/** Rows that tests of the store write. */
import type { DeliverySettlement, PrunePlace, QueuedDelivery } from '../../src/store/contract/deliveries.ts';
import type { Registration } from '../../src/store/contract/instances.ts';
import type { NewMessage } from '../../src/store/contract/messages.ts';
import type { Store } from '../../src/store/store.ts';
import { SECRET } from './node.ts';

export const WALL = 1_767_225_600_000;
export const NEVER = WALL * 2;

export function register(
  store: Store,
  instance_id: string,
  wall_ms = WALL,
  changes: Partial<Pick<Registration, 'lease_until' | 'owner_key_id' | 'webhook_secret'>> = {},
) {
  return store.instances.register(
    {
      instance_id,
      instance_name: `name of ${instance_id}`,
      agent_ids: ['a'],
      webhook_url: `http://${instance_id}.test/`,
      webhook_headers: undefined,
      webhook_secret: undefined,
      new_secret: SECRET,
      success_statuses: undefined,
      ...changes,
    },
    wall_ms,
  );
}

export async function meeting(store: Store, meeting_id: string, ...instance_ids: string[]): Promise<void> {
  for (const instance_id of instance_ids) {
    if ((await store.instances.get(instance_id)) === null) await register(store, instance_id);
    await store.meetings.join(meeting_id, instance_id, ['a'], WALL);
  }
}

export function newMessage(meeting_id: string, changes: Partial<NewMessage> = {}): NewMessage {
  return {
    meeting_id,
    message: '{}',
    timestamp: '',
    target_agents: null,
    origin: null,
    trace: null,
    idempotency: null,
    wall_ms: WALL,
    expires_at: NEVER,
    ...changes,
  };
}

export function messages(meeting_id: string, count: number, changes: Partial<NewMessage> = {}): NewMessage[] {
  return Array.from({ length: count }, () => newMessage(meeting_id, changes));
}

export async function lane(store: Store, instance_id: string, meeting_id: string): Promise<QueuedDelivery[]> {
  return (await store.deliveries.loadLanes([{ instance_id, meeting_id, after_seq: 0, limit: 100_000 }]))[0] ?? [];
}

export function settled(delivery: QueuedDelivery, changes: Partial<DeliverySettlement> = {}): DeliverySettlement {
  const { delivery_id, expires_at, answered_badly } = delivery;
  return {
    delivery_id,
    expires_at,
    answered_badly,
    state: 'delivered',
    reason: null,
    attempt_count: 1,
    attempts: '[]',
    next_attempt_at: null,
    aside: false,
    settled_at: WALL,
    epoch: 0,
    ...changes,
  };
}

/** Makes one step of `prune` from the oldest rows on. @returns how many rows it removed */
export async function prune(
  store: Pick<Store, 'deliveries'>,
  before: Parameters<Store['deliveries']['prune']>[0],
  limit = 500,
): Promise<number> {
  return (await store.deliveries.prune(before, limit, Infinity, null)).removed;
}

/** Prunes in small steps, as maintenance does, until all old rows were checked. Returns how many it removed. */
export async function prunedInSteps(
  store: Pick<Store, 'deliveries'>,
  before: Parameters<Store['deliveries']['prune']>[0],
): Promise<number> {
  let removed = 0;
  let after: PrunePlace | null = null;
  do {
    const step: { removed: number; next: PrunePlace | null } = await store.deliveries.prune(before, 500, 0, after);
    removed += step.removed;
    after = step.next;
  } while (after !== null);
  return removed;
}
