import type { Session } from '../../domain/session.ts';
import { SESSIONS_PER_KEY_MAX, type SessionStore } from '../store.ts';
import { SESSION_COLUMNS } from './columns.ts';
import { type Session as Connected, statement } from './database.ts';
import { KEYS } from './locks.ts';

/** One after the other, so that the oldest is ended by one of two that begin at once. */
const LOCK = statement(`SELECT pg_advisory_xact_lock(${KEYS})`);
const END_PAST = statement('DELETE FROM sessions WHERE expires_at <= $created_at');
const END_OLDEST = statement(`
  DELETE FROM sessions WHERE digest IN (
    SELECT digest FROM sessions WHERE key_id IS NOT DISTINCT FROM $key_id ORDER BY created_at DESC, digest OFFSET ${SESSIONS_PER_KEY_MAX - 1})`);
const CREATE = statement(
  'INSERT INTO sessions (digest, key_id, created_at, expires_at) VALUES ($digest, $key_id, $created_at, $expires_at)',
);
const FIND = statement(
  `SELECT ${SESSION_COLUMNS.join(', ')} FROM sessions WHERE digest = $digest AND expires_at > $wall_ms`,
);
const REMOVE = statement(`DELETE FROM sessions WHERE digest = $digest RETURNING ${SESSION_COLUMNS.join(', ')}`);

export function sessionOperations(connected: Connected): SessionStore {
  return {
    async create({ digest, key_id, created_at, expires_at }) {
      const session = { digest, key_id, created_at, expires_at };
      await connected.all(LOCK);
      await connected.run(END_PAST, session);
      await connected.run(END_OLDEST, session);
      await connected.run(CREATE, session);
      return session;
    },
    find: async (digest, wall_ms) => (await connected.one<Session>(FIND, { digest, wall_ms })) ?? null,
    remove: async (digest) => (await connected.one<Session>(REMOVE, { digest })) ?? null,
  };
}
