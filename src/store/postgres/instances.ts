import type { DataKeys } from '../secrets/data_keys.ts';
import type { Quotas } from '../contract/quotas.ts';
import { ACK_TIMEOUT_S } from '../../domain/instance.ts';
import { TIMEOUT_S } from '../../domain/runtimes/runtimes.ts';
import { Problem } from '../../domain/problem.ts';
import type { OwnerScope } from '../../domain/access.ts';
import { StoreError, WHO_LOCKS } from '../store_error.ts';
import { instanceReader, leaseWithin, type PreviousRow } from '../rows/instances.ts';
import { WEBHOOK_SECRETS, type WebhookSecrets } from '../rows/webhook_secrets.ts';
import { type InstanceRow, type InstanceStore, liftsBackoff, type Registration } from '../contract/instances.ts';
import type { ApiKeyStore } from '../contract/api_keys.ts';
import type { InstancesTable } from '../rows/tables.ts';
import { INSTANCE_COLUMNS } from './columns.ts';
import { isLockTimeout } from './connection/connection.ts';
import { type Session, statement, withPartition } from './database.ts';
import { KEYS, REMOVAL } from './locks.ts';
import { CANCELLED } from './pending/pending_deliveries.ts';
import { instanceLists } from './instance_lists.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';
import { assertRoomForInstance } from './quotas.ts';

/** The epoch of the partition of an instance `i`. */
const CURRENT_EPOCH = `(SELECT p.epoch FROM partitions p WHERE p.partition_no = i.partition_no)`;

/** Locks the row until the end of the transaction, so that nobody changes it after it was read. */
const GET_PREVIOUS = statement(`
  SELECT is_active = 1 AND webhook_enabled = 1 AS switched_on, transport, webhook_url, webhook_headers, runtime, ${WEBHOOK_SECRETS}, lease_until, owner_key_id, ${IS_OWNED} AS is_owned FROM instances
  WHERE instance_id = $instance_id FOR UPDATE`);

/** Does nothing when another transaction has just created the row. The caller then updates that row. */
const CREATE = statement(`
  INSERT INTO instances (instance_id, partition_no, instance_name, agent_ids, webhook_url, webhook_headers, webhook_secret, success_statuses,
    replies, webhook_enabled, is_active, last_seen_at, created_at, updated_at, owner_key_id, first_no, transport, ack_timeout_s,
    timeout_s, runtime, lease_until)
  VALUES ($instance_id, $partition_no, $instance_name, $agent_ids, $webhook_url, $webhook_headers, $webhook_secret,
    coalesce($success_statuses::text, '200'), coalesce($replies::smallint, 0), 1, 1, $wall_ms::bigint, $wall_ms, $wall_ms, $owner, take_numbers(1),
    $transport, coalesce($ack_timeout_s::int, ${ACK_TIMEOUT_S}), coalesce($timeout_s::int, ${TIMEOUT_S}),
    $runtime, $lease_until::bigint)
  ON CONFLICT (instance_id) DO NOTHING`);

/** Switches the instance on and ends its back-off. Null headers or a null secret mean that the stored value stays. */
const UPDATE = statement(`
  UPDATE instances SET
    instance_name = $instance_name,
    agent_ids = $agent_ids,
    webhook_headers = coalesce($webhook_headers, webhook_headers),
    previous_secret = CASE WHEN $webhook_secret::text IS NULL THEN previous_secret ELSE $previous_secret::text END,
    previous_secret_until = CASE WHEN $webhook_secret::text IS NULL THEN previous_secret_until ELSE $previous_secret_until::bigint END,
    earlier_secrets = CASE WHEN $webhook_secret::text IS NULL THEN earlier_secrets ELSE $earlier_secrets::text END,
    webhook_secret = coalesce($webhook_secret, webhook_secret),
    success_statuses = coalesce($success_statuses, success_statuses),
    replies = coalesce($replies::smallint, replies),
    webhook_enabled = 1,
    is_active = 1,
    consecutive_failures = CASE WHEN webhook_url = $webhook_url AND transport = $transport THEN consecutive_failures ELSE 0 END,
    health_since = CASE WHEN webhook_url = $webhook_url AND transport = $transport THEN health_since END,
    last_success_at = CASE WHEN webhook_url = $webhook_url AND transport = $transport THEN last_success_at END,
    last_failure = CASE WHEN webhook_url = $webhook_url AND transport = $transport THEN last_failure END,
    webhook_url = $webhook_url,
    transport = $transport,
    ack_timeout_s = coalesce($ack_timeout_s::int, ack_timeout_s),
    timeout_s = coalesce($timeout_s::int, timeout_s),
    runtime = $runtime,
    lease_until = $lease_until::bigint,
    backoff_step = 0,
    backoff_until = NULL,
    last_seen_at = $wall_ms,
    updated_at = $wall_ms
  WHERE instance_id = $instance_id`);

