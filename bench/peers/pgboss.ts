/**
 * pg-boss on PostgreSQL. One statement inserts the jobs of many messages. PostgreSQL notifies several workers of new
 * jobs. A worker takes a batch of jobs, and completes all of them in one call. After a full batch it takes the next
 * batch without a pause. This process also starts PostgreSQL, with synchronous_commit on.
 */
import { PgBoss, type WorkOptions } from 'pg-boss';
import { Gatherer, listen, onEnd, type PeerOptions, type PushJob, sender } from './parts.ts';
import { startPostgres } from '../contenders/postgres.ts';

const WORKERS = 3;
const JOBS_PER_FETCH = 500;
const JOBS_PER_INSERT = 500;
const INSERTS_UNDER_WAY = 2;
const QUEUE = 'pushes';

const { fleet, data } = JSON.parse(process.argv[2]!) as PeerOptions;
const postgres = await startPostgres(data);
const boss = new PgBoss({
  connectionString: postgres.url,
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
