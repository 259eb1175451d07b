import { join } from 'node:path';
import type { Config } from '../config/config.ts';
import { DATABASE_FILE } from '../domain/data_directory.ts';
import type { GivenKeys } from './secrets/data_keys.ts';
import { openPostgresStore, startPostgresThread } from './postgres/open.ts';
import { openSqliteStore, startSqliteThread } from './sqlite/open.ts';
import type { StoreObserver } from './thread/store_thread.ts';
import type { StartedThread } from './thread/thread_start.ts';

/**
 * Starts the thread of the store that the settings name. The thread loads its code while the caller does something
 * else.
 */
export function startStoreThread({ database_url }: Config): StartedThread {
  return database_url === null ? startSqliteThread() : startPostgresThread();
}

/**
 * Opens the store that the settings name: the database, or the data file.
 *
 * @param observer gets the reports of the store: see `StoreObserver`
 * @param thread the result of `startStoreThread`; a new one when absent
 */
export function openStore(config: Config, observer: StoreObserver = {}, thread = startStoreThread(config)) {
  const { data, database_url } = config;
  const keys = givenKeys(config);
  if (database_url !== null) return openPostgresStore(database_url, data, keys, observer, config, thread);
  return openSqliteStore(join(data, DATABASE_FILE), keys, observer, config, thread);
}

/** The keys from the settings, which encrypt secrets; null when the service makes its own key. */
export function givenKeys({ encryption_key: current, encryption_key_previous: previous }: Config): GivenKeys | null {
  return current === null ? null : { current, previous };
}
