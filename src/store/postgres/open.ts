/**
 * The store on PostgreSQL. This is how it keeps the contract of store.ts on a server that several nodes share:
 *
 * - Order. A message gets its `seq` under the lock of the row of its meeting. Every node locks meetings in the same
 *   order.
 * - No hot rows. No row is written with every batch. The store finds the last seq of a meeting in the newest message of
 *   the meeting, and each stored batch has a row of its own. While any session is idle in a transaction, the old
 *   versions of a hot row stay, and every read passes them. With hot rows the rate would fall to a third
 *   (docs/benchmarks.md).
 * - Numbers. Messages and deliveries take their numbers from one sequence, without gaps within a batch, as in SQLite.
 * - Accept in doubt. When the connection breaks before the response, the node sends the batch again under its number.
 *   The table `batches` says whether the batch was stored. After 5 seconds without a result, the senders get a 503.
 * - Fencing. A settlement counts only while its partition has the epoch in which the attempt began. A takeover waits
 *   for settlements in flight.
 * - News. A transaction itself sends its changes by NOTIFY. So no change is lost when its node dies after the commit.
 *   For a batch the transaction sends only the numbers; every node reads the batches of the other nodes in the order of
 *   their commits.
 * - Removal. While an instance is removed, an advisory lock keeps accepts from storing deliveries for it.
 */
import { join } from 'node:path';
import { KEY_FILE } from '../../domain/data_directory.ts';
import type { GivenKeys, KeySource } from '../secrets/data_keys.ts';
import { quotasOf } from '../rows/quotas.ts';
import type { Lingers } from '../linger.ts';
import { openThread, type StoreObserver } from '../thread/store_thread.ts';
import { type StartedThread, startThread } from '../thread/thread_start.ts';
import { NO_QUOTAS, type Quotas } from '../contract/quotas.ts';
import type { Store } from '../store.ts';
import { changeOf } from './cluster/stored_rows.ts';

const DISTANCES: Lingers = {
  accept: { ms: 30, batch_size: 200 },
  load: { ms: 20, batch_size: 200 },
  // No caller waits for these writes, but after a crash every unwritten result means one more push.
  settle: { ms: 150, batch_size: 2_000 },
};

/**
 * Calls that are short even when the tables are full, so a long one shows a stall. Other calls may take long, but do
 * not delay these.
 */
const STALL_SIGNS = new Set(['messages.accept', 'cluster.renew', 'storage.touch']);

/** Starts the thread of a store on PostgreSQL, which `openPostgresStore` opens. */
export function startPostgresThread(): StartedThread {
  return startThread(
    new URL(import.meta.url.endsWith('.ts') ? './thread.ts' : './postgres_thread.js', import.meta.url),
  );
}

/**
 * Opens the store on a PostgreSQL database, which any number of nodes may share.
 *
 * @param url the URL of the database; its schema is made, or brought up to date
 * @param data the directory of this node, for the file with the data key
 * @param keys the keys that encrypt secrets, the same on every node; null takes the key from the file
 * @param observer is called for every commit
 * @param quotas the limits of instances and memberships
 * @param thread the thread for the connections; a new one when absent
 * @returns the store, which can be called at once, and a promise that resolves when it is open. The promise rejects
 * with a StoreError when the database cannot be reached or used, is of a newer version, or is under another key
 */
export function openPostgresStore(
  url: string,
  data: string,
  keys: GivenKeys | null,
  observer: StoreObserver = {},
  quotas: Quotas = NO_QUOTAS,
  thread: StartedThread = startPostgresThread(),
): { store: Store; opened: Promise<void> } {
  const key_source: KeySource = keys === null ? { kind: 'file', path: join(data, KEY_FILE) } : { kind: 'given', keys };
  const { store, opened } = openThread(thread, { url, key_source, quotas: quotasOf(quotas) }, observer, {
    has_cluster: true,
    changeOf,
    stall_signs: STALL_SIGNS,
  });
  return { store: { ...store, lingers: DISTANCES }, opened };
}
