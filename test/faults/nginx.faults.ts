/** nginx with docs/deploy/nginx.conf in front of two nodes, while their PostgreSQL stands still for 20 s. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { makeDatabase } from '../support/postgres.ts';
import { NodeProcess } from './node_process.ts';
import { temporaryDirectory } from './run.ts';
import { freePort } from '../support/free_port.ts';

const PAUSED_MS = 20_000;
/**
 * The part of the pause whose sends count. A sender gets a response within 6 s. So also on a busy machine, a send in
 * this part gets its response before the pause ends.
 */
const FIRST_PART_MS = 8_000;
const SENDERS = 8;
/** The pause between two sends of one sender. Without it, senders that are refused would send thousands of requests. */
const PAUSE_MS = 100;

const RECIPE = readFileSync(resolve(import.meta.dirname, '../../docs/deploy/nginx.conf'), 'utf8');
const has_nginx = spawnSync('nginx', ['-v']).status === 0;

async function startNginx(t: TestContext, recipe: string, [first, second]: string[]): Promise<string> {
  const directory = await temporaryDirectory(t);
  const port = await freePort();
  const servers = recipe
    .replace('node-1:8080', new URL(first!).host)
    .replace('node-2:8080', new URL(second!).host)
    .replace(/.*node-3:8080.*\n/, '')
    .replace('listen 8080;', `listen 127.0.0.1:${port};`);
  mkdirSync(join(directory, 'temp'));
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${directory}/temp/${name};`,
  );
  const conf = `daemon off; pid ${directory}/pid; error_log ${directory}/log crit; worker_processes 1;
    events {} http { access_log off; ${paths.join(' ')} ${servers} }`;
  writeFileSync(join(directory, 'nginx.conf'), conf);
  const nginx = spawn('nginx', ['-p', directory, '-c', join(directory, 'nginx.conf'), '-e', `${directory}/log`], {
    stdio: 'inherit',
  });
  t.after(async () => {
    nginx.kill('SIGTERM');
    if (nginx.exitCode === null) await once(nginx, 'exit');
  });
  const url = `http://127.0.0.1:${port}`;
  for (let tries = 0; ; tries++) {
    const answer = await fetch(`${url}/healthz`).catch(() => null);
    if (answer?.ok === true) return url;
    assert.ok(tries < 1_000 && nginx.exitCode === null, 'nginx does not answer');
    await pause(50);
  }
}

interface SendResult {
  status: number;
  retry_after: string | null;
  from_ms: number;
  took_ms: number;
}

/** Returns the responses to sends while the database stood still, and how long after that a send was accepted. */
async function whilePaused(
  t: TestContext,
  recipe: string,
): Promise<{ results: SendResult[]; paused_at_ms: number; back_at_ms: number }> {
  const database_url = new URL(await makeDatabase());
  const proxy = await CuttingProxy.start(Number(database_url.port));
  t.after(() => proxy.close());
  database_url.port = String(proxy.port);
  const data = await temporaryDirectory(t);
  const first = NodeProcess.serveOn(t, database_url.href, data);
  const first_url = await first.ready;
  const second_url = await NodeProcess.serveOn(t, database_url.href, data).ready;
  const url = await startNginx(t, recipe, [first_url, second_url]);
  const send = async (): Promise<SendResult> => {
    const from_ms = performance.now();
    const answer = await fetch(`${url}/api/v1/meetings/m/messages/`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', host: 'localhost' },
      body: '{"message":{"n":1}}',
    });
    await answer.arrayBuffer();
    return {
      status: answer.status,
      retry_after: answer.headers.get('retry-after'),
      from_ms,
      took_ms: performance.now() - from_ms,
    };
  };
  assert.equal((await send()).status, 201);

  proxy.onRequest = () => 'swallow';
  proxy.onAnswer = () => 'swallow';
  const paused_at_ms = performance.now();
  const results: SendResult[] = [];
  const speak = async (): Promise<void> => {
    while (performance.now() - paused_at_ms < PAUSED_MS) {
      results.push(await send());
      await pause(PAUSE_MS);
    }
  };
  const speaking = Array.from({ length: SENDERS }, speak);
  await pause(PAUSED_MS);
  proxy.onRequest = () => 'pass';
  proxy.onAnswer = () => 'pass';
  proxy.cutAll();
  const back_at_ms = performance.now();
  await Promise.all(speaking);
  while ((await send()).status !== 201) await pause(PAUSE_MS);
  const back_ms = performance.now() - back_at_ms;
  const statuses = Object.groupBy(results, ({ status }) => String(status));
  const counts = Object.entries(statuses).map(([status, all = []]) => `${all.length} times ${status}`);
  t.diagnostic(
    `${counts.join(', ')}; at most ${Math.round(Math.max(...results.map(({ took_ms }) => took_ms)))} ms; back after ${Math.round(back_ms)} ms`,
  );
  return { results, paused_at_ms, back_at_ms };
}

const skip = has_nginx ? false : 'there is no nginx here (Debian: nginx-light)';

test(
  'behind nginx, senders get 503 with Retry-After while the database stands still, and nothing else',
  { skip },
  async (t) => {
    const { results, paused_at_ms, back_at_ms } = await whilePaused(t, RECIPE);
    const during = results.filter(({ status }) => status !== 201);
    assert.ok(during.length > SENDERS);
    assert.deepEqual(
      during.filter(({ status, retry_after }) => status !== 503 || retry_after === null),
      [],
    );
    const first = results.filter(({ from_ms }) => from_ms < paused_at_ms + FIRST_PART_MS);
    assert.ok(first.length >= SENDERS);
    assert.ok(
      first.every(({ from_ms, took_ms }) => from_ms + took_ms < back_at_ms),
      'nobody waits until the database is back',
    );
  },
);

test(
  'control: where nginx takes a 503 for a failure of the node, it has no node left, and says 502',
  { skip },
  async (t) => {
    const counting = RECIPE.replace(
      'proxy_next_upstream error timeout;',
      'proxy_next_upstream error timeout http_503 non_idempotent;',
    );
    assert.notEqual(counting, RECIPE);
    const { results } = await whilePaused(t, counting);
    assert.ok(results.some(({ status }) => status === 502));
  },
);
