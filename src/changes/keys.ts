import type { Clock } from '../delivery/clock.ts';
import type { ApiKey } from '../domain/api_key.ts';
import type { NewApiKey } from '../store/contract/api_keys.ts';
import type { Author } from './author.ts';

export interface KeyChangesParts {
  /** The keys in the memory of this node. A changed key may end the feeds that depend on it. */
  keyring: { put(key: ApiKey): void };
  clock: Clock;
}

/** Only the keyring must know of a change: keys have no event in the feed, and the engine does not use them. */
export class KeyChanges {
  readonly #parts: KeyChangesParts;

  constructor(parts: KeyChangesParts) {
    this.#parts = parts;
  }

  /**
   * @param is_first true when the author may make the key only because no key exists yet
   * @throws Problem `first_key_not_admin`; `api_key_missing` when somebody made a lasting admin key meanwhile
   */
  async create(author: Author, key: NewApiKey, is_first: boolean): Promise<ApiKey> {
    const { key_id: target_id, scopes } = key;
    const created = await author.storeFor({ target_id, details: { scopes } }).api_keys.create(key, is_first);
    this.#parts.keyring.put(created);
    return created;
  }

  /**
   * Returns null when there is no such key.
   *
   * @throws Problem `last_admin_key`
   */
  async revoke(author: Author, key_id: string): Promise<ApiKey | null> {
    const { keyring, clock } = this.#parts;
    const revoked = await author.storeFor().api_keys.revoke(key_id, clock.wall());
    if (revoked !== null) keyring.put(revoked);
    return revoked;
  }

  /**
   * Gives a key another token; the old token works for `overlap_ms` more. Returns null when there is no such key.
   *
   * @param digest the digest of the new token
   * @throws Problem `key_not_active`
   */
  async rotate(author: Author, key_id: string, digest: string, overlap_ms: number): Promise<ApiKey | null> {
    const { keyring, clock } = this.#parts;
    const rotated = await author.storeFor().api_keys.rotate(key_id, digest, overlap_ms, clock.wall());
    if (rotated !== null) keyring.put(rotated);
    return rotated;
  }
}
