/** Deliveries as both engines read them. */
import type { Visibility } from '../../domain/access.ts';
import { mayQueueAgain, type DeliveryReason, type DeliveryState, type WaitingFor } from '../../domain/delivery.ts';
import type { Hold } from '../../domain/clock_hold.ts';
import type { IdCodec } from '../../domain/id.ts';
import { Problem } from '../../domain/problem.ts';
import type { DeliveryKeys } from '../contract/search.ts';
import {
  type AsidePlace,
  type DeliveryRow,
  type DeliverySettlement,
  type ExpiryPlace,
  LANE_PAGE_CHARS_MAX,
  type LaneKey,
  type QueuedDelivery,
  queuedChars,
} from '../contract/deliveries.ts';
import { type OriginColumns, originOf } from './messages.ts';
import { reportDamaged, storedAttempts, storedTexts, storedTextsJson, storedTrace } from './stored_values.ts';
import type { DeliveriesTable, MessagesTable } from './tables.ts';

/**
 * The most deliveries that a step of `expireLanes` fails, and that a step of `expireAside` reads. Other calls of the
 * store wait some 10 ms for a step.
 */
export const EXPIRED_AT_ONCE = 1_000;

/** A pending delivery with its message. */
export type QueuedRow = Omit<QueuedDelivery, 'delivery_id' | 'message_id' | 'attempts' | 'trace'> &
  Pick<DeliveriesTable, 'delivery_no' | 'message_no' | 'attempts'> &
  OriginColumns &
  Pick<MessagesTable, 'trace'>;

/**
 * The numbers of the deliveries with a damaged `expires_at`, which is read as the largest safe number. The caller
 * writes that number into the rows, because a settlement finds its row by `expires_at`. Otherwise no settlement would
 * find the row: the delivery would stay pending, and be pushed again after every read.
 */
export function withDamagedExpiry(rows: readonly QueuedRow[]): number[] {
  const damaged = rows.filter(({ expires_at }) => expires_at >= Number.MAX_SAFE_INTEGER);
  const delivery_nos = damaged.map(({ delivery_no }) => delivery_no);
  for (const delivery_no of delivery_nos) reportDamaged('deliveries', 'expires_at', String(delivery_no));
  return delivery_nos;
}

/**
 * How a delivery ends when it expires while its last attempt is in flight. The attempt began in time, so its result
 * counts. But no further attempt follows: instead of becoming pending again, the delivery stays expired.
 */
export function lateEnd({ state, reason }: Pick<DeliverySettlement, 'state' | 'reason'>): {
  state: DeliveryState;
  reason: DeliveryReason | null;
} {
  return state === 'pending' ? { state: 'failed', reason: 'expired' } : { state, reason };
}

/**
 * The lanes of a step of `expireLanes`: the rest of the lane in which the last step ended, and the lanes that follow.
 * `seq` is how far the lane was checked.
 */
export function lanesToExpire(after: ExpiryPlace | null, following: readonly LaneKey[]): (LaneKey & { seq: number })[] {
  const lanes = following.map((lane) => ({ ...lane, seq: 0 }));
  return after === null || after.seq === null ? lanes : [{ ...after, seq: after.seq }, ...lanes];
}

/** A delivery aside, with its place. */
export type PlacedRow = Pick<DeliveriesTable, 'delivery_no' | 'instance_id'> & { next_attempt_at: number };

/**
 * The most deliveries that `loadAside` reads in a call, which then takes some milliseconds: an instance may have a
 * million deliveries aside.
 */
export const ASIDE_READ_MAX = 2_000;

/** The deliveries of an instance that follow a place and are due, without those of paused meetings. */
export interface DueAside {
  due: PlacedRow[];
  /** The first delivery after them that is not of a paused meeting. */
  following: PlacedRow | null;
  /** When ASIDE_READ_MAX ended the read before `following` was found: the last delivery that was read. */
  ended_at: PlacedRow | null;
}

