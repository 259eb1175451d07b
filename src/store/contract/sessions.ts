import type { Session } from '../../domain/session.ts';
import type { Page, PageRequest } from './page.ts';

/** The most sessions of one key, or from one link: one more ends the oldest. */
export const SESSIONS_PER_KEY_MAX = 100;

/** The sessions of the pages: one for each sign-in. */
export interface SessionStore {
  /** Also removes the sessions that have ended. */
  create(session: Session): Promise<Session>;
  /** Null when there is no session with this digest, or it has ended. */
  find(digest: string, wall_ms: number): Promise<Session | null>;
  /** The sessions with these digests that have neither ended nor been removed, in their order. */
  standing(digests: string[], wall_ms: number): Promise<string[]>;
  /** The sessions that have not ended, the latest first. */
  list(page: PageRequest, wall_ms: number): Promise<Page<Session>>;
  /** The session that was removed. */
  remove(digest: string): Promise<Session | null>;
  /** The same, by the public id of a session. */
  end(session_id: string): Promise<Session | null>;
}
