/** A sign-in on a page. A cookie, together with a value that only the page knows, has the rights of a key. */

/**
 * A session as it is stored. The token in the cookie and the value of the page are not stored, so nobody can use a
 * session with the stored data alone.
 */
export interface Session {
  /** Digest of the token in the cookie: see `digestOf`. */
  digest: string;
  /**
   * Digest of the value that the page sends with every request. The cookie is not enough, because a browser adds the
   * cookie to requests of any page.
   */
  csrf_digest: string;
  /**
   * The key of the session: when this key ends, the session ends. Null when the session began with the link that
   * `convoke serve` prints.
   */
  key_id: string | null;
  /**
   * Digest of the token of the key with which the session began: when the service refuses that token, the session ends.
   * Null when the session began with a link.
   */
  token_digest: string | null;
  /** The node that printed the link: the session ends with its process. Null when the session began with a key. */
  node_id: string | null;
  created_at: number;
  expires_at: number;
}

/** How long a session lasts, even when the page stays open. */
const SESSION_MS = 12 * 3_600_000;

/**
 * How many characters of the digest make the id of a session. These characters are enough to distinguish sessions, and
 * too few to use a session.
 */
export const SESSION_ID_CHARS = 20;

/** The id of a session, for admins. */
export function sessionIdOf({ digest }: Pick<Session, 'digest'>): string {
  return digest.slice(0, SESSION_ID_CHARS);
}

/** The end of a session that begins now: no later than the end of its key. */
export function sessionEnd(wall_ms: number, key_expires_at: number | null): number {
  return Math.min(wall_ms + SESSION_MS, key_expires_at ?? Infinity);
}
