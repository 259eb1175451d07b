/** Somebody signed in on a page: a cookie stands for the key that it was given for. */
import { hash } from 'node:crypto';

/** A session as it is kept: the token in the cookie is not, so that whoever reads the data file cannot use it. */
export interface Session {
  /** See `digestOf`. */
  digest: string;
  /** The key that it lives and dies with; null for who signed in by the link that `convoke serve` printed. */
  key_id: string | null;
  created_at: number;
  expires_at: number;
}

/** However long the page stays open. */
const SESSION_MS = 12 * 3_600_000;

/** When a session ends that begins now: no later than its key does. */
export function sessionEnd(wall_ms: number, key_expires_at: number | null): number {
  return Math.min(wall_ms + SESSION_MS, key_expires_at ?? Infinity);
}

/**
 * What a page has to send with every change, because a browser adds the cookie by itself, whoever made the request. Known
 * to whoever can read an answer of this origin, and made from the token, so that nothing more has to be kept.
 */
export function csrfTokenOf(token: string): string {
  return hash('sha256', `csrf ${token}`, 'base64url');
}
