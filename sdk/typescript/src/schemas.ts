// Written from the OpenAPI document by `npm run generate`: change the schemas in src/http/schemas/ instead.

/** A key, without its token. */
export interface ApiKey {
  /** The id of an API key: the 12 characters after cvk_ in its token. */
  key_id: string;
  /** A name for people. */
  name: string | null;
  /** The rights of the key. */
  scopes: Scope[];
  /** Limits sending, reading and joining to these meetings; null: no limit. */
  meeting_ids: string[] | null;
  /** Limits the scope `instance` to this instance; null: no limit. */
  instance_id: string | null;
  /** When it was made. */
  created_at: string;
  /** When it expires: from then on it is refused. Null: never. */
  expires_at: string | null;
  /** When it was revoked; null: it was not. */
  revoked_at: string | null;
  /** When it was last used, to the minute. */
  last_used_at: string | null;
  /** Until then the token before the last rotation is accepted too. */
  previous_token_expires_at: string | null;
  /**
   * Until then the tokens of earlier rotations are accepted too, the newest first: a rotation does not shorten the
   * overlap of another. Absent when there are none.
   */
  earlier_tokens_expire_at?: string[];
}

/** A key with its token, which only the response that makes it contains. */
export interface ApiKeyWithToken extends ApiKey {
  /** Sent as `authorization: Bearer`. It is not shown again. */
  token: string;
}

/** One HTTP POST made for a delivery. */
export interface Attempt {
  /** The number of the attempt, from 1. */
  attempt: number;
  /** When it began. */
  started_at: string;
  /** How long it took. */
  duration_ms: number;
  outcome: Outcome;
  /** The status of the response; null when no status line arrived. */
  status_code: number | null;
  /**
   * The failure, in words. Empty after a success, unless a reply in the response could not be sent: then it says why.
   */
  detail: string;
  /** The beginning of the response body. */
  response_excerpt: string;
  /**
   * Only for an instance with a runtime: the agents that have answered, in this attempt or earlier. A retry asks the
   * others.
   */
  answered_agents?: string[];
}

/** The action that was done or refused. */
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
  | 'membership.update'
  | 'meeting.update'
  | 'delivery.retry'
  | 'delivery.drop'
  | 'key.create'
  | 'key.rotate'
  | 'key.revoke'
  | 'portal_link.create'
  | 'invite.create'
  | 'invite.redeem'
  | 'invite.revoke'
  | 'session.begin'
  | 'session.end'
  | 'encryption.reencrypt'
  | 'authenticate'
  | 'service.start'
  | 'service.backup'
  | 'service.import'
  | 'audit.prune'
  | 'demo.start'
  | 'demo.stop';

/** Who did what to what, from where and when. */
export interface AuditEntry {
  /** From 1, without gaps. */
  seq: number;
  /** When it was done or refused. */
  at: string;
  /**
   * Who did it: a key_id, or open (no key is needed yet), local command (on the data file), sign-in link (printed by
   * convoke serve), invite link, service, unknown (no right key).
   */
  principal: string;
  /** The address of the client; the /64 of an anonymous IPv6 client. Null for a local command. */
  address: string | null;
  action: AuditAction;
  /** The kind of the target. */
  target_kind: 'instance' | 'meeting' | 'delivery' | 'key' | 'invite' | 'session' | 'service';
  /** The id of the target; null when the request named none. */
  target_id: string | null;
  /** Whether it was done. */
  outcome: 'done' | 'refused';
  /** Why it was refused: the code of the problem; null when it was done. */
  code: string | null;
  /** The names of the given fields and similar facts. Never a secret. */
  details: Record<string, string | number | boolean | null | string[]>;
  /** The hash of the previous entry; 64 zeros in the first one. */
  prev_hash: string;
  /** SHA-256 over prev_hash, a line feed, and the other fields as canonical JSON. */
  hash: string;
}

/** A copy of all data that is being made. */
export interface Backup {
  /** The id of the copy. */
  backup_id: string;
}

/** The progress of a copy. */
export interface BackupProgress {
  /** Pages of the data file; 0 while nothing is copied. */
  pages_total: number;
  /** Pages that are not copied yet. */
  pages_left: number;
}

/** A machine that pulls. */
export interface Connection {
  /** Since when it pulls without a pause of more than 10 s. */
  since: string;
  /** The address of its latest pull. */
  address: string | null;
  /** Its program and version, from the header user-agent. */
  client: string | null;
}

/** The counts of the rows that the key may see. */
export interface Counts {
  /** When the count began. A count that took long is kept for a while, so it may be older than the request. */
  counted_at: string;
  instances: InstanceCounts;
  deliveries: DeliveryCounts;
}

/** The agents that a link invites, and the meetings. */
export interface CreateInviteInput {
  /** The meetings that the machine may join. At most 100, of at most 8192 bytes in all. */
  meeting_ids: string[];
  /** The agents that the machine is invited for. At most 1000, of at most 40000 bytes in all. */
  agent_ids: string[];
  /**
   * The instance that the machine registers; when absent, an id made of its first agent and a few random characters. An
   * instance that exists belongs to the new key from then on.
   */
  instance_id?: string | undefined;
  /** How long the invite can be redeemed: a minute to a day; absent: an hour. */
  expires_in_s?: number | undefined;
}

/** The rights of a new key. */
export interface CreateKeyInput {
  /** The rights of the key. */
  scopes: Scope[];
  /** A name for people. */
  name?: string | undefined;
  /** Limits sending, reading and joining to these meetings. At most 1000, of at most 40000 bytes in all. */
  meeting_ids?: string[] | undefined;
  /** Limits the scope `instance` to this instance. */
  instance_id?: string | undefined;
  /** RFC 3339. From then on the key is refused; absent: never. */
  expires_at?: string | undefined;
}

/** One message on its way to one instance. */
export interface Delivery {
  /** The id of the delivery, and the webhook-id of every attempt. */
  delivery_id: string;
  /** The message that it delivers. */
  message_id: string;
  /** The id of a meeting. */
  meeting_id: string;
  /** The number of the message in its meeting. */
  seq: number;
  /** The id of an instance. */
  instance_id: string;
  /** The agents of the instance to notify. */
  target_agents: string[];
  state: DeliveryState;
  /** Why it failed or was cancelled; null otherwise. */
  reason: DeliveryReason | null;
  /** Why a pending delivery is not delivered yet; null once it is settled. */
  waiting_for: WaitingFor | null;
  /** How many attempts were made. */
  attempt_count: number;
  /** The earliest time of the next attempt; null unless the delivery is pending and retried. */
  next_attempt_at: string | null;
  /** When the message was accepted. */
  created_at: string;
  /** When it left `pending`. */
  settled_at: string | null;
  /** The latest attempt; null before the first. */
  last_attempt: Attempt | null;
}

