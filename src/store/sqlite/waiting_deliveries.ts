/** Counts and cancels the deliveries that wait for an instance, in a meeting, or in one lane. */
import type { OwnerScope, Visibility } from '../../domain/access.ts';
import type { EndedInLane, LaneKey, Waiting } from '../contract/deliveries.ts';
import { EndedInLanes } from '../rows/ended_in_lanes.ts';
import type { Database } from './database.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';

/** Where deliveries are pending: in lanes (0) and aside (1). Each place has its index. */
const PLACES = [0, 1] as const;
type Place = (typeof PLACES)[number];

/** Names the index. Otherwise SQLite may read all deliveries of the instance, and these may be a million. */
const deliveriesIn = (aside: Place): string =>
  `deliveries d INDEXED BY ${aside === 0 ? 'deliveries_in_lane' : 'deliveries_aside_in_meeting'}`;

/** Every instance with pending deliveries in a meeting has a membership there, even if it has left. */
const inMeeting = (aside: Place): string => `
  memberships s JOIN ${deliveriesIn(aside)} ON d.instance_id = s.instance_id AND d.meeting_id = s.meeting_id
  WHERE s.meeting_id = $meeting_id`;
const inLane = (aside: Place): string => `${inMeeting(aside)} AND s.instance_id = $instance_id`;
const ofInstance = (aside: Place): string =>
  `instances s JOIN ${deliveriesIn(aside)} ON d.instance_id = s.instance_id WHERE s.instance_id = $instance_id`;

/**
 * Means `d.message_no <= $up_to_no`, because the numbers of the deliveries of a message are between the numbers of this
 * message and the next one. The indexes have only delivery_no, so a count does not read the table.
 */
const OF_MESSAGES =
  'd.delivery_no < coalesce((SELECT min(message_no) FROM messages WHERE message_no > $up_to_no), 9223372036854775807)';

const pending = (from: (aside: Place) => string, aside: Place): string => `
  FROM ${from(aside)} AND d.state = 'pending' AND d.aside = ${aside} AND ${OF_MESSAGES}
    AND EXISTS (SELECT 1 FROM instances WHERE instances.instance_id = s.instance_id AND ${IS_OWNED})`;

/**
 * Counts pending deliveries, in lanes and aside, up to `most`.
 * @param up_to_no the last message_no that counts
 * @param owner_scope only deliveries to the instances of this owner; null or undefined: to all instances
 */
export function countWaiting(
  db: Database,
  waiting: Waiting,
  up_to_no: number,
  most: number,
  owner_scope: OwnerScope | null | undefined,
): number {
  const { from, keys } = sourceOf(waiting);
  return PLACES.reduce<number>((sum, aside) => {
    const values = { ...keys, up_to_no, ...ownedBy(owner_scope), left: most - sum };
    const counted = db.prepare(`SELECT count(*) AS count FROM (SELECT 1 ${pending(from, aside)} LIMIT $left)`);
    return sum + (counted.get(values) as { count: number }).count;
  }, 0);
}

/**
 * Cancels pending deliveries with the reason `dropped`, at most `limit` of them.
 * @param up_to_no the last message_no that counts
 * @param owner_scope only deliveries to the instances of this owner; null or undefined: to all instances
 * @returns how many ended in each lane
 */
export function dropWaiting(
  db: Database,
  waiting: Waiting,
  up_to_no: number,
  limit: number,
  wall_ms: number,
  owner_scope: OwnerScope | null | undefined,
): EndedInLane[] {
  const { from, keys } = sourceOf(waiting);
  const dropped = new EndedInLanes();
  let left = limit;
  for (const aside of PLACES) {
    const rows = db
      .prepare(
        `UPDATE deliveries SET state = 'cancelled', reason = 'dropped', next_attempt_at = NULL, settled_at = $wall_ms
         WHERE delivery_no IN (SELECT d.delivery_no ${pending(from, aside)} LIMIT $left) RETURNING instance_id, meeting_id`,
      )
      .all({ ...keys, up_to_no, ...ownedBy(owner_scope), wall_ms, left }) as unknown as LaneKey[];
    for (const lane of rows) dropped.add(lane, 1);
    left -= rows.length;
  }
  return dropped.list();
}

/** Deliveries to the instances that the caller owns, made since these instances were registered. */
const owned = (aside: Place): string => `
  instances i JOIN ${deliveriesIn(aside)} ON d.instance_id = i.instance_id
  WHERE i.owner_key_id = $key_id AND i.instance_id = coalesce($owner_limit, i.instance_id) AND d.delivery_no >= i.first_no
    AND d.meeting_id NOT IN (SELECT value FROM json_each($meeting_ids))`;
const inMeetings = (aside: Place): string => `
  memberships s JOIN ${deliveriesIn(aside)} ON d.instance_id = s.instance_id AND d.meeting_id = s.meeting_id
  WHERE s.meeting_id IN (SELECT value FROM json_each($meeting_ids))`;

const PARTS = [owned, inMeetings].flatMap((from) =>
  PLACES.map(
    (aside) =>
      `SELECT count(*) AS pending, min(d.delivery_no) AS oldest_no FROM ${from(aside)} AND d.state = 'pending' AND d.aside = ${aside}`,
  ),
);
const PENDING_OF = `
  SELECT pending, (SELECT created_at FROM deliveries WHERE delivery_no = oldest_no) AS oldest_at
  FROM (SELECT sum(pending) AS pending, min(oldest_no) AS oldest_no FROM (${PARTS.join(' UNION ALL ')}))`;

/** The pending deliveries that a caller may see: how many they are, and when the oldest was made. */
export function pendingOf(db: Database, { owner_scope, meeting_ids }: Visibility) {
  const values = {
    key_id: owner_scope?.key_id ?? null,
    owner_limit: owner_scope?.instance_id ?? null,
    meeting_ids: JSON.stringify(meeting_ids),
  };
  return db.prepare(PENDING_OF).get(values) as { pending: number; oldest_at: number | null };
}

function sourceOf({ instance_id, meeting_id }: Waiting): { from: (aside: Place) => string; keys: Partial<LaneKey> } {
  if (instance_id === undefined) return { from: inMeeting, keys: { meeting_id: meeting_id as string } };
  if (meeting_id === undefined) return { from: ofInstance, keys: { instance_id } };
  return { from: inLane, keys: { instance_id, meeting_id } };
}
