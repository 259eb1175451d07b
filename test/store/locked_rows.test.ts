/** PostgreSQL: a person holds a lock on rows, and everything that needs only other rows is written all the same. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import pg from 'pg';
import { NO_HEALTH } from '../../src/domain/instance.ts';
import type { HealthSettlement, QueuedDelivery } from '../../src/store/contract/deliveries.ts';
import { REMOVAL } from '../../src/store/postgres/locks.ts';
import type { Store } from '../../src/store/store.ts';
import { openPostgresHere } from '../support/engines.ts';
import { startNode } from '../support/node.ts';
import { makeDatabase } from '../support/postgres.ts';
import { messagesPath, startService } from '../support/service.ts';
import { lane, meeting, messages, NEVER, newMessage, register, settled, WALL } from '../support/store_contents.ts';
import { beforeTimer } from '../support/wait.ts';

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

test('a node whose database a person upgrades by hand, in a transaction that stays open, can write', async (t) => {
  const { url, store } = await open(t);
  await hold(t, url, 'SELECT * FROM this_database');
  await beforeTimer('the check that writes succeed', 5_000, store.ping());
});

const MEETING_M = "SELECT * FROM meetings WHERE meeting_id = 'm'";

test('a message for a meeting whose row a person has locked is not stored; those of other meetings are', async (t) => {
  const { url, store } = await open(t);
  const release = await hold(t, url, MEETING_M);
  const accepted = async (...meeting_ids: string[]) =>
    (await store.messages.accept(meeting_ids.map((meeting_id) => newMessage(meeting_id)))).map((result) =>
      result.kind === 'accepted' ? result.message.seq : result.kind,
    );
  assert.deepEqual(await accepted('m', 'n', 'm', 'a'), ['locked', 1, 'locked', 1]);
  assert.deepEqual(await accepted('n', 'm'), [2, 'locked']);
  assert.deepEqual(await accepted('m'), ['locked']);
  await release();
  assert.deepEqual(await accepted('m', 'n'), [4, 3]);
});

test('the sender to a meeting whose row a person has locked gets 503, and the log says how to find the person', async (t) => {
  const database_url = await makeDatabase();
  const service = await startService(t, { database_url });
  await service.send('m', { content: 'first' });
  const release = await hold(t, database_url, MEETING_M);
  const sendTo = (meeting_id: string) =>
    service.request('POST', messagesPath(meeting_id), { body: { message: { content: 'second' } } });
  const [to_m, to_n] = await Promise.all([sendTo('m'), sendTo('n')]);
  assert.equal(to_n.status, 201, to_n.text);
  assert.deepEqual([to_m.status, to_m.headers['retry-after']], [503, '1'], to_m.text);
  assert.match(to_m.text, /has locked the row of this meeting.*storage_unavailable/);
  assert.match(JSON.stringify(service.log), /among them the row of[^]*ROWS_LOCKED/);
  await release();
  assert.equal((await sendTo('m')).status, 201);
});

test('of a list, no message overtakes an earlier one of its meeting when the lock of the meeting ends', async (t) => {
  const { url, store } = await open(t);
  const node = await startNode(t, { store });
  const release = await hold(t, url, MEETING_M);
  let transactions = 0;
  node.meddle = (name) => (name === 'messages.accept' && ++transactions === 2 ? release() : undefined);
  const meetings = Array.from({ length: 250 }, (_, i) => (i % 2 === 0 ? 'm' : 'n'));
  const results = await node.engine.sendAll(
    meetings.map((meeting_id) => node.sendOf(meeting_id)),
    () => {},
  );
  assert.ok(transactions > 1);
  const seqs = results.map((result) => (result.status === 'fulfilled' ? result.value.message.seq : null));
  assert.deepEqual(
    seqs,
    meetings.map((meeting_id, i) => (meeting_id === 'm' ? null : (i + 1) / 2)),
  );
});

const ROW_OF_ANNA = "SELECT * FROM instances WHERE instance_id = 'anna'";

for (const [name, row] of [
  ['row', ROW_OF_ANNA],
  ['pending delivery', "SELECT * FROM deliveries WHERE instance_id = 'anna' ORDER BY delivery_no LIMIT 1"],
] as const) {
  test(`an instance whose ${name} a person has locked cannot be deleted; messages are accepted all the same`, async (t) => {
    const { url, store } = await open(t);
    const release = await hold(t, url, row);
    const ended = new AbortController();
    const refused = assert
      .rejects(store.instances.remove('anna', 100, WALL), { code: 'ROWS_LOCKED', message: /pg_stat_activity/ })
      .finally(() => ended.abort());
    while (!ended.signal.aborted) assert.equal((await store.messages.accept([newMessage('m')]))[0]?.kind, 'accepted');
    await refused;
    assert.equal((await store.instances.get('anna'))?.is_active, true);
    await release();
    assert.equal((await store.instances.remove('anna', 10_000, WALL)).done, true);
  });
}

test('who deletes an instance whose row a person has locked gets 503, which says why', async (t) => {
  const database_url = await makeDatabase();
  const service = await startService(t, { database_url });
  await service.register({ instance_id: 'anna', webhook_url: 'http://127.0.0.1:9/' });
  const release = await hold(t, database_url, ROW_OF_ANNA);
  const refused = await service.request('DELETE', '/api/v1/instances/anna/');
  assert.deepEqual([refused.status, refused.headers['retry-after']], [503, '2'], refused.text);
  assert.match(refused.text, /Another session of the database has locked a row/);
  assert.match(JSON.stringify(service.log), /rows of the instance[^]*ROWS_LOCKED/);
  await release();
  assert.equal((await service.request('DELETE', '/api/v1/instances/anna/')).status, 204);
});

test('a deletion that deletes nothing waits for no accept, so no other accept waits behind it', async (t) => {
  const { url, store } = await open(t);
  await register(store, 'leased', WALL, { lease_until: NEVER });
  await hold(t, url, `SELECT pg_advisory_xact_lock_shared(${REMOVAL})`);
  const nothing = { existed: false, done: true, cancelled: 0 };
  assert.deepEqual(await store.instances.remove('nobody', 10, WALL), nothing);
  const of_another = { key_id: 'another', instance_id: null };
  assert.deepEqual(await store.instances.remove('anna', 10, WALL, of_another), nothing);
  assert.deepEqual(await store.instances.remove('leased', 10, WALL, null, WALL), nothing);
});
