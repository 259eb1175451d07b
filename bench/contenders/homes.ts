/** Makes stores with several fleets and their pending deliveries, before a service starts on them. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { importDataFile } from '../../src/store/postgres/import.ts';
import { dataOfAll, type Pending, scratchDirectory } from './contenders.ts';
import { startPostgres } from './postgres.ts';

/**
 * Makes a store that holds these fleets. `env` is the environment with which a service uses the store. `pids` are the
 * processes of the database server (none for SQLite), and `leave` removes the store.
 */
export type Home = (fleets: Pending[]) => Promise<{
  data: string;
  env: Record<string, string>;
  pids: number[];
  leave: () => Promise<void>;
}>;

export const onSqlite: Home = async (fleets) => {
  const data = await dataOfAll(fleets);
  return { data, env: {}, pids: [], leave: () => rm(data, { recursive: true }) };
};

export const onPostgres: Home = async (fleets) => {
  const filled = await dataOfAll(fleets);
  const scratch = await scratchDirectory();
  const postgres = await startPostgres(scratch);
  const data = join(scratch, 'node');
  await mkdir(data, { mode: 0o700 });
  const { url } = postgres;
  await importDataFile({
    from: join(filled, DATABASE_FILE),
    url,
    data,
    keys: null,
    onProgress() {},
    wall_ms: Date.now(),
  });
  await rm(filled, { recursive: true });
  return {
    data,
    env: { CONVOKE_DATABASE_URL: url },
    pids: [postgres.pid],
    async leave() {
      await postgres.stop();
      await rm(scratch, { recursive: true });
    },
  };
};
