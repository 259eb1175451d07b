import type { Session } from '../../domain/session.ts';
import type { Page, PageRequest } from './page.ts';

/** Sessions of one key, or by a link, at a time: one more ends the oldest. */
export const SESSIONS_PER_KEY_MAX = 100;

/** The sessions of the pages: one for each sign-in. */
export interface SessionStore {
  /** Removes those that have ended, too. */
  create(session: Session): Promise<Session>;
  /** Null when there is none with this digest, or it has ended. */
  find(digest: string, wall_ms: number): Promise<Session | null>;
  /** Those of these digests that have neither ended nor been removed, in their order. */
  standing(digests: string[], wall_ms: number): Promise<string[]>;
  /** Those that have not ended, the latest first. */
  list(page: PageRequest, wall_ms: number): Promise<Page<Session>>;
  /** The session that was removed. */
  remove(digest: string): Promise<Session | null>;
  /** The same, by the public id of a session. */
  end(session_id: string): Promise<Session | null>;
}
