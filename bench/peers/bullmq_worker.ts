/** The worker of bullmq.ts. It handles many jobs at a time; each job is a signed push. */
import { Worker } from 'bullmq';
import type { Fleet } from '../load/fleet.ts';
import { onEnd, type PushJob, sender } from './parts.ts';

export interface WorkerOptions {
  fleet: Fleet;
  /** The port of Redis. */
  port: number;
}

/** How many jobs at a time. With 50, 100, 300 and 1,000 the rate was the same within the noise. */
const CONCURRENCY = 300;

const { fleet, port } = JSON.parse(process.argv[2]!) as WorkerOptions;
const push = sender(fleet);
const worker = new Worker<PushJob>(
  'pushes',
  async ({ id, data }) => {
    const status = await push(id!, data);
    if (status !== 200) throw new Error(`status ${status}`);
  },
  {
    connection: { port, maxRetriesPerRequest: null, enableAutoPipelining: true },
    concurrency: CONCURRENCY,
  },
);
worker.on('error', (error) => console.error(error.message));
await worker.waitUntilReady();
process.send!('ready');
onEnd(async () => {});
