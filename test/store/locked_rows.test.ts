/** PostgreSQL: a person holds a lock on rows, and the results of attempts for other rows are written all the same. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import pg from 'pg';
import { NO_HEALTH } from '../../src/domain/instance.ts';
import type { HealthSettlement, QueuedDelivery } from '../../src/store/contract/deliveries.ts';
import type { Store } from '../../src/store/store.ts';
import { openPostgresHere } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { lane, meeting, messages, settled, WALL } from '../support/store_contents.ts';

async function open(t: TestContext): Promise<{ url: string; store: Store; queued: QueuedDelivery[] }> {
  const url = await makeDatabase();
  const store = await openPostgresHere(url);
  t.after(() => store.close());
  await meeting(store, 'm', 'anna', 'ben');
  await store.messages.accept(messages('m', 3));
  return { url, store, queued: [...(await lane(store, 'anna', 'm')), ...(await lane(store, 'ben', 'm'))] };
}

/** Locks the rows in a session of its own, until the returned function is called or the test ends. */
async function hold(t: TestContext, url: string, select: string): Promise<() => Promise<void>> {
  const client = new pg.Client(url);
  await client.connect();
  let ended: Promise<void> | null = null;
  const release = (): Promise<void> => (ended ??= client.end());
  t.after(release);
  await client.query('BEGIN');
  assert.equal((await client.query(`${select} FOR UPDATE`)).rows.length, 1);
  return release;
}

async function states(store: Store): Promise<string[]> {
  const { data } = await store.deliveries.list({ limit: 100 }, WALL);
  return data.map(({ state }) => state);
}

const succeeded = (instance_id: string): HealthSettlement => ({
  ...NO_HEALTH,
  last_success_at: WALL,
  instance_id,
  webhook_url: `http://${instance_id}.test/`,
  gone_as_of: null,
  epoch: 0,
});

test('the result of a delivery whose row a person has locked is not written yet; all others are, in every batch', async (t) => {
  const { url, store, queued } = await open(t);
  const [first, ...others] = queued as [QueuedDelivery, ...QueuedDelivery[]];
  const release = await hold(t, url, 'SELECT * FROM deliveries ORDER BY delivery_no LIMIT 1');
  const [rest, last] = [others.slice(0, -1), others.at(-1)!];

  const locked = { deliveries: [{ delivery_id: first.delivery_id, instance_id: 'anna' }], instance_ids: [] };
  const results = [first, ...rest].map((delivery) => settled(delivery));
  assert.deepEqual(await store.deliveries.settle(results, [succeeded('anna')]), locked);
  assert.equal(await store.deliveries.countPending(), 2);
  assert.deepEqual(await store.deliveries.settle([settled(first), settled(last)], []), locked);
  assert.equal(await store.deliveries.countPending(), 1);
  assert.equal((await store.instances.get('anna'))?.last_success_at, WALL);

  await release();
  assert.equal(await store.deliveries.settle([settled(first)], []), null);
  assert.ok((await states(store)).every((state) => state === 'delivered'));
});

test('the health of an instance whose row a person has locked is not written yet; all results are', async (t) => {
  const { url, store, queued } = await open(t);
  const release = await hold(t, url, "SELECT * FROM instances WHERE instance_id = 'anna'");
  const results = queued.map((delivery) => settled(delivery));
  const healths = [succeeded('anna'), succeeded('ben')];
  assert.deepEqual(await store.deliveries.settle(results, healths), { deliveries: [], instance_ids: ['anna'] });
  assert.ok((await states(store)).every((state) => state === 'delivered'));
  const successes = async () =>
    Promise.all(['anna', 'ben'].map(async (id) => (await store.instances.get(id))?.last_success_at));
  assert.deepEqual(await successes(), [null, WALL]);
  await release();
  assert.equal(await store.deliveries.settle([], [succeeded('anna')]), null);
  assert.deepEqual(await successes(), [WALL, WALL]);
});
