/**
 * The contract of the store: rows in, rows out. It knows nothing of HTTP and decides nothing about deliveries.
 *
 * Each method is one transaction, or part of one that several share; when its promise resolves, what it wrote is on disk.
 * Arguments and results are plain data, so that an engine may live in another thread or behind a socket.
 * Times are milliseconds since the epoch. `next_attempt_at`, `backoff_until` and `expires_at` are on the steady clock of
 * the node (see src/delivery/clock.ts), all other times on the wall clock.
 *
 * The secrets of instances are plain here; how they are encrypted at rest is the engine's own business.
 *
 * `owner_scope` says which instances the caller may touch, and `visibility` what he may look at; absent or null: everything. What is
 * not his is answered as what does not exist, by the same statement, so that neither answer nor time tells the two apart.
 *
 * Methods reject with `Problem` for what a caller did, and with `StoreError` when the storage itself failed.
 */
import type { OwnerScope, Visibility } from '../domain/access.ts';
import type { ApiKey } from '../domain/api_key.ts';
import type { AuditAction, AuditEntry, AuditHead, AuditSubject, NewAuditEntry } from '../domain/audit.ts';
import type { DeliveryReason, DeliveryState, WaitingFor } from '../domain/delivery.ts';
import type { Health, Instance, InstanceHealth } from '../domain/instance.ts';
import type { Attempt, SuccessStatuses } from '../domain/outcome.ts';
import type { Session } from '../domain/session.ts';
import type { Lingers } from './linger.ts';