/** How many deliveries wait. */
export interface DeliveryCounts {
  /** Deliveries that have not ended. */
  pending: number;
  /** Null when none is pending. */
  oldest_pending_at: string | null;
}

/** The request that an attempt of a delivery makes, without its secrets. */
export interface DeliveryPush {
  /** The id of the delivery, and the webhook-id of every attempt. */
  delivery_id: string;
  /** The webhook_url of the instance as it is now. Null when it has none, is gone, or is not shown to this key. */
  url: string | null;
  /**
   * The runtime of the instance, which gets this push in a shape of its own. Null: the instance gets the push as it is
   * here.
   */
  runtime: 'spec' | 'openai' | 'openclaw' | 'hermes' | 'template' | 'a2a' | 'langgraph' | 'dify' | 'mcp_events' | null;
  /**
   * The headers by their names. `[hidden]` stands for a value of webhook_headers, `[signature]` for the signature.
   * Attempts differ in convoke-attempt, webhook-timestamp and webhook-signature only. The headers of the trace, those
   * for replies, and convoke-missed are left out.
   */
  headers: Record<string, string>;
  /** The body: JSON, with the message as its sender wrote it. */
  body: string;
}

/**
 * Why a delivery failed or was cancelled. `not_200`: a 2xx that does not count; `gone`: 410; `exhausted`: too many bad
 * responses; `expired`: not reached for too long; `instance_deleted`: its instance was deleted; `dropped`: somebody
 * dropped the waiting deliveries; `hop_limit`, `pair_limit`: the loop guard stopped agents that answer each other;
 * `superseded`, `max_age`: it waited while its machine was away, and was not the newest message, or was too old.
 */
export type DeliveryReason =
  | 'not_200'
  | 'gone'
  | 'exhausted'
  | 'expired'
  | 'instance_deleted'
  | 'dropped'
  | 'hop_limit'
  | 'pair_limit'
  | 'superseded'
  | 'max_age';

/** The state of a delivery. Every state but `pending` is final. */
export type DeliveryState = 'pending' | 'delivered' | 'failed' | 'cancelled';

/** A delivery, with its attempts. */
export interface DeliveryWithAttempts extends Delivery {
  /** The attempts that were made: the first ten and the latest ninety. */
  attempts: Attempt[];
}

/** Two agents inside the service that talk in a meeting. */
export interface Demo {
  /** `talking`: the agents take their turns; `listening`: they answer what others say. */
  state: 'stopped' | 'talking' | 'listening';
  /** The meeting that they talk in; null while it is stopped. */
  meeting_id: string | null;
  /** Their instances. */
  instance_ids: string[];
  /** How many turns were taken, of 20. */
  turns: number;
}

/** The result of a webhook test, stage by stage. */
export interface Diagnosis {
  /** Whether a delivery with this response would count as delivered. */
  success: boolean;
  /** The status of the response; null when no status line arrived. */
  status_code: number | null;
  outcome: Outcome;
  /** How long all of it took. */
  duration_ms: number;
  /** The result of each stage that was reached. */
  stages: DiagnosisStage[];
  /** The beginning of the response body. */
  response_excerpt: string;
  /** One sentence that says what to do. */
  advice: string;
}

/** One stage of a webhook test. */
export interface DiagnosisStage {
  /** Which stage it is. */
  stage: 'dns' | 'connect' | 'tls' | 'request' | 'response';
  /** Whether it succeeded. */
  ok: boolean;
  /** How long it took. */
  duration_ms: number;
  /** The result, in words. */
  detail: string;
}

/** Which pending deliveries to cancel. */
export interface DropDeliveriesInput {
  /** Drops the deliveries that wait for this instance. */
  instance_id?: string | undefined;
  /** Drops the deliveries that wait in this meeting; with instance_id, only those for that instance. */
  meeting_id?: string | undefined;
  /** Drops no deliveries of messages after this one. Absent: none of messages that are sent from now on. */
  up_to?: string | undefined;
  /** Only count the deliveries that would be dropped. */
  dry_run?: boolean | undefined;
}

/** How many pending deliveries were dropped. */
export interface DroppedDeliveries {
  /** How many were dropped, or would be. */
  deliveries: number;
  /**
   * The last message whose deliveries are dropped: when `done` is false, the next call gives it as `up_to`. Null while
   * no message is stored.
   */
  up_to: string | null;
  /** Whether they were only counted. */
  dry_run: boolean;
  /** False when more may be left: call again, with this `up_to`. */
  done: boolean;
  /** Only with dry_run: true when there are more than 100000. */
  at_least?: boolean;
}

/** The prediction for a message that is sent now, for one instance of a meeting. */
export interface Explanation {
  /** The id of an instance. */
  instance_id: string;
  /** The name that people see. */
  instance_name: string;
  /** Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all. */
  agent_ids: string[];
  /** Which messages for these agents are pushed; absent: all. */
  wake?: 'all' | 'targeted' | 'people';
  /** Whether it would be pushed: `now`, after the deliveries that already wait in its lane; `later`; or `no`. */
  pushed: 'now' | 'later' | 'no';
  /** Why it would not be pushed now; null when it would. */
  why: WhyNotNow | null;
  /** The agents to notify; empty when there would be no delivery. */
  target_agents: string[];
  /**
   * What else may become of the message, because of the rules of the membership. If the message has to wait, a newer
   * message may arrive before the machine is back (`superseded`), or the message may become too old (`max_age`). When
   * other messages wait before this one, the loop guard may stop it if they are pushed (`pair_limit`), or let it
   * through if the rules cancel them (`pushed`). Absent when none of these can happen.
   */
  may_become?: ('superseded' | 'max_age' | 'pair_limit' | 'pushed')[];
}

/** One field that is not valid. */
export interface FieldError {
  /** The field, dotted: `agent_ids.3`; empty for the body as a whole. */
  path: string;
  /** What the value must be. */
  message: string;
}

/** A message with its meeting. */
export interface FoundMessage extends Message {
  /** The id of a meeting. */
  meeting_id: string;
}

/** One page of a search. */
export interface FoundMessagePage {
  /** The items of this page. */
  data: FoundMessage[];
  /** Give it as cursor to get the next page; null on the last one. */
  next_cursor: string | null;
  /**
   * Present when the search stopped before the page was full, because a request reads only so many rows: the search
   * came to this time. The page may be empty; next_cursor continues.
   */
  searched_to?: string;
}

