import type { Session } from '../../domain/session.ts';
import { SESSIONS_PER_KEY_MAX, type SessionStore } from '../store.ts';
import type { Database } from './database.ts';
import type { Sync } from './operations.ts';

const END_OLDEST = `
  DELETE FROM sessions WHERE digest IN (
    SELECT digest FROM sessions WHERE key_id IS ? ORDER BY created_at DESC, digest LIMIT -1 OFFSET ?)`;

export function sessionOperations(db: Database): Sync<SessionStore> {
  return {
    create(session: Session) {
      const { digest, key_id, created_at, expires_at } = session;
      db.prepare('DELETE FROM sessions WHERE expires_at <= ?').run(created_at);
      db.prepare(END_OLDEST).run(key_id, SESSIONS_PER_KEY_MAX - 1);
      db.prepare('INSERT INTO sessions (digest, key_id, created_at, expires_at) VALUES (?, ?, ?, ?)').run(
        digest,
        key_id,
        created_at,
        expires_at,
      );
      return session;
    },
    find(digest: string, wall_ms: number) {
      const row = db.prepare('SELECT * FROM sessions WHERE digest = ? AND expires_at > ?').get(digest, wall_ms);
      return row === undefined ? null : sessionOf(row as unknown as Session);
    },
    remove(digest: string) {
      const row = db.prepare('DELETE FROM sessions WHERE digest = ? RETURNING *').get(digest);
      return row === undefined ? null : sessionOf(row as unknown as Session);
    },
  };
}

/** Rows of node:sqlite have no prototype. */
function sessionOf({ digest, key_id, created_at, expires_at }: Session): Session {
  return { digest, key_id, created_at, expires_at };
}
