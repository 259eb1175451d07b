import { SESSION_ID_CHARS, type Session } from '../../domain/session.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import type { PageRequest } from '../contract/page.ts';
import { SESSIONS_PER_KEY_MAX, type SessionStore } from '../contract/sessions.ts';
import type { Database } from './database.ts';
import type { Sync } from './sync.ts';

const END_OLDEST = `
  DELETE FROM sessions WHERE digest IN (
    SELECT digest FROM sessions WHERE key_id IS ? ORDER BY created_at DESC, digest LIMIT -1 OFFSET ?)`;

const CREATE = `
  INSERT INTO sessions (digest, csrf_digest, key_id, token_digest, node_id, created_at, expires_at)
  VALUES ($digest, $csrf_digest, $key_id, $token_digest, $node_id, $created_at, $expires_at)`;

const LIST = `
  SELECT * FROM sessions WHERE expires_at > ? AND (created_at, digest) < (?, ?) ORDER BY created_at DESC, digest DESC LIMIT ?`;

const STANDING = 'SELECT digest FROM sessions WHERE digest IN (SELECT value FROM json_each(?)) AND expires_at > ?';

export function sessionOperations(db: Database): Sync<SessionStore> {
  return {
    create(session: Session) {
      db.prepare('DELETE FROM sessions WHERE expires_at <= ?').run(session.created_at);
      db.prepare(END_OLDEST).run(session.key_id, SESSIONS_PER_KEY_MAX - 1);
      db.prepare(CREATE).run({ ...session });
      return session;
    },
    find(digest: string, wall_ms: number) {
      const row = db.prepare('SELECT * FROM sessions WHERE digest = ? AND expires_at > ?').get(digest, wall_ms);
      return row === undefined ? null : sessionOf(row as unknown as Session);
    },
    standing(digests: string[], wall_ms: number) {
      const rows = db.prepare(STANDING).all(JSON.stringify(digests), wall_ms) as { digest: string }[];
      return rows.map(({ digest }) => digest).toSorted();
    },
    list({ limit, cursor }: PageRequest, wall_ms: number) {
      const [created_at, digest] =
        cursor === undefined ? [Number.MAX_SAFE_INTEGER, ''] : decodeCursor(cursor, ['number', 'string']);
      const rows = db.prepare(LIST).all(wall_ms, created_at as number, digest as string, limit + 1);
      return pageOf(rows as unknown as Session[], limit, (row) => [row.created_at, row.digest], sessionOf);
    },
    remove(digest: string) {
      const row = db.prepare('DELETE FROM sessions WHERE digest = ? RETURNING *').get(digest);
      return row === undefined ? null : sessionOf(row as unknown as Session);
    },
    end(session_id: string) {
      const row = db
        .prepare(`DELETE FROM sessions WHERE substr(digest, 1, ${SESSION_ID_CHARS}) = ? RETURNING *`)
        .get(session_id);
      return row === undefined ? null : sessionOf(row as unknown as Session);
    },
  };
}

/** Copies the row, because rows of node:sqlite have no prototype. */
function sessionOf(row: Session): Session {
  const { digest, csrf_digest, key_id, token_digest, node_id, created_at, expires_at } = row;
  return { digest, csrf_digest, key_id, token_digest, node_id, created_at, expires_at };
}
