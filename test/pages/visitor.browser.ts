/** Tests the browser that other tests use. */
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const RUN_MS_MAX = 60_000;
const FILE = fileURLToPath(new URL('search.browser.ts', import.meta.url));

test('a run whose name pattern fits no test of a file ends by itself', async () => {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const args = ['--test-name-pattern', 'no test has this name', FILE];
  await promisify(execFile)(process.execPath, args, { env, timeout: RUN_MS_MAX });
});
