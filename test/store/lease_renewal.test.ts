/** PostgreSQL: what a renewal of the lease does not wait for. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import pg from 'pg';
import { PARTITIONS } from '../../src/domain/partition.ts';
import { TAKEOVER } from '../../src/store/postgres/locks.ts';
import type { Store } from '../../src/store/store.ts';
import { openPostgresHere } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { lane, meeting, newMessage, register } from '../support/store_contents.ts';

async function open(t: TestContext, url: string): Promise<Store> {
  const store = await openPostgresHere(url);
  t.after(() => store.close());
  return store;
}

/** A session that holds a lock until the test ends. */
async function hold(t: TestContext, url: string, lock: string): Promise<() => Promise<void>> {
  const client = new pg.Client(url);
  await client.connect();
  let is_held = true;
  const release = async (): Promise<void> => {
    if (!is_held) return;
    is_held = false;
    await client.end();
  };
  t.after(release);
  await client.query('BEGIN');
  await client.query(lock);
  return release;
}

const node = (node_id: string) => ({ node_id, version: '1', address: `http://127.0.0.1/${node_id}`, stopping: false });

describe('the renewal of a lease', () => {
  test('waits for no request, and neither does what delivers, however many requests wait for the database', async (t) => {
    const url = await makeDatabase();
    const store = await open(t, url);
    await register(store, 'machine');
    await meeting(store, 'm', 'machine');
    await store.messages.accept([newMessage('m')]);
    await store.cluster!.renew(node('a'), []);
    const release = await hold(t, url, 'LOCK TABLE invites IN ACCESS EXCLUSIVE MODE');
    const requests = Promise.all(Array.from({ length: 20 }, () => store.invites.list({ limit: 1 })));
    const { partitions } = await store.cluster!.renew(node('a'), []);
    assert.equal(partitions.length, PARTITIONS);
    assert.equal((await lane(store, 'machine', 'm')).length, 1);
    assert.equal((await store.instances.load(['machine'])).length, 1);
    await release();
    assert.equal((await requests).length, 20);
  });

  test('of others goes on while a node that joins waits for a settlement that takes long', async (t) => {
    const url = await makeDatabase();
    const [a, b] = [await open(t, url), await open(t, url)];
    await a.cluster!.renew(node('a'), []);
    const release = await hold(t, url, `SELECT pg_advisory_xact_lock_shared(${TAKEOVER})`);
    const joined = b.cluster!.renew(node('b'), []);
    assert.equal((await a.cluster!.renew(node('a'), [])).partitions.length, PARTITIONS);
    const given_back = (await a.cluster!.renew(node('a'), [0, 1])).partitions.length;
    assert.equal(given_back, PARTITIONS, 'the lease is renewed, and the next renewal releases them');
    assert.equal((await joined).partitions.length, 0);
    await release();
    assert.equal((await a.cluster!.renew(node('a'), [0, 1])).partitions.length, PARTITIONS - 2);
    assert.equal((await b.cluster!.renew(node('b'), [])).partitions.length, 2);
  });
});
