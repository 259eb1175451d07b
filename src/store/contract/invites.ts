import type { ApiKey } from '../../domain/api_key.ts';
import type { Invite } from '../../domain/invite.ts';
import type { NewApiKey } from './api_keys.ts';
import type { InstanceRow } from './instances.ts';
import type { Page, PageRequest } from './page.ts';

/** An invite that is about to be stored. */
export type NewInvite = Omit<Invite, 'redeemed_at' | 'key_id' | 'revoked_at'>;

/** The most invites that can be open at a time. An open invite is not redeemed, not revoked and not expired. */
export const INVITES_PENDING_MAX = 1_000;
/**
 * The least time for which an invite stays in the list after it expired: `create` removes invites that expired earlier.
 * The audit log keeps their history for longer.
 */
export const INVITES_KEPT_MS = 30 * 86_400_000;

/** The result of redeeming an invite. */
export interface Redemption {
  invite: Invite;
  /** Null while the service has no key: then requests need no key, and a first key would make everybody need one. */
  key: ApiKey | null;
  /** The instance of the invite, which the new key owns now. Null when there is no such instance, or when `key` is null. */
  instance: InstanceRow | null;
}

export interface InviteStore {
  /**
   * Stores an invite, and removes invites that expired long ago. The invite expires no later than the token that made
   * it. Rejects with `quota_exceeded` when too many invites are open.
   */
  create(invite: NewInvite): Promise<Invite>;
  /** Finds an invite by the digest of its secret. */
  find(digest: string): Promise<Invite | null>;
  /** The invites that are not removed yet, the latest first. */
  list(page: PageRequest): Promise<Page<Invite>>;
  /**
   * Null when there is no such invite; rejects with `invite_redeemed`. Revoking again returns the time of the first
   * call.
   */
  revoke(invite_id: string, wall_ms: number): Promise<Invite | null>;
  /**
   * Makes the key of an invite and ends the invite, so that of several callers only one gets a key. The key becomes the
   * owner of the instance, if the instance exists. Null when the invite cannot be redeemed any more.
   */
  redeem(digest: string, key: NewApiKey, wall_ms: number): Promise<Redemption | null>;
}
