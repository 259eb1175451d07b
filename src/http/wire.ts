/** Makes rows into the JSON of the API. */
import { seesResponsesOf, type Visibility } from '../domain/access.ts';
import { advised, withoutResponse } from '../domain/advice.ts';
import type { ApiKey } from '../domain/api_key.ts';
import type { Earlier } from '../domain/rotation.ts';
import { healthOf, type Instance, isSwitchedOn } from '../domain/instance.ts';
import { type Invite, inviteState } from '../domain/invite.ts';
import { type GuardLimits, limitsInForce } from '../domain/guard_rule.ts';
import { TIMEOUT_S } from '../domain/runtimes/runtimes.ts';
import { originFields } from '../domain/message_origin.ts';
import { isoTime, isoTimeOrNull } from '../domain/time.ts';
import type { Static } from 'typebox';
import type { DeliveryRow } from '../store/contract/deliveries.ts';
import type { InstanceRow } from '../store/contract/instances.ts';
import type { AcceptedMessage, FoundMessage, MessageRow } from '../store/contract/messages.ts';
import type { MeetingInstance, MeetingRow, Membership } from '../store/contract/meetings.ts';
import type { NodeRow } from '../store/contract/cluster.ts';
import type { ApiKeySchema } from './schemas/api_keys.ts';
import type { DeliverySchema, DeliveryWithAttemptsSchema } from './schemas/deliveries.ts';
import type { InstanceSchema, RotatedSecretSchema } from './schemas/instances.ts';
import type { InviteSchema } from './schemas/invites.ts';
import type { MeetingInstanceSchema, MeetingSchema, MembershipSchema } from './schemas/meetings.ts';
import type { SentMessageSchema } from './schemas/sends.ts';
import type { NodeSchema } from './schemas/nodes.ts';

/** Leaves out the secrets and the header values. @param visibility the visibility of the caller */
export function wireInstance(row: InstanceRow, visibility: Visibility | null): Static<typeof InstanceSchema> {
  const { last_failure } = row;
  return {
    instance_id: row.instance_id,
    instance_name: row.instance_name,
    agent_ids: row.agent_ids,
    ...wirePulling(row),
    ...wireRuntime(row),
    ...(row.lease_until !== null && { lease_until: isoTime(row.lease_until) }),
    webhook_url: row.webhook_url,
    webhook_enabled: row.webhook_enabled,
    is_active: row.is_active,
    success_statuses: row.success_statuses,
    ...(row.replies && { replies: true }),
    webhook_header_names: Object.keys(row.webhook_headers),
    health: healthOf(row),
    consecutive_failures: row.consecutive_failures,
    ...wireHealthTimes(row),
    last_success_at: isoTimeOrNull(row.last_success_at),
    last_failure: advised(seesResponsesOf(visibility, row) ? last_failure : withoutResponse(last_failure)),
    pending_deliveries: row.pending_deliveries,
    owner_key_id: row.owner_key_id,
    last_seen_at: isoTimeOrNull(row.last_seen_at),
    created_at: isoTime(row.created_at),
    updated_at: isoTime(row.updated_at),
  };
}

/** Leaves out times that are not known, so that clients of the first version see no new fields that are null. */
function wireHealthTimes(row: InstanceRow) {
  const { health_since, backoff_until } = row;
  return {
    ...(health_since !== null && { health_since: isoTime(health_since) }),
    ...(backoff_until !== null && isSwitchedOn(row) && { next_try_at: isoTime(backoff_until) }),
  };
}

/** Adds fields only to an instance that pulls, so that clients of the first version see no change. */
function wirePulling({ transport, ack_timeout_s, connection }: InstanceRow) {
  if (transport === 'webhook') return {};
  return { transport, ack_timeout_s, connected: connection && { ...connection, since: isoTime(connection.since) } };
}

/** Leaves out values that are the defaults of the specification. */
function wireRuntime({ runtime, timeout_s }: InstanceRow) {
  return {
    ...((runtime !== null || timeout_s !== TIMEOUT_S) && { timeout_s }),
    ...(runtime !== null && { runtime: runtime.name, runtime_option_names: Object.keys(runtime.options) }),
  };
}

/** Leaves out the digests. */
export function wireApiKey(key: ApiKey): Static<typeof ApiKeySchema> {
  const { key_id, name, scopes, meeting_ids, instance_id } = key;
  return {
    key_id,
    name,
    scopes,
    meeting_ids,
    instance_id,
    created_at: isoTime(key.created_at),
    expires_at: isoTimeOrNull(key.expires_at),
    revoked_at: isoTimeOrNull(key.revoked_at),
    last_used_at: isoTimeOrNull(key.last_used_at),
    previous_token_expires_at: isoTimeOrNull(key.earlier_tokens[0]?.until ?? null),
    ...(key.earlier_tokens.length > 1 && { earlier_tokens_expire_at: endsBeforePrevious(key.earlier_tokens) }),
  };
}

