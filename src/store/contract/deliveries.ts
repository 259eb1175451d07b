import type { OwnerScope, Visibility } from '../../domain/access.ts';
import type { DeliveryReason, DeliveryState, WaitingFor } from '../../domain/delivery.ts';
import type { ClockNote, Hold } from '../../domain/clock_hold.ts';
import type { MemberRules, NewestInLane } from '../../domain/catch_up.ts';
import type { InstanceHealth } from '../../domain/instance.ts';
import type { MessageOrigin } from '../../domain/message_origin.ts';
import type { TraceContext } from '../../domain/trace_context.ts';
import type { Attempt } from '../../domain/outcome.ts';
import type { Page, PageRequest } from './page.ts';
import type { DeliveryKeys, DeliverySearch, Reads, SearchPage } from './search.ts';

/** A pending delivery as the delivery engine needs it. */
export interface QueuedDelivery {
  delivery_id: string;
  message_id: string;
  meeting_id: string;
  seq: number;
  instance_id: string;
  /** The list of agents, as JSON text. */
  target_agents: string;
  /** The sender's own JSON text. */
  message: string;
  timestamp: string;
  origin: MessageOrigin | null;
  trace: TraceContext | null;
  accepted_at: number;
  expires_at: number;
  attempt_count: number;
  answered_badly: number;
  attempts: Attempt[];
  next_attempt_at: number | null;
}

/** The result of an attempt, or of expiry, for a delivery. */
export interface DeliverySettlement {
  delivery_id: string;
  /**
   * The value that was read with the delivery. A delivery that is queued again by hand gets a new value, and the store
   * ignores a settlement with the old one.
   */
  expires_at: number;
  state: DeliveryState;
  reason: DeliveryReason | null;
  attempt_count: number;
  answered_badly: number;
  /** The text that `attemptsText` makes and the store keeps. */
  attempts: string;
  next_attempt_at: number | null;
  aside: boolean;
  settled_at: number | null;
  /** The epoch of the instance's partition, as this node held it when the attempt began; 0 without a cluster. */
  epoch: number;
}

/**
 * The health of an instance after attempts. Health belongs to a URL: when the instance has another URL now, the store
 * ignores the settlement.
 */
export interface HealthSettlement extends InstanceHealth {
  instance_id: string;
  webhook_url: string;
  /**
   * Null: the receiver did not respond 410. Otherwise the `updated_at` that the instance had when the receiver
   * responded 410: the store switches the webhook off, unless the instance was changed since.
   */
  gone_as_of: number | null;
  /** The epoch of the instance's partition, as this node held it; 0 without a cluster. */
  epoch: number;
}

/** Rows that another session of the database has locked. */
export interface LockedRows {
  deliveries: { delivery_id: string; instance_id: string }[];
  instance_ids: string[];
}

export interface DeliveryRow {
  delivery_id: string;
  message_id: string;
  meeting_id: string;
  seq: number;
  instance_id: string;
  target_agents: string[];
  state: DeliveryState;
  reason: DeliveryReason | null;
  waiting_for: WaitingFor | null;
  attempt_count: number;
  attempts: Attempt[];
  next_attempt_at: number | null;
  created_at: number;
  settled_at: number | null;
}

export interface DeliveryFilter extends DeliveryKeys, PageRequest {
  state?: DeliveryState | undefined;
}

/** The pending deliveries of an instance, or of a meeting; with both ids, those of one lane. */
export interface Waiting {
  instance_id?: string | undefined;
  meeting_id?: string | undefined;
  /** The message_id of the last message whose deliveries count. Null: no message is stored, so no delivery counts. */
  up_to: string | null;
}

export interface LaneKey {
  instance_id: string;
  meeting_id: string;
}

/** A period of the wall clock, both ends included. */
export interface Span {
  since_ms: number;
  until_ms: number;
}

/**
 * Deliveries of an instance to queue again. Either all that failed within a period, or those of the given ids that may
 * be queued again: see `mayQueueAgain`.
 */
export type Recovery = { instance_id: string } & (Span | { delivery_ids: readonly string[] });

/** A page of a lane, or of the deliveries aside, ends where its deliveries reach this many characters. */
export const LANE_PAGE_CHARS_MAX = 256 << 10;

/** The characters of a delivery: its message and its list of agents. */
export function queuedChars({ message, target_agents }: Pick<QueuedDelivery, 'message' | 'target_agents'>): number {
  return message.length + target_agents.length;
}

/** A message from an agent to the agents of an instance. */
export interface AgentDelivery {
  message_id: string;
  from_agent: string;
  /** The list of agents, as JSON text. */
  target_agents: string;
  accepted_at: number;
  hops: number;
  /** Whether the message waits in its lane and the loop guard has not judged it yet. */
  is_unjudged: boolean;
  /**
   * Whether the message waits in its lane and no attempt has reached a receiver, so the rules of its membership may
   * cancel it.
   */
  may_be_left_out: boolean;
}

