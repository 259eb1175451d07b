import type { ApiKey } from '../../domain/api_key.ts';
import type { Page, PageRequest } from './page.ts';

/** A key that is about to be stored. */
export type NewApiKey = Pick<
  ApiKey,
  'key_id' | 'name' | 'scopes' | 'meeting_ids' | 'instance_id' | 'digest' | 'created_at' | 'expires_at'
>;

export interface ApiKeyStore {
  /**
   * Stores a key. Rejects with `first_key_not_admin` if no admin key that never expires would exist after the call.
   *
   * @param is_first true when the caller may make a key only because no key exists yet. If an admin key that never
   * expires exists all the same, the call rejects with `api_key_missing`
   */
  create(key: NewApiKey, is_first?: boolean): Promise<ApiKey>;
  get(key_id: string): Promise<ApiKey | null>;
  /** All keys, the oldest first. */
  list(page: PageRequest): Promise<Page<ApiKey>>;
  /**
   * Revokes a key, ends its sessions and its subscriptions, and revokes the invites that it made. Null when there is no
   * such key. Rejects with `last_admin_key` when it is the last admin key that never expires. Revoking a key again
   * changes nothing, and returns the time of the first call.
   */
  revoke(key_id: string, wall_ms: number): Promise<ApiKey | null>;
  /**
   * Gives a key a new token. The previous token stays valid for `overlap_ms`, and no session and no invite of that token
   * lasts longer. Null when there is no such key. Rejects with `key_not_active` when the key is revoked or has expired.
   */
  rotate(key_id: string, digest: string, overlap_ms: number, wall_ms: number): Promise<ApiKey | null>;
  /**
   * Every key that was changed after `change_no`, in the order of the changes. A node uses this to keep the keys in its
   * memory up to date.
   */
  changedSince(change_no: number): Promise<ApiKey[]>;
  /** Notes when keys were last used. */
  recordUse(uses: { key_id: string; used_at: number }[]): Promise<void>;
}
