/** Prepares what all test files share. `npm test` calls it once, before the first file (`--test-global-setup`). */
import { resolve } from 'node:path';
import { bundleThreads } from '../../scripts/bundle.ts';
import { BUNDLED_THREADS } from './bundled_threads.ts';
import { serveAllFiles } from './postgres.ts';

const CACHE = resolve(import.meta.dirname, '../../node_modules/.cache');

let stop: () => Promise<void> = async () => {};

export async function globalSetup(): Promise<void> {
  // Each file is a process that loads the service. A cache of compiled code saves a third of its time.
  process.env['NODE_COMPILE_CACHE'] ??= resolve(CACHE, 'compiled');
  process.env[BUNDLED_THREADS] = JSON.stringify(await bundleThreads(resolve(CACHE, 'threads')));
  stop = await serveAllFiles();
}

export async function globalTeardown(): Promise<void> {
  await stop();
}
