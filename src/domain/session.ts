/** Somebody signed in on a page: a cookie and a value that only the page holds stand for the key that was given. */

/** A session as it is kept: neither the token in the cookie nor the page's value is, so the data alone opens no session. */
export interface Session {
  /** Of the token in the cookie. See `digestOf`. */
  digest: string;
  /** Of what the page sends with every request, because a browser adds the cookie by itself, whoever made the request. */
  csrf_digest: string;
  /** The key that it lives and dies with; null for who signed in by the link that `convoke serve` printed. */
  key_id: string | null;
  /** Of the token of that key that was given: when it is refused, the session ends. */
  token_digest: string | null;
  /** The node that printed the link: with its process the session ends. */
  node_id: string | null;
  created_at: number;
  expires_at: number;
}

/** However long the page stays open. */
const SESSION_MS = 12 * 3_600_000;

/** Enough of the digest to tell a session from all others, and nothing that it could be used with. */
export const SESSION_ID_CHARS = 20;

/** What a session is called by those who may end it. */
export function sessionIdOf({ digest }: Pick<Session, 'digest'>): string {
  return digest.slice(0, SESSION_ID_CHARS);
}

/** When a session ends that begins now: no later than its key does. */
export function sessionEnd(wall_ms: number, key_expires_at: number | null): number {
  return Math.min(wall_ms + SESSION_MS, key_expires_at ?? Infinity);
}