/** The limits of the loop guard that are in force. */
export interface GuardLimits {
  /** Messages of agents that answer each other, in a row; 0: any number. */
  hop_limit: number;
  /** Messages from one agent to one other in the window; 0: any number. */
  pair_limit: number;
  /** The window, in seconds; 0: no limit of pairs. */
  pair_window_s: number;
}

/**
 * `unknown`: nothing was tried yet; `up`: the last attempt succeeded; `failing`: 1 to 4 failures in a row; `down`: 5 or
 * more.
 */
export type Health = 'unknown' | 'up' | 'failing' | 'down';

/** One machine that runs an agent runtime. */
export interface Instance {
  /** The id of an instance. */
  instance_id: string;
  /** The name that people see. */
  instance_name: string;
  /** Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all. */
  agent_ids: string[];
  transport?: Transport;
  /**
   * How long a machine that pulls has for the result of a push, in seconds; 30 unless it was set, 600 at most. A
   * webhook has timeout_s instead.
   */
  ack_timeout_s?: number;
  /**
   * How long an attempt at webhook_url may take, in seconds. The default is 5, or the time that the runtime needs; a
   * registration that ends the runtime and gives no timeout_s also ends its timeout. With more than 5, an attempt that
   * a stop of the service interrupts is made again.
   */
  timeout_s?: number;
  runtime?: Runtime;
  /** Only with a runtime: the names of its options; no response contains their values. */
  runtime_option_names?: string[];
  /** Only for a subscription of MCP Events: when it is removed unless it is renewed before. */
  lease_until?: string;
  /** Only with the transport `pull`: the machine that pulls; null when none does. */
  connected?: Connection | null;
  /** Where pushes are sent; shown and not used when transport is `pull`, and empty when none was given. */
  webhook_url: string;
  /** Whether pushes are sent; false after a response of 410. */
  webhook_enabled: boolean;
  /** Whether the instance takes part at all. */
  is_active: boolean;
  success_statuses: SuccessStatuses;
  /** True when its replies to pushes are sent in the meeting; absent otherwise. */
  replies?: boolean;
  /** The names of the headers sent with every push; no response contains their values. */
  webhook_header_names: string[];
  health: Health;
  /** Failed attempts since the last success. */
  consecutive_failures: number;
  /** When its health last changed; absent when that is unknown. */
  health_since?: string;
  /**
   * Only while it backs off: when the next attempt is made, if a delivery waits then. A past time means: as soon as a
   * delivery waits.
   */
  next_try_at?: string;
  /** When a push last succeeded, up to a second late; null before the first. */
  last_success_at: string | null;
  /** The last attempt that failed; null when none did. */
  last_failure: LastFailure | null;
  /** Deliveries that are not settled yet. */
  pending_deliveries: number;
  /** The key that owns it. Null when it was registered without keys; then only admins may change it. */
  owner_key_id: string | null;
  /** The last registration or heartbeat. */
  last_seen_at: string | null;
  /** When it was first registered. */
  created_at: string;
  /** When a field of the registration last changed. */
  updated_at: string;
}

/** How many instances are in each state. Each is in one. */
export interface InstanceCounts {
  /** Switched on, and the last attempt succeeded. */
  up: number;
  /** Switched on, and the last one to four attempts failed. */
  failing: number;
  /** Switched on, and the last five attempts or more failed. */
  down: number;
  /** Switched on, and no attempt was made yet. */
  unknown: number;
  /** Switched off: `is_active` or `webhook_enabled` is false. */
  off: number;
  /** Instances whose machine pulls. They are also counted in one of the states above. */
  connected: number;
}

/** The results of the pushes of an instance in the last day, column by column. */
export interface InstanceHistory {
  /**
   * Since when the attempts of this instance are counted. Earlier ones are unknown, or belong to another instance with
   * this id.
   */
  counting_since: string;
  /** When the first step began. */
  starts_at: string;
  /** When the last step ends. It is the present one. */
  ends_at: string;
  /** The length of a step in seconds. */
  step_s: number;
  /** Deliveries that succeeded in each step, the oldest step first. */
  delivered: number[];
  /** Attempts that failed; most are followed by another attempt. */
  failed_attempts: number[];
  /** Deliveries that failed by an attempt: no further attempt is made. */
  failed: number[];
  /**
   * The median of the time from the acceptance of a message to its delivery, in milliseconds. It is off by at most an
   * eighth. Null for a step in which nothing was delivered.
   */
  p50_ms: (number | null)[];
  /** The same; 95 % of the deliveries took no longer. */
  p95_ms: (number | null)[];
}

/** A one-time link, without its secret. */
export interface Invite {
  /** The id of an invite. It is no secret: nobody can redeem an invite with it. */
  invite_id: string;
  /** `pending`: it can be redeemed; otherwise why it cannot: `redeemed`, `revoked` or `expired`. */
  state: 'pending' | 'redeemed' | 'revoked' | 'expired';
  /** The instance that the machine registers. */
  instance_id: string;
  /** The meetings that the machine may join. */
  meeting_ids: string[];
  /** The agents that the machine is invited for. */
  agent_ids: string[];
  /** The key that made it; null without a key. */
  created_by: string | null;
  /** When it was made. */
  created_at: string;
  /** When it expires: from then on it cannot be redeemed. */
  expires_at: string;
  /** When it was redeemed; null: it was not. */
  redeemed_at: string | null;
  /** The key that was made when it was redeemed; null before that, and where no key was needed. */
  key_id: string | null;
  /** When it was revoked; null: it was not. */
  revoked_at: string | null;
}

/** An invite with its link, which only the response that makes it contains. */
export interface InviteWithLink extends Invite {
  /**
   * The link redeems the invite once, and is not shown again. It begins with the setting public_url, or else with the
   * address of this request.
   */
  link: string;
  /**
   * Whether the link begins with the setting public_url. Otherwise it begins with the address of this request as the
   * service saw it, which a proxy may have changed.
   */
  is_public_url: boolean;
}

/** An instance and its agents that take part in a meeting. */
export interface JoinMeetingInput {
  /** The id of an instance. */
  instance_id: string;
  /** The meeting: not `.` or `..`, which no client can put into a path. An integer in digits is taken as this text. */
  meeting_id: string | number;
  /** The agents of the instance that take part; they replace those of an earlier join. */
  agent_ids: string[];
  /**
   * Which messages for these agents are pushed. `all`: every one; `targeted`: only those that name one of them in
   * target_agents; `people`: only those of people. The others are only in the history. When absent, it stays as it is;
   * at the first join it is `all`.
   */
  wake?: 'all' | 'targeted' | 'people' | undefined;
  /**
   * Which of the messages that waited while the machine was away are pushed. `all`: every one; `latest`: only the
   * newest message of agents and the newest of people; the others are cancelled (`superseded`). When absent, it stays
   * as it is; at the first join it is `all`.
   */
  catch_up?: 'all' | 'latest' | undefined;
  /**
   * A message is cancelled (`max_age`) if it is older than this many seconds when it would be pushed next; 0: a message
   * of any age is pushed. When absent, it stays as it is; at the first join it is 0.
   */
  max_age_s?: number | undefined;
}

