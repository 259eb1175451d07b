/** Prepares what all test files share. `npm test` calls it once, before the first file (`--test-global-setup`). */
import { resolve } from 'node:path';
import { bundlePackages, bundleThreads } from '../../scripts/bundle.ts';
import { buildIfStale } from '../../scripts/web.ts';
import { BUNDLED, type Bundled } from './bundled.ts';
import { keepFilesInMemory } from './memory_files.ts';
import { serveAllFiles } from './postgres.ts';

const CACHE = resolve(import.meta.dirname, '../../node_modules/.cache');

let stop: () => Promise<void> = async () => {};

export async function globalSetup(): Promise<void> {
  keepFilesInMemory();
  // Each file is a process that loads the service. A cache of compiled code saves a third of its time.
  process.env['NODE_COMPILE_CACHE'] ??= resolve(CACHE, 'compiled');
  const bundled: Bundled = {
    threads: await bundleThreads(resolve(CACHE, 'threads')),
    packages: await bundlePackages(resolve(CACHE, 'packages')),
  };
  process.env[BUNDLED] = JSON.stringify(bundled);
  // If the files built the pages, one could replace them while another one reads them.
  await buildIfStale();
  stop = await serveAllFiles();
}

export async function globalTeardown(): Promise<void> {
  await stop();
}