/** Whether a change names another URL. Then the health no longer applies, because it belongs to the old URL. */
const IS_MOVED = '($webhook_url::text IS NOT NULL AND $webhook_url <> webhook_url)';

/**
 * A change of owner drops the headers of an instance that pulls, because the new owner would get them with the pushes.
 * An instance with a webhook keeps its headers: its server stays the same.
 */
const PATCH = statement(`
  UPDATE instances SET
    instance_name = coalesce($instance_name, instance_name),
    agent_ids = coalesce($agent_ids, agent_ids),
    consecutive_failures = CASE WHEN ${IS_MOVED} THEN 0 ELSE consecutive_failures END,
    health_since = CASE WHEN ${IS_MOVED} THEN NULL ELSE health_since END,
    last_success_at = CASE WHEN ${IS_MOVED} THEN NULL ELSE last_success_at END,
    last_failure = CASE WHEN ${IS_MOVED} THEN NULL ELSE last_failure END,
    webhook_url = coalesce($webhook_url::text, webhook_url),
    is_active = coalesce($is_active::smallint, is_active),
    webhook_enabled = coalesce($webhook_enabled::smallint, webhook_enabled),
    webhook_headers = coalesce($webhook_headers, CASE WHEN $hand_over::int = 1 AND transport = 'pull' THEN $no_headers END, webhook_headers),
    success_statuses = coalesce($success_statuses, success_statuses),
    ack_timeout_s = coalesce($ack_timeout_s::int, ack_timeout_s),
    timeout_s = coalesce($timeout_s::int, timeout_s),
    replies = coalesce($replies::smallint, replies),
    owner_key_id = CASE WHEN $hand_over::int = 1 THEN $owner ELSE owner_key_id END,
    backoff_step = CASE WHEN $is_active = 1 OR $webhook_enabled = 1 OR ${IS_MOVED} THEN 0 ELSE backoff_step END,
    backoff_until = CASE WHEN $is_active = 1 OR $webhook_enabled = 1 OR ${IS_MOVED} THEN NULL ELSE backoff_until END,
    updated_at = $wall_ms
  WHERE instance_id = $instance_id AND ${IS_OWNED}`);

/** Returns whether the instance was backing off, as far as the table shows it. */
const HEARTBEAT = statement(`
  WITH previous AS (SELECT instance_id, backoff_step FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED} FOR UPDATE)
  UPDATE instances i SET last_seen_at = $wall_ms, backoff_step = 0, backoff_until = NULL
  FROM previous WHERE i.instance_id = previous.instance_id RETURNING previous.backoff_step`);

/** All nodes lock instances in the same order. */
const NOTE_CONNECTIONS = statement(`
  WITH noted AS (
    SELECT i.instance_id, c.since, c.address, c.client, c.epoch
    FROM unnest($instance_ids::text[], $sinces::bigint[], $addresses::text[], $clients::text[], $epochs::bigint[])
        AS c(instance_id, since, address, client, epoch)
      JOIN instances i ON i.instance_id = c.instance_id
    WHERE c.epoch = ${CURRENT_EPOCH} ORDER BY i.instance_id FOR UPDATE OF i)
  UPDATE instances i SET connected_since = noted.since, connected_address = noted.address, connected_client = noted.client,
    connected_epoch = CASE WHEN noted.since IS NULL THEN NULL ELSE noted.epoch END
  FROM noted WHERE i.instance_id = noted.instance_id`);

const SWITCH_OFF = statement(`
  UPDATE instances SET is_active = 0, updated_at = $wall_ms WHERE instance_id = $instance_id AND ${IS_OWNED}
    AND ($lease_ended_at::bigint IS NULL OR lease_until <= $lease_ended_at)`);

const ENDED_LEASES = statement(
  'SELECT instance_id FROM instances WHERE lease_until <= $wall_ms ORDER BY lease_until LIMIT $limit',
);

const GET_SECRETS = statement(
  `SELECT ${WEBHOOK_SECRETS} FROM instances WHERE instance_id = $instance_id AND ${IS_OWNED} FOR UPDATE`,
);

const ROTATE_SECRET = statement(`
  UPDATE instances SET webhook_secret = $webhook_secret, previous_secret = $previous_secret,
    previous_secret_until = $previous_secret_until, earlier_secrets = $earlier_secrets, updated_at = $wall_ms
  WHERE instance_id = $instance_id`);

