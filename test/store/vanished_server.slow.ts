/** PostgreSQL: a server that vanishes without closing its connections, and one that only takes long. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import pg from 'pg';
import { NO_QUOTAS } from '../../src/store/contract/quotas.ts';
import type { Store } from '../../src/store/store.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { openPostgresHere } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { register, WALL } from '../support/store_contents.ts';

/** More than the connections that requests share, so that most of these calls wait for one. */
const CALLS = 40;
/** A call without the protection takes 35 s. */
const GIVEN_UP_MS_MAX = 20_000;
/** Longer than a node waits before it asks the server whether it still works on a statement. */
const HELD_MS = 8_000;

async function open(t: TestContext, url: string): Promise<Store> {
  const store = await openPostgresHere(url, NO_QUOTAS);
  t.after(() => store.close());
  return store;
}

async function proxied(t: TestContext, url: string): Promise<{ proxy: CuttingProxy; far: string }> {
  const proxy = await CuttingProxy.start(Number(new URL(url).port));
  t.after(() => proxy.close());
  const far = new URL(url);
  far.port = String(proxy.port);
  return { proxy, far: far.href };
}

/** How calls that are made now end, and how long the last one takes. */
async function ends(store: Store): Promise<{ codes: Set<string>; took_ms: number }> {
  const began_ms = performance.now();
  const calls = Array.from({ length: CALLS }, (_, i) =>
    i % 2 === 0 ? store.instances.get('machine') : store.meetings.join('m', 'machine', ['a'], WALL),
  );
  const results = await Promise.allSettled(calls);
  const codes = results.map((result) => {
    if (result.status === 'fulfilled') return 'ok';
    assert.ok(result.reason instanceof StoreError, String(result.reason));
    return result.reason.code;
  });
  return { codes: new Set(codes), took_ms: performance.now() - began_ms };
}

test('a server whose network drops everything fails every read and every write within seconds, and works again afterwards', async (t) => {
  const { proxy, far } = await proxied(t, await makeDatabase());
  const store = await open(t, far);
  await register(store, 'machine');
  assert.deepEqual((await ends(store)).codes, new Set(['ok']));
  proxy.onRequest = proxy.onAnswer = () => 'swallow';
  const { codes, took_ms } = await ends(store);
  t.diagnostic(`${CALLS} calls, ended after ${Math.round(took_ms)} ms at most, with ${[...codes].join(', ')}`);
  assert.ok(!codes.has('ok'));
  assert.ok(took_ms < GIVEN_UP_MS_MAX, `the last one took ${took_ms} ms`);
  proxy.onRequest = proxy.onAnswer = () => 'pass';
  assert.deepEqual((await ends(store)).codes, new Set(['ok']));
});

test('connections that the network has forgotten are replaced, and every call succeeds', async (t) => {
  const { proxy, far } = await proxied(t, await makeDatabase());
  const store = await open(t, far);
  await register(store, 'machine');
  const forgotten = new Set<number>();
  let is_known = true;
  proxy.onRequest = (_, connection) => {
    if (is_known) forgotten.add(connection);
    return !is_known && forgotten.has(connection) ? 'swallow' : 'pass';
  };
  await ends(store);
  is_known = false;
  const { codes, took_ms } = await ends(store);
  t.diagnostic(`ended after ${Math.round(took_ms)} ms at most`);
  assert.deepEqual(codes, new Set(['ok']));
});

test('a statement that takes long is waited for, because the server says that it works on it', async (t) => {
  const url = await makeDatabase();
  const store = await open(t, url);
  await register(store, 'machine');
  const holder = new pg.Client(url);
  await holder.connect();
  t.after(() => holder.end());
  await holder.query('BEGIN');
  await holder.query('LOCK TABLE instances IN ACCESS EXCLUSIVE MODE');
  const read = store.instances.get('machine');
  await holder.query('SELECT pg_sleep($1)', [HELD_MS / 1_000]);
  await holder.query('COMMIT');
  assert.equal((await read)?.instance_id, 'machine');
});
