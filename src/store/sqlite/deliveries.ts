import { mayQueueAgain } from '../../domain/delivery.ts';
import { type ClockNote, NO_HOLD } from '../../domain/clock_hold.ts';
import type { IdCodec } from '../../domain/id.ts';
import type { OwnerScope, Visibility } from '../../domain/access.ts';
import { EndedInLanes } from '../rows/ended_in_lanes.ts';
import {
  EXPIRED_AT_ONCE,
  type ExpiryRow,
  hasExpired,
  lanesToExpire,
  lateEnd,
  notRetryable,
  numberedPlace,
  pageOfLane,
  type PlacedRow,
  placeOf,
  queuedDeliveryOf,
  type QueuedRow,
  restOfAside,
  withDamagedExpiry,
} from '../rows/deliveries.ts';
import type {
  AsidePlace,
  DeliverySettlement,
  DeliveryStore,
  ExpiryPlace,
  HealthSettlement,
  LaneKey,
} from '../contract/deliveries.ts';
import { asidePage, dueAside, pendingAside } from './aside_walk.ts';
import type { Database } from './database.ts';
import type { Sync } from './sync.ts';
import { deliveryLists } from './delivery_lists.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';
import type { Recipients } from './meeting_recipients.ts';
import { laneHeads } from './lane_heads.ts';
import { pruning } from './pruning.ts';
import { recovery } from './recovery.ts';
import { requeue, RESET_BACKOFF } from '../rows/recovery.ts';
import type { DeliveriesTable } from '../rows/tables.ts';
import { storedTimestamp } from './timestamp.ts';
import { countWaiting, dropWaiting, pendingOf } from './waiting_deliveries.ts';

const SETTLE_DELIVERY = `
  UPDATE deliveries SET state = ?, reason = ?, attempt_count = ?, answered_badly = ?, attempts = ?, next_attempt_at = ?, aside = ?, settled_at = ?
  WHERE delivery_no = ? AND state = 'pending' AND expires_at = ?`;

/** The result of an attempt that was in flight when its delivery expired: see `lateEnd`. */
const SETTLE_EXPIRED = `
  UPDATE deliveries SET state = ?, reason = ?, attempt_count = ?, answered_badly = ?, attempts = ?, settled_at = coalesce(?, settled_at)
  WHERE delivery_no = ? AND state = 'failed' AND reason = 'expired' AND expires_at = ?`;

const SETTLE_HEALTH = `
  UPDATE instances SET consecutive_failures = ?, health_since = ?, last_success_at = ?, last_failure = ?, backoff_step = ?, backoff_until = ?
  WHERE instance_id = ? AND webhook_url = ?`;

const SWITCH_OFF = 'UPDATE instances SET webhook_enabled = 0 WHERE instance_id = ? AND updated_at = ?';

const QUEUED_COLUMNS = `
  d.delivery_no, d.message_no, d.meeting_id, d.seq, d.instance_id, d.target_agents, d.expires_at, d.attempt_count, d.answered_badly,
  d.attempts, d.next_attempt_at, m.message, m.timestamp, m.accepted_at, m.from_agent, m.in_reply_to, m.hops, m.trace
  FROM deliveries d JOIN messages m ON m.message_no = d.message_no`;

const LOAD_LANE = `
  SELECT ${QUEUED_COLUMNS}
  WHERE d.instance_id = ? AND d.meeting_id = ? AND d.seq > ? AND d.state = 'pending' AND d.aside = 0
  ORDER BY d.seq LIMIT ?`;

const LOAD_DELIVERY = `SELECT ${QUEUED_COLUMNS} WHERE d.delivery_no = ?`;

const NEXT_LANE = `
  SELECT instance_id, meeting_id FROM deliveries
  WHERE (instance_id, meeting_id) > (?, ?) AND state = 'pending' AND aside = 0
  ORDER BY instance_id, meeting_id LIMIT 1`;

