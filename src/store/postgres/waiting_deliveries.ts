/** Counts and cancels the deliveries that wait for an instance, in a meeting, or in one lane. */
import type { OwnerScope, Visibility } from '../../domain/access.ts';
import type { EndedInLane, LaneKey, Waiting } from '../contract/deliveries.ts';
import { EndedInLanes } from '../rows/ended_in_lanes.ts';
import { type Session, type Statement, statement } from './database.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';
import { CANCELLED } from './pending/pending_deliveries.ts';

const OF_INSTANCES = 'JOIN pending_deliveries d ON d.partition_no = s.partition_no AND d.instance_id = s.instance_id';

/** Every instance with pending deliveries in a meeting has a membership there, even if it has left. */
const IN_MEETING = `
  memberships p JOIN instances s ON s.instance_id = p.instance_id ${OF_INSTANCES} AND d.meeting_id = p.meeting_id
  WHERE p.meeting_id = $meeting_id`;
const IN_LANE = `${IN_MEETING} AND p.instance_id = $instance_id`;
const OF_INSTANCE = `instances s ${OF_INSTANCES} WHERE s.instance_id = $instance_id`;

interface Source {
  count: Statement;
  any: Statement;
  drop: Statement;
}

function sourceFrom(from: string): Source {
  const pending = `
    FROM ${from} AND d.message_no <= $up_to_no
      AND EXISTS (SELECT 1 FROM instances WHERE instances.instance_id = s.instance_id AND ${IS_OWNED})`;
  return {
    count: statement(`SELECT count(*) AS count FROM (SELECT 1 ${pending} LIMIT $most) found`),
    any: statement(`SELECT 1 ${pending} LIMIT 1`),
    drop: statement(`
      UPDATE deliveries SET state = 'cancelled', reason = 'dropped', next_attempt_at = NULL, settled_at = $wall_ms${CANCELLED}
      WHERE state = 'pending' AND delivery_no = ANY (ARRAY(SELECT d.delivery_no ${pending} LIMIT $limit))
      RETURNING instance_id, meeting_id`),
  };
}

const MEETING = sourceFrom(IN_MEETING);
const INSTANCE = sourceFrom(OF_INSTANCE);
const LANE = sourceFrom(IN_LANE);

/**
 * Counts pending deliveries, in lanes and aside, up to `most`.
 * @param up_to_no the last message_no that counts
 * @param owner_scope only deliveries to the instances of this owner; null or undefined: to all instances
 */
export async function countWaiting(
  session: Session,
  waiting: Waiting,
  up_to_no: number,
  most: number,
  owner_scope: OwnerScope | null | undefined,
): Promise<number> {
  const values = { ...keysOf(waiting), up_to_no, ...ownedBy(owner_scope), most };
  return (await session.one<{ count: number }>(sourceOf(waiting).count, values))!.count;
}

/**
 * Cancels pending deliveries with the reason `dropped`, at most `limit` of them.
 * @param up_to_no the last message_no that counts
 * @param owner_scope only deliveries to the instances of this owner; null or undefined: to all instances
 * @returns how many ended in each lane
 */
export async function dropWaiting(
  session: Session,
  waiting: Waiting,
  up_to_no: number,
  limit: number,
  wall_ms: number,
  owner_scope: OwnerScope | null | undefined,
): Promise<EndedInLane[]> {
  const dropped = new EndedInLanes();
  const values = { ...keysOf(waiting), up_to_no, ...ownedBy(owner_scope), wall_ms };
  const { any, drop } = sourceOf(waiting);
  let left = limit;
  // Others may settle some of the rows that a statement has found. Then it changes fewer rows than its limit, although
  // there are more.
  do {
    const rows = await session.all<LaneKey>(drop, { ...values, limit: left });
    for (const lane of rows) dropped.add(lane, 1);
    left -= rows.length;
  } while (left > 0 && (await session.one(any, values)) !== undefined);
  const { instance_id, meeting_id } = waiting;
  if (left === limit) return [];
  if (meeting_id !== undefined) session.messages.push({ kind: 'meeting', meeting_id });
  else session.messages.push({ kind: 'instance', instance_id: instance_id as string, lifts: false, requeued: true });
  return dropped.list();
}

/**
 * Deliveries to the instances that the caller owns, made since these instances were registered. Leaves out the meetings
 * that IN_MEETINGS counts.
 */
const OWNED = `
  instances s ${OF_INSTANCES}
  WHERE s.owner_key_id = $key_id::text AND s.instance_id = coalesce($owner_limit::text, s.instance_id) AND d.delivery_no >= s.first_no
    AND d.meeting_id <> ALL ($meeting_ids::text[])`;
const IN_MEETINGS = `
  memberships p JOIN instances s ON s.instance_id = p.instance_id ${OF_INSTANCES} AND d.meeting_id = p.meeting_id
  WHERE p.meeting_id = ANY ($meeting_ids::text[])`;

const PARTS = [OWNED, IN_MEETINGS].map(
  (from) => `SELECT count(*) AS pending, min(d.delivery_no) AS oldest_no FROM ${from}`,
);
const PENDING_OF = statement(`
  SELECT pending, (SELECT created_at FROM deliveries WHERE delivery_no = oldest_no) AS oldest_at
  FROM (SELECT sum(pending)::bigint AS pending, min(oldest_no) AS oldest_no FROM (${PARTS.join(' UNION ALL ')}) part) seen`);

/** The pending deliveries that a caller may see: how many they are, and when the oldest was made. */
export async function pendingOf(session: Session, { owner_scope, meeting_ids }: Visibility) {
  const values = {
    key_id: owner_scope?.key_id ?? null,
    owner_limit: owner_scope?.instance_id ?? null,
    meeting_ids,
  };
  return (await session.one<{ pending: number; oldest_at: number | null }>(PENDING_OF, values))!;
}

function sourceOf({ instance_id, meeting_id }: Waiting): Source {
  if (instance_id === undefined) return MEETING;
  return meeting_id === undefined ? INSTANCE : LANE;
}

function keysOf({ instance_id, meeting_id }: Waiting): Partial<LaneKey> {
  return { ...(instance_id !== undefined && { instance_id }), ...(meeting_id !== undefined && { meeting_id }) };
}
