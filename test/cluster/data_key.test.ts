/** A new data key in a cluster: no node encrypts under a key that another running node does not have. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import type pg from 'pg';
import { makeDatabase } from '../support/postgres.ts';
import { untilRunning } from '../support/running_nodes.ts';
import { assertProblem, type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';
import { connect } from '../store/pending.ts';

const [OLD, NEW] = [randomBytes(32).toString('base64'), randomBytes(32).toString('base64')];
const REENCRYPT = '/api/v1/encryption/reencrypt/';

async function database(t: TestContext): Promise<{ database_url: string; client: pg.Client }> {
  const database_url = await makeDatabase();
  return { database_url, client: await connect(t, database_url) };
}

const register = (node: Service, instance_id: string) =>
  node.post('/api/v1/instances/register/', {
    instance_id,
    instance_name: instance_id,
    agent_ids: ['a'],
    webhook_url: 'http://127.0.0.1:9/',
  });

test('a node does not start with a new data key while a running node does not have it, and names that node', async (t) => {
  const { database_url, client } = await database(t);
  const first = await startService(t, { database_url, encryption_key: OLD });
  await untilRunning(client, 1);
  const changed = { database_url, encryption_key: NEW, encryption_key_previous: OLD };
  await assert.rejects(startService(t, changed), (error: Error & { code: string }) => {
    assert.equal(error.code, 'ENCRYPTION_KEY_NOT_SHARED');
    assert.ok(error.message.includes(first.url), error.message);
    assert.match(error.message, /CONVOKE_ENCRYPTION_KEY_PREVIOUS/);
    return true;
  });
  await first.stop();
  await untilRunning(client, 0);
  await startService(t, changed);
});

test('a node of the previous version, which does not say which keys it has, counts as one without the new key', async (t) => {
  const { database_url, client } = await database(t);
  await (await startService(t, { database_url, encryption_key: OLD })).stop();
  await untilRunning(client, 0);
  await client.query("SELECT renew_lease_3('before', '0.1.0', 'http://127.0.0.1:1', 0::smallint, '{}', 1)");
  const changed = { database_url, encryption_key: NEW, encryption_key_previous: OLD };
  await assert.rejects(startService(t, changed), { code: 'ENCRYPTION_KEY_NOT_SHARED' });
  await startService(t, { database_url, encryption_key: OLD, encryption_key_previous: NEW });
  await client.query("UPDATE nodes SET lease_until = 1 WHERE node_id = 'before'");
  await untilRunning(client, 1);
  await startService(t, changed);
});

test('a node that lacks one of the two keys of a change is told of both', async (t) => {
  const { database_url, client } = await database(t);
  await (await startService(t, { database_url, encryption_key: OLD })).stop();
  await untilRunning(client, 0);
  await (await startService(t, { database_url, encryption_key: NEW, encryption_key_previous: OLD })).stop();
  for (const encryption_key of [OLD, NEW]) {
    await assert.rejects(startService(t, { database_url, encryption_key }), {
      code: 'ENCRYPTION_KEY_WRONG',
      message: /under the keys \w{16} and \w{16}.*give both, as CONVOKE_ENCRYPTION_KEY and \S+_PREVIOUS,/,
    });
  }
});

/** Finds the session that has last read which keys the nodes have. */
const LOOKING = `
  SELECT 1 FROM pg_stat_activity
  WHERE datname = current_database() AND application_name = 'convoke' AND query LIKE '%SELECT address, key_ids%'`;

test('a node that has just started is waited for until it names its keys', async (t) => {
  const { database_url, client } = await database(t);
  await (await startService(t, { database_url, encryption_key: OLD })).stop();
  await untilRunning(client, 0);
  const node = await startService(t, { database_url, encryption_key: NEW, encryption_key_previous: OLD });
  await untilRunning(client, 1);
  const { rows } = await client.query<{ key_ids: string }>('SELECT key_ids FROM nodes');
  await client.query('UPDATE nodes SET key_ids = NULL');
  let is_over = false;
  const asked = node.post(REENCRYPT).finally(() => (is_over = true));
  await until('the call to look', async () => is_over || (await client.query(LOOKING)).rows.length > 0, Boolean);
  // The node does the same when it renews its lease, perhaps too late for this call.
  await client.query('UPDATE nodes SET key_ids = $1', [rows[0]!.key_ids]);
  assert.equal((await asked).status, 200);
});

test('the secrets are encrypted again only when every running node encrypts under the new key', async (t) => {
  const { database_url, client } = await database(t);
  const first = await startService(t, { database_url, encryption_key: OLD, encryption_key_previous: NEW });
  await untilRunning(client, 1);
  const second = await startService(t, { database_url, encryption_key: NEW, encryption_key_previous: OLD });
  await untilRunning(client, 2);
  assert.equal((await register(first, 'by the first')).status, 201);
  for (const [node, other] of [
    [first, second],
    [second, first],
  ] as const) {
    const { detail } = assertProblem(await node.post(REENCRYPT), 409, 'encryption_key_not_shared');
    assert.ok(detail.includes(other.url), detail);
  }
  await first.stop();
  await untilRunning(client, 1);
  await first.restart({ encryption_key: NEW, encryption_key_previous: OLD });
  await untilRunning(client, 2);
  const { status, body } = await second.post<{ rewritten: number; done: boolean }>(REENCRYPT);
  assert.deepEqual([status, body.rewritten, body.done], [200, 1, true]);
});