/** The front of a lane. If a delivery expires sooner than one before it, it fails only when it is in front. */
const LANE_FRONT = `
  SELECT delivery_no, seq, message_no, expires_at FROM deliveries
  WHERE instance_id = ? AND meeting_id = ? AND seq > ? AND state = 'pending' AND aside = 0 ORDER BY seq LIMIT ?`;

const BOUND_EXPIRY = `
  UPDATE deliveries SET expires_at = ${Number.MAX_SAFE_INTEGER} WHERE delivery_no = ? AND expires_at > ${Number.MAX_SAFE_INTEGER}`;

const EXPIRE = `
  UPDATE deliveries SET state = 'failed', reason = 'expired', next_attempt_at = NULL, settled_at = ?
  WHERE delivery_no IN (SELECT value FROM json_each(?))`;

export const TIME_NOTED =
  'SELECT ran_until, held_ms, held_since, held_up_to FROM this_file WHERE ran_until IS NOT NULL';

/**
 * A delivery of an instance that the caller owns. A caller that owns everything also finds deliveries of deleted
 * instances.
 */
const FIND_OWNED = `
  SELECT instance_id, meeting_id, state, reason, aside, next_attempt_at,
    (SELECT first_no FROM instances WHERE instances.instance_id = deliveries.instance_id) AS first_no
  FROM deliveries
  WHERE delivery_no = $delivery_no AND ($owner_key_id IS NULL OR instance_id IN
    (SELECT i.instance_id FROM instances i WHERE i.instance_id = deliveries.instance_id AND first_no <= $delivery_no AND ${IS_OWNED}))`;

