import { createSecretKey, type KeyObject } from 'node:crypto';
import type { EncryptionStore } from '../contract/encryption.ts';

/**
 * The secrets of one purpose. They are derived from the data key, which all nodes share, so every node accepts the
 * tokens of all other nodes. A token is valid only as long as the data key behind its secret is in use.
 */
export class DerivedSecrets {
  readonly #store: Pick<EncryptionStore, 'derivedKeys'>;
  readonly #purpose: string;
  #all: readonly KeyObject[] = [];

  /** @param purpose a fixed text: each purpose has its own secrets */
  constructor(store: Pick<EncryptionStore, 'derivedKeys'>, purpose: string) {
    this.#store = store;
    this.#purpose = purpose;
  }

  /** Reads the secrets. Call it before the first request and the first push, and whenever the data key changes. */
  async refresh(): Promise<void> {
    const secrets = await this.#store.derivedKeys(this.#purpose);
    this.#all = secrets.map((secret) => createSecretKey(secret, 'base64'));
  }

  /** The secret that signs; undefined before the first `refresh`. */
  get newest(): KeyObject | undefined {
    return this.#all[0];
  }

  /** The secrets whose tokens are accepted: the newest secret, and during a change of the data key the previous one. */
  get all(): readonly KeyObject[] {
    return this.#all;
  }
}
