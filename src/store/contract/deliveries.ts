import type { OwnerScope, Visibility } from '../../domain/access.ts';
import type { DeliveryReason, DeliveryState, WaitingFor } from '../../domain/delivery.ts';
import type { InstanceHealth } from '../../domain/instance.ts';
import type { Attempt } from '../../domain/outcome.ts';
import type { Page, PageRequest } from './page.ts';

/** A pending delivery as the engine needs it. */
export interface QueuedDelivery {
  delivery_id: string;
  message_id: string;
  meeting_id: string;
  seq: number;
  instance_id: string;
  /** JSON text of the list. */
  target_agents: string;
  /** The sender's own JSON text. */
  message: string;
  timestamp: string;
  accepted_at: number;
  expires_at: number;
  attempt_count: number;
  answered_badly: number;
  attempts: Attempt[];
  next_attempt_at: number | null;
}

/** What an attempt, or the lapse of time, made of a delivery. */
export interface DeliverySettlement {
  delivery_id: string;
  /** As it was read: when a delivery is queued again by hand it gets a new one, and what is said of the old is void. */
  expires_at: number;
  state: DeliveryState;
  reason: DeliveryReason | null;
  attempt_count: number;
  answered_badly: number;
  /** JSON text of a list of Attempt: as it is stored. */
  attempts: string;
  next_attempt_at: number | null;
  aside: boolean;
  settled_at: number | null;
  /** Of the partition of its instance, as this node held it when the attempt began; 0 without a cluster. */
  epoch: number;
}

/** What attempts made of an instance. Void when the instance has another URL by now: health is that of a URL. */
export interface HealthSettlement extends InstanceHealth {
  instance_id: string;
  webhook_url: string;
  /** A 410 switches the webhook off, unless the instance was changed after this `updated_at`. */
  gone_as_of: number | null;
  /** Of the partition of the instance, as this node held it; 0 without a cluster. */
  epoch: number;
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

export interface DeliveryFilter extends PageRequest {
  instance_id?: string | undefined;
  meeting_id?: string | undefined;
  message_id?: string | undefined;
  state?: DeliveryState | undefined;
}

export interface LaneKey {
  instance_id: string;
  meeting_id: string;
}

/** A page of a lane, or of what is beside the lanes, ends where its deliveries come to this. */
export const LANE_PAGE_CHARS_MAX = 256 << 10;

/** What a delivery comes to there: its message and the list of those it is for. */
export function queuedChars({ message, target_agents }: Pick<QueuedDelivery, 'message' | 'target_agents'>): number {
  return message.length + target_agents.length;
}

/** A page of a lane: at most `limit` of what is pending there behind `after_seq`. */
export interface LaneRequest extends LaneKey {
  after_seq: number;
  limit: number;
}

/** How many deliveries expired in a lane and beside it. */
export interface ExpiredInLane extends LaneKey {
  count: number;
}

export interface DeliveryStore {
  /**
   * Only what is still pending, and was not queued again by hand meanwhile, is changed; in a cluster only while the
   * partition still has the epoch: what a node says of what it no longer holds is void.
   */
  settle(deliveries: DeliverySettlement[], healths: HealthSettlement[]): Promise<void>;
  /**
   * The next pending deliveries of lanes, each in the order of seq, after a seq. A page is shorter than its limit at the end
   * of the lane, and where its deliveries come to LANE_PAGE_CHARS_MAX.
   */
  loadLanes(requests: LaneRequest[]): Promise<QueuedDelivery[][]>;
  /** The deliveries beside the lanes of an instance that are due, a page of them, and when the next one is. */
  loadAside(
    instance_id: string,
    now_ms: number,
    limit: number,
  ): Promise<{ deliveries: QueuedDelivery[]; next_at: number | null }>;
  /**
   * Lanes with something pending; with `partitions`, only of instances in these. In an order that is always the same, so that
   * they can be read in pages: by their keys in SQLite, in PostgreSQL by the partition of the instance and then by their keys.
   */
  pendingLanes(after: LaneKey | null, limit: number, partitions?: number[]): Promise<LaneKey[]>;
  /** Instances with something pending beside their lanes, with the time when it is due; `partitions` as above. */
  pendingAside(partitions?: number[]): Promise<{ instance_id: string; next_at: number }[]>;
  /**
   * What is pending beside the lanes and due later than `latest_ms` was written on a clock that was ahead: it is due then;
   * `partitions` as above. Answers how many these were.
   */
  boundAside(latest_ms: number, partitions?: number[]): Promise<number>;
  get(delivery_id: string, now_ms: number, visibility?: Visibility | null): Promise<DeliveryRow | null>;
  list(filter: DeliveryFilter, now_ms: number, visibility?: Visibility | null): Promise<Page<DeliveryRow>>;
  /**
   * Queues a failed delivery again, beside its lane and at once; brings a pending one that waits for its time forward.
   * Null when there is no such delivery; rejects with `delivery_not_retryable`.
   */
  retry(
    delivery_id: string,
    now_ms: number,
    expires_at: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ instance_id: string; meeting_id: string; aside: boolean } | null>;
  /** Queues what failed for an instance at or after `since_ms` again, in order; null when there is no such instance. */
  recover(
    instance_id: string,
    since_ms: number,
    now_ms: number,
    expires_at: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ recovered: number } | null>;
  /**
   * Fails the pending deliveries whose time is up, in at most `lanes_max` lanes after one; `next` is where to go on, null
   * when all were looked at.
   */
  expire(
    after: LaneKey | null,
    lanes_max: number,
    now_ms: number,
    wall_ms: number,
  ): Promise<{ expired: ExpiredInLane[]; next: LaneKey | null }>;
  /** Removes at most `limit` rows of each kind that are older than their retention; answers their number. */
  prune(before: { deliveries_ms: number; messages_ms: number; idempotency_ms: number }, limit: number): Promise<number>;
  /** The time that was noted last; null before the first. */
  timeNoted(): Promise<number | null>;
  /** Notes the time until which a node ran, as far as it knows: on the steady clock. */
  noteTime(now_ms: number): Promise<void>;
  countPending(): Promise<number>;
  /** When the longest pending delivery was made; null when nothing is pending. */
  oldestPending(): Promise<number | null>;
}