/** Any JSON object. It is stored and pushed value for value, as it was written. */
export type JsonObject = Record<string, unknown>;

/** The last attempt that failed. */
export interface LastFailure {
  /** When the attempt ended. */
  at: string;
  outcome: Outcome;
  /** The status of the response; null when no status line arrived. */
  status_code: number | null;
  /** The result, in words. */
  detail: string;
  /**
   * The first 300 characters of the response body. Absent when there was none, and for a key that may not see every
   * delivery of the instance.
   */
  response_excerpt?: string;
  /** One sentence that says what to do. */
  advice: string;
}

/** An instance that leaves a meeting. */
export interface LeaveMeetingInput {
  /** The id of an instance. */
  instance_id: string;
  /** The meeting: not `.` or `..`, which no client can put into a path. An integer in digits is taken as this text. */
  meeting_id: string | number;
}

/** The result of leaving a meeting. */
export interface LeftMeeting {
  /** The id of an instance. */
  instance_id: string;
  /** The id of a meeting. */
  meeting_id: string;
  /** When it left; null when there was nothing to leave. */
  left_at: string | null;
}

/** A conversation. It exists as soon as an instance joins it or a message is sent in it. */
export interface Meeting {
  /** The id of a meeting. */
  meeting_id: string;
  /** How many messages were ever sent in it. */
  last_seq: number;
  /** Instances in the meeting now. */
  instance_count: number;
  /** Agents in the meeting now, over all instances. */
  agent_count: number;
  /** Deliveries of its messages that are not settled yet. */
  pending_deliveries: number;
  /** Whether its deliveries wait until somebody resumes it. */
  paused: boolean;
  /** The limit of messages in a row, as it was set for this meeting; null: it was not. */
  hop_limit: number | null;
  /** The limit of messages from one agent to one other, as it was set for this meeting; null: it was not. */
  pair_limit: number | null;
  /** The window of pair_limit in seconds, as it was set for this meeting; null: it was not. */
  pair_window_s: number | null;
  limits: GuardLimits;
  /** The first join or message. */
  created_at: string;
  /** The last join, leave or message. */
  last_activity_at: string;
}

/** A membership, with the name of its instance and its health. */
export interface MeetingInstance extends Membership {
  /** The name that people see. */
  instance_name: string;
  health: Health;
}

/** An instance in a meeting, with the agents that take part. */
export interface Membership {
  /** The id of a meeting. */
  meeting_id: string;
  /** The id of an instance. */
  instance_id: string;
  /** Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all. */
  agent_ids: string[];
  /** When the instance last joined. */
  joined_at: string;
  /** When it left; null while the instance is in the meeting. */
  left_at: string | null;
  /** Which messages for these agents are pushed; absent: all. */
  wake?: 'all' | 'targeted' | 'people';
  /** Which of the messages that waited while the machine was away are pushed; absent: all. */
  catch_up?: 'all' | 'latest';
  /** How old a message may be when it would be pushed next, in seconds; absent: any age. */
  max_age_s?: number;
}

/**
 * A message in the history of a meeting, exactly as it was written. A JSON parser that reads numbers as doubles drops
 * digits of long numbers.
 */
export interface Message {
  /** The id of a message. */
  message_id: string;
  /** The number of the message in its meeting, from 1. */
  seq: number;
  /** When it was stored. */
  accepted_at: string;
  /** How many instances get it. Their deliveries are removed sooner than the message. */
  deliveries_queued: number;
  /** The agents that it is for; null: all agents of the meeting. */
  target_agents: string[] | null;
  /** The agent that says it; absent: a person, or a program that is no agent. */
  from_agent?: string;
  /** The message_id that it answers; absent: the sender named none. That message may be gone. */
  in_reply_to?: string;
  /**
   * How many messages of agents in a row led to it, itself included; 0 for a person. Absent when it has neither
   * from_agent nor in_reply_to.
   */
  hops?: number;
  message: JsonObject;
}

/** A message of a thread, with the beginning of its text. */
export interface MessageBrief {
  /** The id of a message. */
  message_id: string;
  /** The number of the message in its meeting, from 1. */
  seq: number;
  /** When it was stored. */
  accepted_at: string;
  /** The agent that says it; absent: a person, or a program that is no agent. */
  from_agent?: string;
  /** The message_id that it answers; absent: the sender named none. That message may be gone. */
  in_reply_to?: string;
  /**
   * How many messages of agents in a row led to it, itself included; 0 for a person. Absent when it has neither
   * from_agent nor in_reply_to.
   */
  hops?: number;
  /** The first 200 characters of its JSON text. */
  excerpt: string;
}

/** Consecutive messages. */
export interface MessagePage {
  /** In the order of seq. */
  data: Message[];
  /** Whether there are more in the requested direction. */
  has_more: boolean;
}

/** A message, the chain that led to it, its answers, and each of its deliveries. */
export interface MessageTrace extends FoundMessage {
  /** The trace that it belongs to, as in its traceparent: docs/traces.md; absent when there is none. */
  trace_id?: string;
  /**
   * The messages that led to this one, at most 50. The first is the message that this one answers; each further one is
   * answered by the one before it.
   */
  answered: MessageBrief[];
  /** Its answers among the next 1,000 messages of its meeting, in the order of seq. */
  answers: MessageBrief[];
  /** Give it as answers_after to look for answers in the messages that follow; null when there are none. */
  next_answers_after: number | null;
  /** Its deliveries, newest first. */
  deliveries: Delivery[];
  /** Give it as cursor when you list the deliveries of this message, to get the others; null when there are none. */
  deliveries_cursor: string | null;
}

/**
 * Messages of that period for the agents that the instance has in its meetings now, without a delivery: it was switched
 * off when they were sent. They are in the history of their meetings, and are not pushed later.
 */
export interface MissedMessages {
  /** How many messages. */
  messages: number;
  /** True when there may be more: not all messages were read. */
  at_least: boolean;
}

/** Somebody is signed in on a page. */
export interface OpenSession {
  /** The id with which the session can be ended; it cannot be used to sign in. */
  session_id: string;
  /** The key with which somebody signed in; null for a link of convoke serve. */
  key_id: string | null;
  /** When somebody signed in. */
  created_at: string;
  /** When it ends by itself. */
  expires_at: string;
  /** Whether this request uses it. */
  is_current: boolean;
}

