/** Instances as both engines read and encrypt them. */
import { type ApiKey, tokenEnd, whyEnded } from '../../domain/api_key.ts';
import { ACK_TIMEOUT_S, ACK_TIMEOUT_S_MAX, type Connection, type Instance } from '../../domain/instance.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { TIMEOUT_S, TIMEOUT_S_MAX } from '../../domain/runtimes/runtimes.ts';
import type { DataKeys } from '../secrets/data_keys.ts';
import { type SecretColumn, secretPlace } from '../secrets/instance_secrets.ts';
import { isSameOrigin } from '../../domain/webhook_url.ts';
import type { InstancePatch, InstanceRow, Registration } from '../contract/instances.ts';
import { StoreError } from '../store_error.ts';
import {
  storedCount,
  storedFailure,
  storedHeaders,
  storedRuntime,
  storedSeconds,
  storedStatuses,
  storedTexts,
  storedTime,
  storedTransport,
  reportDamaged,
} from './stored_values.ts';
import type { InstancesTable } from './tables.ts';
import { type WebhookSecrets, webhookSecrets } from './webhook_secrets.ts';

const ACK_TIMEOUT = { most: ACK_TIMEOUT_S_MAX, otherwise: ACK_TIMEOUT_S };
const TIMEOUT = { most: TIMEOUT_S_MAX, otherwise: TIMEOUT_S };

/** The columns of a registered instance that influence a new registration. */
export type PreviousRow = Pick<
  InstancesTable,
  'transport' | 'webhook_url' | 'webhook_headers' | 'runtime' | 'lease_until' | 'owner_key_id'
> &
  WebhookSecrets;

/** The values of a registration that changes no secret. */
const NO_SECRETS = { webhook_secret: null, previous_secret: null, previous_secret_until: null, earlier_secrets: null };

/** For how long the previous secret of a subscription also signs. */
const SUBSCRIPTION_OVERLAP_MS = 300_000;

/**
 * An instance with two values that are not in its row: the count of pending deliveries, and the current epoch of its
 * partition. Its machine is connected if it connected in that epoch.
 */
export type CountedRow = InstancesTable & { pending_deliveries: number; current_epoch: number | null };

function connectionOf(row: CountedRow): Connection | null {
  const { instance_id, current_epoch, connected_since, connected_epoch } = row;
  if (connected_since === null || connected_epoch !== current_epoch) return null;
  return {
    since: storedTime(connected_since, 'instances', 'connected_since', instance_id),
    address: row.connected_address,
    client: row.connected_client,
  };
}

