/** The transaction that adds a row checks the quotas, under a lock that only one transaction holds at a time. */
import {
  listsTooLong,
  quotaExceeded,
  roomBeside,
  SUBSCRIPTIONS_OF_KEY_MAX,
  tooManySubscriptions,
} from '../rows/quotas.ts';
import type { Registration } from '../contract/instances.ts';
import type { Quotas } from '../contract/quotas.ts';
import { type Session, type Statement, statement } from './database.ts';

/** Locks the row of the count: new instances are registered one after the other. */
const COUNT = statement('SELECT instance_count FROM instance_count FOR UPDATE');

/** Counts no further than the quota. */
const counted = (from: string): Statement =>
  statement(`SELECT count(*) AS count FROM (SELECT 1 FROM ${from} LIMIT $quota) found`);

const OF_KEY = counted('instances WHERE owner_key_id = $id');
const LEASED = counted('instances WHERE owner_key_id = $id AND lease_until IS NOT NULL');
const IN_MEETING = counted('memberships WHERE meeting_id = $id AND left_at IS NULL');
const OF_INSTANCE = counted('memberships WHERE instance_id = $id AND left_at IS NULL');

/** @throws Problem `quota_exceeded` when one more instance would be too many */
export async function assertRoomForInstance(
  session: Session,
  { max_instances, max_instances_per_key }: Quotas,
  { owner_key_id = null, lease_until = null }: Pick<Registration, 'owner_key_id' | 'lease_until'>,
): Promise<void> {
  if (max_instances === 0 && max_instances_per_key === 0 && lease_until === null) return;
  const instance_count = (await session.one<{ instance_count: number }>(COUNT))?.instance_count ?? 0;
  if (max_instances > 0 && instance_count >= max_instances) throw quotaExceeded('max_instances', max_instances);
  if (owner_key_id === null) return;
  if (lease_until !== null) {
    const subscriptions = await countOf(session, LEASED, owner_key_id, SUBSCRIPTIONS_OF_KEY_MAX);
    if (subscriptions >= SUBSCRIPTIONS_OF_KEY_MAX) throw tooManySubscriptions();
  }
  if (max_instances_per_key === 0) return;
  if ((await countOf(session, OF_KEY, owner_key_id, max_instances_per_key)) >= max_instances_per_key)
    throw quotaExceeded('max_instances_per_key', max_instances_per_key);
}

/**
 * The caller has locked the rows of the meeting and of the instance.
 *
 * @throws Problem `quota_exceeded` when the meeting or the instance has the most memberships that are allowed
 */
export async function assertRoomForMembership(
  session: Session,
  { max_instances_per_meeting, max_meetings_per_instance }: Quotas,
  meeting_id: string,
  instance_id: string,
): Promise<void> {
  if (
    max_instances_per_meeting > 0 &&
    (await countOf(session, IN_MEETING, meeting_id, max_instances_per_meeting)) >= max_instances_per_meeting
  )
    throw quotaExceeded('max_instances_per_meeting', max_instances_per_meeting);
  if (
    max_meetings_per_instance > 0 &&
    (await countOf(session, OF_INSTANCE, instance_id, max_meetings_per_instance)) >= max_meetings_per_instance
  )
    throw quotaExceeded('max_meetings_per_instance', max_meetings_per_instance);
}

const LISTS_BESIDE = statement(`
  SELECT coalesce(sum(octet_length(agent_ids)), 0) AS bytes FROM memberships
  WHERE meeting_id = $meeting_id AND left_at IS NULL AND instance_id <> $instance_id`);

/**
 * The caller has locked the row of the meeting.
 *
 * @throws Problem `quota_exceeded` when the lists of agents in the meeting would be too long with this one
 */
export async function assertRoomForAgents(
  session: Session,
  meeting_id: string,
  instance_id: string,
  list: string,
): Promise<void> {
  const room = roomBeside(list);
  if (room === null) return;
  const { bytes } = (await session.one<{ bytes: number }>(LISTS_BESIDE, { meeting_id, instance_id }))!;
  if (bytes > room) throw listsTooLong();
}

async function countOf(session: Session, from: Statement, id: string, quota: number): Promise<number> {
  return (await session.one<{ count: number }>(from, { id, quota }))?.count ?? 0;
}
