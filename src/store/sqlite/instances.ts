import type { OwnerScope } from '../../domain/access.ts';
import type { NumberSource } from '../../domain/id.ts';
import { ACK_TIMEOUT_S } from '../../domain/instance.ts';
import { TIMEOUT_S } from '../../domain/runtimes/runtimes.ts';
import { Problem } from '../../domain/problem.ts';
import type { DataKeys } from '../secrets/data_keys.ts';
import { instanceReader, leaseWithin, type PreviousRow } from '../rows/instances.ts';
import { WEBHOOK_SECRETS, type WebhookSecrets } from '../rows/webhook_secrets.ts';
import type {
  ConnectionChange,
  InstancePatch,
  InstanceRow,
  InstanceStore,
  Registration,
} from '../contract/instances.ts';
import { NO_QUOTAS, type Quotas } from '../contract/quotas.ts';
import type { ApiKeyStore } from '../contract/api_keys.ts';
import type { Database } from './database.ts';
import type { Sync } from './sync.ts';
import { instanceLists } from './instance_lists.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';
import { assertRoomForInstance } from './quotas.ts';
import type { Recipients } from './meeting_recipients.ts';
import type { InstancesTable } from '../rows/tables.ts';

/** Whether the stored health of an instance still applies: its address is the same as in the new registration. */
const IS_SAME = 'webhook_url = excluded.webhook_url AND transport = excluded.transport';

/**
 * Creates or updates the instance, switches it on and ends its back-off. In an update, null headers or a null secret
 * mean that the stored value stays: `registeredValues` decides that.
 */
const REGISTER = `
  INSERT INTO instances (instance_id, instance_name, agent_ids, webhook_url, webhook_headers, webhook_secret, success_statuses,
    replies, webhook_enabled, is_active, last_seen_at, created_at, updated_at, owner_key_id, first_no, transport, ack_timeout_s,
    timeout_s, runtime, lease_until)
  VALUES ($instance_id, $instance_name, $agent_ids, $webhook_url, coalesce($webhook_headers, ''), coalesce($webhook_secret, ''),
    coalesce($success_statuses, '200'), coalesce($replies, 0), 1, 1, $wall_ms, $wall_ms, $wall_ms, $owner, $first_no, $transport,
    coalesce($ack_timeout_s, ${ACK_TIMEOUT_S}), coalesce($timeout_s, ${TIMEOUT_S}), $runtime, $lease_until)
  ON CONFLICT (instance_id) DO UPDATE SET
    instance_name = excluded.instance_name,
    agent_ids = excluded.agent_ids,
    webhook_headers = coalesce($webhook_headers, webhook_headers),
    previous_secret = CASE WHEN $webhook_secret IS NULL THEN previous_secret ELSE $previous_secret END,
    previous_secret_until = CASE WHEN $webhook_secret IS NULL THEN previous_secret_until ELSE $previous_secret_until END,
    earlier_secrets = CASE WHEN $webhook_secret IS NULL THEN earlier_secrets ELSE $earlier_secrets END,
    webhook_secret = coalesce($webhook_secret, webhook_secret),
    success_statuses = coalesce($success_statuses, success_statuses),
    replies = coalesce($replies, replies),
    webhook_enabled = 1,
    is_active = 1,
    consecutive_failures = CASE WHEN ${IS_SAME} THEN consecutive_failures ELSE 0 END,
    health_since = CASE WHEN ${IS_SAME} THEN health_since END,
    last_success_at = CASE WHEN ${IS_SAME} THEN last_success_at END,
    last_failure = CASE WHEN ${IS_SAME} THEN last_failure END,
    webhook_url = excluded.webhook_url,
    transport = excluded.transport,
    ack_timeout_s = coalesce($ack_timeout_s, ack_timeout_s),
    timeout_s = coalesce($timeout_s, timeout_s),
    runtime = $runtime,
    lease_until = $lease_until,
    backoff_step = 0,
    backoff_until = NULL,
    last_seen_at = $wall_ms,
    updated_at = $wall_ms`;

/** Whether a change names another URL. Then the health no longer applies, because it belongs to the old URL. */
const IS_MOVED = '($webhook_url IS NOT NULL AND $webhook_url <> webhook_url)';

/**
 * A change of owner drops the headers of an instance that pulls, because the new owner would get them with the pushes.
 * An instance with a webhook keeps its headers: its server stays the same.
 */