/** What follows the first `loaded` deliveries that are due: see `loadAside`. */
export function restOfAside({ due, following, ended_at }: DueAside, loaded: number, ids: IdCodec) {
  const next = due[loaded] ?? following ?? (loaded > 0 ? ended_at : null);
  return {
    next_at: next?.next_attempt_at ?? null,
    next: loaded === 0 && ended_at !== null ? placeOf(ended_at, ids) : null,
  };
}

/** The columns that decide whether a delivery has expired. */
export type ExpiryRow = Pick<DeliveriesTable, 'message_no' | 'expires_at'>;

/** A delivery aside, with the columns that decide whether it has expired. */
export type AsideRow = PlacedRow & ExpiryRow & Pick<DeliveriesTable, 'meeting_id'>;

/** The message_no up to which a jump of the clock is held; 0: for no message. */
export const heldUpTo = ({ held_up_to }: Hold, ids: IdCodec): number =>
  held_up_to === null ? 0 : (ids.decode('msg', held_up_to) ?? 0);

/** Whether a delivery has expired: `endOf` of domain/clock_hold.ts, for rows. */
export function hasExpired(shared_ms: number, hold: Hold, ids: IdCodec): (row: ExpiryRow) => boolean {
  const up_to = heldUpTo(hold, ids);
  return ({ message_no, expires_at }) => expires_at <= shared_ms - (message_no <= up_to ? hold.held_ms : 0);
}

export function placeOf({ instance_id, next_attempt_at, delivery_no }: PlacedRow, ids: IdCodec): AsidePlace {
  return { instance_id, next_attempt_at, delivery_id: ids.encode('dlv', delivery_no) };
}

/** A place with its delivery_no; for null, the place in front of all deliveries. */
export function numberedPlace(place: AsidePlace | null, numberOf: (delivery_id: string) => number) {
  if (place === null) return { instance_id: '', next_attempt_at: 0, delivery_no: 0 };
  const { delivery_id, ...rest } = place;
  return { ...rest, delivery_no: numberOf(delivery_id) };
}

/** Makes the page of a lane from rows, and reads no more rows than it needs. */
export function pageOfLane(rows: Iterable<QueuedRow>): QueuedRow[] {
  const page: QueuedRow[] = [];
  let chars = 0;
  for (const row of rows) {
    page.push(row);
    if ((chars += queuedChars(row)) >= LANE_PAGE_CHARS_MAX) break;
  }
  return page;
}

export function queuedDeliveryOf(
  { delivery_no, message_no, attempts, from_agent, in_reply_to, hops, trace, ...row }: QueuedRow,
  ids: IdCodec,
): QueuedDelivery {
  return {
    ...row,
    delivery_id: ids.encode('dlv', delivery_no),
    message_id: ids.encode('msg', message_no),
    origin: originOf({ from_agent, in_reply_to, hops }, message_no, ids),
    trace: storedTrace(trace, message_no),
    target_agents: storedTextsJson(row.target_agents, 'deliveries', 'target_agents', String(delivery_no)),
    attempts: storedAttempts(attempts, () => String(delivery_no)),
  };
}

/** A delivery for a list, with the reasons for which it may wait. */
export type ListedRow = DeliveriesTable & {
  is_active: number | null;
  webhook_enabled: number | null;
  backing_off: number | null;
  /** 1 when the machine of the instance pulls and is not connected. */
  unconnected: number | null;
  paused: number | null;
};

/** The bytes of the long columns of `d`. */
export const DELIVERY_BYTES = 'octet_length(d.target_agents) + octet_length(d.attempts)';

export function deliveryRowOf(row: ListedRow, ids: IdCodec): DeliveryRow {
  return {
    delivery_id: ids.encode('dlv', row.delivery_no),
    message_id: ids.encode('msg', row.message_no),
    meeting_id: row.meeting_id,
    seq: row.seq,
    instance_id: row.instance_id,
    target_agents: storedTexts(row.target_agents, 'deliveries', 'target_agents', String(row.delivery_no)),
    state: row.state as DeliveryState,
    reason: row.reason as DeliveryReason | null,
    waiting_for: waitingFor(row),
    attempt_count: row.attempt_count,
    attempts: storedAttempts(row.attempts, () => String(row.delivery_no)),
    next_attempt_at: row.next_attempt_at,
    created_at: row.created_at,
    settled_at: row.settled_at,
  };
}