const LOAD = statement(
  `SELECT ${INSTANCE_COLUMNS.join(', ')} FROM instances WHERE instance_id = ANY ($instance_ids::text[]) ORDER BY instance_id`,
);

const WEBHOOK_URLS = statement(
  `SELECT instance_id, webhook_url FROM instances WHERE instance_id > $after AND transport = 'webhook' ORDER BY instance_id LIMIT $limit`,
);

/** A revocation ends the leases that it sees. So no lease is written between its reads and its commit. */
const LOCK_KEYS = statement(`SELECT pg_advisory_xact_lock(${KEYS})`);

/**
 * How long a removal waits for a row that another session has locked. All accepts of all nodes may have to wait as long:
 * less than their own lock_timeout.
 */
const BOUND_WAITS = "SET LOCAL lock_timeout = '1s'";
/**
 * Accepts end by themselves, so this wait has no bound. With a bound, a removal would fail again and again while one
 * wide message follows another.
 */
const WAIT_FOR_ACCEPTS = ['SET LOCAL lock_timeout = 0', `SELECT pg_advisory_xact_lock(${REMOVAL})`, BOUND_WAITS];

const rowsLocked = (instance_id: string): StoreError =>
  new StoreError(
    'ROWS_LOCKED',
    `Another session of the database has locked rows of the instance ${JSON.stringify(instance_id)} for over a second. It cannot be deleted until the session ends its transaction. ${WHO_LOCKS}`,
  );

const CANCEL = statement(`
  UPDATE deliveries SET state = 'cancelled', reason = 'instance_deleted', next_attempt_at = NULL, settled_at = $wall_ms${CANCELLED}
  WHERE state = 'pending' AND delivery_no = ANY (ARRAY(SELECT delivery_no FROM pending_deliveries
    WHERE partition_no = $partition_no AND instance_id = $instance_id LIMIT $limit))`);

/**
 * When others settle some of the found rows meanwhile, CANCEL changes fewer rows than its limit, although there are
 * more.
 */
const HAS_PENDING = statement(
  'SELECT 1 FROM pending_deliveries WHERE partition_no = $partition_no AND instance_id = $instance_id LIMIT 1',
);

const DELETE_MEMBERSHIPS = statement('DELETE FROM memberships WHERE instance_id = $instance_id');
const DELETE = statement('DELETE FROM instances WHERE instance_id = $instance_id');