export function deliveryOperations(db: Database, ids: IdCodec, recipients: Recipients): Sync<DeliveryStore> {
  /** 0 for a delivery_id that this file did not make: no row has that number. */
  const numberOf = (delivery_id: string): number => ids.decode('dlv', delivery_id) ?? 0;

  const boundExpiry = (rows: readonly QueuedRow[]): void => {
    for (const delivery_no of withDamagedExpiry(rows)) db.prepare(BOUND_EXPIRY).run(delivery_no);
  };

  const settleExpired = (d: DeliverySettlement): void => {
    const { state, reason } = lateEnd(d);
    db.prepare(SETTLE_EXPIRED).run(
      state,
      reason,
      d.attempt_count,
      d.answered_badly,
      d.attempts,
      d.settled_at,
      numberOf(d.delivery_id),
      d.expires_at,
    );
  };

  function* rowsOf(deliveries: readonly PlacedRow[]): Generator<QueuedRow> {
    const load = db.prepare(LOAD_DELIVERY);
    for (const { delivery_no } of deliveries) yield load.get(delivery_no) as unknown as QueuedRow;
  }

  const queuedOf = (row: QueuedRow) => queuedDeliveryOf({ ...row, timestamp: storedTimestamp(row) }, ids);

  return {
    settle(deliveries: DeliverySettlement[], healths: HealthSettlement[]) {
      const settle = db.prepare(SETTLE_DELIVERY);
      for (const d of deliveries) {
        const { changes } = settle.run(
          d.state,
          d.reason,
          d.attempt_count,
          d.answered_badly,
          d.attempts,
          d.next_attempt_at,
          d.aside ? 1 : 0,
          d.settled_at,
          numberOf(d.delivery_id),
          d.expires_at,
        );
        if (changes === 0) settleExpired(d);
      }
      for (const h of healths) {
        const last_failure = h.last_failure === null ? null : JSON.stringify(h.last_failure);
        db.prepare(SETTLE_HEALTH).run(
          h.consecutive_failures,
          h.health_since,
          h.last_success_at,
          last_failure,
          h.backoff_step,
          h.backoff_until,
          h.instance_id,
          h.webhook_url,
        );
        if (h.gone_as_of === null) continue;
        recipients.forgetMeetingsOf(h.instance_id);
        db.prepare(SWITCH_OFF).run(h.instance_id, h.gone_as_of);
      }
      return null;
    },
    loadLanes(requests) {
      const load = db.prepare(LOAD_LANE);
      return requests.map((lane) => {
        const rows = load.iterate(lane.instance_id, lane.meeting_id, lane.after_seq, lane.limit);
        const page = pageOfLane(rows as Iterable<QueuedRow>);
        boundExpiry(page);
        return page.map(queuedOf);
      });
    },
    loadAside(instance_id: string, now_ms: number, limit: number, after: AsidePlace | null = null) {
      const place = { ...numberedPlace(after, numberOf), instance_id };
      const found = dueAside(db, place, now_ms, limit);
      const rows = pageOfLane(rowsOf(found.due));
      boundExpiry(rows);
      return { deliveries: rows.map(queuedOf), ...restOfAside(found, rows.length, ids) };
    },
    ...laneHeads(db, ids, numberOf),
    pendingLanes: (after: LaneKey | null, limit: number) => pendingLanes(db, after, limit),
    pendingAside: (after: string | null, limit: number) => pendingAside(db, after, limit),
    boundAside(latest_ms: number, limit: number) {
      const { changes } = db
        .prepare(
          `UPDATE deliveries SET next_attempt_at = $latest_ms WHERE delivery_no IN (
             SELECT delivery_no FROM deliveries WHERE state = 'pending' AND aside = 1 AND next_attempt_at > $latest_ms LIMIT $limit)`,
        )
        .run({ latest_ms, limit });
      return Number(changes);
    },
    ...deliveryLists(db, ids),
    retry(delivery_id: string, now_ms: number, expires_at: number, owner_scope?: OwnerScope | null) {
      const delivery_no = numberOf(delivery_id);
      const row = db.prepare(FIND_OWNED).get({ delivery_no, ...ownedBy(owner_scope) }) as
        | (Pick<DeliveriesTable, 'instance_id' | 'meeting_id' | 'state' | 'reason' | 'aside' | 'next_attempt_at'> & {
            first_no: number | null;
          })
        | undefined;
      if (row === undefined) return null;
      if (row.state === 'pending') {
        // A delivery in its lane keeps its place, and stops waiting for its time. A delivery aside becomes due now.
        const next_attempt_at = row.aside === 1 ? now_ms : null;
        db.prepare('UPDATE deliveries SET next_attempt_at = ? WHERE delivery_no = ?').run(next_attempt_at, delivery_no);
      } else if (mayQueueAgain(row) && row.first_no !== null && row.first_no <= delivery_no) {
        db.prepare(`${requeue()} delivery_no = $delivery_no`).run({ delivery_no, now_ms, expires_at });
      } else {
        throw notRetryable(row, row.first_no !== null);
      }
      db.prepare(RESET_BACKOFF).run({ instance_id: row.instance_id });
      return {
        instance_id: row.instance_id,
        meeting_id: row.meeting_id,
        aside: row.state !== 'pending' || row.aside === 1,
      };
    },
    ...recovery(db, numberOf),
    expireLanes(after: ExpiryPlace | null, lanes_max: number, shared_ms: number, wall_ms: number, hold = NO_HOLD) {
      const expired = new EndedInLanes();
      const isUp = hasExpired(shared_ms, hold, ids);
      const following = pendingLanes(db, after, lanes_max);
      let left = EXPIRED_AT_ONCE;
      for (const { seq, ...lane } of lanesToExpire(after, following)) {
        const up: number[] = [];
        let checked_seq = seq;
        // Reads only the expired deliveries, because a million others may wait behind them.
        for (const row of db.prepare(LANE_FRONT).iterate(lane.instance_id, lane.meeting_id, seq, left)) {
          const delivery = row as ExpiryRow & { delivery_no: number; seq: number };
          if (!isUp(delivery)) break;
          up.push(delivery.delivery_no);
          checked_seq = delivery.seq;
        }
        if (up.length === 0) continue;
        db.prepare(EXPIRE).run(wall_ms, JSON.stringify(up));
        expired.add(lane, up.length);
        left -= up.length;
        if (left === 0) return { expired: expired.list(), next: { ...lane, seq: checked_seq } };
      }
      const done = following.length < lanes_max;
      return { expired: expired.list(), next: done ? null : { ...following.at(-1)!, seq: null } };
    },
    expireAside(after: AsidePlace | null, shared_ms: number, wall_ms: number, hold = NO_HOLD) {
      const expired = new EndedInLanes();
      // No index has `expires_at`, so every round reads all deliveries aside.
      const rows = asidePage(db, numberedPlace(after, numberOf), EXPIRED_AT_ONCE);
      const up = rows.filter(hasExpired(shared_ms, hold, ids));
      if (up.length > 0) db.prepare(EXPIRE).run(wall_ms, JSON.stringify(up.map((row) => row.delivery_no)));
      for (const lane of up) expired.add(lane, 1);
      return { expired: expired.list(), next: rows.length < EXPIRED_AT_ONCE ? null : placeOf(rows.at(-1)!, ids) };
    },
    countWaiting: (waiting, most, owner_scope) =>
      waiting.up_to === null ? 0 : countWaiting(db, waiting, ids.decode('msg', waiting.up_to) ?? 0, most, owner_scope),
    drop: (waiting, limit, wall_ms, owner_scope) =>
      waiting.up_to === null
        ? []
        : dropWaiting(db, waiting, ids.decode('msg', waiting.up_to) ?? 0, limit, wall_ms, owner_scope),
    ...pruning(db, ids),
    timeNoted() {
      return (db.prepare(TIME_NOTED).get() as ClockNote | undefined) ?? null;
    },
    noteTime({ ran_until, held_ms, held_since, held_up_to }: ClockNote) {
      db.prepare('UPDATE this_file SET ran_until = ?, held_ms = ?, held_since = ?, held_up_to = ?').run(
        ran_until,
        held_ms,
        held_since,
        held_up_to,
      );
    },
    countPending(visibility?: Visibility | null) {
      if (visibility) return pendingOf(db, visibility).pending;
      const { pending } = db
        .prepare(
          `SELECT (SELECT count(*) FROM deliveries WHERE state = 'pending' AND aside = 0)
             + (SELECT count(*) FROM deliveries WHERE state = 'pending' AND aside = 1) AS pending`,
        )
        .get() as { pending: number };
      return pending;
    },
    oldestPending(visibility?: Visibility | null) {
      if (visibility) return pendingOf(db, visibility).oldest_at;
      // Names the indexes. Otherwise SQLite would look for the least number in the table itself, and would read the
      // whole table when nothing is pending.
      const { oldest_at } = db
        .prepare(
          `SELECT min(created_at) AS oldest_at FROM deliveries WHERE delivery_no IN (
             (SELECT min(delivery_no) FROM deliveries INDEXED BY deliveries_in_lane WHERE state = 'pending' AND aside = 0),
             (SELECT min(delivery_no) FROM deliveries INDEXED BY deliveries_aside WHERE state = 'pending' AND aside = 1))`,
        )
        .get() as { oldest_at: number | null };
      return oldest_at;
    },
  };
}

function pendingLanes(db: Database, after: LaneKey | null, limit: number): LaneKey[] {
  const next = db.prepare(NEXT_LANE);
  const lanes: LaneKey[] = [];
  let key = after ?? { instance_id: '', meeting_id: '' };
  while (lanes.length < limit) {
    const found = next.get(key.instance_id, key.meeting_id) as LaneKey | undefined;
    if (found === undefined) break;
    key = { instance_id: found.instance_id, meeting_id: found.meeting_id };
    lanes.push(key);
  }
  return lanes;
}