const PATCH = `
  UPDATE instances SET
    instance_name = coalesce($instance_name, instance_name),
    agent_ids = coalesce($agent_ids, agent_ids),
    consecutive_failures = CASE WHEN ${IS_MOVED} THEN 0 ELSE consecutive_failures END,
    health_since = CASE WHEN ${IS_MOVED} THEN NULL ELSE health_since END,
    last_success_at = CASE WHEN ${IS_MOVED} THEN NULL ELSE last_success_at END,
    last_failure = CASE WHEN ${IS_MOVED} THEN NULL ELSE last_failure END,
    webhook_url = coalesce($webhook_url, webhook_url),
    is_active = coalesce($is_active, is_active),
    webhook_enabled = coalesce($webhook_enabled, webhook_enabled),
    webhook_headers = coalesce($webhook_headers, CASE WHEN $hand_over = 1 AND transport = 'pull' THEN $no_headers END, webhook_headers),
    success_statuses = coalesce($success_statuses, success_statuses),
    ack_timeout_s = coalesce($ack_timeout_s, ack_timeout_s),
    timeout_s = coalesce($timeout_s, timeout_s),
    replies = coalesce($replies, replies),
    owner_key_id = CASE WHEN $hand_over = 1 THEN $owner ELSE owner_key_id END,
    backoff_step = CASE WHEN $is_active = 1 OR $webhook_enabled = 1 OR ${IS_MOVED} THEN 0 ELSE backoff_step END,
    backoff_until = CASE WHEN $is_active = 1 OR $webhook_enabled = 1 OR ${IS_MOVED} THEN NULL ELSE backoff_until END,
    updated_at = $wall_ms
  WHERE instance_id = $instance_id AND ${IS_OWNED}`;

const NOTE_CONNECTION = `
  UPDATE instances SET connected_since = ?, connected_address = ?, connected_client = ?, connected_epoch = ?
  WHERE instance_id = ?`;

const HEARTBEAT = `
  UPDATE instances SET last_seen_at = $wall_ms, backoff_step = 0, backoff_until = NULL
  WHERE instance_id = $instance_id AND ${IS_OWNED}`;

const SWITCH_OFF = `
  UPDATE instances SET is_active = 0, updated_at = $wall_ms WHERE instance_id = $instance_id AND ${IS_OWNED}
    AND ($lease_ended_at IS NULL OR lease_until <= $lease_ended_at)`;

const GET_PREVIOUS = `
  SELECT is_active AND webhook_enabled AS switched_on, transport, webhook_url, webhook_headers, runtime, ${WEBHOOK_SECRETS}, lease_until, owner_key_id, ${IS_OWNED} AS is_owned FROM instances
  WHERE instance_id = $instance_id`;

const GET_SECRETS = `SELECT ${WEBHOOK_SECRETS} FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED}`;

const ROTATE_SECRET = `
  UPDATE instances SET webhook_secret = $webhook_secret, previous_secret = $previous_secret,
    previous_secret_until = $previous_secret_until, earlier_secrets = $earlier_secrets, updated_at = $wall_ms
  WHERE instance_id = $instance_id`;

