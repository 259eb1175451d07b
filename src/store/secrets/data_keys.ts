import type { KeyObject } from 'node:crypto';
import { Problem } from '../../domain/problem.ts';
import { type FileKeys, readKeyFile, writeKeyFile } from './key_file.ts';
import { type DataKey, dataKeyOf, decrypt, encrypt, makeDataKey, type SecretPlace } from './secret_cipher.ts';
import { StoreError } from '../store_error.ts';

/** The settings encryption_key and encryption_key_previous. */
export interface GivenKeys {
  current: KeyObject;
  previous: KeyObject | null;
}

/** Where the data key is: in the settings, in a file, or in memory for a store that ends with the process. */
export type KeySource = { kind: 'given'; keys: GivenKeys } | { kind: 'file'; path: string } | { kind: 'memory' };

/**
 * The data key that encrypts, and the previous key while some rows are still encrypted under it.
 *
 * The table `encryption_keys` names the keys that encrypt the data, with a check value for each: two keys during a
 * change. The new key is in the key file before it encrypts anything. The previous key leaves the file only when no row
 * is encrypted under it. So after a crash every secret can be decrypted.
 */
export class DataKeys {
  readonly #source: KeySource;
  #current: DataKey;
  #previous: DataKey | null;

  private constructor(source: KeySource, { current, previous }: FileKeys) {
    this.#source = source;
    this.#current = current;
    this.#previous = previous;
  }

  /**
   * @param needed true when something is encrypted already: then no new key may be made
   * @throws StoreError that says what is wrong with the key
   */
  static load(source: KeySource, needed: boolean): DataKeys {
    if (source.kind === 'memory') return new DataKeys(source, { current: makeDataKey(), previous: null });
    if (source.kind === 'given') {
      const { current, previous } = source.keys;
      return new DataKeys(source, {
        current: dataKeyOf(current),
        previous: previous === null ? null : dataKeyOf(previous),
      });
    }
    const { path } = source;
    const found = readKeyFile(path);
    if (found !== null) return new DataKeys(source, found);
    if (needed) {
      throw new StoreError(
        'ENCRYPTION_KEY_MISSING',
        `${path} is missing, and webhook secrets are encrypted under the key in it: put it back from its backup, or give the key as CONVOKE_ENCRYPTION_KEY.`,
      );
    }
    const made = { current: makeDataKey(), previous: null };
    writeKeyFile(path, made);
    return new DataKeys(source, made);
  }

  get current(): DataKey {
    return this.#current;
  }

  /** The keys; the first one encrypts. */
  get all(): readonly DataKey[] {
    return this.#previous === null ? [this.#current] : [this.#current, this.#previous];
  }

  keyOf(key_id: string): DataKey | undefined {
    return this.all.find((key) => key.key_id === key_id);
  }

  encrypt(secret: string, place: SecretPlace): string {
    return encrypt(this.#current, secret, place);
  }

  /** @throws StoreError SECRET_UNREADABLE */
  decrypt(encrypted: string, place: SecretPlace): string {
    return decrypt(this.all, encrypted, place);
  }

  /**
   * Makes a new key that encrypts from now on. Null when the key is a setting, because then the setting has to be
   * changed.
   *
   * @throws Problem `encryption_key_not_written`
   */
  change(): DataKey | null {
    if (this.#source.kind === 'given') return null;
    const next = { current: makeDataKey(), previous: this.#current };
    // Both keys are on disk before anything is encrypted with the new key.
    if (this.#source.kind === 'file') replaceKeyFile(this.#source.path, next);
    this.#current = next.current;
    this.#previous = next.previous;
    return next.current;
  }

  /**
   * Call it when a commit has recorded that no row is encrypted under the previous key any more.
   *
   * @throws Problem `encryption_key_not_written`
   */
  forgetPrevious(): void {
    if (this.#previous === null) return;
    if (this.#source.kind === 'file') replaceKeyFile(this.#source.path, { current: this.#current, previous: null });
    this.#previous = null;
  }

  /**
   * The error when a key is missing that encrypts rows.
   *
   * @param needed the ids of all keys that encrypt rows: two, when the data is from the middle of a change of the key
   */
  misfit(needed: readonly string[]): StoreError {
    const is_two = needed.length > 1;
    const have = this.all.map(({ key_id }) => key_id).join(' and ');
    let advice: string;
    if (this.#source.kind === 'given') {
      advice = is_two
        ? 'give both, as CONVOKE_ENCRYPTION_KEY and CONVOKE_ENCRYPTION_KEY_PREVIOUS'
        : 'give that one as CONVOKE_ENCRYPTION_KEY, or as CONVOKE_ENCRYPTION_KEY_PREVIOUS beside the new one to change it';
    } else {
      const where = this.#source.kind === 'file' ? this.#source.path : 'memory';
      advice = is_two
        ? `put both keys into ${where}, each on a line of its own`
        : `put the key that belongs to this data into ${where}`;
    }
    const keys = is_two
      ? `the keys ${needed.join(' and ')}, because the key was being changed`
      : `the key ${needed[0]}`;
    return new StoreError(
      'ENCRYPTION_KEY_WRONG',
      `The data key does not fit: webhook secrets are encrypted under ${keys}, and the one given is ${have}; ${advice}.`,
    );
  }
}

/** @throws Problem that says why the file cannot be replaced, and what to do */
function replaceKeyFile(path: string, keys: FileKeys): void {
  try {
    writeKeyFile(path, keys);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    const detail =
      error instanceof StoreError ? message : `${path} cannot be replaced (${code}): ${WHAT_TO_DO[code] ?? ALLOW}.`;
    throw new Problem('encryption_key_not_written', detail);
  }
}

const ALLOW = 'let the service write in the directory of this file, or give the key as CONVOKE_ENCRYPTION_KEY';

const WHAT_TO_DO: Record<string, string> = {
  EBUSY:
    'it is mounted as a single file. Stop the service and mount the directory of the file instead, or give the key as CONVOKE_ENCRYPTION_KEY',
  ENOSPC: 'make room on its disk',
  EDQUOT: 'make room on its disk',
};
