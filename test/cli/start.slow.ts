/** `npm start` in a copy of the repository in which nothing is built yet. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inTime, until } from '../support/wait.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PARTS = ['package.json', 'package-lock.json', 'tsconfig.json', 'scripts', 'src', 'sdk', 'web', 'openapi.json'];
const AS_A_BROWSER = { headers: { accept: 'text/html' } };

async function copyOfRepository(t: TestContext): Promise<string> {
  const copy = await mkdtemp(join(tmpdir(), 'convoke-start-'));
  t.after(() => rm(copy, { recursive: true, force: true }));
  const isSource = (path: string): boolean => !/\/web\/\.?dist/.test(path) && !path.includes('/node_modules');
  for (const part of PARTS) await cp(join(ROOT, part), join(copy, part), { recursive: true, filter: isSource });
  await symlink(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

interface Started {
  child: ChildProcess;
  url: string;
  said: string[];
}

const DIRECTLY = [process.execPath, 'scripts/start.ts'] as const;
/** A shell that waits for the program, as npm does. */
const THROUGH_A_SHELL = ['sh', '-c', '"$0" scripts/start.ts; exit 1', process.execPath] as const;

async function npmStart(
  t: TestContext,
  copy: string,
  [command, ...args]: readonly [string, ...string[]] = DIRECTLY,
): Promise<Started> {
  const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('CONVOKE_')));
  const env = { ...own, CONVOKE_PORT: '0', CONVOKE_DATA: join(copy, 'data') };
  const child = spawn(command, args, { cwd: copy, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const closed = once(child, 'close');
  t.after(async () => {
    child.kill('SIGTERM');
    await closed;
  });
  const said: string[] = [];
  createInterface({ input: child.stderr }).on('line', (line) => said.push(line));
  const stdout = createInterface({ input: child.stdout });
  const [ready] = (await inTime('the ready line', once(stdout, 'line'))) as [string];
  const url = /^convoke ready (http:\/\/\S+)$/.exec(ready)?.[1];
  assert.ok(url !== undefined, ready);
  return { child, url, said };
}

test('npm start answers before the pages are built, and shows them as soon as they are', async (t) => {
  const { child, url, said } = await npmStart(t, await copyOfRepository(t));
  assert.equal((await fetch(`${url}/readyz`)).status, 200);
  // The first page is a page that reloads by itself. A later request already gets the real page.
  const first = await fetch(url, AS_A_BROWSER);
  if (first.status !== 200) {
    assert.deepEqual([first.status, first.headers.get('refresh')], [503, '2']);
    assert.match(await first.text(), /are being built/);
  }
  const page = await until(
    'the pages',
    () => fetch(url, AS_A_BROWSER),
    ({ status }) => status === 200,
  );
  assert.match(await page.text(), /<title>Convoke/);
  await until(
    'the line that says so',
    () => said,
    (lines) => lines.includes('the pages are built'),
  );
  const closed = once(child, 'close');
  child.kill('SIGTERM');
  assert.deepEqual(await closed, [0, null]);
});

test(
  'npm start ends when the shell is stopped that npm started it with',
  {
    skip: process.platform === 'win32' && 'there is no sh',
  },
  async (t) => {
    const { child, url } = await npmStart(t, await copyOfRepository(t), THROUGH_A_SHELL);
    // Waits for the end of the pipe: the service has it open until it ends, also when the shell ends before.
    const closed = once(child, 'close');
    child.kill('SIGTERM');
    await inTime('the end of the service', closed);
    await assert.rejects(fetch(`${url}/readyz`));
  },
);

test('a build that fails is reported loudly, and the service stays', async (t) => {
  const copy = await copyOfRepository(t);
  await writeFile(join(copy, 'web/src/main.tsx'), 'import { nothing } from "./not_there.ts"; nothing();');
  const { url, said } = await npmStart(t, copy);
  await until(
    'the error',
    () => said.join('\n'),
    (text) => /ERROR: the pages could not be built/.test(text),
  );
  await until(
    'what to do',
    () => said.join('\n'),
    (text) => text.includes('`npm run build`'),
  );
  assert.match(said.join('\n'), /not_there/);
  assert.equal((await fetch(`${url}/readyz`)).status, 200);
  const page = await fetch(url, AS_A_BROWSER);
  assert.equal(page.status, 503);
  assert.match(await page.text(), /the build failed/);
});
