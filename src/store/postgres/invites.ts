import { tokenEnd } from '../../domain/api_key.ts';
import type { Invite } from '../../domain/invite.ts';
import { Problem } from '../../domain/problem.ts';
import type { ApiKeyStore } from '../contract/api_keys.ts';
import type { InstanceStore } from '../contract/instances.ts';
import { INVITES_KEPT_MS, type InviteStore } from '../contract/invites.ts';
import { assertRoomForInvite, INVITE_BYTES, inviteOf } from '../rows/invites.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import type { InvitesTable } from '../rows/tables.ts';
import { INVITE_COLUMNS } from './columns.ts';
import { type Session, statement } from './database.ts';
import { KEYS } from './locks.ts';

/** Changes of invites take the lock for changes of keys. With two locks, two transactions could wait for each other. */
const LOCK = statement(`SELECT pg_advisory_xact_lock(${KEYS})`);

const CREATE = statement(`
  INSERT INTO invites (invite_id, digest, created_by, token_digest, instance_id, meeting_ids, agent_ids, created_at, expires_at)
  VALUES ($invite_id, $digest, $created_by, $token_digest, $instance_id, $meeting_ids, $agent_ids, $created_at, $expires_at)`);

const REMOVE_OLD = statement('DELETE FROM invites WHERE expires_at < $before_ms');

const IS_PENDING = 'redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $wall_ms';
const COUNT_PENDING = statement(`SELECT count(*) AS pending FROM invites WHERE ${IS_PENDING}`);

const COLUMNS = INVITE_COLUMNS.join(', ');
const GET = statement(`SELECT ${COLUMNS} FROM invites WHERE invite_id = $invite_id`);
const FIND = statement(`SELECT ${COLUMNS} FROM invites WHERE digest = $digest`);
const LIST = statement(`
  SELECT ${COLUMNS}, ${INVITE_BYTES} AS row_bytes FROM invites WHERE (created_at, invite_id) < ($created_at, $invite_id)
  ORDER BY created_at DESC, invite_id DESC LIMIT $limit`);

const REVOKE = statement(
  'UPDATE invites SET revoked_at = $wall_ms WHERE invite_id = $invite_id AND revoked_at IS NULL',
);

const HAS_KEYS = statement('SELECT 1 FROM api_keys LIMIT 1');
const REDEEM = statement(`
  UPDATE invites SET redeemed_at = $wall_ms, key_id = $key_id WHERE digest = $digest AND ${IS_PENDING} RETURNING ${COLUMNS}`);

export function inviteOperations(
  session: Session,
  api_keys: Pick<ApiKeyStore, 'create' | 'get'>,
  instances: Pick<InstanceStore, 'patch'>,
): InviteStore {
  async function get(invite_id: string): Promise<Invite | null> {
    const row = await session.one<InvitesTable>(GET, { invite_id });
    return row === undefined ? null : inviteOf(row);
  }

  return {
    async find(digest) {
      const row = await session.one<InvitesTable>(FIND, { digest });
      return row === undefined ? null : inviteOf(row);
    },
    async create(invite) {
      const { invite_id, created_by, token_digest, meeting_ids, agent_ids, created_at: wall_ms } = invite;
      await session.all(LOCK);
      await session.run(REMOVE_OLD, { before_ms: wall_ms - INVITES_KEPT_MS });
      const [counted] = await session.all<{ pending: number }>(COUNT_PENDING, { wall_ms });
      assertRoomForInvite(counted?.pending ?? 0);
      const lists = { meeting_ids: JSON.stringify(meeting_ids), agent_ids: JSON.stringify(agent_ids) };
      // The token was valid when the request arrived, and may have ended since.
      const maker = created_by === null ? null : await api_keys.get(created_by);
      const end = maker === null ? Infinity : tokenEnd(maker, token_digest, wall_ms);
      await session.run(CREATE, { ...invite, ...lists, expires_at: Math.min(invite.expires_at, end) });
      return (await get(invite_id)) as Invite;
    },
    async list({ limit, cursor }) {
      const [created_at, invite_id] =
        cursor === undefined ? [Number.MAX_SAFE_INTEGER, ''] : decodeCursor(cursor, ['number', 'string']);
      const rows = await session.all<InvitesTable>(LIST, { created_at, invite_id, limit: limit + 1 });
      return pageOf(rows, limit, (row) => [row.created_at, row.invite_id], inviteOf);
    },
    async revoke(invite_id, wall_ms) {
      await session.all(LOCK);
      const invite = await get(invite_id);
      if (invite === null) return null;
      if (invite.redeemed_at !== null) throw new Problem('invite_redeemed');
      await session.run(REVOKE, { invite_id, wall_ms });
      return get(invite_id);
    },
    async redeem(digest, new_key, wall_ms) {
      await session.all(LOCK);
      const needs_key = (await session.one(HAS_KEYS)) !== undefined;
      const key_id = needs_key ? new_key.key_id : null;
      const row = await session.one<InvitesTable>(REDEEM, { digest, key_id, wall_ms });
      if (row === undefined) return null;
      const invite = inviteOf(row);
      if (key_id === null) return { invite, key: null, instance: null };
      const key = await api_keys.create(new_key);
      return { invite, key, instance: await instances.patch(invite.instance_id, { owner_key_id: key_id }, wall_ms) };
    },
  };
}