export function instanceOperations(
  session: Session,
  { keys, quotas }: { keys: DataKeys; quotas: Quotas },
  api_keys: Pick<ApiKeyStore, 'get'>,
): InstanceStore {
  const reader = instanceReader(keys);
  const { instanceOf, rotatedSecrets, registeredValues, patchedValues } = reader;
  const lists = instanceLists(session, reader);
  const { get } = lists;

  function previousOf(instance_id: string, owner_scope: Parameters<InstanceStore['register']>[2]) {
    const values = { instance_id, ...ownedBy(owner_scope) };
    return session.one<PreviousRow & { switched_on: boolean; is_owned: boolean }>(GET_PREVIOUS, values);
  }

  async function leaseOf(registration: Registration, previous: PreviousRow | undefined, wall_ms: number) {
    const keyOf = async (key_id: string | null = null) => (key_id === null ? null : api_keys.get(key_id));
    const { lease_until = null, token_digest = null, owner_key_id } = registration;
    if (lease_until === null) return null;
    const keys = { maker: await keyOf(owner_key_id), owner: await keyOf(previous?.owner_key_id) };
    return leaseWithin(lease_until, token_digest, keys, wall_ms);
  }

  async function register(
    registration: Registration,
    wall_ms: number,
    owner_scope: Parameters<InstanceStore['register']>[2],
  ) {
    const { instance_id } = registration;
    if ((registration.lease_until ?? null) !== null) await session.all(LOCK_KEYS);
    for (;;) {
      const previous = await previousOf(instance_id, owner_scope);
      if (previous?.is_owned === false) throw new Problem('instance_id_taken');
      const created = previous === undefined;
      if (created) await assertRoomForInstance(session, quotas, registration);
      const lease_until = await leaseOf(registration, previous, wall_ms);
      const { values, dropped_header_names } = registeredValues(registration, previous, lease_until, wall_ms);
      const changes = { ...values, ...withPartition(instance_id), wall_ms };
      const written = await session.run(created ? CREATE : UPDATE, changes);
      // Another transaction has just created the row: reads that row, and tries again.
      if (written === 0) continue;
      return { created, instance: (await get(instance_id)) as InstanceRow, dropped_header_names };
    }
  }

  const notifyOf = (instance_id: string, lifts: boolean, requeued = false): void =>
    void session.messages.push({ kind: 'instance', instance_id, lifts, requeued });

  async function remove(
    instance_id: string,
    limit: number,
    wall_ms: number,
    owner_scope: OwnerScope | null | undefined,
    lease_ended_at: number | null,
  ) {
    await session.query(BOUND_WAITS);
    // This comes before the lock that all accepts need. So they wait neither for a session that has locked the row, nor
    // for the removal of an instance that does not exist.
    const switched_off = await session.run(SWITCH_OFF, {
      instance_id,
      wall_ms,
      lease_ended_at,
      ...ownedBy(owner_scope),
    });
    if (switched_off === 0) return { existed: false, done: true, cancelled: 0 };
    // From here on no accept stores a delivery for the instance. Accepts in progress have ended, and later accepts find
    // the instance switched off or deleted.
    for (const text of WAIT_FOR_ACCEPTS) await session.query(text);
    notifyOf(instance_id, false, true);
    const key = withPartition(instance_id);
    const cancelled = await session.run(CANCEL, { ...key, wall_ms, limit });
    const is_left = cancelled >= limit || (await session.one(HAS_PENDING, key)) !== undefined;
    if (is_left) return { existed: true, done: false, cancelled };
    await session.run(DELETE_MEMBERSHIPS, { instance_id });
    await session.run(DELETE, { instance_id });
    return { existed: true, done: true, cancelled };
  }

  return {
    ...lists,
    async register(registration, wall_ms, owner_scope) {
      const registered = await register(registration, wall_ms, owner_scope);
      notifyOf(registration.instance_id, true);
      return registered;
    },
    async load(instance_ids) {
      return (await session.all<InstancesTable>(LOAD, { instance_ids })).map((row) => instanceOf(row));
    },
    webhookUrls: (after, limit) => session.all(WEBHOOK_URLS, { after: after ?? '', limit }),
    async patch(instance_id, patch, wall_ms, owner_scope) {
      const previous = await previousOf(instance_id, owner_scope);
      if (previous?.is_owned !== true) return null;
      const values = patchedValues(instance_id, patch, previous);
      await session.run(PATCH, { ...values, wall_ms, ...ownedBy(owner_scope) });
      notifyOf(instance_id, liftsBackoff(patch));
      return get(instance_id);
    },
    async noteConnections(changes) {
      await session.run(NOTE_CONNECTIONS, {
        instance_ids: changes.map(({ instance_id }) => instance_id),
        sinces: changes.map(({ connection }) => connection?.since ?? null),
        addresses: changes.map(({ connection }) => connection?.address ?? null),
        clients: changes.map(({ connection }) => connection?.client ?? null),
        epochs: changes.map(({ epoch }) => epoch),
      });
    },
    async heartbeat(instance_id, wall_ms, owner_scope) {
      const previous = await session.one<{ backoff_step: number }>(HEARTBEAT, {
        instance_id,
        wall_ms,
        ...ownedBy(owner_scope),
      });
      if (previous === undefined) return null;
      const row = (await get(instance_id)) as InstanceRow;
      // While a delivery is pending, the node that delivers may have begun a back-off that it has not written yet.
      if (previous.backoff_step > 0 || row.pending_deliveries > 0) notifyOf(instance_id, true);
      return row;
    },
    async rotateSecret(instance_id, new_secret, overlap_ms, wall_ms, owner_scope) {
      const row = await session.one<WebhookSecrets>(GET_SECRETS, { instance_id, ...ownedBy(owner_scope) });
      if (row === undefined) return null;
      const secrets = rotatedSecrets(instance_id, { row, new_secret }, overlap_ms, wall_ms);
      await session.run(ROTATE_SECRET, { instance_id, ...secrets, wall_ms });
      notifyOf(instance_id, false);
      return get(instance_id);
    },
    async endedLeases(wall_ms, limit) {
      const rows = await session.all<{ instance_id: string }>(ENDED_LEASES, { wall_ms, limit });
      return rows.map(({ instance_id }) => instance_id);
    },
    async remove(instance_id, limit, wall_ms, owner_scope, lease_ended_at = null) {
      try {
        return await remove(instance_id, limit, wall_ms, owner_scope, lease_ended_at);
      } catch (error) {
        throw isLockTimeout(error) ? rowsLocked(instance_id) : error;
      }
    },
  };
}
