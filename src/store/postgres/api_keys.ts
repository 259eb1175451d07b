import { type ApiKey, isActive, isLastingAdmin } from '../../domain/api_key.ts';
import { Problem } from '../../domain/problem.ts';
import { assertOverlapLeft, earlierAfter } from '../../domain/rotation.ts';
import { API_KEY_BYTES, apiKeyOf, CHANGE_NO_MAX, changedSince, MAY_BE_LASTING_ADMIN } from '../rows/api_keys.ts';
import { columnsOfEarlier } from '../rows/earlier.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import type { ApiKeyStore } from '../contract/api_keys.ts';
import type { ApiKeysTable } from '../rows/tables.ts';
import { API_KEY_COLUMNS } from './columns.ts';
import { type Session, statement } from './database.ts';
import { KEYS } from './locks.ts';

/** Changes of keys run one after the other, so `change_no` rises in the order in which the changes are committed. */
const LOCK = statement(`SELECT pg_advisory_xact_lock(${KEYS})`);

const NEXT_CHANGE = `(SELECT coalesce(max(change_no), 0) + 1 FROM api_keys WHERE change_no < ${CHANGE_NO_MAX})`;

const CREATE = statement(`
  INSERT INTO api_keys (key_id, name, scopes, meeting_ids, instance_id, digest, created_at, expires_at, change_no)
  VALUES ($key_id, $name, $scopes, $meeting_ids, $instance_id, $digest, $created_at, $expires_at, ${NEXT_CHANGE})`);

const REVOKE = statement(`
  UPDATE api_keys SET revoked_at = $wall_ms, previous_digest = NULL, previous_until = NULL, earlier_tokens = NULL,
    change_no = ${NEXT_CHANGE}
  WHERE key_id = $key_id AND revoked_at IS NULL`);

const ROTATE = statement(`
  UPDATE api_keys SET previous_digest = $newest, previous_until = $until, earlier_tokens = $list, digest = $digest,
    change_no = ${NEXT_CHANGE}
  WHERE key_id = $key_id`);

/** When a key is revoked, its subscriptions end. A subscription is an instance with a `lease_until`. */
const END_LEASES = statement(
  'UPDATE instances SET lease_until = 0 WHERE owner_key_id = $key_id AND lease_until IS NOT NULL',
);

const END_SESSIONS = statement('DELETE FROM sessions WHERE key_id = $key_id');

/**
 * Revokes the invites that a key made. Otherwise somebody who stole the key could still redeem an invite, and so get a
 * new key.
 */
const REVOKE_INVITES = statement(`
  UPDATE invites SET revoked_at = $wall_ms
  WHERE created_by = $key_id AND redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $wall_ms`);

/**
 * Runs when somebody makes a key. If it is the first key, revokes all open invites, because anybody could make invites
 * before there was a key.
 */
const REVOKE_OPEN_INVITES = statement(`
  UPDATE invites SET revoked_at = $wall_ms
  WHERE redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $wall_ms
    AND (SELECT min(key_id) FROM api_keys) = (SELECT max(key_id) FROM api_keys)`);

/** When a token that stays valid for a while ends, as $earlier says; null for a token that ends at once. */
const END_OF_TOKEN = `(
  SELECT until FROM jsonb_to_recordset($earlier::jsonb) AS earlier (value text, until bigint) WHERE value = token_digest)`;

/** The sessions of an earlier token end with that token. */
const SHORTEN_SESSIONS = statement(`
  UPDATE sessions SET expires_at = least(expires_at, coalesce(${END_OF_TOKEN}, 0)) WHERE key_id = $key_id`);

/** The same for invites. */
const SHORTEN_INVITES = statement(`
  UPDATE invites SET expires_at = least(expires_at, coalesce(${END_OF_TOKEN}, $wall_ms::bigint))
  WHERE created_by = $key_id AND redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $wall_ms`);

/**
 * The row of a subscription names no token. So all subscriptions of the key end with the replaced token, even those of
 * an earlier token that holds longer. The new token has no subscription yet.
 */
const SHORTEN_LEASES = statement(`
  UPDATE instances SET lease_until = least(lease_until, $until::bigint)
  WHERE owner_key_id = $key_id AND lease_until IS NOT NULL`);