/** Decrypts and encrypts the secrets of instances under the data keys. */
export function instanceReader(keys: DataKeys) {
  const encryptSecret = (column: SecretColumn, instance_id: string, text: string): string =>
    keys.encrypt(text, secretPlace(column, instance_id));
  const { secretOf, earlierSecretsOf, rotatedSecrets, secretsAfter } = webhookSecrets(keys);
  const encryptHeaders = (instance_id: string, headers: Record<string, string>): string =>
    encryptSecret('webhook_headers', instance_id, JSON.stringify(headers));

  /**
   * Copies field by field, because a row may also have columns of only one engine. These are no part of an Instance.
   */
  function instanceOf(row: InstancesTable): Instance {
    const { instance_id } = row;
    const decrypt = (column: SecretColumn, text: string): string =>
      keys.decrypt(text, secretPlace(column, instance_id));
    const count = (column: 'consecutive_failures' | 'backoff_step'): number =>
      storedCount(row[column], 'instances', column, instance_id);
    const time = <Column extends 'health_since' | 'last_success_at' | 'backoff_until' | 'last_seen_at' | 'created_at'>(
      column: Column,
    ) => storedTime<InstancesTable[Column]>(row[column], 'instances', column, instance_id);
    return {
      instance_id,
      instance_name: row.instance_name,
      agent_ids: storedTexts(row.agent_ids, 'instances', 'agent_ids', instance_id),
      transport: storedTransport(row.transport, instance_id),
      ack_timeout_s: storedSeconds(row.ack_timeout_s, ACK_TIMEOUT, 'ack_timeout_s', instance_id),
      timeout_s: storedSeconds(row.timeout_s, TIMEOUT, 'timeout_s', instance_id),
      runtime: row.runtime === null ? null : storedRuntime(decrypt('runtime', row.runtime), instance_id),
      lease_until: storedTime<number | null>(row.lease_until, 'instances', 'lease_until', instance_id),
      webhook_url: row.webhook_url,
      webhook_headers: storedHeaders(
        decrypt('webhook_headers', row.webhook_headers),
        'instances',
        'webhook_headers',
        instance_id,
      ),
      webhook_secret: decrypt('webhook_secret', row.webhook_secret),
      earlier_secrets: earlierSecretsOf(instance_id, row),
      success_statuses: storedStatuses(row.success_statuses, instance_id),
      replies: row.replies === 1,
      has_rules: row.has_rules === 1,
      webhook_enabled: row.webhook_enabled === 1,
      is_active: row.is_active === 1,
      consecutive_failures: count('consecutive_failures'),
      health_since: time('health_since'),
      last_success_at: time('last_success_at'),
      last_failure: storedFailure(row.last_failure, instance_id),
      backoff_step: count('backoff_step'),
      backoff_until: time('backoff_until'),
      last_seen_at: time('last_seen_at'),
      created_at: time('created_at'),
      // Returns the stored value unchanged, because statements compare it with the value in the table.
      updated_at: row.updated_at,
      owner_key_id: row.owner_key_id,
    };
  }

  function instanceRowOf(row: CountedRow): InstanceRow {
    return { ...instanceOf(row), pending_deliveries: row.pending_deliveries, connection: connectionOf(row) };
  }

  /**
   * The row for a list. An instance whose secrets cannot be decrypted is listed without them. Otherwise one such
   * instance would make the whole list fail.
   */
  function listedRowOf(row: CountedRow): InstanceRow {
    try {
      return instanceRowOf(row);
    } catch (error) {
      if (!(error instanceof StoreError) || error.code !== 'SECRET_UNREADABLE') throw error;
      const { instance_id } = row;
      reportDamaged('instances', 'webhook_headers or a secret', instance_id);
      const readable = {
        webhook_headers: encryptHeaders(instance_id, {}),
        webhook_secret: encryptSecret('webhook_secret', instance_id, ''),
        previous_secret: null,
        earlier_secrets: null,
        runtime: null,
      };
      return instanceRowOf({ ...row, ...readable });
    }
  }

  /** The names of the headers; none when they cannot be decrypted. */
  function headerNamesOf(instance_id: string, encrypted: string): string[] {
    try {
      return Object.keys(JSON.parse(keys.decrypt(encrypted, secretPlace('webhook_headers', instance_id))) as object);
    } catch {
      return [];
    }
  }

  /**
   * The headers that a registration drops. It drops all of them when it gives none and changes the server or the
   * transport: the headers were meant for the old server, and the owner of the new one would read them.
   *
   * @returns their names; null when the headers stay
   */
  function droppedHeaders(registration: Registration, previous: PreviousRow) {
    const { instance_id, transport = 'webhook', webhook_url, webhook_headers } = registration;
    const is_same = transport === previous.transport && isSameOrigin(previous.webhook_url, webhook_url);
    return webhook_headers !== undefined || is_same ? null : headerNamesOf(instance_id, previous.webhook_headers);
  }

  /**
   * The values that a registration writes. Null headers or a null secret mean that the stored value stays. A secret
   * that did not change is null too: SQL cannot notice that, because each encryption of a secret gives another text.
   *
   * @param previous the row of the instance; undefined when it is new
   * @param lease_until see `leaseWithin`
   */
  function registeredValues(
    registration: Registration,
    previous: PreviousRow | undefined,
    lease_until: number | null,
    wall_ms: number,
  ) {
    const { instance_id, webhook_secret } = registration;
    const ends_runtime = !registration.runtime && previous !== undefined && previous.runtime !== null;
    assertSameKind(lease_until, previous);
    const dropped = previous === undefined ? null : droppedHeaders(registration, previous);
    const headers = registration.webhook_headers ?? (previous === undefined || dropped !== null ? {} : null);
    const secret = webhook_secret ?? (previous === undefined ? registration.new_secret : null);
    const is_new_secret =
      secret !== null && (previous === undefined || secret !== secretOf(instance_id, previous.webhook_secret));
    const values = {
      instance_id,
      instance_name: registration.instance_name,
      agent_ids: JSON.stringify(registration.agent_ids),
      transport: registration.transport ?? 'webhook',
      ack_timeout_s: registration.ack_timeout_s ?? null,
      timeout_s: registration.timeout_s ?? (ends_runtime ? TIMEOUT_S : null),
      runtime: registration.runtime
        ? encryptSecret('runtime', instance_id, JSON.stringify(registration.runtime))
        : null,
      webhook_url: registration.webhook_url,
      webhook_headers: headers === null ? null : encryptHeaders(instance_id, headers),
      ...(is_new_secret ? newSecrets(secret) : NO_SECRETS),
      lease_until,
      success_statuses: registration.success_statuses ?? null,
      replies: integerOrNull(registration.replies),
      owner: registration.owner_key_id ?? null,
    };
    return { values, dropped_header_names: dropped ?? [] };

    /**
     * A subscriber can change its secret only by a new registration. So for a while, the old secret and the new secret
     * both sign. A subscriber may change it with each renewal, so too many overlaps are no reason to refuse one.
     */
    function newSecrets(new_secret: string): WebhookSecrets {
      if (previous !== undefined && lease_until !== null)
        return secretsAfter(instance_id, { row: previous, new_secret }, SUBSCRIPTION_OVERLAP_MS, wall_ms);
      return { ...NO_SECRETS, webhook_secret: encryptSecret('webhook_secret', instance_id, new_secret) };
    }
  }

  /**
   * The values that a change writes; null where the stored value stays.
   *
   * @param previous the row of the instance
   * @throws Problem `invalid_fields` for a change of what a subscription asked for
   */
  function patchedValues(
    instance_id: string,
    patch: InstancePatch,
    previous: Pick<PreviousRow, 'webhook_url' | 'lease_until'>,
  ) {
    if (previous.lease_until !== null) assertOpenInSubscriptions(patch);
    const headers = patchedHeaders(patch, previous);
    return {
      instance_id,
      instance_name: patch.instance_name ?? null,
      agent_ids: patch.agent_ids === undefined ? null : JSON.stringify(patch.agent_ids),
      webhook_url: patch.webhook_url ?? null,
      is_active: integerOrNull(patch.is_active),
      webhook_enabled: integerOrNull(patch.webhook_enabled),
      webhook_headers: headers === null ? null : encryptHeaders(instance_id, headers),
      success_statuses: patch.success_statuses ?? null,
      ack_timeout_s: patch.ack_timeout_s ?? null,
      timeout_s: patch.timeout_s ?? null,
      replies: integerOrNull(patch.replies),
      hand_over: patch.owner_key_id === undefined ? 0 : 1,
      no_headers: encryptHeaders(instance_id, {}),
      owner: patch.owner_key_id ?? null,
    };
  }

  return { instanceOf, instanceRowOf, listedRowOf, rotatedSecrets, registeredValues, patchedValues };
}