function waitingFor(row: ListedRow): WaitingFor | null {
  if (row.state !== 'pending') return null;
  if (row.is_active !== 1 || row.webhook_enabled !== 1) return 'switched_off';
  if (row.paused === 1) return 'paused';
  if (row.unconnected === 1) return 'connection';
  if (row.backing_off === 1) return 'back_off';
  return row.next_attempt_at === null ? 'turn' : 'retry';
}

/** `mayQueueAgain` as a condition. */
export const MAY_QUEUE_AGAIN = `(state = 'failed' OR (state = 'cancelled' AND reason <> 'instance_deleted'))`;

/**
 * @param is_earlier whether the delivery is of an earlier instance with the same id
 * @returns why a delivery cannot be queued again
 */
export function notRetryable(row: { state: string; reason: string | null }, is_earlier: boolean): Problem {
  const why = () => {
    if (mayQueueAgain(row)) {
      return is_earlier
        ? 'Its instance was deleted, and another one has its id now; send the message again.'
        : 'Its instance is no longer registered. A new instance with this id does not get it either; send the message again.';
    }
    if (row.state === 'cancelled') return 'It was cancelled when its instance was deleted.';
    return `It is ${row.state}; only a pending, failed or cancelled delivery can be queued again.`;
  };
  return new Problem('delivery_not_retryable', why());
}

/** Deliveries that a statement finds by an index, in the order of their numbers. */
export type Source =
  | { of: 'all' }
  | { of: 'message'; message_no: number }
  | { of: 'meeting'; meeting_id: string }
  /** The deliveries since `first_no`. */
  | { of: 'instance'; instance_id: string; first_no: number };

/**
 * The most sources of a walk. For a key with more sources, the walk reads along all deliveries: the key may see so many
 * of them that the walk soon finds a page.
 */
export const SOURCES_MAX = 500;

/**
 * The ways to find all deliveries of a list. Each way is a walk: it reads along the indexes of its sources, from the
 * newest delivery on. Two lists have no index with exactly their deliveries: the deliveries of an instance in a
 * meeting, and the deliveries that a key with limits may see. A walk for such a list also meets other deliveries. So
 * each call ends after some rows, and the next call continues where the furthest walk ended.
 *
 * @param seen the sources that the caller may see; null: everything, or more than SOURCES_MAX sources
 */
export function walksOf(
  { meeting_id, instance_id }: DeliveryKeys,
  message_no: number | null,
  seen: Source[] | null,
): Source[][] {
  if (message_no !== null) return [[{ of: 'message', message_no }]];
  const walks: Source[][] = [];
  if (instance_id !== undefined) walks.push([{ of: 'instance', instance_id, first_no: 0 }]);
  if (meeting_id !== undefined) walks.push([{ of: 'meeting', meeting_id }]);
  if (seen !== null) walks.push(seen);
  return walks.length === 0 ? [[{ of: 'all' }]] : walks;
}

/**
 * Whether the walks of a list include one along all sources that the caller may see. That walk is needed unless the
 * list is limited to a message, to an instance, or to a meeting that the caller's key names.
 */
export function isWalkOfSeen(
  { meeting_id, instance_id, message_id }: DeliveryKeys,
  { meeting_ids }: Visibility,
): boolean {
  if (message_id !== undefined || instance_id !== undefined) return false;
  return meeting_id === undefined || !meeting_ids.includes(meeting_id);
}

/** The sources of all deliveries that a key may see; null when there are too many. */
export function sourcesSeen(
  owned: readonly { instance_id: string; first_no: number }[],
  meeting_ids: readonly string[],
): Source[] | null {
  if (owned.length + meeting_ids.length > SOURCES_MAX) return null;
  return [
    ...owned.map((instance) => ({ of: 'instance' as const, ...instance })),
    ...meeting_ids.map((meeting_id) => ({ of: 'meeting' as const, meeting_id })),
  ];
}