/** How much one read of the messages of agents may read. */
export interface AgentReadLimits {
  rows_max: number;
  /** The most bytes of all lists of agents together. */
  bytes_max: number;
  from_agent?: string | null | undefined;
}

/** What decides, beside the loop guard, whether the head of a lane is pushed. */
export interface RulesAtHead extends NewestInLane {
  rules: MemberRules;
  /**
   * How many messages for the agents of the membership arrived since the last push and will not be pushed: see
   * `missedOf`.
   */
  missed: number;
}

/** A page of a lane: at most `limit` pending deliveries with a seq above `after_seq`. */
export interface LaneRequest extends LaneKey {
  after_seq: number;
  limit: number;
}

/** How far the lanes were checked for expired deliveries. */
export interface ExpiryPlace extends LaneKey {
  /** This lane was checked up to this seq; null: to its end. */
  seq: number | null;
}

/** The place of a delivery aside. `expireAside` orders by instance, due time and delivery_id. */
export interface AsidePlace {
  instance_id: string;
  next_attempt_at: number;
  delivery_id: string;
}

/** How many deliveries of a lane ended in one call, those aside included. */
export interface EndedInLane extends LaneKey {
  count: number;
}

/**
 * How far `prune` has come. Rows before this place that are still there must stay for now. Null: begins with the oldest
 * row.
 */
export interface PrunePlace {
  delivery_id: string | null;
  message_id: string | null;
  /** The number of an idempotency key; null for an engine that finds the old keys by an index. */
  key_no: number | null;
}

/** An instance with pending deliveries aside, and the time at which the first of these is due. */
export interface PendingAside {
  instance_id: string;
  next_at: number;
}

