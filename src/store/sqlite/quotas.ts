/** The transaction that adds a row checks the quotas. So two transactions together cannot exceed them. */
import {
  listsTooLong,
  quotaExceeded,
  roomBeside,
  SUBSCRIPTIONS_OF_KEY_MAX,
  tooManySubscriptions,
} from '../rows/quotas.ts';
import type { Registration } from '../contract/instances.ts';
import type { Quotas } from '../contract/quotas.ts';
import type { Database } from './database.ts';

/** Counts no further than the quota. */
const counted = (from: string): string => `SELECT count(*) AS count FROM (SELECT 1 FROM ${from} LIMIT ?)`;

const OF_KEY = counted('instances WHERE owner_key_id = ?');
const LEASED = counted('instances WHERE owner_key_id = ? AND lease_until IS NOT NULL');
const IN_MEETING = counted('memberships WHERE meeting_id = ? AND left_at IS NULL');
const OF_INSTANCE = counted('memberships WHERE instance_id = ? AND left_at IS NULL');

/** @throws Problem `quota_exceeded` when one more instance would be too many */
export function assertRoomForInstance(
  db: Database,
  { max_instances, max_instances_per_key }: Quotas,
  { owner_key_id = null, lease_until = null }: Pick<Registration, 'owner_key_id' | 'lease_until'>,
): void {
  if (max_instances > 0) {
    const { instance_count } = db.prepare('SELECT instance_count FROM this_file').get() as { instance_count: number };
    if (instance_count >= max_instances) throw quotaExceeded('max_instances', max_instances);
  }
  if (owner_key_id === null) return;
  if (lease_until !== null && countOf(db, LEASED, owner_key_id, SUBSCRIPTIONS_OF_KEY_MAX) >= SUBSCRIPTIONS_OF_KEY_MAX)
    throw tooManySubscriptions();
  if (max_instances_per_key === 0) return;
  if (countOf(db, OF_KEY, owner_key_id, max_instances_per_key) >= max_instances_per_key)
    throw quotaExceeded('max_instances_per_key', max_instances_per_key);
}

/** @throws Problem `quota_exceeded` when the meeting or the instance has the most memberships that are allowed */
export function assertRoomForMembership(
  db: Database,
  { max_instances_per_meeting, max_meetings_per_instance }: Quotas,
  meeting_id: string,
  instance_id: string,
): void {
  if (
    max_instances_per_meeting > 0 &&
    countOf(db, IN_MEETING, meeting_id, max_instances_per_meeting) >= max_instances_per_meeting
  )
    throw quotaExceeded('max_instances_per_meeting', max_instances_per_meeting);
  if (
    max_meetings_per_instance > 0 &&
    countOf(db, OF_INSTANCE, instance_id, max_meetings_per_instance) >= max_meetings_per_instance
  )
    throw quotaExceeded('max_meetings_per_instance', max_meetings_per_instance);
}

const LISTS_BESIDE = `
  SELECT coalesce(sum(octet_length(agent_ids)), 0) AS bytes FROM memberships
  WHERE meeting_id = ? AND left_at IS NULL AND instance_id <> ?`;

/** @throws Problem `quota_exceeded` when the lists of agents in the meeting would be too long with this one */
export function assertRoomForAgents(db: Database, meeting_id: string, instance_id: string, list: string): void {
  const room = roomBeside(list);
  if (room === null) return;
  const { bytes } = db.prepare(LISTS_BESIDE).get(meeting_id, instance_id) as { bytes: number };
  if (bytes > room) throw listsTooLong();
}

function countOf(db: Database, sql: string, id: string, limit: number): number {
  return (db.prepare(sql).get(id, limit) as { count: number }).count;
}
