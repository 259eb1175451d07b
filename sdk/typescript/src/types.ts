/**
 * The shapes of Convoke's API as plain interfaces. They are the same as the server's schemas: test/sdk_types.test.ts
 * fails to compile when one of them drifts. Times are RFC 3339 UTC with milliseconds.
 *
 * - instance: one machine running an agent runtime
 * - membership: the agents of one instance that take part in one meeting
 * - message: what was sent in a meeting, an opaque JSON object
 * - delivery: one message on its way to one instance
 * - attempt: one HTTP POST made for a delivery
 */

/** Any JSON object. Convoke never edits it. */
export type JsonObject = Record<string, unknown>;

/** `unknown`: nothing tried yet; `failing`: 1 to 4 failures in a row; `down`: 5 or more. */
export type Health = 'unknown' | 'up' | 'failing' | 'down';

/** Which answers to a push count as a success: only 200 (the default), or every 2xx. */
export type SuccessStatuses = '200' | '2xx';

/** How an attempt ended, as a ladder: up to `tls_failed` the machine was never reached. */
export type Outcome =
  | 'blocked'
  | 'dns_failed'
  | 'connect_refused'
  | 'connect_timeout'
  | 'unreachable'
  | 'tls_failed'
  | 'timeout'
  | 'broken_response'
  | 'bad_status'
  | 'gone'
  | 'not_200'
  | 'ok';

export interface LastFailure {
  at: string;
  outcome: Outcome;
  /** Null when no status line came. */
  status_code: number | null;
  detail: string;
  /** One sentence: what to do about it. */
  advice: string;
}

export interface Instance {
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
  webhook_url: string;
  webhook_enabled: boolean;
  is_active: boolean;
  success_statuses: SuccessStatuses;
  /** The names of the headers sent with every push; their values are never answered. */
  webhook_header_names: string[];
  health: Health;
  consecutive_failures: number;
  last_success_at: string | null;
  last_failure: LastFailure | null;
  /** Deliveries that are not settled yet. */
  pending_deliveries: number;
  /** The key that owns it; null when it was registered without keys: only admins touch it. */
  owner_key_id: string | null;
  /** The last registration or heartbeat. */
  last_seen_at: string | null;
  created_at: string;
  updated_at: string;
}

export interface RegisteredInstance extends Instance {
  /** Only when it was just made: keep it, it is not shown again. */
  webhook_secret?: string;
}

/** One running process of the service. */
export interface ServiceNode {
  node_id: string;
  version: string;
  address: string;
  started_at: string;
  last_seen_at: string;
  /** `stopping` gives back what it holds; `lost` was not heard of for 15 s, and the others take over. */
  state: 'up' | 'stopping' | 'lost';
  /** How many of the 64 partitions it holds. */
  partitions: number;
}

export interface RegisterInput {
  /** Registering an id that exists overwrites the name, the agents and the URL of that instance. */
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
  /** http or https, without a user name or password. */
  webhook_url: string;
  /** Sent with every push, for example `{authorization: 'Bearer …'}`. Kept from before when absent. */
  webhook_headers?: Record<string, string> | undefined;
  /** `whsec_` and the base64 of 24 to 64 bytes. Made by Convoke at the first registration when absent. */
  webhook_secret?: string | undefined;
  success_statuses?: SuccessStatuses | undefined;
}

/** At least one field. */
export interface UpdateInstanceInput {
  instance_name?: string | undefined;
  is_active?: boolean | undefined;
  webhook_enabled?: boolean | undefined;
  /** Replaces the former headers as a whole. */
  webhook_headers?: Record<string, string> | undefined;
  success_statuses?: SuccessStatuses | undefined;
  /** Hands the instance over to another key, or to nobody but admins. Only admins may. */
  owner_key_id?: string | null | undefined;
}

export interface RotateSecretInput {
  /** How long the former secret signs as well; a day when absent, 30 days at most. */
  overlap_seconds?: number | undefined;
}

export interface RotatedSecret {
  /** The new secret; it is not shown again. */
  webhook_secret: string;
  /** Until then every push carries two signatures. */
  previous_secret_expires_at: string;
}

/** `admin`: everything; `send`: send messages; `read`: look at everything; `instance`: register, and its own instances. */
export type Scope = 'admin' | 'send' | 'read' | 'instance';

