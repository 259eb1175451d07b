import { join } from 'node:path';
import type { Config } from '../config/config.ts';
import { DATABASE_FILE } from '../domain/data_directory.ts';
import type { GivenKeys } from './secrets/data_keys.ts';
import { openPostgresStore } from './postgres/open.ts';
import { openSqliteStore } from './sqlite/open.ts';
import type { StoreObserver } from './thread/store_thread.ts';

/** Opens the store that the settings name: the database, or the data file. */
export function openStore(config: Config, observer: StoreObserver = {}) {
  const { data, database_url } = config;
  const keys = givenKeys(config);
  if (database_url !== null) return openPostgresStore(database_url, data, keys, observer, config);
  return openSqliteStore(join(data, DATABASE_FILE), keys, observer, config);
}

/** The keys of the settings that encrypt secrets; null when the service makes its own. */
export function givenKeys({ encryption_key: current, encryption_key_previous: previous }: Config): GivenKeys | null {
  return current === null ? null : { current, previous };
}
