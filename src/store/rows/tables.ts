/** The rows of both engines, as types for the queries made with Kysely. */
import type { ApiKey } from '../../domain/api_key.ts';
import type { Invite } from '../../domain/invite.ts';

export interface Tables {
  instances: InstancesTable;
  meetings: MeetingsTable;
  instance_agents: InstanceAgentsTable;
  meeting_settings: MeetingSettingsTable;
  memberships: MembershipsTable;
  messages: MessagesTable;
  deliveries: DeliveriesTable;
  api_keys: ApiKeysTable;
  audit_log: AuditLogTable;
}

export interface InstancesTable {
  instance_id: string;
  instance_name: string;
  agent_ids: string;
  webhook_url: string;
  webhook_headers: string;
  webhook_secret: string;
  previous_secret: string | null;
  previous_secret_until: number | null;
  earlier_secrets: string | null;
  success_statuses: string;
  replies: number;
  has_rules: number;
  webhook_enabled: number;
  is_active: number;
  consecutive_failures: number;
  health_since: number | null;
  last_success_at: number | null;
  last_failure: string | null;
  backoff_step: number;
  backoff_until: number | null;
  last_seen_at: number | null;
  created_at: number;
  updated_at: number;
  owner_key_id: string | null;
  first_no: number;
  transport: string;
  ack_timeout_s: number;
  timeout_s: number;
  runtime: string | null;
  lease_until: number | null;
  connected_since: number | null;
  connected_address: string | null;
  connected_client: string | null;
  connected_epoch: number | null;
}

interface MeetingsTable {
  meeting_id: string;
  last_seq: number;
  created_at: number;
  last_activity_at: number;
}

/** Meetings that are paused, or have limits of their own. */
export interface MeetingSettingsTable {
  meeting_id: string;
  paused: number;
  hop_limit: number | null;
  pair_limit: number | null;
  pair_window_s: number | null;
  updated_at: number;
}

/** Triggers on the instances maintain this table. */
interface InstanceAgentsTable {
  agent_id: string;
  instance_id: string;
}

export interface MembershipsTable {
  meeting_id: string;
  instance_id: string;
  agent_ids: string;
  joined_at: number;
  left_at: number | null;
  wake: string;
  catch_up: string;
  max_age_s: number;
}

export interface MessagesTable {
  message_no: number;
  meeting_id: string;
  seq: number;
  accepted_at: number;
  deliveries_queued: number;
  target_agents: string | null;
  timestamp: string;
  message: string;
  from_agent: string | null;
  /** A message_no. */
  in_reply_to: number | null;
  hops: number;
  trace: string | null;
}

export interface DeliveriesTable {
  delivery_no: number;
  message_no: number;
  meeting_id: string;
  seq: number;
  instance_id: string;
  target_agents: string;
  state: string;
  reason: string | null;
  aside: number;
  attempt_count: number;
  answered_badly: number;
  attempts: string;
  next_attempt_at: number | null;
  expires_at: number;
  created_at: number;
  settled_at: number | null;
}

export interface ApiKeysTable extends Omit<ApiKey, 'scopes' | 'meeting_ids' | 'earlier_tokens'> {
  scopes: string;
  meeting_ids: string | null;
  previous_digest: string | null;
  previous_until: number | null;
  earlier_tokens: string | null;
}

export interface InvitesTable extends Omit<Invite, 'meeting_ids' | 'agent_ids'> {
  meeting_ids: string;
  agent_ids: string;
}

export interface AuditLogTable {
  seq: number;
  at: number;
  principal: string;
  address: string | null;
  action: string;
  target_kind: string;
  target_id: string | null;
  outcome: string;
  code: string | null;
  details: string;
  prev_hash: string;
  hash: string;
}