/** A key, without its token. */
export interface ApiKey {
  key_id: string;
  name: string | null;
  scopes: Scope[];
  /** Limits sending, reading and joining to these meetings; null: no limit. */
  meeting_ids: string[] | null;
  /** Limits the scope `instance` to this one; null: no limit. */
  instance_id: string | null;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  /** To the minute. */
  last_used_at: string | null;
  /** Until then the token before the last rotation is taken as well. */
  previous_token_expires_at: string | null;
}

export interface ApiKeyWithToken extends ApiKey {
  /** Give it as `api_key`; it is not shown again. */
  token: string;
}

export interface CreateKeyInput {
  scopes: Scope[];
  name?: string | undefined;
  /** Limits sending, reading and joining to these meetings. */
  meeting_ids?: string[] | undefined;
  /** Limits the scope `instance` to this one. */
  instance_id?: string | undefined;
  /** RFC 3339. */
  expires_at?: string | undefined;
}

export interface RotateKeyInput {
  /** How long the former token is taken as well; a day when absent, 30 days at most. */
  overlap_seconds?: number | undefined;
}

export interface RecoverInput {
  /** RFC 3339. Deliveries that failed at or after it are queued again. */
  since: string;
}

/** What a step of changing the data key came to; call again while `done` is false. */
export interface Reencryption {
  /** The data key that secrets are encrypted under from now on. */
  key_id: string;
  /** Instances whose secrets this call encrypted anew. */
  rewritten: number;
  /** Whether the former key is dropped. */
  done: boolean;
}

/** A copy of all data that is being made. */
export interface Backup {
  backup_id: string;
}

/** How far a copy is. */
export interface BackupProgress {
  /** Pages of the data file; 0 while nothing is copied. */
  pages_total: number;
  pages_left: number;
}

export interface Recovered {
  /** How many deliveries were queued again. */
  recovered: number;
}

export interface JoinMeetingInput {
  instance_id: string;
  /** An integer is taken as its decimal string. */
  meeting_id: string | number;
  /** Replaces the agents of a former join. */
  agent_ids: string[];
}

export interface LeaveMeetingInput {
  instance_id: string;
  meeting_id: string | number;
}

export interface LeftMeeting {
  instance_id: string;
  meeting_id: string;
  /** Null when there was nothing to leave. */
  left_at: string | null;
}

export interface Membership {
  meeting_id: string;
  instance_id: string;
  agent_ids: string[];
  joined_at: string;
  /** Null while the instance is in the meeting. */
  left_at: string | null;
}

/** A membership together with what its instance is called and how it does. */
export interface MeetingInstance extends Membership {
  instance_name: string;
  health: Health;
}

export interface Meeting {
  meeting_id: string;
  /** How many messages were ever sent in it. */
  last_seq: number;
  /** Instances in the meeting now. */
  instance_count: number;
  /** Agents in the meeting now, over all instances. */
  agent_count: number;
  pending_deliveries: number;
  created_at: string;
  last_activity_at: string;
}

/** The answer to a send: the message is on disk, and so are its deliveries. */
export interface SentMessage {
  message_id: string;
  meeting_id: string;
  /** The number of the message in its meeting, from 1. */
  seq: number;
  accepted_at: string;
  /** To how many instances it goes. */
  deliveries_queued: number;
}

/** A message of the history. Numbers that JavaScript cannot hold lose digits here; in the push they do not. */
export interface Message {
  message_id: string;
  seq: number;
  accepted_at: string;
  /** Null when it went to all agents of the meeting. */
  target_agents: string[] | null;
  message: JsonObject;
}

export type DeliveryState = 'pending' | 'delivered' | 'failed' | 'cancelled';

/** Why a delivery failed (the first four) or was cancelled. */
export type DeliveryReason = 'not_200' | 'gone' | 'exhausted' | 'expired' | 'instance_deleted';

/** Its turn in the lane, the time of its next attempt, the back-off of its instance, or an instance switched off. */
export type WaitingFor = 'turn' | 'retry' | 'back_off' | 'switched_off';

export interface Attempt {
  /** From 1. */
  attempt: number;
  started_at: string;
  duration_ms: number;
  outcome: Outcome;
  /** Null when no status line came. */
  status_code: number | null;
  /** In words; empty after a success. */
  detail: string;
  /** The beginning of the answer's body. */
  response_excerpt: string;
}

