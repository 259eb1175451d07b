/** Runs the seeds that the main thread hands out, one share after the other. */
import assert from 'node:assert/strict';
import { parentPort } from 'node:worker_threads';
import { run } from './run.ts';
import { World, type WorldOptions } from './world.ts';

/** Consecutive seeds. */
export interface Share {
  first: number;
  count: number;
  options: Pick<WorldOptions, 'cluster' | 'kind'>;
}

assert(parentPort !== null, 'this module is the entry of a worker thread');
const port = parentPort;
port.on('message', async ({ first, count, options }: Share) => {
  port.postMessage(await run((seed, of) => new World(seed, of), first, count, options));
});
