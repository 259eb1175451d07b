import { mayQueueAgain } from '../../domain/delivery.ts';
import { type ClockNote, NO_HOLD } from '../../domain/clock_hold.ts';
import type { IdCodec } from '../../domain/id.ts';
import type { OwnerScope } from '../../domain/access.ts';
import { PARTITIONS, partitionOf } from '../../domain/partition.ts';
import {
  type AsideRow,
  EXPIRED_AT_ONCE,
  hasExpired,
  heldUpTo,
  lanesToExpire,
  notRetryable,
  numberedPlace,
  pageOfLane,
  placeOf,
  queuedDeliveryOf,
  type QueuedRow,
  restOfAside,
} from '../rows/deliveries.ts';
import { EndedInLanes } from '../rows/ended_in_lanes.ts';
import { type DeliveryStore, type ExpiryPlace, type LaneKey, LANE_PAGE_CHARS_MAX } from '../contract/deliveries.ts';
import type { DeliveriesTable } from '../rows/tables.ts';
import { DELIVERY_COLUMNS } from './columns.ts';
import { dueAside, pendingAside } from './aside_walk.ts';
import { boundExpiry } from './damaged_expiry.ts';
import { deliveryLists } from './delivery_lists.ts';
import { type Session, statement } from './database.ts';
import { ownedBy } from './owner_scope.ts';
import { timestampOf } from './timestamp.ts';
import { countWaiting, dropWaiting, pendingOf } from './waiting_deliveries.ts';
import { laneHeads } from './lane_heads.ts';
import { pruning } from './pruning.ts';
import { recovery, RESET } from './recovery.ts';
import { requeue } from '../rows/recovery.ts';
import { EXPIRED, type PartOfLane, partOfLane, QUEUED_AGAIN } from './pending/pending_deliveries.ts';

const QUEUED_COLUMNS = `
  d.delivery_no, d.message_no, d.meeting_id, d.seq, d.instance_id, d.target_agents, d.expires_at, d.attempt_count, d.answered_badly,
  d.attempts, d.next_attempt_at, m.message, m.timestamp, m.accepted_at, m.from_agent, m.in_reply_to, m.hops, m.trace`;

/**
 * The length of the deliveries before this one as PostgreSQL counts it, in characters. `queuedChars` counts UTF-16
 * units, which are never fewer.
 */
const charsBefore = (order: string): string =>
  `coalesce(sum(length(lane.message) + length(lane.target_agents)) OVER (ORDER BY ${order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS chars_before`;

/** @param lane the name of a table whose rows are lanes */
const partAfter = (lane: string): PartOfLane => ({
  condition: `d.partition_no = ${lane}.partition_no AND d.instance_id = ${lane}.instance_id AND d.meeting_id = ${lane}.meeting_id`,
  meeting_id: `${lane}.meeting_id`,
  after_seq: `${lane}.after_seq`,
});

/**
 * Pages of many lanes in one statement. The statement ends a page when its deliveries reach the limit in characters.
 * JavaScript counts at least as many characters as PostgreSQL, so `pageOfLane` may end the page sooner, but never needs
 * more rows.
 */
const LOAD_LANES = statement(`
  SELECT r.place, page.* FROM unnest($partitions::smallint[], $instance_ids::text[], $meeting_ids::text[], $after_seqs::bigint[], $limits::bigint[])
      WITH ORDINALITY AS r(partition_no, instance_id, meeting_id, after_seq, page_limit, place)
    CROSS JOIN LATERAL (
      SELECT q.* FROM (
        SELECT lane.*, ${charsBefore('lane.seq')} FROM (
          SELECT ${QUEUED_COLUMNS} FROM (${partOfLane(DELIVERY_COLUMNS.join(', '), partAfter('r'), 'ASC', 'r.page_limit')}) d
            JOIN messages m ON m.message_no = d.message_no ORDER BY d.seq) lane) q
      WHERE q.chars_before < ${LANE_PAGE_CHARS_MAX}) page
  ORDER BY r.place, page.seq`);

/**
 * Leaves out what others have changed since it was found. With the other conditions inside the LATERAL, the planner could
 * choose an index of all deliveries aside.
 */