export interface Delivery {
  /** Also the webhook-id of every attempt. */
  delivery_id: string;
  message_id: string;
  meeting_id: string;
  seq: number;
  instance_id: string;
  target_agents: string[];
  state: DeliveryState;
  /** Why it failed or was cancelled. */
  reason: DeliveryReason | null;
  /** Why a pending delivery is not delivered yet. */
  waiting_for: WaitingFor | null;
  attempt_count: number;
  /** No sooner than this, while pending and retried. */
  next_attempt_at: string | null;
  created_at: string;
  /** When it left `pending`. */
  settled_at: string | null;
  last_attempt: Attempt | null;
}

export interface DeliveryWithAttempts extends Delivery {
  attempts: Attempt[];
}

export interface DiagnosisStage {
  stage: 'dns' | 'connect' | 'tls' | 'request' | 'response';
  ok: boolean;
  duration_ms: number;
  detail: string;
}

/** What a webhook test found, stage by stage. */
export interface Diagnosis {
  success: boolean;
  status_code: number | null;
  outcome: Outcome;
  duration_ms: number;
  stages: DiagnosisStage[];
  response_excerpt: string;
  /** One sentence: what to do about it. */
  advice: string;
}

export type AuditAction =
  | 'instance.register'
  | 'instance.update'
  | 'instance.hand_over'
  | 'instance.delete'
  | 'instance.rotate_secret'
  | 'instance.recover'
  | 'instance.webhook_test'
  | 'meeting.join'
  | 'meeting.leave'
  | 'delivery.retry'
  | 'key.create'
  | 'key.rotate'
  | 'key.revoke'
  | 'session.begin'
  | 'session.end'
  | 'encryption.reencrypt'
  | 'authenticate'
  | 'service.start'
  | 'service.backup'
  | 'service.import'
  | 'demo.start'
  | 'demo.stop';

/** Who did what to what, from where and when. */
export interface AuditEntry {
  /** From 1, without gaps. */
  seq: number;
  at: string;
  /** A key_id; or `open`, `local command`, `service`, `unknown`. */
  principal: string;
  address: string | null;
  action: AuditAction;
  target_kind: 'instance' | 'delivery' | 'key' | 'service';
  target_id: string | null;
  outcome: 'done' | 'refused';
  /** Why it was refused. */
  code: string | null;
  details: Record<string, string | number | boolean | null | string[]>;
  /** The hash of the entry before; 64 zeros before the first. */
  prev_hash: string;
  hash: string;
}

/** One invalid field: `path` is dotted (`agent_ids.3`). */
export interface FieldError {
  path: string;
  message: string;
}

/** An error as the server answers it: RFC 9457, application/problem+json. */
export interface ProblemDetails {
  type: string;
  title: string;
  status: number;
  detail: string;
  /** Stable: branch on this, not on the text. */
  code: string;
  errors?: FieldError[];
}

export interface Page<T> {
  data: T[];
  /** Give it as `cursor` to get the next page; null on the last one. */
  next_cursor: string | null;
}

export interface MessagePage {
  /** In the order of `seq`. */
  data: Message[];
  /** More in the direction that was asked for. */
  has_more: boolean;
}

export interface PageQuery {
  /** Page size: 1 to 500, 50 when absent. */
  limit?: number | undefined;
  /** `next_cursor` of the page before. */
  cursor?: string | undefined;
}

export interface ListInstancesQuery extends PageQuery {
  agent_id?: string | undefined;
  meeting_id?: string | undefined;
  is_active?: boolean | undefined;
  health?: Health | undefined;
  /** Part of the id or the name. */
  q?: string | undefined;
}

export interface ListMeetingsQuery extends PageQuery {
  /** Part of the id. */
  q?: string | undefined;
  /** Only those that this instance is in. */
  instance_id?: string | undefined;
  /** With `instance_id`: also those that it has left. */
  include_left?: boolean | undefined;
}

export interface ListMeetingInstancesQuery extends PageQuery {
  /** Also those that have left. */
  include_left?: boolean | undefined;
}

/** Neither `after_seq` nor `before_seq`: the latest messages. */
export interface ListMessagesQuery {
  after_seq?: number | undefined;
  before_seq?: number | undefined;
  limit?: number | undefined;
}

