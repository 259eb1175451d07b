import type { Session } from '../../domain/session.ts';
import type { Page, PageRequest } from './page.ts';

/** The most sessions of one key, or of all sign-in links together. When one more begins, the oldest ends. */
export const SESSIONS_PER_KEY_MAX = 100;

/** The sessions of the pages: one for each sign-in. */
export interface SessionStore {
  /** Stores a session, and removes the sessions that have ended. */
  create(session: Session): Promise<Session>;
  /** Null when there is no session with this digest, or it has ended. */
  find(digest: string, wall_ms: number): Promise<Session | null>;
  /** Returns the digests whose sessions are still valid, in ascending order. */
  standing(digests: string[], wall_ms: number): Promise<string[]>;
  /** The sessions that have not ended, the latest first. */
  list(page: PageRequest, wall_ms: number): Promise<Page<Session>>;
  /** Removes a session and returns it. */
  remove(digest: string): Promise<Session | null>;
  /** Removes the session with this public id and returns it. */
  end(session_id: string): Promise<Session | null>;
}