const LOAD_ASIDE = statement(`
  SELECT q.* FROM (
    SELECT lane.*, ${charsBefore('lane.next_attempt_at, lane.delivery_no')} FROM (
      SELECT ${QUEUED_COLUMNS} FROM unnest($delivery_nos::bigint[]) AS found(delivery_no)
        CROSS JOIN LATERAL (SELECT * FROM deliveries x WHERE x.delivery_no = found.delivery_no OFFSET 0) d
        JOIN messages m ON m.message_no = d.message_no
      WHERE d.state = 'pending' AND d.aside = 1 AND d.next_attempt_at <= $now_ms) lane) q
  WHERE q.chars_before < ${LANE_PAGE_CHARS_MAX} ORDER BY q.next_attempt_at, q.delivery_no`);

/** Jumps from key to key in the index of the lanes, and does not read every row. */
const PENDING_LANES = statement(`
  WITH RECURSIVE lane AS (
    (SELECT partition_no, instance_id, meeting_id FROM noted_deliveries
     WHERE partition_no = $partition_no AND (instance_id, meeting_id) > ($instance_id, $meeting_id) AND aside = 0
     ORDER BY instance_id, meeting_id LIMIT 1)
    UNION ALL
    SELECT following.* FROM lane CROSS JOIN LATERAL (
      SELECT d.partition_no, d.instance_id, d.meeting_id FROM noted_deliveries d
      WHERE d.partition_no = lane.partition_no AND (d.instance_id, d.meeting_id) > (lane.instance_id, lane.meeting_id) AND d.aside = 0
      ORDER BY d.instance_id, d.meeting_id LIMIT 1) following)
  SELECT instance_id, meeting_id FROM lane LIMIT $limit`);

const FRESH_LANES = statement(`
  SELECT DISTINCT partition_no, instance_id, meeting_id FROM fresh_deliveries
  WHERE partition_no = ANY ($partitions::smallint[]) AND (partition_no, instance_id, meeting_id) > ($first::smallint, $instance_id, $meeting_id)
  ORDER BY partition_no, instance_id, meeting_id LIMIT $limit`);

const BOUND_ASIDE = statement(`
  UPDATE deliveries SET next_attempt_at = $latest_ms
  WHERE state = 'pending' AND aside = 1 AND next_attempt_at > $latest_ms AND delivery_no = ANY (ARRAY(
    SELECT delivery_no FROM noted_deliveries
    WHERE aside = 1 AND partition_no = ANY ($partitions::smallint[]) AND next_attempt_at > $latest_ms LIMIT $limit))`);

/** Lanes as a table, each with the seq up to which it was checked. */
const LANES =
  'unnest($partitions::smallint[], $instance_ids::text[], $meeting_ids::text[], $after_seqs::bigint[]) AS lane(partition_no, instance_id, meeting_id, after_seq)';

/** `hasExpired` as a condition. */
const isUp = (row: string): string =>
  `${row}.expires_at <= $shared_ms::bigint - CASE WHEN ${row}.message_no <= $up_to::bigint THEN $held_ms::bigint ELSE 0 END`;

/** The lanes whose first delivery has expired. */
const EXPIRED_LANES = statement(`
  SELECT lane.instance_id, lane.meeting_id, lane.after_seq AS seq FROM ${LANES}
    CROSS JOIN LATERAL (${partOfLane('d.message_no, d.expires_at, d.seq', partAfter('lane'), 'ASC', '1')}) head
  WHERE ${isUp('head')}`);

/**
 * Looks only at the front of each lane. A delivery behind one that expires later fails only when it has come to the
 * front.
 */
const EXPIRE_LANES = statement(`
  UPDATE deliveries SET state = 'failed', reason = 'expired', next_attempt_at = NULL, settled_at = $wall_ms${EXPIRED}
  WHERE state = 'pending' AND delivery_no = ANY (ARRAY(
    SELECT up.delivery_no FROM ${LANES}
      CROSS JOIN LATERAL (
        SELECT front.delivery_no, bool_and(${isUp('front')}) OVER (ORDER BY front.seq) AS is_up FROM (${partOfLane('d.delivery_no, d.message_no, d.expires_at, d.seq', partAfter('lane'), 'ASC', '$front_max')}) front) up
    WHERE up.is_up)) RETURNING instance_id, meeting_id, seq`);

/**
 * No index has `expires_at`, so every round reads all deliveries aside, page by page in the order of their index. The
 * index does not order deliveries that are due at the same time, so a page sorts these. Few are due at the same time: a
 * step of a recovery queues at most 1,000 again.
 */