export interface ListDeliveriesQuery extends PageQuery {
  instance_id?: string | undefined;
  meeting_id?: string | undefined;
  message_id?: string | undefined;
  state?: DeliveryState | undefined;
}

export interface ListAuditQuery extends PageQuery {
  action?: AuditAction | undefined;
  /** Who did it: a key_id, or another word for a principal. */
  key_id?: string | undefined;
  instance_id?: string | undefined;
  /** At or after this time. */
  since?: string | undefined;
  /** Before this time. */
  until?: string | undefined;
  /** Which entry comes first; the newest when absent. */
  order?: 'newest' | 'oldest' | undefined;
}

/** Who is signed in, and what he may do. */
export interface Session {
  /** `open`: no key was made, and everybody on this machine may do everything; `signed_out`: a key is needed. */
  state: 'open' | 'signed_out' | 'signed_in';
  /** Null when open, signed out, or signed in by a link. */
  key_id: string | null;
  key_name: string | null;
  scopes: Scope[];
  meeting_ids: string[] | null;
  instance_id: string | null;
  /** When the session ends; null without a cookie. */
  expires_at: string | null;
  csrf_token: string | null;
  version: string;
  features: { cluster: boolean };
}

interface HealthChange {
  instance_id: string;
  health: Exclude<Health, 'unknown'>;
  consecutive_failures: number;
  last_failure: Instance['last_failure'];
  at: string;
}

/** The data of each event of the live feed, by its name. */
export interface FeedData {
  'message.accepted': {
    message_id: string;
    meeting_id: string;
    seq: number;
    accepted_at: string;
    /** Null: a broadcast. At most the first 100. */
    target_agents: string[] | null;
    deliveries_queued: number;
  };
  'delivery.attempted': {
    delivery_id: string;
    message_id: string;
    meeting_id: string;
    seq: number;
    instance_id: string;
    attempt: number;
    started_at: string;
    outcome: Outcome;
    status_code: number | null;
    duration_ms: number;
    detail: string;
    /** What the attempt made of the delivery. */
    state: Exclude<DeliveryState, 'cancelled'>;
    reason: DeliveryReason | null;
    retry_in_ms: number | null;
  };
  /** Deliveries that came to their end without an attempt. */
  'delivery.settled': {
    instance_id: string;
    /** Null: of all meetings. */
    meeting_id: string | null;
    state: 'failed' | 'cancelled';
    reason: DeliveryReason;
    deliveries: number;
    at: string;
  };
  /** Deliveries that were queued again by hand. */
  'delivery.queued': {
    instance_id: string;
    meeting_id: string | null;
    delivery_id: string | null;
    deliveries: number;
    at: string;
  };
  'instance.registered': { instance_id: string; instance_name: string; created: boolean; at: string };
  'instance.changed': { instance_id: string; fields: string[]; at: string };
  'instance.removed': { instance_id: string; at: string };
  'instance.joined': { instance_id: string; meeting_id: string; at: string };
  'instance.left': { instance_id: string; meeting_id: string; at: string };
  'instance.up': HealthChange;
  'instance.failing': HealthChange;
  'instance.down': HealthChange;
  /** Not everything can be told: read anew whatever you keep a view of. */
  gap: {
    /** Since when; null when that is not known. */
    since: string | null;
    /** The names of the events of this time that were told after all. */
    replayed: (keyof FeedData)[];
  };
}

/** An event of the live feed. */
export type FeedEvent = {
  [Name in keyof FeedData]: {
    name: Name;
    data: FeedData[Name];
    /** Give it as `last_event_id` to go on after it. */
    id: string;
  };
}[keyof FeedData];

export interface EventsQuery {
  instance_id?: string | undefined;
  meeting_id?: string | undefined;
  /** The id of the last event that was seen; from now on when absent. */
  last_event_id?: string | undefined;
}

/** Two agents within the service that talk in a meeting, for whoever wants to see how that looks. */
export interface Demo {
  /** talking: the agents take their turns; listening: they answer what others say. */
  state: 'stopped' | 'talking' | 'listening';
  meeting_id: string | null;
  instance_ids: string[];
  /** How many turns were taken, of 20. */
  turns: number;
}
