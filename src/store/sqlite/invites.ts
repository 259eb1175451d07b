import { tokenEnd } from '../../domain/api_key.ts';
import type { Invite } from '../../domain/invite.ts';
import { Problem } from '../../domain/problem.ts';
import type { ApiKeyStore, NewApiKey } from '../contract/api_keys.ts';
import type { InstanceStore } from '../contract/instances.ts';
import { INVITES_KEPT_MS, type InviteStore, type NewInvite } from '../contract/invites.ts';
import type { PageRequest } from '../contract/page.ts';
import { assertRoomForInvite, INVITE_BYTES, inviteOf } from '../rows/invites.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import type { InvitesTable } from '../rows/tables.ts';
import type { Database } from './database.ts';
import type { Sync } from './sync.ts';

const CREATE = `
  INSERT INTO invites (invite_id, digest, created_by, token_digest, instance_id, meeting_ids, agent_ids, created_at, expires_at)
  VALUES ($invite_id, $digest, $created_by, $token_digest, $instance_id, $meeting_ids, $agent_ids, $created_at, $expires_at)`;

const REMOVE_OLD = 'DELETE FROM invites WHERE expires_at < ?';

const IS_PENDING = 'redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $wall_ms';
const COUNT_PENDING = `SELECT count(*) AS pending FROM invites WHERE ${IS_PENDING}`;

const LIST = `
  SELECT *, ${INVITE_BYTES} AS row_bytes FROM invites WHERE (created_at, invite_id) < (?, ?)
  ORDER BY created_at DESC, invite_id DESC LIMIT ?`;

const REVOKE = 'UPDATE invites SET revoked_at = ? WHERE invite_id = ? AND revoked_at IS NULL';

const REDEEM = `
  UPDATE invites SET redeemed_at = $wall_ms, key_id = $key_id WHERE digest = $digest AND ${IS_PENDING} RETURNING invite_id`;

export function inviteOperations(
  db: Database,
  api_keys: Pick<Sync<ApiKeyStore>, 'create' | 'get'>,
  instances: Pick<Sync<InstanceStore>, 'patch'>,
): Sync<InviteStore> {
  function get(where: string, value: string): Invite | null {
    const row = db.prepare(`SELECT * FROM invites WHERE ${where} = ?`).get(value) as InvitesTable | undefined;
    return row === undefined ? null : inviteOf(row);
  }

  return {
    find: (digest: string) => get('digest', digest),
    create(invite: NewInvite) {
      const { invite_id, created_by, token_digest, meeting_ids, agent_ids, created_at: wall_ms } = invite;
      db.prepare(REMOVE_OLD).run(wall_ms - INVITES_KEPT_MS);
      assertRoomForInvite((db.prepare(COUNT_PENDING).get({ wall_ms }) as { pending: number }).pending);
      const lists = { meeting_ids: JSON.stringify(meeting_ids), agent_ids: JSON.stringify(agent_ids) };
      // The token was valid when the request arrived, and may have ended since.
      const maker = created_by === null ? null : api_keys.get(created_by);
      const end = maker === null ? Infinity : tokenEnd(maker, token_digest, wall_ms);
      db.prepare(CREATE).run({ ...invite, ...lists, expires_at: Math.min(invite.expires_at, end) });
      return get('invite_id', invite_id) as Invite;
    },
    list({ limit, cursor }: PageRequest) {
      const [created_at, invite_id] =
        cursor === undefined ? [Number.MAX_SAFE_INTEGER, ''] : decodeCursor(cursor, ['number', 'string']);
      const rows = db.prepare(LIST).all(created_at as number, invite_id as string, limit + 1);
      return pageOf(rows as unknown as InvitesTable[], limit, (row) => [row.created_at, row.invite_id], inviteOf);
    },
    revoke(invite_id: string, wall_ms: number) {
      const invite = get('invite_id', invite_id);
      if (invite === null) return null;
      if (invite.redeemed_at !== null) throw new Problem('invite_redeemed');
      db.prepare(REVOKE).run(wall_ms, invite_id);
      return get('invite_id', invite_id);
    },
    redeem(digest: string, new_key: NewApiKey, wall_ms: number) {
      const needs_key = db.prepare('SELECT 1 FROM api_keys LIMIT 1').get() !== undefined;
      const key_id = needs_key ? new_key.key_id : null;
      const row = db.prepare(REDEEM).get({ digest, key_id, wall_ms }) as { invite_id: string } | undefined;
      if (row === undefined) return null;
      // Reads the row with a SELECT, which can read a damaged number: see `Statement`. A statement that writes cannot.
      const invite = get('invite_id', row.invite_id) as Invite;
      if (key_id === null) return { invite, key: null, instance: null };
      const key = api_keys.create(new_key);
      return { invite, key, instance: instances.patch(invite.instance_id, { owner_key_id: key_id }, wall_ms) };
    },
  };
}
