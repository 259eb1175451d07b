import { type ApiKey, isActive, isLastingAdmin } from '../../domain/api_key.ts';
import { Problem } from '../../domain/problem.ts';
import { assertOverlapLeft, earlierAfter } from '../../domain/rotation.ts';
import { API_KEY_BYTES, apiKeyOf, CHANGE_NO_MAX, changedSince, MAY_BE_LASTING_ADMIN } from '../rows/api_keys.ts';
import { columnsOfEarlier } from '../rows/earlier.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import type { ApiKeyStore, NewApiKey } from '../contract/api_keys.ts';
import type { PageRequest } from '../contract/page.ts';
import type { Database } from './database.ts';
import type { Sync } from './sync.ts';
import type { ApiKeysTable } from '../rows/tables.ts';

const NEXT_CHANGE = `(SELECT coalesce(max(change_no), 0) + 1 FROM api_keys WHERE change_no < ${CHANGE_NO_MAX})`;

const CREATE = `
  INSERT INTO api_keys (key_id, name, scopes, meeting_ids, instance_id, digest, created_at, expires_at, change_no)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ${NEXT_CHANGE})`;

const REVOKE = `
  UPDATE api_keys SET revoked_at = ?, previous_digest = NULL, previous_until = NULL, earlier_tokens = NULL, change_no = ${NEXT_CHANGE}
  WHERE key_id = ? AND revoked_at IS NULL`;

const ROTATE = `
  UPDATE api_keys SET previous_digest = $newest, previous_until = $until, earlier_tokens = $list, digest = $digest,
    change_no = ${NEXT_CHANGE}
  WHERE key_id = $key_id`;

const OTHER_ADMINS = `SELECT * FROM api_keys WHERE key_id <> ? AND ${MAY_BE_LASTING_ADMIN}`;

const CHANGED = changedSince('SELECT * FROM api_keys', '?');

/** When a key is revoked, its subscriptions end. */
const END_LEASES = 'UPDATE instances SET lease_until = 0 WHERE owner_key_id = ? AND lease_until IS NOT NULL';

const END_SESSIONS = 'DELETE FROM sessions WHERE key_id = ?';

/**
 * Revokes the invites that a key made. Otherwise somebody who stole the key could still redeem an invite, and so get a
 * new key.
 */
const REVOKE_INVITES = `
  UPDATE invites SET revoked_at = $wall_ms
  WHERE created_by = $key_id AND redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $wall_ms`;

/**
 * Runs when somebody makes a key. If it is the first key, revokes all open invites, because anybody could make invites
 * before there was a key.
 */
const REVOKE_OPEN_INVITES = `
  UPDATE invites SET revoked_at = $wall_ms
  WHERE redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $wall_ms
    AND (SELECT min(key_id) FROM api_keys) = (SELECT max(key_id) FROM api_keys)`;

/** When a token that stays valid for a while ends, as $earlier says; null for a token that ends at once. */
const END_OF_TOKEN = "(SELECT value ->> 'until' FROM json_each($earlier) WHERE value ->> 'value' = token_digest)";

/** The sessions of an earlier token end with that token. */
const SHORTEN_SESSIONS = `
  UPDATE sessions SET expires_at = min(expires_at, coalesce(${END_OF_TOKEN}, 0)) WHERE key_id = $key_id`;

/** The same for invites. */
const SHORTEN_INVITES = `
  UPDATE invites SET expires_at = min(expires_at, coalesce(${END_OF_TOKEN}, $wall_ms))
  WHERE created_by = $key_id AND redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $wall_ms`;

/**
 * The row of a subscription names no token. So all subscriptions of the key end with the replaced token, even those of
 * an earlier token that holds longer. The new token has no subscription yet.
 */
const SHORTEN_LEASES = `
  UPDATE instances SET lease_until = min(lease_until, $until) WHERE owner_key_id = $key_id AND lease_until IS NOT NULL`;

