/**
 * Schemathesis tests the running service with its OpenAPI document. It is a program in Python. The first run installs a
 * pinned version into a virtual environment under node_modules/.cache. FUZZ_EXAMPLES is the number of examples for each
 * operation.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { access, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { NodeProcess } from '../faults/node_process.ts';

const VERSION = '4.32.5';
const CACHE = resolve(import.meta.dirname, `../../node_modules/.cache/schemathesis-${VERSION}`);
const PROGRAM = join(CACHE, process.platform === 'win32' ? 'Scripts/schemathesis.exe' : 'bin/schemathesis');
const SEED = '20260301';
const EXAMPLES = process.env['FUZZ_EXAMPLES'] ?? '100';

const run = promisify(execFile);

/** @returns the reason to skip, when Python or the registry of its packages is missing */
async function install(): Promise<string | null> {
  if (
    await access(PROGRAM).then(
      () => true,
      () => false,
    )
  )
    return null;
  try {
    await run('python3', ['-m', 'venv', CACHE]);
    const python = join(CACHE, process.platform === 'win32' ? 'Scripts/python.exe' : 'bin/python');
    await run(python, ['-m', 'pip', 'install', '--quiet', `schemathesis==${VERSION}`]);
    return null;
  } catch (error) {
    await rm(CACHE, { recursive: true, force: true });
    return (error as Error).message;
  }
}

test('Schemathesis finds nothing', async (t) => {
  const missing = await install();
  if (missing !== null) {
    console.error(`NOT RUN: Schemathesis needs python3 with venv, and its packages: ${missing}`);
    t.skip('Schemathesis could not be installed');
    return;
  }
  const data = await mkdtemp(join(tmpdir(), 'convoke-fuzz-'));
  t.after(() => rm(data, { recursive: true, force: true }));
  // Switches off the limit for wrong keys, because Schemathesis sends hundreds of them in a second.
  const program = ['src/cli/main.ts', 'serve', '--port', '0', '--data', data, '--auth-failure-rate', '0'];
  const node = NodeProcess.run(t, program);
  const url = await node.ready;
  const here = (file: string): string => join(import.meta.dirname, file);
  // The service has keys, because the document says that every request needs a key. In open mode a request without a
  // key would succeed.
  const made = await fetch(`${url}/api/v1/keys/`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ scopes: ['admin'] }),
  });
  const { token } = (await made.json()) as { token: string };
  const args = ['--config-file', here('schemathesis.toml'), 'run', `${url}/openapi.json`, '--no-color'];
  args.push('--header', `Authorization: Bearer ${token}`);
  const env = { ...process.env, SCHEMATHESIS_HOOKS: here('schemathesis_hooks.py'), PYTHONDONTWRITEBYTECODE: '1' };
  const phases = ['--phases', 'examples,coverage,fuzzing', '--seed', SEED, '--max-examples', EXAMPLES];
  // Runs in a separate directory, because Schemathesis writes files to its working directory.
  const report = await run(PROGRAM, [...args, ...phases], { env, cwd: data, maxBuffer: 64 << 20 }).catch(
    (error: Error & { stdout?: string }) => error,
  );
  console.log(report.stdout);
  assert.ok(!(report instanceof Error), 'Schemathesis found something: see its report above');
  assert.equal((await node.end('SIGTERM')).code, 0);
  assert.equal(node.log, '', 'nothing of it was a defect');
});
