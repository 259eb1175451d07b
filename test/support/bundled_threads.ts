/**
 * Tests start hundreds of services, and each service starts a thread for its store. From TypeScript the start of a
 * thread takes twice the processor time that it takes from a bundle, because Node transforms every module again. So a
 * run of tests bundles the threads once, as the package does (run_setup.ts). Node loads this module before each test
 * file (`--import`), and this module makes threads start from the bundle. A test file that runs alone, and every
 * process that a test starts, uses the TypeScript.
 */
import { syncBuiltinESMExports } from 'node:module';
import { fileURLToPath } from 'node:url';
import workerThreads, { type WorkerOptions } from 'node:worker_threads';

/** The name of the environment variable that has the bundled file of each module, as JSON. */
export const BUNDLED_THREADS = 'TEST_BUNDLED_THREADS';

const given = process.env[BUNDLED_THREADS];
if (given !== undefined) {
  // A process that a test starts may run another version of the source.
  delete process.env[BUNDLED_THREADS];
  const bundled = JSON.parse(given) as Record<string, string>;
  workerThreads.Worker = class extends workerThreads.Worker {
    constructor(file: string | URL, options?: WorkerOptions) {
      super((file instanceof URL && file.protocol === 'file:' && bundled[fileURLToPath(file)]) || file, options);
    }
  };
  syncBuiltinESMExports();
}
