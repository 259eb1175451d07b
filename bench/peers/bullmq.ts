/**
 * BullMQ on Redis. This process takes messages, and adds the jobs of many messages in one call. The worker is a process
 * of its own (bullmq_worker.ts), because intake and worker in one process were slower. This process also starts Redis;
 * the argument `appendfsync` says when Redis syncs its append-only file.
 */
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { freePort } from '../../test/support/free_port.ts';
import { type BullmqOptions, Gatherer, listen, onEnd, type PushJob } from './parts.ts';
import type { WorkerOptions } from './bullmq_worker.ts';

const REDIS = 'redis-server';
const JOBS_PER_BATCH = 500;
const BATCHES_UNDER_WAY = 2;
/** BullMQ removes completed jobs at once. */
const JOB_OPTIONS = {
  removeOnComplete: true,
  removeOnFail: 10_000,
  attempts: 6,
  backoff: { type: 'exponential', delay: 10_000 },
};

const { fleet, data, appendfsync } = JSON.parse(process.argv[2]!) as BullmqOptions;
const port = await freePort();
const redis_settings = {
  port: String(port),
  bind: '127.0.0.1',
  dir: data,
  save: '',
  appendonly: 'yes',
  appendfsync,
  'maxmemory-policy': 'noeviction',
};
const redis = spawn(
  REDIS,
  Object.entries(redis_settings).flatMap(([name, value]) => [`--${name}`, value]),
  { stdio: ['ignore', 'ignore', 'inherit'] },
);
// Waits until Redis responds: ioredis connects again by itself until then.
const first = new Redis({ port, maxRetriesPerRequest: null, retryStrategy: () => 50 });
first.on('error', () => {});
await first.ping();
first.disconnect();

const worker = fork(fileURLToPath(new URL('./bullmq_worker.ts', import.meta.url)), [
  JSON.stringify({ fleet, port } satisfies WorkerOptions),
]);
await once(worker, 'message');

const queue = new Queue<PushJob>('pushes', { connection: { port, enableAutoPipelining: true } });
await queue.waitUntilReady();
const gatherer = new Gatherer<PushJob>(JOBS_PER_BATCH, BATCHES_UNDER_WAY, (jobs) =>
  queue.addBulk(jobs.map((job) => ({ name: 'push', data: job, opts: JOB_OPTIONS }))),
);
await listen(fleet, (jobs) => gatherer.add(jobs));

onEnd(async () => {
  worker.disconnect();
  const exit = once(redis, 'exit');
  redis.kill('SIGKILL');
  await exit;
});