const LIST = `
  SELECT *, ${API_KEY_BYTES} AS row_bytes FROM api_keys WHERE (created_at, key_id) > (?, ?) ORDER BY created_at, key_id LIMIT ?`;

const NOTE_USE = 'UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE key_id = ?';

export function apiKeyOperations(db: Database): Sync<ApiKeyStore> {
  function get(key_id: string): ApiKey | null {
    const row = db.prepare('SELECT * FROM api_keys WHERE key_id = ?').get(key_id) as ApiKeysTable | undefined;
    return row === undefined ? null : apiKeyOf(row);
  }

  /** Whether another key is a lasting admin key. */
  function isLastingAdminBeside(key_id: string): boolean {
    const others = db.prepare(OTHER_ADMINS).all(key_id);
    return (others as unknown as ApiKeysTable[]).some((row) => isLastingAdmin(apiKeyOf(row)));
  }

  return {
    get,
    create(key: NewApiKey, is_first = false) {
      const { key_id, name, scopes, meeting_ids, instance_id, digest, created_at, expires_at } = key;
      if (is_first && isLastingAdminBeside(key_id)) throw new Problem('api_key_missing');
      db.prepare(CREATE).run(
        key_id,
        name,
        JSON.stringify(scopes),
        meeting_ids === null ? null : JSON.stringify(meeting_ids),
        instance_id,
        digest,
        created_at,
        expires_at,
      );
      db.prepare(REVOKE_OPEN_INVITES).run({ wall_ms: created_at });
      const created = get(key_id) as ApiKey;
      if (!isLastingAdmin(created) && !isLastingAdminBeside(key_id)) throw new Problem('first_key_not_admin');
      return created;
    },
    list({ limit, cursor }: PageRequest) {
      const [created_at, key_id] = cursor === undefined ? [-1, ''] : decodeCursor(cursor, ['number', 'string']);
      const rows = db.prepare(LIST).all(created_at as number, key_id as string, limit + 1);
      return pageOf(rows as unknown as ApiKeysTable[], limit, (row) => [row.created_at, row.key_id], apiKeyOf);
    },
    revoke(key_id: string, wall_ms: number) {
      const key = get(key_id);
      if (key === null) return null;
      if (isLastingAdmin(key) && !isLastingAdminBeside(key_id)) throw new Problem('last_admin_key');
      db.prepare(REVOKE).run(wall_ms, key_id);
      db.prepare(END_SESSIONS).run(key_id);
      db.prepare(REVOKE_INVITES).run({ key_id, wall_ms });
      db.prepare(END_LEASES).run(key_id);
      return get(key_id);
    },
    rotate(key_id: string, digest: string, overlap_ms: number, wall_ms: number) {
      const key = get(key_id);
      if (key === null) return null;
      if (!isActive(key, wall_ms)) throw new Problem('key_not_active');
      assertOverlapLeft(key.earlier_tokens, overlap_ms, wall_ms);
      const tokens = earlierAfter({ current: key.digest, earlier: key.earlier_tokens }, overlap_ms, wall_ms);
      const earlier = JSON.stringify(tokens);
      db.prepare(ROTATE).run({ key_id, digest, ...columnsOfEarlier(tokens) });
      db.prepare(SHORTEN_SESSIONS).run({ key_id, earlier });
      db.prepare(SHORTEN_INVITES).run({ key_id, earlier, wall_ms });
      db.prepare(SHORTEN_LEASES).run({ key_id, until: overlap_ms === 0 ? 0 : wall_ms + overlap_ms });
      return get(key_id);
    },
    changedSince(change_no: number) {
      const rows = db.prepare(CHANGED).all(change_no);
      return (rows as unknown as ApiKeysTable[]).map(apiKeyOf);
    },
    recordUse(uses) {
      const note = db.prepare(NOTE_USE);
      for (const { key_id, used_at } of uses) note.run(used_at, key_id);
    },
  };
}
