import type { Clock } from '../delivery/clock.ts';
import { Problem } from '../domain/problem.ts';
import type { BackupStore } from '../store/contract/backups.ts';
import type { Store } from '../store/store.ts';
import type { Author } from './author.ts';

/** The most instances whose secrets one transaction encrypts: other calls of the store wait some 2 ms for it. */
const ROWS_PER_STEP = 50;
/** After about this time a call responds and leaves the rest to the next call. Clients and proxies wait much longer. */
const CALL_MS_MAX = 2_000;
/** The most instances with unreadable secrets that a call names. */
const UNREADABLE_MAX = 100;

export interface ServiceChangesParts {
  store: Pick<Store, 'encryption' | 'backups'>;
  /** Secrets that the data key determines. `refresh` reads them again when the data key has changed. */
  derived: readonly { refresh(): Promise<void> }[];
  clock: Clock;
}

/** Changes of the service as a whole. Neither the feed nor the engine needs to know of them. */
export class ServiceChanges {
  readonly #parts: ServiceChangesParts;

  constructor(parts: ServiceChangesParts) {
    this.#parts = parts;
  }

  /**
   * Changes the data key and encrypts every secret with the new key. One call does a part: call again until `done`.
   * The previous key is kept while there are instances whose secrets no key decrypts.
   *
   * @throws Problem `encryption_key_given`, `encryption_key_not_shared`, `encryption_key_not_written`
   */
  async reencrypt(author: Author): Promise<{ key_id: string; rewritten: number; unreadable: string[]; done: boolean }> {
    const { clock, store, derived } = this.#parts;
    const ends_at = clock.now() + CALL_MS_MAX;
    const { key_id } = await author.storeFor().encryption.changeKey(clock.wall());
    let rewritten = 0;
    const unreadable: string[] = [];
    for (let after: string | null = null; ;) {
      const step = await store.encryption.reencrypt(after, ROWS_PER_STEP);
      rewritten += step.rewritten;
      unreadable.push(...step.unreadable.slice(0, UNREADABLE_MAX - unreadable.length));
      after = step.next;
      if (after === null) break;
      if (clock.now() >= ends_at) return { key_id, rewritten, unreadable, done: false };
    }
    if (unreadable.length > 0) return { key_id, rewritten, unreadable, done: true };
    await store.encryption.endChange();
    await store.encryption.forgetPreviousKey();
    await Promise.all(derived.map((each) => each.refresh()));
    return { key_id, rewritten, unreadable, done: true };
  }

  /** @throws Problem `backup_under_way`, `backup_no_room`, `backup_not_made_here` */
  async beginBackup(author: Author): ReturnType<BackupStore['begin']> {
    const { backups } = this.#parts.store;
    if (backups === undefined) throw new Problem('backup_not_made_here');
    const backup = await backups.begin();
    await author.record();
    return backup;
  }
}
