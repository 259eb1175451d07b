/**
 * A one-time link. The machine that redeems it gets a key for one instance, and for the meetings that the link names.
 */
import { ID_CHARS_MAX } from './id.ts';

/**
 * An invite as it is stored. The secret in its link is not stored, so nobody can redeem an invite with the stored data
 * alone.
 */
export interface Invite {
  invite_id: string;
  /** The digest of the secret: see `digestOf`. */
  digest: string;
  /**
   * The key that made the invite; null if the service needed no key then, or if the session that made the invite began
   * with a sign-in link.
   */
  created_by: string | null;
  /**
   * Digest of the token of that key with which the invite was made: the invite ends with this token. Null without a
   * key. Also null when an earlier version, which did not store the digest, made the invite.
   */
  token_digest: string | null;
  /** The instance that the machine registers. */
  instance_id: string;
  /** The meetings that the instance may join, each with the agents in `agent_ids`. */
  meeting_ids: string[];
  agent_ids: string[];
  created_at: number;
  expires_at: number;
  redeemed_at: number | null;
  /** The key that was made when the invite was redeemed; null before that, and when the service needed no key. */
  key_id: string | null;
  revoked_at: number | null;
}

export const INVITE_STATES = ['pending', 'redeemed', 'revoked', 'expired'] as const;
export type InviteState = (typeof INVITE_STATES)[number];

/** How long a link can be redeemed, unless its invite says otherwise. */
export const INVITE_S = 3_600;
export const INVITE_S_MIN = 60;
export const INVITE_S_MAX = 86_400;

export const INVITE_SECRET_BYTES = 32;
/** The form of a secret: `INVITE_SECRET_BYTES` in base64url. */
const SECRET = /^[\w-]{43}$/;

/** The path of a link, up to its secret. */
export const INVITE_PATH = '/invite/';

/** How many random characters end an instance_id that nobody chose, so that no other instance has it. */
const SUFFIX_CHARS = 6;

/** Whether a text has the shape of the secret in a link. */
export function isInviteSecret(text: string): boolean {
  return SECRET.test(text);
}

export function inviteState(
  { redeemed_at, revoked_at, expires_at }: Pick<Invite, 'redeemed_at' | 'revoked_at' | 'expires_at'>,
  wall_ms: number,
): InviteState {
  if (redeemed_at !== null) return 'redeemed';
  if (revoked_at !== null) return 'revoked';
  return expires_at <= wall_ms ? 'expired' : 'pending';
}

/** The instance_id for an invite that names none: the id of its first agent, and the end of the invite's own id. */
export function inviteInstanceId(agent_id: string, invite_id: string): string {
  const suffix = `-${invite_id.slice(-SUFFIX_CHARS)}`;
  // Half of a surrogate pair is not valid text.
  return agent_id.slice(0, ID_CHARS_MAX - suffix.length).replace(/[\ud800-\udbff]$/, '') + suffix;
}