/** The storage could not do it (disk full, I/O error, connection lost): nothing was written. */
export class StoreError extends Error {
  /** The engine's own code, such as SQLITE_FULL. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = 'StoreError';
    this.code = code;
  }
}

export interface Page<T> {
  data: T[];
  next_cursor: string | null;
}

export interface PageRequest {
  limit: number;
  cursor?: string | undefined;
}

/** An instance with what is counted rather than stored. */
export interface InstanceRow extends Instance {
  /** The key that registered it; null when it was registered without keys. */
  owner_key_id: string | null;
  pending_deliveries: number;
}

export interface Registration {
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
  webhook_url: string;
  webhook_headers: Record<string, string> | undefined;
  webhook_secret: string | undefined;
  /** Used when the instance is new and no webhook_secret is given. */
  new_secret: string;
  success_statuses: SuccessStatuses | undefined;
  /** Who owns it when it is new; absent: nobody. */
  owner_key_id?: string | null | undefined;
}

export interface InstancePatch {
  instance_name?: string | undefined;
  is_active?: boolean | undefined;
  webhook_enabled?: boolean | undefined;
  webhook_headers?: Record<string, string> | undefined;
  success_statuses?: SuccessStatuses | undefined;
  /** Hands it over; null: to nobody. */
  owner_key_id?: string | null | undefined;
}

export interface InstanceFilter extends PageRequest {
  agent_id?: string | undefined;
  meeting_id?: string | undefined;
  is_active?: boolean | undefined;
  health?: Health | undefined;
  q?: string | undefined;
}

export interface InstanceStore {
  /**
   * Creates or updates (spec section 3); switches on, lifts the back-off, and forgets failures at another URL. Headers that it
   * does not give stay, unless the URL is of another origin: `dropped_header_names` are those that went. Rejects with
   * `instance_id_taken` when there is one that is not owned, and with `quota_exceeded`.
   */
  register(
    registration: Registration,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ created: boolean; instance: InstanceRow; dropped_header_names: string[] }>;
  get(instance_id: string, visibility?: Visibility | null): Promise<InstanceRow | null>;
  /** Those that exist, without counts: what the engine needs to deliver. */
  load(instance_ids: string[]): Promise<Instance[]>;
  list(filter: InstanceFilter, visibility?: Visibility | null): Promise<Page<InstanceRow>>;
  /** In the order of instance_id, those after one. */
  webhookUrls(after: string | null, limit: number): Promise<{ instance_id: string; webhook_url: string }[]>;
  /** Null when there is no such instance. Switching on lifts the back-off. */
  patch(
    instance_id: string,
    patch: InstancePatch,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<InstanceRow | null>;
  heartbeat(instance_id: string, wall_ms: number, owner_scope?: OwnerScope | null): Promise<InstanceRow | null>;
  /** The former secret signs as well for `overlap_ms`. */
  rotateSecret(
    instance_id: string,
    new_secret: string,
    overlap_ms: number,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<InstanceRow | null>;
  /**
   * Deletes an instance with its memberships and cancels its pending deliveries, at most `limit` in one call:
   * call again while `done` is false. Until then it stays registered, switched off.
   */
  remove(
    instance_id: string,
    limit: number,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ existed: boolean; done: boolean; cancelled: number }>;
}

export interface Membership {
  meeting_id: string;
  instance_id: string;
  agent_ids: string[];
  joined_at: number;
  left_at: number | null;
}

export interface MeetingInstance extends Membership {
  instance_name: string;
  health: Health;
}

export interface MeetingRow {
  meeting_id: string;
  last_seq: number;
  instance_count: number;
  agent_count: number;
  pending_deliveries: number;
  created_at: number;
  last_activity_at: number;
}

export interface MeetingFilter extends PageRequest {
  /** Part of the id. */
  q?: string | undefined;
  /** Only meetings that this instance is in. */
  instance_id?: string | undefined;
  /** With `instance_id`: also those that it has left. */
  include_left?: boolean | undefined;
}

export interface MeetingStore {
  /** Rejects with `instance_does_not_exist` and `quota_exceeded`. */
  join(
    meeting_id: string,
    instance_id: string,
    agent_ids: string[],
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ created: boolean; membership: Membership }>;
  /** Null when there was nothing to leave. Leaving again answers the first time of leaving. */
  leave(
    meeting_id: string,
    instance_id: string,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ left_at: number } | null>;
  list(filter: MeetingFilter, visibility?: Visibility | null): Promise<Page<MeetingRow>>;
  /** Null when there is no such meeting. */
  instances(
    meeting_id: string,
    filter: PageRequest & { include_left?: boolean | undefined },
  ): Promise<Page<MeetingInstance> | null>;
}

/** How long an Idempotency-Key answers the first result. */
export const IDEMPOTENCY_MS = 86_400_000;

/** A message on its way in. */
export interface NewMessage {
  meeting_id: string;
  /** The sender's own JSON text. A string, because it goes between threads several times as fast as a buffer of its own. */
  message: string;
  /** See `pushTimestamp`. */
  timestamp: string;
  /** Null or empty: a broadcast. */
  target_agents: string[] | null;
  /** A key is its sender's own: the key_id, or empty where there is none. */
  idempotency: { key: string; sender: string; fingerprint: string } | null;
  wall_ms: number;
  expires_at: number;
}

export interface AcceptedMessage {
  message_id: string;
  meeting_id: string;
  seq: number;
  accepted_at: number;
  deliveries_queued: number;
}

export interface AcceptedDelivery {
  delivery_id: string;
  instance_id: string;
  /** The JSON text of a list. */
  target_agents: string;
}

export type Accepted =
  | {
      kind: 'accepted';
      message: AcceptedMessage;
      deliveries: AcceptedDelivery[];
    }
  /** The same key and body were accepted before: the first answer. */
  | { kind: 'repeated'; message: AcceptedMessage }
  /** The same key came with another body. */
  | { kind: 'key_reused' }
  /** What stands in the store keeps it from being stored; others of the batch are. */
  | { kind: 'damaged' };

export interface MessageRow {
  message_id: string;
  seq: number;
  accepted_at: number;
  target_agents: string[] | null;
  /** The sender's own JSON text. */
  message: string;
}

/** A message as those are told who only want to know that it is there. */
export interface MessageHead extends AcceptedMessage {
  target_agents: string[] | null;
}

export interface MessageStore {
  /** Stores a batch of messages with their deliveries and idempotency records; results in the order of the batch. */
  accept(batch: NewMessage[]): Promise<Accepted[]>;
  /**
   * In the order of seq: those after `after_seq`, or else the last ones before `before_seq` (or the end). Stops early when
   * `chars_max` is reached. Null when there is no such meeting.
   */
  list(
    meeting_id: string,
    filter: { after_seq?: number | undefined; before_seq?: number | undefined; limit: number; chars_max: number },
  ): Promise<{ data: MessageRow[]; has_more: boolean } | null>;
  /** The message_id that was accepted last, of all meetings; null when there is none. */
  last(): Promise<string | null>;
  /**
   * What was accepted after a message (null: from the first that is kept), in the order of acceptance: of all meetings or
   * of some, and only what went to an instance when one is given. With several nodes, what one of them was storing while
   * another accepted `after` may come to stand before it: order holds within a meeting, not between meetings of two nodes.
   */
  since(
    after: string | null,
    filter: { meeting_ids?: string[] | undefined; instance_id?: string | undefined; limit: number },
  ): Promise<MessageHead[]>;
}

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

/** Which data key secrets are encrypted under at rest, and how it is changed while everything goes on. */
export interface EncryptionStore {
  /** The key that seals, and those that something may be under as well while the key is changed. */
  keyIds(): Promise<{ key_id: string; former_key_ids: string[] }>;
  /**
   * Makes a new key, which seals from now on; goes on with a change that was begun, instead of beginning another. Rejects
   * with `encryption_key_given` when the key is a setting.
   */
  changeKey(wall_ms: number): Promise<{ key_id: string; former_key_ids: string[] }>;
  /** Seals at most `limit` instances after one anew; `next` is where to go on, null at the end. */
  reencrypt(after: string | null, limit: number): Promise<{ rewritten: number; next: string | null }>;
  /** Says that nothing is under a former key any more. */
  endChange(): Promise<void>;
  /** Drops the former key, when the end of the change is on disk. */
  forgetFormerKey(): Promise<void>;
}

/** A key on its way in. */
export type NewApiKey = Pick<
  ApiKey,
  'key_id' | 'name' | 'scopes' | 'meeting_ids' | 'instance_id' | 'digest' | 'created_at' | 'expires_at'
>;

export interface ApiKeyStore {
  /** Rejects with `first_key_not_admin` when there is no key yet and this one would leave nobody to make another. */
  create(key: NewApiKey): Promise<ApiKey>;
  get(key_id: string): Promise<ApiKey | null>;
  /** In the order of their making. */
  list(page: PageRequest): Promise<Page<ApiKey>>;
  /**
   * Ends its sessions too. Null when there is no such key; rejects with `last_admin_key`. Revoking again answers the first
   * time.
   */
  revoke(key_id: string, wall_ms: number): Promise<ApiKey | null>;
  /**
   * The former token is taken as well for `overlap_ms`, and no session of it lasts longer. Null when there is no such key;
   * rejects with `key_not_active`.
   */
  rotate(key_id: string, digest: string, overlap_ms: number, wall_ms: number): Promise<ApiKey | null>;
  /** Every key that was changed after `change_no`, in the order of the changes: what a node knows of keys is kept so. */
  changedSince(change_no: number): Promise<ApiKey[]>;
  /** Notes when keys were last used. */
  recordUse(uses: { key_id: string; used_at: number }[]): Promise<void>;
}

/** Sessions of one key, or by a link, at a time: one more ends the oldest. */
export const SESSIONS_PER_KEY_MAX = 100;

/** Who signed in on a page. */
export interface SessionStore {
  /** Removes those that have ended, too. */
  create(session: Session): Promise<Session>;
  /** Null when there is none with this digest, or it has ended. */
  find(digest: string, wall_ms: number): Promise<Session | null>;
  /** Those of these digests that have neither ended nor been removed, in their order. */
  standing(digests: string[], wall_ms: number): Promise<string[]>;
  /** Those that have not ended, the latest first. */
  list(page: PageRequest, wall_ms: number): Promise<Page<Session>>;
  /** The session that was removed. */
  remove(digest: string): Promise<Session | null>;
  /** The same by what others call it. */
  end(session_id: string): Promise<Session | null>;
}

/** How many there may be; 0: no limit. */
export interface Quotas {
  max_instances: number;
  max_instances_per_key: number;
  max_instances_per_meeting: number;
  max_meetings_per_instance: number;
}

export const NO_QUOTAS: Quotas = {
  max_instances: 0,
  max_instances_per_key: 0,
  max_instances_per_meeting: 0,
  max_meetings_per_instance: 0,
};

export interface AuditFilter extends PageRequest {
  /** The last entry first; otherwise the first one. */
  newest_first: boolean;
  action?: AuditAction | undefined;
  /** Who did it: a key_id, or one of the other words for a principal. */
  principal?: string | undefined;
  instance_id?: string | undefined;
  since_ms?: number | undefined;
  until_ms?: number | undefined;
}

/** What is written cannot be changed, and is removed only from its beginning, by an entry that says so. */
export interface AuditStore {
  append(entry: NewAuditEntry, wall_ms: number): Promise<AuditHead>;
  list(filter: AuditFilter): Promise<Page<AuditEntry>>;
  /**
   * Removes at most `limit` of the first entries, as long as they were written before a time, and leaves an entry about it.
   * Does nothing while the first one was written less than a day before that time. Answers how many were removed.
   */
  prune(before_ms: number, limit: number, wall_ms: number): Promise<number>;
}

/** Who makes a change, and when: written into the audit log in the transaction of the change, if there is one. */
export interface Audited {
  subject: AuditSubject;
  wall_ms: number;
}

/** The nouns whose changes are audited. */
export type AuditedStore = Pick<
  Store,
  'instances' | 'meetings' | 'deliveries' | 'encryption' | 'api_keys' | 'sessions'
>;

/** A message that another node stored, with those of its deliveries in partitions of this node that nobody tried yet. */
export interface StoredMessage
  extends Omit<AcceptedMessage, 'deliveries_queued'>, Pick<NewMessage, 'message' | 'timestamp' | 'expires_at'> {
  deliveries: AcceptedDelivery[];
}

/** What another node stored of a meeting in one batch. */
export interface StoredRange {
  meeting_id: string;
  /** All seqs from the first to the last, both included. */
  first_seq: number;
  last_seq: number;
  /** In the order of seq, those that have such deliveries. */
  messages: StoredMessage[];
}

/** What another node did that this one must know. */
export type Change =
  /** Another node stored messages, which are read now: they come with the next `stored`, as they were at this moment or later. */
  | { kind: 'reading' }
  | { kind: 'stored'; ranges: StoredRange[] }
  /**
   * An instance was changed by another node. `lifts`: its back-off ends. `requeued`: deliveries of it were queued again or
   * cancelled: what is in memory must be read anew, and what is beside its lanes looked for at once.
   */
  | { kind: 'instance'; instance_id: string; lifts: boolean; requeued: boolean }
  /** API keys changed. */
  | { kind: 'keys' }
  /** Any text that one node tells all. */
  | { kind: 'broadcast'; topic: string; text: string }
  /**
   * Changes may have been missed (the connection was lost), or a batch was given up of which is not known whether it was
   * stored: look at everything again.
   */
  | { kind: 'unsure' };

/** One node of a cluster. Times are on the clock of the database: for people, nothing is decided by them. */
export interface NodeRow {
  /** A text that no other start of a node ever has. */
  node_id: string;
  /** Its number, in the order in which nodes joined. */
  node_no: number;
  version: string;
  /** Where it answers requests. */
  address: string;
  started_at: number;
  seen_at: number;
  lease_until: number;
  /** It gives back what it holds and takes nothing more. */
  stopping: boolean;
  partition_count: number;
}

export interface Lease {
  /** This node's. */
  node_no: number;
  /** What this node holds. The epoch of a partition rises whenever it is taken, even by whoever had it before. */
  partitions: { partition_no: number; epoch: number }[];
  /** Those that live, and this one. */
  nodes: NodeRow[];
}

/**
 * What the nodes on one store know of each other.
 *
 * So that no delivery is overlooked, the owner is told of whatever another node stores for him. When the answer to an
 * accept has come, the store tells of all deliveries but those in partitions that this node certainly holds: those of the
 * last lease, less those that a `renew` or `leave` gives back since it was asked for, and none `LEASE_TRUSTED_MS` after that
 * lease was asked for. Whoever takes a partition reads all of it after that.
 */
export interface ClusterStore {
  /**
   * Renews the lease of this node, or joins. Gives back `release` (what it does not hold is passed over), and takes what is
   * free, or what a node without a lease holds, up to its `fairShare`; a node that is stopping takes nothing. What nobody
   * took while its own lease had ended it keeps, with its epoch. One transaction.
   */
  renew(node: Pick<NodeRow, 'node_id' | 'version' | 'address' | 'stopping'>, release: number[]): Promise<Lease>;
  /** Gives back everything and removes the node; it does not come back under this id. */
  leave(): Promise<void>;
  list(): Promise<NodeRow[]>;
  /** Tells all other nodes, but not this one; lost to those that are not connected. At most 5,600 bytes. */
  broadcast(topic: string, text: string): Promise<void>;
}

/** How far a copy is. Pages are the engine's own, of one size. */
export interface BackupProgress {
  pages_total: number;
  pages_left: number;
}

/** Copies of everything that is stored, made while everything goes on; one at a time. */
export interface BackupStore {
  /** Begins a copy that will hold all that is stored by now. Rejects with `backup_under_way` and `backup_no_room`. */
  begin(): Promise<{ backup_id: string }>;
  /**
   * Waits for a copy, at most `wait_ms`. When there is a `path`, the copy is whole, and from now on the caller's to remove.
   * Null when there is no such copy: it was handed over, it failed before, or nobody asked for it for a minute.
   */
  wait(backup_id: string, wait_ms: number): Promise<(BackupProgress & { path: string | null }) | null>;
}

/** How much of the data file is in use. */
export interface FileSpace {
  page_bytes: number;
  pages: number;
  free_pages: number;
  /** Whether it can get smaller while it is in use. */
  gives_back: boolean;
}

/** The one file of an engine that has one. */
export interface FileStore {
  space(): Promise<FileSpace>;
  /** Gives pages that are free back to the disk, at most so many and for so long; none while a copy is made. */
  giveBack(pages_max: number, ms_max: number): Promise<FileSpace & { given_back: number }>;
  /** Takes what was given back from the end of the file. */
  cutOff(): Promise<void>;
}

/** Whether the storage stands still: it neither does what it is asked nor fails. */
export interface Stall {
  /** A commit has been in progress for 3 seconds: whoever comes is refused, until an answer comes. */
  readonly is_stalled: boolean;
  /** It stands still, and reads wait for writes. */
  readonly holds_up_reading: boolean;
  /** Is called again and again while it lasts. `is_long`: for 6 seconds, and who waits should not wait any more. */
  onStall(listener: (is_long: boolean) => void): void;
}

export interface Store {
  /** Absent in an engine that has no thread. */
  stall?: Stall;
  /** Absent in an engine that gives space back by itself. */
  file?: FileStore;
  /** Null for an engine that one process has for itself. */
  cluster: ClusterStore | null;
  /** Called with each change by other nodes; set once, before the first renewal. Never called without a cluster. */
  onChange(listener: (change: Change) => void): void;
  audit: AuditStore;
  /** Absent in an engine that has tools of its own for it. */
  backups?: BackupStore;
  /** How far apart batches should be; absent in an engine that is glad of each. */
  lingers?: Lingers;
  /** The same store for one change: its call leaves an entry in the audit log, unless it changes nothing. */
  audited(audited: Audited): AuditedStore;
  instances: InstanceStore;
  meetings: MeetingStore;
  messages: MessageStore;
  deliveries: DeliveryStore;
  encryption: EncryptionStore;
  api_keys: ApiKeyStore;
  sessions: SessionStore;
  /** Resolves when a write has reached the disk; rejects with `StoreError`, when the disk is full for one. */
  ping(): Promise<void>;
  close(): Promise<void>;
}
