import { SESSION_ID_CHARS, type Session } from '../../domain/session.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import { SESSIONS_PER_KEY_MAX, type SessionStore } from '../contract/sessions.ts';
import { SESSION_COLUMNS } from './columns.ts';
import { type Session as Connected, statement } from './database.ts';
import { KEYS } from './locks.ts';

/**
 * Sessions begin one after the other. Otherwise two new sessions could both end the same oldest session, and one
 * session too many would stay.
 */
const LOCK = statement(`SELECT pg_advisory_xact_lock(${KEYS})`);
const END_PAST = statement('DELETE FROM sessions WHERE expires_at <= $created_at');
const END_OLDEST = statement(`
  DELETE FROM sessions WHERE digest IN (
    SELECT digest FROM sessions WHERE key_id IS NOT DISTINCT FROM $key_id ORDER BY created_at DESC, digest OFFSET ${SESSIONS_PER_KEY_MAX - 1})`);
const CREATE = statement(`
  INSERT INTO sessions (digest, csrf_digest, key_id, token_digest, node_id, created_at, expires_at)
  VALUES ($digest, $csrf_digest, $key_id, $token_digest, $node_id, $created_at, $expires_at)`);
const COLUMNS = SESSION_COLUMNS.join(', ');
const FIND = statement(`SELECT ${COLUMNS} FROM sessions WHERE digest = $digest AND expires_at > $wall_ms`);
const STANDING = statement(
  'SELECT digest FROM sessions WHERE digest = ANY ($digests::text[]) AND expires_at > $wall_ms ORDER BY digest',
);
const LIST = statement(`
  SELECT ${COLUMNS} FROM sessions WHERE expires_at > $wall_ms AND (created_at, digest) < ($created_at, $digest)
  ORDER BY created_at DESC, digest DESC LIMIT $limit`);
const REMOVE = statement(`DELETE FROM sessions WHERE digest = $digest RETURNING ${COLUMNS}`);
const END = statement(
  `DELETE FROM sessions WHERE left(digest, ${SESSION_ID_CHARS}) = $session_id RETURNING ${COLUMNS}`,
);

export function sessionOperations(connected: Connected): SessionStore {
  return {
    async create(session) {
      await connected.all(LOCK);
      await connected.run(END_PAST, { created_at: session.created_at });
      await connected.run(END_OLDEST, { key_id: session.key_id });
      await connected.run(CREATE, { ...session });
      return session;
    },
    find: async (digest, wall_ms) => (await connected.one<Session>(FIND, { digest, wall_ms })) ?? null,
    async standing(digests, wall_ms) {
      return (await connected.all<{ digest: string }>(STANDING, { digests, wall_ms })).map(({ digest }) => digest);
    },
    async list({ limit, cursor }, wall_ms) {
      const [created_at, digest] =
        cursor === undefined ? [Number.MAX_SAFE_INTEGER, ''] : decodeCursor(cursor, ['number', 'string']);
      const rows = await connected.all<Session>(LIST, { wall_ms, created_at, digest, limit: limit + 1 });
      return pageOf(
        rows,
        limit,
        (row) => [row.created_at, row.digest],
        (row) => row,
      );
    },
    remove: async (digest) => (await connected.one<Session>(REMOVE, { digest })) ?? null,
    end: async (session_id) => (await connected.one<Session>(END, { session_id })) ?? null,
  };
}
