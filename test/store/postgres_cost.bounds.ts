/** How many commits PostgreSQL makes: a commit waits for the disk, and under load one commit covers many messages. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import pg from 'pg';
import { Pool } from 'undici';
import { makeDatabase } from '../support/postgres.ts';
import { messagesPath, startService } from '../support/service.ts';
import { startReceiver } from '../support/receiver.ts';
import { until } from '../support/wait.ts';

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

/**
 * Sends messages through a service that pushes each to one machine; returns the commits that wrote them, and how long
 * it took.
 */
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
