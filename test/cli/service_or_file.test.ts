/** Commands on a service or a file that nobody named: they make no file, and say where they worked. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { DEFAULT_URL } from '../../src/cli/program/api.ts';
import { onServiceOrFile, type ServiceOrFileOptions } from '../../src/cli/program/service_or_file.ts';
import { convoke, temporaryDirectory } from '../support/command_line.ts';
import { startService } from '../support/service.ts';

/** Makes a key as `keys create` does, in a directory of its own. */
function setUp(t: TestContext, usual_url: string | null) {
  // The variables of the test run are no settings.
  const { env } = process;
  process.env = Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith('CONVOKE_')));
  t.after(() => (process.env = env));
  const before = process.cwd();
  const directory = temporaryDirectory(t);
  process.chdir(directory);
  t.after(() => process.chdir(before));
  const { fetch } = globalThis;
  t.mock.method(globalThis, 'fetch', (input: string | URL, init?: RequestInit) => {
    const url = String(input);
    if (!url.startsWith(DEFAULT_URL)) return fetch(input, init);
    if (usual_url === null) return Promise.reject(new TypeError('nothing listens here'));
    return fetch(url.replace(DEFAULT_URL, usual_url), init);
  });
  const notes: string[] = [];
  t.mock.method(process.stderr, 'write', (text: string) => notes.push(text) > 0);
  const create = (options: ServiceOrFileOptions) =>
    onServiceOrFile(options, true, (client) => client.createKey({ scopes: ['admin'] }));
  return { notes, create, data: join(process.cwd(), 'data') };
}

test('a key is made in a new file only where its directory was named, and otherwise the file is named', async (t) => {
  const { notes, create, data } = setUp(t, null);
  const file = join(data, 'convoke.db');
  await assert.rejects(create({}), { message: new RegExp(`^there is no ${file}; give --data `) });
  assert.ok(!existsSync(data));
  await create({ data });
  assert.deepEqual(notes, []);
  await create({});
  assert.deepEqual(notes, [`in the file ${file}\n`]);
});

test('a service that was found at the usual address is named', async (t) => {
  const service = await startService(t);
  const { notes, create, data } = setUp(t, service.url);
  await create({});
  assert.deepEqual(notes, [`at the service ${DEFAULT_URL}\n`]);
  assert.ok(!existsSync(data));
});

test('what a command asks itself on a data file never goes through a proxy', async (t) => {
  const asked: string[] = [];
  const proxy = createServer().on('connect', ({ url = '' }, socket) => {
    asked.push(url);
    socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n');
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  t.after(() => proxy.close());
  const HTTP_PROXY = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const env = { NODE_USE_ENV_PROXY: '1', HTTP_PROXY, http_proxy: HTTP_PROXY, no_proxy: 'elsewhere' };
  const data = temporaryDirectory(t);
  const made = await convoke(['keys', 'create', '--scope', 'admin', '--data', data], { env });
  assert.deepEqual([made.code, asked], [0, []], made.stderr);
  // Control: a service that the user names is asked through the proxy.
  const named = await convoke(['keys', '--url', 'http://127.0.0.1:8080'], { env });
  assert.deepEqual([named.code, asked], [3, ['127.0.0.1:8080']], named.stderr);
});