export function instanceOperations(
  db: Database,
  keys: DataKeys,
  numbers: NumberSource,
  recipients: Recipients,
  api_keys: Pick<Sync<ApiKeyStore>, 'get'>,
  quotas: Quotas = NO_QUOTAS,
): Sync<InstanceStore> {
  const reader = instanceReader(keys);
  const { instanceOf, rotatedSecrets, registeredValues, patchedValues } = reader;
  const lists = instanceLists(db, reader);
  const { get } = lists;

  function previousOf(instance_id: string, owner_scope: OwnerScope | null | undefined) {
    return db.prepare(GET_PREVIOUS).get({ instance_id, ...ownedBy(owner_scope) }) as
      (PreviousRow & { switched_on: number; is_owned: number }) | undefined;
  }

  function leaseOf(registration: Registration, previous: PreviousRow | undefined, wall_ms: number): number | null {
    const keyOf = (key_id: string | null = null) => (key_id === null ? null : api_keys.get(key_id));
    const { lease_until = null, token_digest = null, owner_key_id } = registration;
    if (lease_until === null) return null;
    const keys = { maker: keyOf(owner_key_id), owner: keyOf(previous?.owner_key_id) };
    return leaseWithin(lease_until, token_digest, keys, wall_ms);
  }

  return {
    ...lists,
    register(registration: Registration, wall_ms: number, owner_scope?: OwnerScope | null) {
      const { instance_id } = registration;
      const previous = previousOf(instance_id, owner_scope);
      if (previous !== undefined && previous.is_owned !== 1) throw new Problem('instance_id_taken');
      // A new instance is in no meeting yet, so `recipients` need not forget anything.
      const created = previous === undefined;
      if (created) assertRoomForInstance(db, quotas, registration);
      if (previous?.switched_on === 0) recipients.forgetMeetingsOf(instance_id);
      const lease_until = leaseOf(registration, previous, wall_ms);
      const { values, dropped_header_names } = registeredValues(registration, previous, lease_until, wall_ms);
      db.prepare(REGISTER).run({ ...values, first_no: created ? numbers.take(1) : 0, wall_ms });
      return { created, instance: get(instance_id) as InstanceRow, dropped_header_names };
    },
    load(instance_ids: string[]) {
      const rows = db
        .prepare('SELECT * FROM instances WHERE instance_id IN (SELECT value FROM json_each(?))')
        .all(JSON.stringify(instance_ids)) as unknown as InstancesTable[];
      return rows.map((row) => instanceOf(row));
    },
    webhookUrls(after: string | null, limit: number) {
      return db
        .prepare(
          `SELECT instance_id, webhook_url FROM instances WHERE instance_id > ? AND transport = 'webhook' ORDER BY instance_id LIMIT ?`,
        )
        .all(after ?? '', limit) as { instance_id: string; webhook_url: string }[];
    },
    patch(instance_id: string, patch: InstancePatch, wall_ms: number, owner_scope?: OwnerScope | null) {
      const previous = previousOf(instance_id, owner_scope);
      if (previous?.is_owned !== 1) return null;
      db.prepare(PATCH).run({ ...patchedValues(instance_id, patch, previous), wall_ms, ...ownedBy(owner_scope) });
      if (patch.is_active !== undefined || patch.webhook_enabled !== undefined)
        recipients.forgetMeetingsOf(instance_id);
      return get(instance_id);
    },
    noteConnections(changes: ConnectionChange[]) {
      const note = db.prepare(NOTE_CONNECTION);
      for (const { instance_id, connection } of changes) {
        const { since = null, address = null, client = null } = connection ?? {};
        note.run(since, address, client, connection === null ? null : db.term, instance_id);
      }
    },
    heartbeat(instance_id: string, wall_ms: number, owner_scope?: OwnerScope | null) {
      const { changes } = db.prepare(HEARTBEAT).run({ instance_id, wall_ms, ...ownedBy(owner_scope) });
      return changes === 0 ? null : get(instance_id);
    },
    rotateSecret(
      instance_id: string,
      new_secret: string,
      overlap_ms: number,
      wall_ms: number,
      owner_scope?: OwnerScope | null,
    ) {
      const row = db.prepare(GET_SECRETS).get({ instance_id, ...ownedBy(owner_scope) }) as WebhookSecrets | undefined;
      if (row === undefined) return null;
      const secrets = rotatedSecrets(instance_id, { row, new_secret }, overlap_ms, wall_ms);
      db.prepare(ROTATE_SECRET).run({ instance_id, ...secrets, wall_ms });
      return get(instance_id);
    },
    endedLeases(wall_ms: number, limit: number) {
      return db
        .prepare('SELECT instance_id FROM instances WHERE lease_until <= ? ORDER BY lease_until LIMIT ?')
        .all(wall_ms, limit)
        .map((row) => row['instance_id'] as string);
    },
    remove(
      instance_id: string,
      limit: number,
      wall_ms: number,
      owner_scope?: OwnerScope | null,
      lease_ended_at: number | null = null,
    ) {
      const switched_off = db
        .prepare(SWITCH_OFF)
        .run({ instance_id, wall_ms, lease_ended_at, ...ownedBy(owner_scope) });
      if (switched_off.changes === 0) return { existed: false, done: true, cancelled: 0 };
      recipients.forgetMeetingsOf(instance_id);
      let cancelled = 0;
      for (const aside of [0, 1]) {
        const { changes } = db
          .prepare(
            `UPDATE deliveries SET state = 'cancelled', reason = 'instance_deleted', next_attempt_at = NULL, settled_at = ?
             WHERE delivery_no IN (SELECT delivery_no FROM deliveries WHERE instance_id = ? AND state = 'pending' AND aside = ${aside} LIMIT ?)`,
          )
          .run(wall_ms, instance_id, limit - cancelled);
        cancelled += Number(changes);
      }
      if (cancelled >= limit) return { existed: true, done: false, cancelled };
      db.prepare('DELETE FROM memberships WHERE instance_id = ?').run(instance_id);
      db.prepare('DELETE FROM instances WHERE instance_id = ?').run(instance_id);
      return { existed: true, done: true, cancelled };
    },
  };
}