const COLUMNS = API_KEY_COLUMNS.join(', ');
const ROWS = `SELECT ${COLUMNS} FROM api_keys`;
const GET = statement(`${ROWS} WHERE key_id = $key_id`);
const OTHER_ADMINS = statement(`${ROWS} WHERE key_id <> $key_id AND ${MAY_BE_LASTING_ADMIN}`);
const LIST = statement(`
  SELECT ${COLUMNS}, ${API_KEY_BYTES} AS row_bytes FROM api_keys WHERE (created_at, key_id) > ($created_at, $key_id)
  ORDER BY created_at, key_id LIMIT $limit`);
const CHANGED = statement(changedSince(ROWS, '$change_no'));
const NOTE_USE = statement(`
  UPDATE api_keys k SET last_used_at = greatest(coalesce(k.last_used_at, 0), u.used_at)
  FROM (SELECT key_id, max(used_at) AS used_at FROM unnest($key_ids::text[], $used_ats::bigint[]) AS u(key_id, used_at) GROUP BY key_id) u
  WHERE k.key_id = u.key_id`);

export function apiKeyOperations(session: Session): ApiKeyStore {
  async function get(key_id: string): Promise<ApiKey | null> {
    const row = await session.one<ApiKeysTable>(GET, { key_id });
    return row === undefined ? null : apiKeyOf(row);
  }

  /** Whether another key is a lasting admin key: one that can make keys and never expires. */
  async function isLastingAdminBeside(key_id: string): Promise<boolean> {
    return (await session.all<ApiKeysTable>(OTHER_ADMINS, { key_id })).some((row) => isLastingAdmin(apiKeyOf(row)));
  }

  return {
    get,
    async create({ key_id, name, scopes, meeting_ids, instance_id, digest, created_at, expires_at }, is_first = false) {
      await session.all(LOCK);
      if (is_first && (await isLastingAdminBeside(key_id))) throw new Problem('api_key_missing');
      await session.run(CREATE, {
        key_id,
        name,
        scopes: JSON.stringify(scopes),
        meeting_ids: meeting_ids === null ? null : JSON.stringify(meeting_ids),
        instance_id,
        digest,
        created_at,
        expires_at,
      });
      await session.run(REVOKE_OPEN_INVITES, { wall_ms: created_at });
      const created = (await get(key_id)) as ApiKey;
      if (!isLastingAdmin(created) && !(await isLastingAdminBeside(key_id))) throw new Problem('first_key_not_admin');
      session.messages.push({ kind: 'keys' });
      return created;
    },
    async list({ limit, cursor }) {
      const [created_at, key_id] = cursor === undefined ? [-1, ''] : decodeCursor(cursor, ['number', 'string']);
      const rows = await session.all<ApiKeysTable>(LIST, { created_at, key_id, limit: limit + 1 });
      return pageOf(rows, limit, (row) => [row.created_at, row.key_id], apiKeyOf);
    },
    async revoke(key_id, wall_ms) {
      await session.all(LOCK);
      const key = await get(key_id);
      if (key === null) return null;
      if (isLastingAdmin(key) && !(await isLastingAdminBeside(key_id))) throw new Problem('last_admin_key');
      await session.run(REVOKE, { key_id, wall_ms });
      await session.run(END_SESSIONS, { key_id });
      await session.run(REVOKE_INVITES, { key_id, wall_ms });
      await session.run(END_LEASES, { key_id });
      session.messages.push({ kind: 'keys' });
      return get(key_id);
    },
    async rotate(key_id, digest, overlap_ms, wall_ms) {
      await session.all(LOCK);
      const key = await get(key_id);
      if (key === null) return null;
      if (!isActive(key, wall_ms)) throw new Problem('key_not_active');
      assertOverlapLeft(key.earlier_tokens, overlap_ms, wall_ms);
      const tokens = earlierAfter({ current: key.digest, earlier: key.earlier_tokens }, overlap_ms, wall_ms);
      const earlier = JSON.stringify(tokens);
      await session.run(ROTATE, { key_id, digest, ...columnsOfEarlier(tokens) });
      await session.run(SHORTEN_SESSIONS, { key_id, earlier });
      await session.run(SHORTEN_INVITES, { key_id, earlier, wall_ms });
      await session.run(SHORTEN_LEASES, { key_id, until: overlap_ms === 0 ? 0 : wall_ms + overlap_ms });
      session.messages.push({ kind: 'keys' });
      return get(key_id);
    },
    async changedSince(change_no) {
      return (await session.all<ApiKeysTable>(CHANGED, { change_no })).map(apiKeyOf);
    },
    async recordUse(uses) {
      if (uses.length === 0) return;
      const values = { key_ids: uses.map(({ key_id }) => key_id), used_ats: uses.map(({ used_at }) => used_at) };
      await session.run(NOTE_USE, values);
    },
  };
}