/**
 * When a lease ends that is asked for until `lease_until`. The keys are read in the transaction that writes the lease,
 * because a key may end after the request arrived.
 *
 * @param maker the key that registers; null without keys
 * @param owner the key that owns the instance; null when it is new or has no owner
 * @throws Problem `api_key_revoked` and the like when the token of `maker` has ended
 */
export function leaseWithin(
  lease_until: number,
  token_digest: string | null,
  { maker, owner }: { maker: ApiKey | null; owner: ApiKey | null },
  wall_ms: number,
): number {
  const reason = maker === null ? null : whyEnded(maker, token_digest, wall_ms);
  if (reason !== null) throw new Problem(reason);
  return Math.min(
    lease_until,
    maker === null ? Infinity : tokenEnd(maker, token_digest, wall_ms),
    owner === null ? Infinity : tokenEnd(owner, owner.digest, wall_ms),
  );
}

/**
 * @throws Problem `instance_id_taken` when a subscription would replace another instance, or another instance would
 * replace a subscription
 */
function assertSameKind(lease_until: number | null, previous: PreviousRow | undefined): void {
  if (previous === undefined || (previous.lease_until === null) === (lease_until === null)) return;
  throw new Problem(
    'instance_id_taken',
    'A subscription of MCP Events and an instance that registers itself cannot have the same instance_id.',
  );
}

/** The fields of a subscription that others than its program may change. */
const OPEN_IN_SUBSCRIPTIONS = new Set<keyof InstancePatch>(['instance_name', 'is_active', 'webhook_enabled']);

/**
 * By its answer to the challenge, the server at the URL has agreed to this id with its URL, agent and key. So all other
 * fields change only by another subscription.
 *
 * @throws Problem `invalid_fields`
 */
function assertOpenInSubscriptions(patch: InstancePatch): void {
  for (const [field, value] of Object.entries(patch))
    if (value !== undefined && !OPEN_IN_SUBSCRIPTIONS.has(field as keyof InstancePatch))
      throw invalidField(
        field,
        'cannot change in a subscription of MCP Events: its program has to unsubscribe, and subscribe with the new value',
      );
}

/**
 * The headers that a change writes; null when the stored headers stay. As in a registration, an instance that moves to
 * another server loses headers that are not given again.
 *
 * @param previous the row of the instance
 */
function patchedHeaders(
  { webhook_headers, webhook_url }: Pick<InstancePatch, 'webhook_headers' | 'webhook_url'>,
  previous: Pick<PreviousRow, 'webhook_url'>,
): Record<string, string> | null {
  if (webhook_headers !== undefined) return webhook_headers;
  if (webhook_url === undefined) return null;
  return isSameOrigin(previous.webhook_url, webhook_url) ? null : {};
}

/** A boolean as it is stored; null when it is not given. */
function integerOrNull(value: boolean | undefined): number | null {
  return value === undefined ? null : value ? 1 : 0;
}