/**
 * How an attempt ended, in the order of its stages. With `tls_failed` and each value before it, the receiver was not
 * reached.
 */
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

/** A link to the instances of a key. */
export interface PortalLink {
  /** Show it to the owner of the key only: anybody with the link may use it until it expires. */
  link: string;
  /** From then on it is refused. */
  expires_at: string;
}

/** The instances that a portal link shows, and for how long. */
export interface PortalLinkInput {
  /** Shows only this instance of the key; absent: all of them. */
  instance_id?: string | undefined;
  /** How long the link can be used, in seconds; absent: an hour, which is also the most. */
  expires_in_s?: number | undefined;
}

/** An error: RFC 9457, application/problem+json. */
export interface ProblemDetails {
  /** `urn:convoke:problem:` and the code. */
  type: string;
  /** The meaning of the code. */
  title: string;
  /** The status of the response. */
  status: number;
  /** What went wrong in this case, and what to do. */
  detail: string;
  /** Stable: branch on this, and not on the text. docs/errors.md lists the codes. */
  code: string;
  /** The fields that are not valid. */
  errors?: FieldError[];
}

/** The results that a machine has, and how many pushes it takes. */
export interface PullInput {
  /** Results of pushes that were handed out before: at most 256. */
  results?: PullResult[] | undefined;
  /** How many pushes the response may have: 32 when absent, 256 at most. 0 only hands in results, and does not wait. */
  max?: number | undefined;
  /**
   * How long to wait for a push, in seconds: 30 when absent, 60 at most; 0 responds at once, or up to about a second
   * later while deliveries that have waited are read.
   */
  wait_s?: number | undefined;
  /**
   * A name of this request, another one for each. When its response is lost, repeat the request under the same name.
   * Then the pushes of the lost response are handed out again at once, and not only after their deadline. If an earlier
   * request of that name still waits, its wait ends.
   */
  pull_id?: string | undefined;
}

/** The result of a push: status_code or not_reached. */
export interface PullResult {
  /** The delivery, as it was handed out. */
  delivery_id: string;
  /** The number of the attempt, as it was handed out. */
  attempt: number;
  /** The status with which the runtime responded. It is judged like the status of a webhook: 200 is a success. */
  status_code?: number;
  /** The Retry-After of that response. */
  retry_after?: string;
  /** The body of that response: at most 65536 bytes. */
  body?: string;
  /** Instead of status_code: why the runtime was not reached. Then the instance backs off. */
  not_reached?: string;
}

/** What a pull brought. */
export interface Pulled {
  /**
   * The next push of each meeting, in order, and at most one push that went aside: its delivery got three bad
   * responses, or was queued again. So two pushes may be of one meeting. Empty when the time was up, or when the node
   * stops: pull again.
   */
  pushes: PulledPush[];
  /** Whether each result counted, in the order of the request. */
  results: TakenResult[];
}

/** A push for a machine that pulls. The attempt begins when it is handed out. */
export interface PulledPush {
  /** The delivery; the same as webhook-id. Skip a push that you have handled. */
  delivery_id: string;
  /** The number of the attempt, from 1. */
  attempt: number;
  /** The headers that a webhook would get, with the signature over the body. Their names are in lower case. */
  headers: Record<string, string>;
  /** The text that a webhook would get: verify the signature over its UTF-8 bytes. */
  body: string;
  /** When a result is too late: the attempt has then failed as `timeout`, and is made again. */
  deadline_at: string;
}

/**
 * Which deliveries are queued again: those that failed in a period (since), or some that failed or were cancelled
 * (delivery_ids).
 */
export interface RecoverInput {
  /** Queues the deliveries again that failed at or after this time. */
  since?: string | undefined;
  /** With since: only those that failed at or before this time. Absent, or later than now: now. */
  until?: string | undefined;
  /**
   * Instead of since: these deliveries of the instance, if they failed or were cancelled. Others in the list are left
   * as they are.
   */
  delivery_ids?: string[] | undefined;
  /**
   * With since: the most deliveries that this call queues again. A small limit shows the progress. One call queues all
   * of delivery_ids.
   */
  limit?: number | undefined;
  /**
   * Only count the deliveries that would be queued again, and the messages that the instance missed while it was
   * switched off.
   */
  dry_run?: boolean | undefined;
}

/** The result of a recovery, or of a call of it that does a part. */
export interface Recovered {
  /** How many deliveries were queued again, or would be. */
  recovered: number;
  /** The end of the period: when `done` is false, the next call gives it as `until`. Null with delivery_ids. */
  until: string | null;
  /** Whether they were only counted. */
  dry_run: boolean;
  /** False when more may be left: call again, with this `until`. */
  done: boolean;
  /** Only with dry_run: true when there are more than 100000. */
  at_least?: boolean;
  missed?: MissedMessages;
}

/** The invite that a machine redeems. */
export interface RedeemInviteInput {
  /** The end of the link: what follows `/invite/`. */
  secret: string;
}

/** What a machine needs to register, to join its meetings and to pull. */
export interface RedeemedInvite {
  /** The id of an invite. It is no secret: nobody can redeem an invite with it. */
  invite_id: string;
  /** The instance that the machine registers. */
  instance_id: string;
  /** The meetings that the machine may join. */
  meeting_ids: string[];
  /** The agents that the machine is invited for. */
  agent_ids: string[];
  /** Sent as `authorization: Bearer`. It is not shown again. Null while no key was made and none is needed. */
  api_key: string | null;
}

/** The result of one step of changing the data key. */
export interface Reencryption {
  /** The data key that encrypts secrets from now on. */
  key_id: string;
  /** Instances whose secrets this call encrypted again. */
  rewritten: number;
  /**
   * Instances whose secrets no data key decrypts, because their rows are damaged: at most 100. The previous data key is
   * kept while there are any. Register each with a new `webhook_secret` and all `webhook_headers`, or delete it; then
   * call again.
   */
  unreadable: string[];
  /** Whether every other secret is under the new key. While false, call again. */
  done: boolean;
}

/**
 * An instance as its machine registers it. An id that is known already updates that instance. webhook_url is required
 * unless transport is `pull`; a registration without transport means `webhook`.
 */
