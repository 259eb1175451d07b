/**
 * Runs the tests with another Node: `node test/support/run_with.ts /path/to/node [PATTERN …]`. Node 22 does not know
 * the option `--test-global-setup` of `npm test`, so this process calls the setup.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globalSetup, globalTeardown } from './run_setup.ts';

const [node, ...patterns] = process.argv.slice(2);
if (node === undefined) throw new Error('usage: node test/support/run_with.ts /path/to/node [PATTERN …]');

await globalSetup();
try {
  const args = ['--test', '--test-concurrency=3', ...(patterns.length > 0 ? patterns : ['test/**/*.test.ts'])];
  const [code] = (await once(spawn(node, args, { stdio: 'inherit' }), 'exit')) as [number | null];
  process.exitCode = code ?? 1;
} finally {
  await globalTeardown();
}
