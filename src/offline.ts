/** Work on the data for commands, while no service runs on it. */
import { join } from 'node:path';
import type { AddressInfo } from 'node:net';
import type { Logger } from 'pino';
import { KeyChanges } from './changes/keys.ts';
import type { Config } from './config/config.ts';
import { DATABASE_FILE } from './domain/data_directory.ts';
import { systemClock } from './delivery/clock.ts';
import { AuditTrail } from './http/auth/audit_trail.ts';
import { OwnersKeyring } from './http/auth/keyring.ts';
import { Limits } from './http/auth/limits.ts';
import { Sessions } from './http/auth/sessions.ts';
import { ownersRoutes } from './http/routes/routes.ts';
import { createServer } from './http/server.ts';
import type { SchemaState } from './store/contract/schema_state.ts';
import { givenKeys, openStore } from './store/open.ts';
import { DerivedSecrets } from './store/secrets/derived_secrets.ts';
import type { Imported } from './store/postgres/import.ts';

/** The API on a data file that no service has open, for keys and the audit log. */
export interface KeysOfFile {
  url: string;
  /** The key to the API while the file is open. Only this process has it. */
  token: string;
  close(): Promise<void>;
}

/**
 * Opens a data file to make, list or revoke its keys, or to read its audit log. The right to open the file is enough;
 * no key is needed.
 *
 * @throws StoreError when the data file cannot be used, or a service has it open
 */
export async function openKeys(config: Config, { log }: { log: Logger }): Promise<KeysOfFile> {
  const clock = systemClock();
  const { store, opened } = openStore(config);
  const keyring = new OwnersKeyring(clock, store.api_keys, () => {});
  const limits = new Limits(config, clock);
  const audit_trail = new AuditTrail({ store, keyring, limits, clock, onError: () => {} });
  const sessions = new Sessions({
    store,
    secrets: new DerivedSecrets(store.encryption, 'sessions'),
    keyring,
    limits,
    clock,
    node_id: '',
    onError: () => {},
  });
  const changes = { keys: new KeyChanges({ keyring, clock }) };
  const { max_request_bytes_in_flight, max_connections } = config;
  const [server] = await Promise.all([
    createServer(
      { clock, log, keyring, limits, sessions, audit_trail, max_request_bytes_in_flight, max_connections },
      ownersRoutes({ store, changes, keyring, clock, log, sessions, audit_trail }),
    ),
    opened,
  ]);
  await server.listen({ host: '127.0.0.1', port: 0 });
  return {
    url: `http://127.0.0.1:${(server.server.address() as AddressInfo).port}`,
    token: keyring.token,
    async close() {
      await server.close();
      await audit_trail.close();
      await store.close();
    },
  };
}

/**
 * The schema version of the data, and the version that this program wants. Changes nothing.
 *
 * @throws StoreError when the data file is in use, or is not a data file; when the database cannot be reached
 */
export async function schemaOf({ data, database_url }: Config): Promise<SchemaState> {
  if (database_url === null) {
    const { schemaOfFile } = await import('./store/sqlite/schema.ts');
    return schemaOfFile(join(data, DATABASE_FILE));
  }
  const { schemaOfDatabase } = await import('./store/postgres/schema.ts');
  return schemaOfDatabase(database_url);
}

/**
 * Brings the schema of the data up to date, as a start does.
 *
 * @throws StoreError when the data cannot be used, or a newer Convoke has written it
 */
export async function migrateStore(config: Config): Promise<void> {
  // On PostgreSQL the store is not opened, and only the schema is changed: nodes of the previous version may be using
  // the database now.
  if (config.database_url !== null) {
    const { migrateDatabase } = await import('./store/postgres/schema.ts');
    await migrateDatabase(config.database_url);
    return;
  }
  const { store, opened } = openStore(config);
  await opened;
  await store.close();
}

/**
 * Moves everything from a data file into the database of the settings, which must be empty.
 *
 * @throws StoreError that says what to do; nothing was moved then
 */
export async function importFile(
  config: Config & { database_url: string },
  from: string,
  onProgress: (progress: { table: string; rows: number }) => void,
): Promise<Imported> {
  const { importDataFile } = await import('./store/postgres/import.ts');
  const { data, database_url: url } = config;
  return importDataFile({ from, url, data, keys: givenKeys(config), onProgress, wall_ms: systemClock().wall() });
}