const ASIDE_PAGE = statement(`
  SELECT delivery_no, instance_id, meeting_id, next_attempt_at, message_no, expires_at FROM noted_deliveries
  WHERE aside = 1 AND (partition_no, instance_id, next_attempt_at, delivery_no) > ($partition_no::smallint, $instance_id, $next_attempt_at, $delivery_no)
  ORDER BY partition_no, instance_id, next_attempt_at, delivery_no LIMIT ${EXPIRED_AT_ONCE}`);

const EXPIRE_ASIDE = statement(`
  UPDATE deliveries SET state = 'failed', reason = 'expired', next_attempt_at = NULL, settled_at = $wall_ms${EXPIRED}
  WHERE state = 'pending' AND aside = 1 AND expires_at <= $shared_ms AND delivery_no = ANY ($delivery_nos::bigint[])
  RETURNING instance_id, meeting_id`);

/**
 * A delivery of an instance that the caller owns. A caller that owns everything also finds deliveries of deleted
 * instances.
 */
const FIND_OWNED = statement(`
  SELECT instance_id FROM deliveries
  WHERE delivery_no = $delivery_no AND ($owner_key_id::text IS NULL OR instance_id IN
    (SELECT i.instance_id FROM instances i WHERE i.instance_id = deliveries.instance_id AND first_no <= $delivery_no
      AND i.owner_key_id = $owner_key_id AND i.instance_id = coalesce($owner_limit::text, i.instance_id)))`);

const LOCK_INSTANCE = statement('SELECT first_no FROM instances WHERE instance_id = $instance_id FOR UPDATE');
const LOCK_DELIVERY = statement(
  'SELECT instance_id, meeting_id, state, reason, aside, next_attempt_at FROM deliveries WHERE delivery_no = $delivery_no FOR UPDATE',
);

const BRING_FORWARD = statement(
  'UPDATE deliveries SET next_attempt_at = $next_attempt_at WHERE delivery_no = $delivery_no',
);

const REQUEUE_ONE = statement(`${requeue(QUEUED_AGAIN)} delivery_no = $delivery_no AND state <> 'pending'`);

const TIME_NOTED = statement(
  'SELECT ran_until, held_ms, held_since, held_up_to FROM this_database WHERE ran_until IS NOT NULL',
);
const NOTE_TIME = statement(
  'UPDATE this_database SET ran_until = $ran_until, held_ms = $held_ms, held_since = $held_since, held_up_to = $held_up_to',
);
const COUNT_PENDING = statement('SELECT count(*) AS pending FROM pending_deliveries');
/**
 * Numbers rise also after somebody set the clock back. With `+ 0` the planner does not walk along the primary key, past
 * all deliveries that are settled.
 */
const OLDEST_PENDING = statement(`
  SELECT created_at AS oldest_at FROM deliveries
  WHERE delivery_no = (SELECT min(delivery_no + 0) FROM pending_deliveries)`);

const ALL_PARTITIONS = Array.from({ length: PARTITIONS }, (_, partition_no) => partition_no);

