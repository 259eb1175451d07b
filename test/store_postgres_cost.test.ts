/** What PostgreSQL is asked for: a commit is a wait for the disk, and under load one is for many messages. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { Pool } from 'undici';
import { openPostgresHere } from './support/engines.ts';
import { makeDatabase } from './support/postgres.ts';
import { messagesPath, startService } from './support/service.ts';
import { meeting, newMessage } from './support/store_contents.ts';
import { startReceiver } from './support/receiver.ts';
import { until } from './support/wait.ts';

/** Each row names the transaction that wrote it. */
const TRANSACTIONS = `
  SELECT (SELECT count(DISTINCT xmin::text) FROM messages)::int AS accepting,
    (SELECT count(DISTINCT xmin::text) FROM deliveries WHERE state <> 'pending')::int AS settling,
    (SELECT count(*) FROM deliveries WHERE state = 'pending')::int AS pending`;

async function transactions(url: string): Promise<{ accepting: number; settling: number; pending: number }> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return (await client.query(TRANSACTIONS)).rows[0];
  } finally {
    await client.end();
  }
}

const MEETINGS = 50;

/** Sends messages through a service that pushes each to one machine; answers the commits that wrote them, and how long it took. */
async function costOf(t: TestContext, messages: number, senders_count: number) {
  const database_url = await makeDatabase();
  const service = await startService(t, { database_url });
  const receiver = await startReceiver(t);
  for (let i = 0; i < MEETINGS; i++) {
    const { instance_id } = await service.register({ webhook_url: receiver.url });
    await service.join(`m${i}`, instance_id, ['a']);
  }
  const senders = new Pool(service.url, { connections: senders_count });
  let next = 0;
  const sendAll = async (): Promise<void> => {
    while (next < messages) {
      const { statusCode, body } = await senders.request({
        path: messagesPath(`m${next++ % MEETINGS}`),
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{"message":{"text":"hello"}}',
      });
      await body.dump();
      assert.equal(statusCode, 201);
    }
  };
  const started_ms = performance.now();
  await Promise.all(Array.from({ length: senders_count }, sendAll));
  const settled = () => transactions(database_url);
  const { accepting, settling } = await until('all to be settled', settled, ({ pending }) => pending === 0);
  await senders.close();
  return { accepting, settling, seconds: (performance.now() - started_ms) / 1_000 };
}

test('messages of many senders share their commits: two for a hundred of them, or sixty in a second', async (t) => {
  const messages = 6_000;
  const { accepting, settling, seconds } = await costOf(t, messages, 200);
  const said = `${accepting} and ${settling} commits for ${messages} messages in ${seconds.toFixed(1)} s`;
  t.diagnostic(said);
  assert.ok(accepting + settling <= Math.max((2 * messages) / 100, 60 * seconds), said);
});

test('control: sent one after the other none waits for others, and each is a commit', async (t) => {
  const { accepting } = await costOf(t, 50, 1);
  assert.equal(accepting, 50);
});

test('statements keep their distance while many messages come; control: without it there are many more', async () => {
  const commits = async (ms: number): Promise<number> => {
    const url = await makeDatabase();
    const distances = { accept: { ms, items: Infinity }, load: { ms: 0, items: 0 } };
    const store = await openPostgresHere(url, undefined, distances);
    await meeting(store, 'm', 'i');
    const sends: Promise<unknown>[] = [];
    const started_ms = performance.now();
    while (performance.now() - started_ms < 1_500) {
      for (let i = 0; i < 5; i++) sends.push(store.messages.accept([newMessage('m')]));
      await pause(1);
    }
    await Promise.all(sends);
    const [last] = await store.messages.accept([newMessage('m')]);
    assert.ok(last?.kind === 'accepted' && last.message.seq === sends.length + 1, 'each was stored once');
    await store.close();
    return (await transactions(url)).accepting;
  };
  const [apart, close] = [await commits(250), await commits(0)];
  assert.ok(apart * 2 < close, `${apart} and ${close} commits`);
});

test('senders who all wait for their answers are not kept waiting for others', { timeout: 30_000 }, async () => {
  // Kept apart by this, the second batch would go when the test has failed.
  const distances = { accept: { ms: 600_000, items: Infinity }, load: { ms: 0, items: 0 } };
  const store = await openPostgresHere(await makeDatabase(), undefined, distances);
  await meeting(store, 'm', 'i');
  for (let round = 1; round <= 5; round++) {
    const accepted = await Promise.all(Array.from({ length: 100 }, () => store.messages.accept([newMessage('m')])));
    assert.equal(accepted.length, 100);
  }
  await store.close();
});
