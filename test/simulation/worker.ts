/** Runs the seeds that the main thread hands out, one share after the other. */
import assert from 'node:assert/strict';
import { parentPort } from 'node:worker_threads';
import { run } from './run.ts';
import { World } from './world.ts';

/** Seeds that follow each other. */
export interface Share {
  first: number;
  count: number;
  cluster: boolean | undefined;
}

assert(parentPort !== null, 'this module is the entry of a worker thread');
const port = parentPort;
port.on('message', async ({ first, count, cluster }: Share) => {
  port.postMessage(
    await run((seed, options) => new World(seed, options), first, count, cluster === undefined ? {} : { cluster }),
  );
});