/** When the tokens or secrets before the previous one end. */
function endsBeforePrevious([, ...before]: readonly Earlier[]): string[] {
  return before.map(({ until }) => isoTime(until));
}

export function wireRotatedSecret({ webhook_secret, earlier_secrets }: Instance): Static<typeof RotatedSecretSchema> {
  return {
    webhook_secret,
    previous_secret_expires_at: isoTime(earlier_secrets[0]?.until ?? 0),
    ...(earlier_secrets.length > 1 && { earlier_secrets_expire_at: endsBeforePrevious(earlier_secrets) }),
  };
}

/** Leaves out the digest. */
export function wireInvite(invite: Invite, wall_ms: number): Static<typeof InviteSchema> {
  const { invite_id, instance_id, meeting_ids, agent_ids, created_by, key_id } = invite;
  return {
    invite_id,
    state: inviteState(invite, wall_ms),
    instance_id,
    meeting_ids,
    agent_ids,
    created_by,
    key_id,
    created_at: isoTime(invite.created_at),
    expires_at: isoTime(invite.expires_at),
    redeemed_at: isoTimeOrNull(invite.redeemed_at),
    revoked_at: isoTimeOrNull(invite.revoked_at),
  };
}

export function wireMembership({ meeting_id, instance_id, ...row }: Membership): Static<typeof MembershipSchema> {
  return {
    meeting_id,
    instance_id,
    agent_ids: row.agent_ids,
    joined_at: isoTime(row.joined_at),
    left_at: isoTimeOrNull(row.left_at),
    ...(row.wake !== 'all' && { wake: row.wake }),
    ...(row.catch_up !== 'all' && { catch_up: row.catch_up }),
    ...(row.max_age_s > 0 && { max_age_s: row.max_age_s }),
  };
}

export function wireMeetingInstance(row: MeetingInstance): Static<typeof MeetingInstanceSchema> {
  return { ...wireMembership(row), instance_name: row.instance_name, health: row.health };
}

/** @param limits the limits of the service */
export function wireMeeting(row: MeetingRow, limits: GuardLimits): Static<typeof MeetingSchema> {
  const { meeting_id, last_seq, instance_count, agent_count, pending_deliveries, paused } = row;
  const { hop_limit, pair_limit, pair_window_s } = row;
  return {
    meeting_id,
    last_seq,
    instance_count,
    agent_count,
    pending_deliveries,
    paused,
    hop_limit,
    pair_limit,
    pair_window_s,
    limits: limitsInForce(row, limits),
    created_at: isoTime(row.created_at),
    last_activity_at: isoTime(row.last_activity_at),
  };
}

export function wireDelivery({ attempts, ...row }: DeliveryRow): Static<typeof DeliverySchema> {
  return {
    ...row,
    next_attempt_at: isoTimeOrNull(row.next_attempt_at),
    created_at: isoTime(row.created_at),
    settled_at: isoTimeOrNull(row.settled_at),
    last_attempt: attempts.at(-1) ?? null,
  };
}

export function wireDeliveryWithAttempts(row: DeliveryRow): Static<typeof DeliveryWithAttemptsSchema> {
  return { ...wireDelivery(row), attempts: row.attempts };
}

/** The text of the response. It contains the message exactly as its sender wrote it, which JSON.parse could change. */
export function messageText(row: MessageRow): string {
  const { message_id, seq, accepted_at, deliveries_queued, target_agents, origin, message } = row;
  const head = { message_id, seq, accepted_at: isoTime(accepted_at), deliveries_queued, target_agents };
  const fields = JSON.stringify({ ...head, ...originFields(origin) });
  return `${fields.slice(0, -1)},"message":${message}}`;
}

/** The text of the response for a message that a search found, with its meeting. */
export function foundMessageText({ meeting_id, ...message }: FoundMessage): string {
  return `${JSON.stringify({ meeting_id }).slice(0, -1)},${messageText(message).slice(1)}`;
}

export function wireSent(message: AcceptedMessage): Static<typeof SentMessageSchema> {
  return { ...message, accepted_at: isoTime(message.accepted_at) };
}

/** @param now_ms the time on the clock of the leases */
export function wireNode(row: NodeRow, now_ms: number): Static<typeof NodeSchema> {
  const { node_id, version, address, started_at, seen_at, lease_until, stopping, partition_count } = row;
  return {
    node_id,
    version,
    address,
    started_at: isoTime(started_at),
    last_seen_at: isoTime(seen_at),
    state: lease_until <= now_ms ? 'lost' : stopping ? 'stopping' : 'up',
    partitions: partition_count,
  };
}
