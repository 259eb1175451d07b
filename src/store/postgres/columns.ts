/**
 * The columns of the tables that are read as whole rows. A statement names these columns and never uses `*`. While this
 * node runs, a node of the next version may add columns, and a prepared statement fails when its columns change.
 */
import type { NodeRow } from '../contract/cluster.ts';
import type { Session } from '../../domain/session.ts';
import type { ApiKeysTable, AuditLogTable, DeliveriesTable, InstancesTable, InvitesTable } from '../rows/tables.ts';

/** All columns of a row. The compiler refuses the call when one is missing. */
function columnsOf<Row>(named: Record<keyof Row & string, 1>): (keyof Row & string)[] {
  return Object.keys(named) as (keyof Row & string)[];
}

/** The columns of a table with its alias, as Kysely takes them. */
export function of<Alias extends string, Column extends string>(
  alias: Alias,
  columns: readonly Column[],
): `${Alias}.${Column}`[] {
  return columns.map((column) => `${alias}.${column}` as const);
}

export const INSTANCE_COLUMNS = columnsOf<InstancesTable>({
  instance_id: 1,
  instance_name: 1,
  agent_ids: 1,
  webhook_url: 1,
  webhook_headers: 1,
  webhook_secret: 1,
  previous_secret: 1,
  previous_secret_until: 1,
  earlier_secrets: 1,
  success_statuses: 1,
  replies: 1,
  webhook_enabled: 1,
  is_active: 1,
  consecutive_failures: 1,
  health_since: 1,
  last_success_at: 1,
  last_failure: 1,
  backoff_step: 1,
  backoff_until: 1,
  last_seen_at: 1,
  created_at: 1,
  updated_at: 1,
  owner_key_id: 1,
  first_no: 1,
  has_rules: 1,
  transport: 1,
  ack_timeout_s: 1,
  timeout_s: 1,
  runtime: 1,
  lease_until: 1,
  connected_since: 1,
  connected_address: 1,
  connected_client: 1,
  connected_epoch: 1,
});

export const DELIVERY_COLUMNS = columnsOf<DeliveriesTable>({
  delivery_no: 1,
  message_no: 1,
  meeting_id: 1,
  seq: 1,
  instance_id: 1,
  target_agents: 1,
  state: 1,
  reason: 1,
  aside: 1,
  attempt_count: 1,
  answered_badly: 1,
  attempts: 1,
  next_attempt_at: 1,
  expires_at: 1,
  created_at: 1,
  settled_at: 1,
});

export const AUDIT_COLUMNS = columnsOf<AuditLogTable>({
  seq: 1,
  at: 1,
  principal: 1,
  address: 1,
  action: 1,
  target_kind: 1,
  target_id: 1,
  outcome: 1,
  code: 1,
  details: 1,
  prev_hash: 1,
  hash: 1,
});

export const API_KEY_COLUMNS = columnsOf<ApiKeysTable>({
  key_id: 1,
  name: 1,
  scopes: 1,
  meeting_ids: 1,
  instance_id: 1,
  digest: 1,
  previous_digest: 1,
  previous_until: 1,
  earlier_tokens: 1,
  created_at: 1,
  expires_at: 1,
  revoked_at: 1,
  last_used_at: 1,
  change_no: 1,
});

export const INVITE_COLUMNS = columnsOf<InvitesTable>({
  invite_id: 1,
  digest: 1,
  created_by: 1,
  token_digest: 1,
  instance_id: 1,
  meeting_ids: 1,
  agent_ids: 1,
  created_at: 1,
  expires_at: 1,
  redeemed_at: 1,
  key_id: 1,
  revoked_at: 1,
});

export const SESSION_COLUMNS = columnsOf<Session>({
  digest: 1,
  csrf_digest: 1,
  key_id: 1,
  token_digest: 1,
  node_id: 1,
  created_at: 1,
  expires_at: 1,
});

export const NODE_COLUMNS = columnsOf<Omit<NodeRow, 'partition_count'>>({
  node_id: 1,
  node_no: 1,
  version: 1,
  address: 1,
  started_at: 1,
  seen_at: 1,
  lease_until: 1,
  stopping: 1,
});