export function deliveryOperations(session: Session, { ids }: { ids: IdCodec }): Omit<DeliveryStore, 'settle'> {
  /** 0 for a delivery_id that this database did not make: no row has that number. */
  const numberOf = (delivery_id: string): number => ids.decode('dlv', delivery_id) ?? 0;
  const messageNoOf = (message_id: string): number => ids.decode('msg', message_id) ?? 0;

  const queuedOf = ({ timestamp, ...row }: QueuedRow) =>
    queuedDeliveryOf({ ...row, timestamp: timestampOf(timestamp) }, ids);

  /**
   * Lanes with pending deliveries, ordered by partition, and within a partition by key. Reads fresh deliveries first,
   * and then noted deliveries. In the other order, the reads would miss a delivery that a sweep notes between them.
   */
  async function pendingLanes(after: LaneKey | null, limit: number, partitions = ALL_PARTITIONS): Promise<LaneKey[]> {
    const lanes: LaneKey[] = [];
    const first = after === null ? 0 : partitionOf(after.instance_id);
    const fresh = await session.all<LaneKey>(FRESH_LANES, { partitions, first, ...(after ?? NO_LANE), limit });
    for (const partition_no of partitions.toSorted((a, b) => a - b)) {
      if (partition_no < first) continue;
      if (lanes.length >= limit) break;
      const { instance_id, meeting_id } = after !== null && partition_no === first ? after : NO_LANE;
      const values = { partition_no, instance_id, meeting_id, limit: limit - lanes.length };
      lanes.push(...(await session.all<LaneKey>(PENDING_LANES, values)));
    }
    return mergedLanes(lanes, fresh, limit);
  }

  return {
    async loadLanes(requests) {
      const rows = await session.all<QueuedRow & { place: number; chars_before: number }>(LOAD_LANES, {
        partitions: requests.map(({ instance_id }) => partitionOf(instance_id)),
        instance_ids: requests.map(({ instance_id }) => instance_id),
        meeting_ids: requests.map(({ meeting_id }) => meeting_id),
        after_seqs: requests.map(({ after_seq }) => after_seq),
        limits: requests.map(({ limit }) => limit),
      });
      const pages = requests.map((): QueuedRow[] => []);
      for (const { place, chars_before: _, ...row } of rows) pages[place - 1]!.push(row);
      const read = pages.map(pageOfLane);
      await boundExpiry(session, read.flat());
      return read.map((page) => page.map(queuedOf));
    },
    async loadAside(instance_id, now_ms, limit, after = null) {
      const place = { ...numberedPlace(after, numberOf), instance_id };
      const found = await dueAside(session, place, now_ms, limit);
      const delivery_nos = found.due.map(({ delivery_no }) => delivery_no);
      const read = await session.all<QueuedRow & { chars_before: number }>(LOAD_ASIDE, { delivery_nos, now_ms });
      const due: QueuedRow[] = [];
      for (const { chars_before: _, ...row } of read) due.push(row);
      const rows = pageOfLane(due);
      await boundExpiry(session, rows);
      return { deliveries: rows.map(queuedOf), ...restOfAside(found, rows.length, ids) };
    },
    ...laneHeads(session, ids, numberOf),
    pendingLanes,
    pendingAside: (after, limit, partitions = ALL_PARTITIONS) => pendingAside(session, after, limit, partitions),
    boundAside: (latest_ms, limit, partitions = ALL_PARTITIONS) =>
      session.run(BOUND_ASIDE, { latest_ms, limit, partitions }),
    ...deliveryLists(session, ids),
    async retry(delivery_id: string, now_ms: number, expires_at: number, owner_scope?: OwnerScope | null) {
      const delivery_no = numberOf(delivery_id);
      const found = await session.one<{ instance_id: string }>(FIND_OWNED, { delivery_no, ...ownedBy(owner_scope) });
      if (found === undefined) return null;
      const { instance_id: of } = found;
      const instance = await session.one<{ first_no: number }>(LOCK_INSTANCE, { instance_id: of });
      const row = await session.one<
        Pick<DeliveriesTable, 'instance_id' | 'meeting_id' | 'state' | 'reason' | 'aside' | 'next_attempt_at'>
      >(LOCK_DELIVERY, { delivery_no });
      if (row === undefined) return null;
      const { instance_id, meeting_id } = row;
      if (row.state === 'pending') {
        // A delivery in its lane keeps its place, and stops waiting for its time. A delivery aside becomes due now.
        const next_attempt_at = row.aside === 1 ? now_ms : null;
        await session.run(BRING_FORWARD, { delivery_no, next_attempt_at });
      } else if (mayQueueAgain(row) && instance !== undefined && instance.first_no <= delivery_no) {
        await session.run(REQUEUE_ONE, { delivery_no, now_ms, expires_at });
      } else {
        throw notRetryable(row, instance !== undefined);
      }
      await session.run(RESET, { instance_id });
      session.messages.push({ kind: 'instance', instance_id, lifts: true, requeued: true });
      return { instance_id, meeting_id, aside: row.state !== 'pending' || row.aside === 1 };
    },
    ...recovery(session, numberOf),
    async expireLanes(after, lanes_max, shared_ms, wall_ms, hold = NO_HOLD) {
      const following = await pendingLanes(after, lanes_max);
      const lanes = lanesToExpire(after, following);
      const time = { shared_ms, held_ms: hold.held_ms, up_to: heldUpTo(hold, ids) };
      const expired = new EndedInLanes();
      const up = await session.all<LaneKey & { seq: number }>(EXPIRED_LANES, { ...arraysOf(lanes), ...time });
      // Each lane gets an equal part of the step. Otherwise a step could read many rows and let few of them expire.
      const front_max = Math.ceil(EXPIRED_AT_ONCE / Math.max(1, up.length));
      const values = { ...arraysOf(up), ...time, front_max, wall_ms };
      const rows = up.length === 0 ? [] : await session.all<LaneKey & { seq: number }>(EXPIRE_LANES, values);
      for (const lane of rows) expired.add(lane, 1);
      const full = lanes.find((lane) => expired.countOf(lane) === front_max);
      if (full !== undefined) return { expired: expired.list(), next: lastOf(full, rows) };
      const done = following.length < lanes_max;
      return { expired: expired.list(), next: done ? null : { ...following.at(-1)!, seq: null } };
    },
    async expireAside(after, shared_ms, wall_ms, hold = NO_HOLD) {
      const expired = new EndedInLanes();
      const partition_no = after === null ? -1 : partitionOf(after.instance_id);
      const place = { partition_no, ...numberedPlace(after, numberOf) };
      const rows = await session.all<AsideRow>(ASIDE_PAGE, place);
      const delivery_nos = rows.filter(hasExpired(shared_ms, hold, ids)).map(({ delivery_no }) => delivery_no);
      if (delivery_nos.length > 0) {
        const ended = await session.all<LaneKey>(EXPIRE_ASIDE, { delivery_nos, shared_ms, wall_ms });
        for (const lane of ended) expired.add(lane, 1);
      }
      return { expired: expired.list(), next: rows.length < EXPIRED_AT_ONCE ? null : placeOf(rows.at(-1)!, ids) };
    },
    countWaiting: async (waiting, most, owner_scope) =>
      waiting.up_to === null ? 0 : countWaiting(session, waiting, messageNoOf(waiting.up_to), most, owner_scope),
    drop: async (waiting, limit, wall_ms, owner_scope) =>
      waiting.up_to === null
        ? []
        : dropWaiting(session, waiting, messageNoOf(waiting.up_to), limit, wall_ms, owner_scope),
    ...pruning(session, ids),
    async timeNoted() {
      return (await session.one<ClockNote>(TIME_NOTED)) ?? null;
    },
    async noteTime({ ran_until, held_ms, held_since, held_up_to }) {
      await session.run(NOTE_TIME, { ran_until, held_ms, held_since, held_up_to });
    },
    async countPending(visibility) {
      if (visibility) return (await pendingOf(session, visibility)).pending;
      return (await session.one<{ pending: number }>(COUNT_PENDING))!.pending;
    },
    async oldestPending(visibility) {
      if (visibility) return (await pendingOf(session, visibility)).oldest_at;
      return (await session.one<{ oldest_at: number }>(OLDEST_PENDING))?.oldest_at ?? null;
    },
  };
}