export interface RegisterInput {
  /** The id of the instance: not `.` or `..`, which no client can put into a path. */
  instance_id: string;
  /** The name that people see. */
  instance_name: string;
  /** Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all. */
  agent_ids: string[];
  transport?: Transport | undefined;
  /**
   * How long a machine that pulls has for the result of a push, in seconds; 30 unless it was set, 600 at most. A
   * webhook has timeout_s instead.
   */
  ack_timeout_s?: number | undefined;
  /**
   * How long an attempt at webhook_url may take, in seconds. The default is 5, or the time that the runtime needs; a
   * registration that ends the runtime and gives no timeout_s also ends its timeout. With more than 5, an attempt that
   * a stop of the service interrupts is made again.
   */
  timeout_s?: number | undefined;
  runtime?: Runtime | undefined;
  /**
   * The options of the runtime: `convoke runtimes NAME` lists them. Stored encrypted; no response contains their
   * values. Each registration gives them again.
   */
  runtime_options?: Record<string, unknown> | undefined;
  /**
   * Only with the runtime mcp_events: after how many seconds the instance is removed unless it registers again; 3600
   * when absent.
   */
  lease_s?: number | undefined;
  /** Where pushes are sent: http or https, no user name or password in it. */
  webhook_url?: string | undefined;
  /**
   * Headers sent with every push, such as authorization. No response contains their values. Given headers replace all
   * old ones; without this field the old ones stay.
   */
  webhook_headers?: Record<string, string> | undefined;
  /** Standard Webhooks secret: whsec_ and base64 of 24 to 64 bytes. When absent, the first registration makes one. */
  webhook_secret?: string | undefined;
  success_statuses?: SuccessStatuses | undefined;
  /**
   * Whether the instance may answer a push with replies, which are sent in the meeting: in its response, or later with
   * the token of the push. When absent, it is true in a registration with a runtime other than mcp_events; otherwise it
   * stays as it is, and is false for a new instance.
   */
  replies?: boolean | undefined;
}

/** An instance, and its secret when the registration made one. */
export interface RegisteredInstance extends Instance {
  /** Only when it was just made. Keep it, because it is not shown again. */
  webhook_secret?: string;
  /**
   * The headers that were dropped, because webhook_url has another origin or transport changed, and webhook_headers
   * were not given again.
   */
  dropped_header_names?: string[];
}

/** A reply to the message of a push. */
export interface ReplyInput {
  /** A text, which is sent as `{"content": text}`, or a message. */
  reply: string | ReplyMessage;
}

/** A reply as a message, with its agent and its recipients. */
export interface ReplyMessage {
  message: JsonObject;
  /** The agent that says it: one of those that the push was for. Absent: the only one that it was for. */
  from_agent?: string;
  /** Push only to these agents; empty or absent: to all agents of the meeting. */
  target_agents?: string[];
}

/** How two tokens of a key overlap. */
export interface RotateKeyInput {
  /** How long the previous token still works, in seconds; a day when absent, 30 days at most. */
  overlap_seconds?: number | undefined;
}

/** How two secrets overlap. */
export interface RotateSecretInput {
  /** How long the previous secret also signs; a day when absent, 30 days at most. */
  overlap_seconds?: number | undefined;
}

/** The new secret of an instance. */
export interface RotatedSecret {
  /** The new secret; it is not shown again. */
  webhook_secret: string;
  /** Until then every push is signed with the previous secret too. */
  previous_secret_expires_at: string;
  /**
   * Until then every push is signed with the secrets of earlier rotations too, the newest first: a rotation does not
   * shorten the overlap of another. Absent when there are none.
   */
  earlier_secrets_expire_at?: string[];
}

/**
 * The runtime at webhook_url, if its pushes have a shape of their own. `spec`, the default, is the body of the
 * specification. `convoke runtimes` describes each.
 */
export type Runtime =
  'spec' | 'openai' | 'openclaw' | 'hermes' | 'template' | 'a2a' | 'langgraph' | 'dify' | 'mcp_events';

/**
 * `admin`: everything; `send`: send messages; `read`: look at everything; `instance`: register instances, do everything
 * with its own, and speak for their agents.
 */
export type Scope = 'admin' | 'send' | 'read' | 'instance';

/** Messages of one meeting or of several. */
export interface SendMessagesInput {
  /** At most 500; the body has at most 4 MiB. An item that is not valid fails alone. */
  messages: SendMessagesItem[];
}

/** One of many messages, with its meeting. */
export interface SendMessagesItem {
  /** The meeting: not `.` or `..`, which no client can put into a path. An integer in digits is taken as this text. */
  meeting_id: string | number;
  message: JsonObject;
  /** Push only to these agents; empty or absent: to all agents of the meeting but from_agent. */
  target_agents?: string[];
  /**
   * The agent that says it; absent: a person, or a program that is no agent. A key with the scope `instance` may name
   * only agents of its own instances that take part in the meeting. Pushes say it in the header `convoke-from-agent`.
   */
  from_agent?: string;
  /**
   * The message_id of the message in the same meeting that it answers. Pushes have it in the header
   * `convoke-in-reply-to`.
   */
  in_reply_to?: string;
  /**
   * After this many seconds it is no longer pushed: a delivery that is still pending fails with the reason `expired`.
   * The limit of the service (CONVOKE_EXPIRE_AFTER) holds when it is shorter.
   */
  expires_in_s?: number;
  /**
   * For 24 hours, a repeat by the same API key gets the first result; a send with another API key is another message. 1
   * to 255 printable ASCII characters.
   */
  idempotency_key?: string;
  /** The trace that the message belongs to, as in the header of the same name. Absent: that of the request. */
  traceparent?: string;
  /** The state of that trace. One that cannot be read is ignored. */
  tracestate?: string;
}

/** The result of one of many messages: `message` when it is stored, otherwise `problem`. */
export interface SendResult {
  /** The status that a send of this message alone would get: 201 when it is stored. */
  status: number;
  message?: SentMessage;
  /** Present when an earlier send with the same idempotency_key stored the message. */
  replayed?: boolean;
  problem?: ProblemDetails;
  /** With a status 429 or 503: when to send it again, in seconds. */
  retry_after_s?: number;
}

/** The response to a send: the message and its deliveries are on disk. */
export interface SentMessage {
  /** The id of a message. */
  message_id: string;
  /** The id of a meeting. */
  meeting_id: string;
  /** The number of the message in its meeting, from 1. */
  seq: number;
  /** When it was stored. */
  accepted_at: string;
  /** How many instances get it. */
  deliveries_queued: number;
}

/** The results of many messages. */
export interface SentMessages {
  /** In the order of the list. */
  results: SendResult[];
}