export interface DeliveryStore {
  /**
   * Changes only deliveries that are still pending, and that nobody queued again since they were read. For a delivery
   * that has expired in the table meanwhile, writes the result of the last attempt: see `lateEnd`. In a cluster the
   * partition must still have the epoch of the settlement. So the settlements of a node that lost the partition are
   * ignored.
   *
   * @returns what is not written, because somebody else has locked the rows; null when everything is written
   */
  settle(deliveries: DeliverySettlement[], healths: HealthSettlement[]): Promise<LockedRows | null>;
  /**
   * The next page of each lane, in the order of seq. A page is shorter than its limit at the end of the lane, or when
   * its deliveries reach LANE_PAGE_CHARS_MAX.
   */
  loadLanes(requests: LaneRequest[]): Promise<QueuedDelivery[][]>;
  /**
   * A page of the deliveries of an instance that are aside and due, without those of paused meetings. `next_at`: when
   * the first delivery after the page is due, or an earlier time; null: none follows. A call reads at most 2,000
   * deliveries. If all of these are of paused meetings, the page is empty, and the next call needs `next` as its
   * `after`. Otherwise `next` is null.
   */
  loadAside(
    instance_id: string,
    now_ms: number,
    limit: number,
    after?: AsidePlace | null,
  ): Promise<{ deliveries: QueuedDelivery[]; next_at: number | null; next: AsidePlace | null }>;
  /**
   * Lanes with pending deliveries; with `partitions`, only the lanes of instances in these partitions. The order is
   * always the same, so that callers can read page by page. SQLite orders by the keys of the lanes, PostgreSQL by
   * partition and then by the keys.
   */
  pendingLanes(after: LaneKey | null, limit: number, partitions?: number[]): Promise<LaneKey[]>;
  /**
   * Instances that have pending deliveries aside; with `partitions`, only instances in these partitions. The order is
   * that of `pendingLanes`.
   */
  pendingAside(after: string | null, limit: number, partitions?: number[]): Promise<PendingAside[]>;
  /**
   * Deliveries aside that are due after `latest_ms` become due at `latest_ms`: at most `limit` of them. Only a process
   * whose clock was ahead can have written a later time. With `partitions`, only deliveries to instances in these
   * partitions. Returns how many deliveries it changed; 0: none is due later.
   */
  boundAside(latest_ms: number, limit: number, partitions?: number[]): Promise<number>;
  /**
   * The messages of agents to an instance in a meeting, after `since_ms` and before a delivery, in the order of seq.
   * Leaves out messages that were cancelled, or that expired before an attempt. With `from_agent`, only the messages of
   * this agent. Reads at most `rows_max` deliveries of the instance: the last ones before that delivery, or the latest
   * ones when delivery_id is null. Returns the latest ones, whose lists of agents have together at most `bytes_max`.
   */
  ofAgentsBefore(
    before: LaneKey & { delivery_id: string | null; seq: number },
    since_ms: number,
    limits: AgentReadLimits,
  ): Promise<AgentDelivery[]>;
  /**
   * The rules of the membership of `head`, and two facts that the rules need. The first: the newest deliveries that
   * wait behind `head` and do not expire sooner. The second: how many messages the membership missed before `head`.
   * Reads at most `rows_max` deliveries for each fact. Messages that were accepted before `known_since_ms` do not count
   * as missed, because their deliveries may be removed.
   */
  rulesAtHead(
    head: LaneKey & { delivery_id: string; seq: number; expires_at: number },
    at: { known_since_ms: number; rows_max: number },
  ): Promise<RulesAtHead>;
  get(delivery_id: string, now_ms: number, visibility?: Visibility | null): Promise<DeliveryRow | null>;
  list(filter: DeliveryFilter, now_ms: number, visibility?: Visibility | null): Promise<Page<DeliveryRow>>;
  /**
   * Searches deliveries for values that no index has, newest first. Reads at most `reads` of the rows that the keys in
   * the search select.
   */
  search(
    search: DeliverySearch,
    reads: Reads,
    now_ms: number,
    visibility?: Visibility | null,
  ): Promise<SearchPage<DeliveryRow>>;
  /**
   * Queues a failed or cancelled delivery again, aside and due at once. A pending delivery that waits for its time
   * becomes due now. Ends the back-off of the instance. Null when there is no such delivery; rejects with
   * `delivery_not_retryable`: see `mayQueueAgain`.
   */
  retry(
    delivery_id: string,
    now_ms: number,
    expires_at: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ instance_id: string; meeting_id: string; aside: boolean } | null>;
  /**
   * Queues at most `limit` of these deliveries again, in order. When it queued fewer than `limit`, none is left. Ends
   * the back-off of the instance. Null when there is no such instance.
   */
  recover(
    of: Recovery,
    limit: number,
    now_ms: number,
    expires_at: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ recovered: number } | null>;
  /** How many deliveries `recover` would queue again, counted up to `most`; null when there is no such instance. */
  countRecoverable(of: Recovery, most: number, owner_scope?: OwnerScope | null): Promise<number | null>;
  /**
   * How many messages for the agents of an instance were accepted in this period and have no delivery, because the
   * instance was switched off. The present memberships of the instance decide which messages count. Reads at most
   * `rows_max` messages and memberships, the newest messages of each meeting first; `at_least` says that there may be
   * more.
   */
  countMissed(instance_id: string, span: Span, rows_max: number): Promise<{ messages: number; at_least: boolean }>;
  /**
   * Fails expired deliveries in at most `lanes_max` lanes behind `after`. A call also ends after some deliveries, even
   * in the middle of a lane. `next` is where to continue; null when all lanes were checked.
   */
  expireLanes(
    after: ExpiryPlace | null,
    lanes_max: number,
    shared_ms: number,
    wall_ms: number,
    hold?: Hold,
  ): Promise<{ expired: EndedInLane[]; next: ExpiryPlace | null }>;
  /**
   * Checks some of the deliveries aside that follow `after`, in the order of AsidePlace, and fails those that have
   * expired. `next` is where to continue; null when all were checked. A delivery whose due time changes meanwhile may
   * be left out until the next round.
   */
  expireAside(
    after: AsidePlace | null,
    shared_ms: number,
    wall_ms: number,
    hold?: Hold,
  ): Promise<{ expired: EndedInLane[]; next: AsidePlace | null }>;
  /** How many deliveries `drop` would cancel, counted up to `most`. */
  countWaiting(waiting: Waiting, most: number, owner_scope?: OwnerScope | null): Promise<number>;
  /**
   * Cancels at most `limit` of these deliveries, with the reason `dropped`; fewer when no more are left. Returns how
   * many it cancelled in each lane. A caller that owns some instances drops only the deliveries to its own instances.
   */
  drop(waiting: Waiting, limit: number, wall_ms: number, owner_scope?: OwnerScope | null): Promise<EndedInLane[]>;
  /**
   * Checks some of the rows that follow `after`, and removes those that are older than their retention: at most `limit`
   * of each kind. `next` is where to continue; null when all old rows were checked. With SQLite all other writes wait
   * for this call, so it ends after `ms_max`, but not before it has removed a few rows of each kind.
   *
   * @param before.future_ms a row that was made later has the time of a wrong clock, so old rows may follow it
   * @param after null: begins with the oldest rows
   */
  prune(
    before: { deliveries_ms: number; messages_ms: number; idempotency_ms: number; future_ms: number },
    limit: number,
    ms_max: number,
    after: PrunePlace | null,
  ): Promise<{ removed: number; next: PrunePlace | null }>;
  /** What was noted last; null when nothing was noted yet. */
  timeNoted(): Promise<ClockNote | null>;
  noteTime(note: ClockNote): Promise<void>;
  countPending(visibility?: Visibility | null): Promise<number>;
  /** When the oldest pending delivery was made; null when none is pending. */
  oldestPending(visibility?: Visibility | null): Promise<number | null>;
}
