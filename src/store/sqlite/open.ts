import { dirname, join } from 'node:path';
import { MessageChannel } from 'node:worker_threads';
import { KEY_FILE } from '../../domain/data_directory.ts';
import type { GivenKeys, KeySource } from '../secrets/data_keys.ts';
import { quotasOf } from '../rows/quotas.ts';
import { openThread, type StoreObserver } from '../thread/store_thread.ts';
import { type StartedThread, startThread } from '../thread/thread_start.ts';
import { NO_QUOTAS, type Quotas } from '../contract/quotas.ts';
import type { Store } from '../store.ts';
import { Backups } from './file/backups.ts';

/** Starts the thread of an embedded store, which `openSqliteStore` opens. */
export function startSqliteThread(): StartedThread {
  return startThread(new URL(import.meta.url.endsWith('.ts') ? './thread.ts' : './sqlite_thread.js', import.meta.url));
}

/**
 * Opens the embedded store. The file belongs to a thread of its own. Calls of the same turn of the event loop travel to
 * the thread together, and one commit stores all calls that wait in the thread.
 *
 * @param file the path of the data file; created when missing
 * @param keys the keys that encrypt secrets; null takes the key from a file beside the data, and makes one for a new
 * data file
 * @param observer gets the reports of the store: see `StoreObserver`
 * @param quotas the limits of instances and memberships
 * @param thread the thread for the file; a new one when absent
 * @returns the store, which can be called at once, and a promise that resolves when it is open. The promise rejects
 * with a StoreError when the file is in use, unreadable, of a newer version, or under another key
 */
export function openSqliteStore(
  file: string,
  keys: GivenKeys | null,
  observer: StoreObserver = {},
  quotas: Quotas = NO_QUOTAS,
  thread: StartedThread = startSqliteThread(),
): { store: Store; opened: Promise<void> } {
  const key_source: KeySource =
    keys === null ? { kind: 'file', path: join(dirname(file), KEY_FILE) } : { kind: 'given', keys };
  const backup_channel = new MessageChannel();
  const backups = new Backups(backup_channel.port1, file);
  const data = { file, key_source, quotas: quotasOf(quotas), backup_port: backup_channel.port2 };
  const { store, opened } = openThread(thread, data, observer, { transfer: [backup_channel.port2] });
  return { store: { ...store, backups }, opened };
}