/** The latest counts of the service, column by column. The lists have an item for each step that has ended. */
export interface ServiceHistory {
  /** When this node began to count: its start. Earlier counts are unknown. */
  counting_since: string;
  /**
   * Since when this node has the counts of all other nodes without a gap. It is `counting_since` when there are no
   * other nodes, or when no counts were missed.
   */
  complete_since: string;
  /** When the first step began. */
  starts_at: string;
  /** When the last step ended. Give it as `since` to ask for later ones. */
  ends_at: string;
  /** The length of a step in seconds. */
  step_s: number;
  /** Messages accepted in each step, the oldest step first. */
  accepted: number[];
  /** Deliveries that succeeded. */
  delivered: number[];
  /** Attempts that failed; most are followed by another attempt. */
  failed_attempts: number[];
  /** Deliveries that failed: no further attempt is made. */
  failed: number[];
  /**
   * The median of the time from the acceptance of a message to its delivery, in milliseconds. It is off by at most an
   * eighth. Null for a step in which nothing was delivered.
   */
  p50_ms: (number | null)[];
  /** The same; 95 % of the deliveries took no longer. */
  p95_ms: (number | null)[];
}

/** One running process of the service. */
export interface ServiceNode {
  /** The host name of the node, and a part that is new with every start. */
  node_id: string;
  /** The version of Convoke that it runs. */
  version: string;
  /** The URL at which it serves requests: CONVOKE_ADVERTISED_URL, or the address that it listens on. */
  address: string;
  /** When it joined. */
  started_at: string;
  /** When it last renewed its lease: every 3 s. */
  last_seen_at: string;
  /**
   * `stopping`: it releases its partitions; `lost`: it has not renewed its lease for 15 s, and the others take over.
   */
  state: 'up' | 'stopping' | 'lost';
  /** How many of the 64 partitions it holds. */
  partitions: number;
}

/** Who is signed in, and what they may do. */
export interface Session {
  /** `open`: no key was made, and everybody on this machine may do everything; `signed_out`: a key is needed. */
  state: 'open' | 'signed_out' | 'signed_in';
  /** The key that was given; null when open, signed out, or signed in by a link. */
  key_id: string | null;
  /** The name of that key. */
  key_name: string | null;
  /** The rights of the principal. */
  scopes: Scope[];
  /** The meetings that it is limited to; null: no limit. */
  meeting_ids: string[] | null;
  /** The instance that it is limited to; null: no limit. */
  instance_id: string | null;
  /** When the session ends; null without a cookie. */
  expires_at: string | null;
  /**
   * The page sends this token in the header convoke-csrf with every request of the session. Only the response that
   * begins the session, and responses to requests with this header, contain the token; null otherwise.
   */
  csrf_token: string | null;
  /** The version of the service. */
  version: string;
  /** The operator's name for this environment, such as production (CONVOKE_ENVIRONMENT); null: none. */
  environment: string | null;
  /** The features of this service. */
  features: {
    /** Whether there may be several nodes. */
    cluster: boolean;
  };
}

/** Which responses to a push count as a success: only 200 (the default), or every 2xx. */
export type SuccessStatuses = '200' | '2xx';

/** Whether a result counted. */
export interface TakenResult {
  /** The delivery. */
  delivery_id: string;
  /** The number of the attempt. */
  attempt: number;
  /**
   * `counted`: it was judged like the response of a webhook. The others have no effect. `late`: its deadline had
   * passed. `repeated`: the attempt had a result already. `unknown`: this instance did not get such an attempt, or the
   * node that handed it out has stopped; then the push is handed out again.
   */
  became: 'counted' | 'late' | 'repeated' | 'unknown';
  /**
   * The state of the delivery when the result was not `counted`; null when it was, and when there is no such delivery
   * of this instance.
   */
  state: 'pending' | 'delivered' | 'failed' | 'cancelled' | null;
}

/**
 * How pushes reach the machine. `webhook`: they are sent to webhook_url. `pull`: the machine asks for them, so nobody
 * needs a connection to it.
 */
export type Transport = 'webhook' | 'pull';

/** What to change in an instance: at least one field. */
export interface UpdateInstanceInput {
  /** The name that people see. */
  instance_name?: string | undefined;
  /** Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all. */
  agent_ids?: string[] | undefined;
  /** Where pushes are sent: http or https, no user name or password in it. */
  webhook_url?: string | undefined;
  /** Whether the instance takes part at all. */
  is_active?: boolean | undefined;
  /** Whether pushes are sent. */
  webhook_enabled?: boolean | undefined;
  /**
   * Headers sent with every push, such as authorization. No response contains their values. Given headers replace all
   * old ones; without this field the old ones stay.
   */
  webhook_headers?: Record<string, string> | undefined;
  success_statuses?: SuccessStatuses | undefined;
  /**
   * How long a machine that pulls has for the result of a push, in seconds; 30 unless it was set, 600 at most. A
   * webhook has timeout_s instead.
   */
  ack_timeout_s?: number | undefined;
  /**
   * How long an attempt at webhook_url may take, in seconds. The default is 5, or the time that the runtime needs; a
   * registration that ends the runtime and gives no timeout_s also ends its timeout. With more than 5, an attempt that
   * a stop of the service interrupts is made again.
   */
  timeout_s?: number | undefined;
  /**
   * Whether the instance may answer a push with replies, which are sent in the meeting: in its response, or later with
   * the token of the push. When absent, it is true in a registration with a runtime other than mcp_events; otherwise it
   * stays as it is, and is false for a new instance.
   */
  replies?: boolean | undefined;
  /**
   * Gives the instance to another key, or (null) to admins only. Only admins may do that. An instance that pulls loses
   * its webhook_headers, unless they are given again.
   */
  owner_key_id?: string | null | undefined;
}

/** What to change in a meeting. An absent field stays as it is. */
export interface UpdateMeetingInput {
  /** True: the deliveries of the meeting wait until it is set to false. */
  paused?: boolean | undefined;
  /**
   * Messages of agents that answer each other, in a row. 0 switches the rule off, null takes the setting of the
   * service.
   */
  hop_limit?: number | null | undefined;
  /**
   * Messages from one agent to one other within the window. 0 switches the rule off, null takes the setting of the
   * service.
   */
  pair_limit?: number | null | undefined;
  /** The window of pair_limit, in seconds. 0 switches the rule off, null takes the setting of the service. */
  pair_window_s?: number | null | undefined;
}

/** What to change in a membership. An absent field stays as it is. */
export interface UpdateMembershipInput {
  /** The agents of the instance that take part; they replace the present ones. */
  agent_ids?: string[] | undefined;
  /** Which messages for these agents are pushed: `all`, `targeted` or `people`, as for a join. */
  wake?: 'all' | 'targeted' | 'people' | undefined;
  /** Which of the messages that waited while the machine was away are pushed: `all` or `latest`, as for a join. */
  catch_up?: 'all' | 'latest' | undefined;
  /**
   * A message is cancelled if it is older than this many seconds when it would be pushed next; 0: a message of any age
   * is pushed.
   */
  max_age_s?: number | undefined;
}