const NO_LANE: LaneKey = { instance_id: '', meeting_id: '' };

/** Lanes, each with a seq, as the arrays of a statement. */
function arraysOf(lanes: readonly (LaneKey & { seq: number })[]) {
  return {
    partitions: lanes.map(({ instance_id }) => partitionOf(instance_id)),
    instance_ids: lanes.map(({ instance_id }) => instance_id),
    meeting_ids: lanes.map(({ meeting_id }) => meeting_id),
    after_seqs: lanes.map(({ seq }) => seq),
  };
}

/** The last delivery of a lane among rows. */
function lastOf({ instance_id, meeting_id }: LaneKey, rows: readonly (LaneKey & { seq: number })[]): ExpiryPlace {
  const of_lane = rows.filter((row) => row.instance_id === instance_id && row.meeting_id === meeting_id);
  return { instance_id, meeting_id, seq: Math.max(...of_lane.map(({ seq }) => seq)) };
}

/** Merges two lists of lanes in the order of the database, which compares bytes. */
function mergedLanes(lanes: LaneKey[], fresh: LaneKey[], limit: number): LaneKey[] {
  if (fresh.length === 0) return lanes;
  const merged: LaneKey[] = [];
  let [i, k] = [0, 0];
  while (merged.length < limit && (i < lanes.length || k < fresh.length)) {
    const order = i === lanes.length ? 1 : k === fresh.length ? -1 : compareLanes(lanes[i]!, fresh[k]!);
    const { instance_id, meeting_id } = order <= 0 ? lanes[i]! : fresh[k]!;
    merged.push({ instance_id, meeting_id });
    if (order <= 0) i++;
    if (order >= 0) k++;
  }
  return merged;
}

function compareLanes(a: LaneKey, b: LaneKey): number {
  return (
    partitionOf(a.instance_id) - partitionOf(b.instance_id) ||
    Buffer.compare(Buffer.from(a.instance_id), Buffer.from(b.instance_id)) ||
    Buffer.compare(Buffer.from(a.meeting_id), Buffer.from(b.meeting_id))
  );
}
