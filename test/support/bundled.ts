/**
 * Each test file is a process that loads the service, and tests start hundreds of services, each with a thread for its
 * store. A thread from TypeScript takes twice the processor time of a thread from a bundle, because Node transforms
 * every module again; the packages of the service are more than a thousand files, and a bundle of them is loaded in a
 * third of the time. So a run of tests bundles both once, as the package does (run_setup.ts). Node loads this module
 * before each test file (`--import`), and this module puts the bundles in the place of what they contain. A test file
 * that runs alone, and every process that a test starts, uses the TypeScript and the packages themselves.
 */
import { registerHooks, syncBuiltinESMExports } from 'node:module';
import { fileURLToPath } from 'node:url';
import workerThreads, { type WorkerOptions } from 'node:worker_threads';

/** The name of the environment variable that has what is bundled, as JSON. */
export const BUNDLED = 'TEST_BUNDLED';

export interface Bundled {
  /** The file of each thread in the bundle, by the path of its module. */
  threads: Record<string, string>;
  /** The URL of each package in the bundle, by the name by which modules import it. */
  packages: Record<string, string>;
}

const given = process.env[BUNDLED];
if (given !== undefined) {
  // A process that a test starts may run another version of the source.
  delete process.env[BUNDLED];
  const { threads, packages } = JSON.parse(given) as Bundled;
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const url = packages[specifier];
      if (url === undefined) return nextResolve(specifier, context);
      return { url, format: 'module', shortCircuit: true };
    },
  });
  workerThreads.Worker = class extends workerThreads.Worker {
    constructor(file: string | URL, options?: WorkerOptions) {
      super((file instanceof URL && file.protocol === 'file:' && threads[fileURLToPath(file)]) || file, options);
    }
  };
  syncBuiltinESMExports();
}