/**
 * Why a pending delivery waits. It waits for its `turn` in the lane or for the response to its attempt (`turn`), the
 * time of its next attempt (`retry`), the `back_off` of its instance, a meeting that is `paused`, an instance that is
 * `switched_off`, or the `connection` of a machine that pulls.
 */
export type WaitingFor = 'turn' | 'retry' | 'back_off' | 'paused' | 'switched_off' | 'connection';

/**
 * Why a message would not be pushed: the instance has `left`, it is `inactive`, its webhook is `switched_off`, the
 * message is for none of its agents (`nobody_named`), its only agent says it (`is_sender`), it does not `wake` this
 * membership, or the loop guard would stop it (`hop_limit`, `pair_limit`). Or why it would be pushed later: the meeting
 * is `paused`, the machine does not pull (`connection`), the instance backs off (`back_off`).
 */
export type WhyNotNow =
  | 'left'
  | 'inactive'
  | 'switched_off'
  | 'nobody_named'
  | 'is_sender'
  | 'wake'
  | 'hop_limit'
  | 'pair_limit'
  | 'paused'
  | 'connection'
  | 'back_off';

/** The query of the operation `listInstances`. */
export interface ListInstancesQuery {
  /** Only instances that host this agent. */
  agent_id?: string | undefined;
  /** Only instances that are in this meeting. */
  meeting_id?: string | undefined;
  /** Only active, or only inactive ones. */
  is_active?: boolean | undefined;
  /** Only paused ones, or only the others. An instance is paused while is_active or webhook_enabled is false. */
  paused?: boolean | undefined;
  /**
   * `unknown`: nothing was tried yet; `up`: the last attempt succeeded; `failing`: 1 to 4 failures in a row; `down`: 5
   * or more.
   */
  health?: Health | undefined;
  /** Part of the id or the name. */
  q?: string | undefined;
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `listMeetings`. */
export interface ListMeetingsQuery {
  /** Part of the id. */
  q?: string | undefined;
  /** Only meetings that this instance is in. */
  instance_id?: string | undefined;
  /** With instance_id: also those that it has left. */
  include_left?: boolean | undefined;
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `listMeetingInstances`. */
export interface ListMeetingInstancesQuery {
  /** Also those that have left. */
  include_left?: boolean | undefined;
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `explain`. */
export interface ExplainQuery {
  /**
   * An agent that the message is for; repeat the parameter for more agents, at most 100. Absent: all agents of the
   * meeting but from_agent.
   */
  target_agents?: string[] | undefined;
  /** The agent that says it; absent: a person, or a program that is no agent. */
  from_agent?: string | undefined;
  /** The message_id, in the same meeting, that it answers. */
  in_reply_to?: string | undefined;
  /** Only the membership of this instance. */
  instance_id?: string | undefined;
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `listMessages`. */
export interface ListMessagesQuery {
  /** The messages that follow this one. */
  after_seq?: number | undefined;
  /** The messages that come just before this one. With neither after_seq nor before_seq: the latest. */
  before_seq?: number | undefined;
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
}

/** The query of the operation `findMessages`. */
export interface FindMessagesQuery {
  /** The message with this message_id, or the message of the delivery with this delivery_id (the webhook-id). */
  id?: string | undefined;
  /** Only messages of this meeting. */
  meeting_id?: string | undefined;
  /** Only the message with this number in its meeting; with meeting_id it is found at once. */
  seq?: number | undefined;
  /** Only messages whose JSON contains this text; capital letters from A to Z count as small letters. */
  text?: string | undefined;
  /** Sent at or after this time. */
  since?: string | undefined;
  /** Sent before this time. */
  until?: string | undefined;
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `getMessage`. */
export interface GetMessageQuery {
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** Look for answers in the messages that follow this seq. Absent: in those that follow the message itself. */
  answers_after?: number | undefined;
}

/** The query of the operation `listDeliveries`. */
export interface ListDeliveriesQuery {
  /** Only deliveries to this instance. */
  instance_id?: string | undefined;
  /** Only deliveries of messages of this meeting. */
  meeting_id?: string | undefined;
  /** Only deliveries of this message. */
  message_id?: string | undefined;
  /** With meeting_id: only deliveries of the messages that follow this one. */
  after_seq?: number | undefined;
  /** With meeting_id: only deliveries of the messages before this one. */
  before_seq?: number | undefined;
  /** The state of a delivery. Every state but `pending` is final. */
  state?: DeliveryState | undefined;
  /** Only deliveries of messages that were sent at or after this time. */
  since?: string | undefined;
  /** Only deliveries of messages that were sent before this time. */
  until?: string | undefined;
  /** Only deliveries with an attempt that got this status. */
  status_code?: number | undefined;
  /**
   * How an attempt ended, in the order of its stages. With `tls_failed` and each value before it, the receiver was not
   * reached.
   */
  outcome?: Outcome | undefined;
  /** Only deliveries for this agent, in all meetings. */
  agent_id?: string | undefined;
  /** Only messages whose JSON contains this text; capital letters from A to Z count as small letters. */
  text?: string | undefined;
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `streamEvents`. */
export interface EventsQuery {
  /** Only events of this instance. */
  instance_id?: string | undefined;
  /** Only events of this meeting. */
  meeting_id?: string | undefined;
  /** The id of the last event that was seen: the same as the header Last-Event-ID, which has priority. */
  last_event_id?: string | undefined;
}

/** The query of the operation `listKeys`. */
export interface PageQuery {
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `listInvites`. */
export interface ListInvitesQuery {
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `listAudit`. */
export interface ListAuditQuery {
  /** The action that was done or refused. */
  action?: AuditAction | undefined;
  /** Who did it: a key_id, or open, local command, sign-in link, invite link, service, unknown. */
  key_id?: string | undefined;
  /** Only changes of this instance. */
  instance_id?: string | undefined;
  /** At or after this time. */
  since?: string | undefined;
  /** Before this time. */
  until?: string | undefined;
  /** Which entry comes first; newest when absent. */
  order?: 'newest' | 'oldest' | undefined;
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `listSessions`. */
export interface ListSessionsQuery {
  /**
   * The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there
   * are more.
   */
  limit?: number | undefined;
  /** next_cursor of the previous page; from the beginning when absent. */
  cursor?: string | undefined;
}

/** The query of the operation `getHistory`. */
export interface GetHistoryQuery {
  /** How far back: `5m` in steps of a second, `1h` in steps of 10 s, `24h` in minutes. `5m` when absent. */
  span?: '5m' | '1h' | '24h' | undefined;
  /** Only steps that begin at this time or later. Give the `ends_at` of an earlier response to get only newer steps. */
  since?: string | undefined;
}
