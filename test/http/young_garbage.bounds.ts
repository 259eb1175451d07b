/** V8 collects the garbage of requests while it is young: collections of the whole heap would delay pushes. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { Pool } from 'undici';
import { serve, stop, temporaryDirectory } from '../support/command_line.ts';
import type { Collected } from '../support/collector_probe.ts';
import { until } from '../support/wait.ts';

const CONNECTIONS = 64;
const WARM_UP = 2_000;
const REQUESTS = 8_000;
/**
 * The limit for the share of young bytes that a collection keeps: today 0.002; 0.1 when requests pass through a Set.
 */
const SHARE_MAX = 0.02;

const importOf = (file: string) => `--import=${new URL(`../support/${file}`, import.meta.url).href}`;

async function send(origin: string, requests: number): Promise<void> {
  const pool = new Pool(origin, { connections: CONNECTIONS, pipelining: 1 });
  let left = requests;
  const sender = async (): Promise<void> => {
    while (left-- > 0) {
      const { statusCode, body } = await pool.request({
        method: 'POST',
        path: '/api/v1/meetings/m/messages/',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ message: { text: 'x'.repeat(100) } }),
      });
      await body.dump();
      assert.equal(statusCode, 201);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, sender));
  await pool.close();
}

/** The share of young bytes that became old while messages were sent. */
async function shareThatGetsOld(t: TestContext, ...imports: string[]): Promise<number> {
  const directory = temporaryDirectory(t);
  const file = join(directory, 'collected.json');
  const options = ['collector_probe.ts', ...imports].map(importOf).join(' ');
  const service = await serve(join(directory, 'data'), { env: { NODE_OPTIONS: options, COLLECTED: file } });
  t.after(() => service.child.kill('SIGKILL'));
  await send(service.url, WARM_UP);
  service.child.kill('SIGUSR2');
  await send(service.url, REQUESTS);
  service.child.kill('SIGUSR2');
  await until('what was collected', () => existsSync(file), Boolean);
  await stop(service);
  const { young_bytes, promoted_bytes } = JSON.parse(readFileSync(file, 'utf8')) as Collected;
  assert.ok(young_bytes > 16 << 20, `it was looked through too rarely to say: ${young_bytes} bytes`);
  return promoted_bytes / young_bytes;
}

test('nothing of a message that was sent gets old', async (t) => {
  assert.ok((await shareThatGetsOld(t)) < SHARE_MAX);
});

test('control: when requests pass through a Set, most of their garbage gets old', async (t) => {
  assert.ok((await shareThatGetsOld(t, 'passing_set.ts')) > 2 * SHARE_MAX);
});
