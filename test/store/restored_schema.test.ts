/** PostgreSQL: a backup with an older schema is restored while nodes work. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import pg from 'pg';
import { MIGRATION } from '../../src/store/postgres/locks.ts';
import { MIGRATIONS } from '../../src/store/postgres/migrations.ts';
import type { Change } from '../../src/store/contract/cluster.ts';
import type { Store } from '../../src/store/store.ts';
import { openPostgresHere } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { lane, meeting, newMessage, register, settled } from '../support/store_contents.ts';
import { until } from '../support/wait.ts';

/** A schema that lacks tables, columns and functions that nodes of this version use. */
const OLDER = 12;

interface Node {
  store: Store;
  changes: Change['kind'][];
}

async function nodesOn(t: TestContext, url: string): Promise<[Node, Node]> {
  const open = async (): Promise<Node> => {
    const store = await openPostgresHere(url);
    t.after(() => store.close());
    const changes: Change['kind'][] = [];
    store.onChange(({ kind }) => changes.push(kind));
    await store.cluster!.renew({ node_id: `n${Math.random()}`, version: '1', address: '', stopping: false }, []);
    return { store, changes };
  };
  return [await open(), await open()];
}

async function on(url: string, run: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    await run(client);
  } finally {
    await client.end();
  }
}

/** Puts a database with the older schema in the place of this one, which keeps its tag. */
async function restoreOlder(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ tag: string }>('SELECT tag FROM this_database');
  // In a deadlock with the work of a node, the node gives way.
  await client.query("SET deadlock_timeout = '1min'");
  await client.query('DROP SCHEMA public CASCADE; CREATE SCHEMA public');
  await client.query('CREATE TABLE schema_version (version integer NOT NULL, steps_known_min integer NOT NULL)');
  await client.query('INSERT INTO schema_version (version, steps_known_min) VALUES ($1, 1)', [OLDER]);
  for (const step of MIGRATIONS.slice(0, OLDER)) await client.query(step);
  await client.query('INSERT INTO this_database (tag) VALUES ($1)', [rows[0]!.tag]);
}

/** How many sessions wait for an advisory lock of this database. */
async function waitingFor(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM pg_locks
     WHERE locktype = 'advisory' AND NOT granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  return rows[0]!.count;
}

const DONE_OR_UNDER_WAY = new RegExp(
  `older schema ${OLDER}.*up to schema ${MIGRATIONS.length}|older schema\\. A node brings it up to date now`,
);

/** Calls until it succeeds. The errors before must be those that say to try again. */
async function again<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      assert.equal((error as { code?: string }).code, 'SCHEMA_OLDER', String(error));
      assert.match((error as Error).message, DONE_OR_UNDER_WAY);
    }
  }
}

test('the nodes bring it up to date, read everything again, and go on', async (t) => {
  const url = await makeDatabase();
  const [a, b] = await nodesOn(t, url);
  await meeting(a.store, 'm', 'machine');
  await a.store.messages.accept([newMessage('m')]);
  await on(url, restoreOlder);
  for (const { changes } of [a, b]) changes.splice(0);
  // Until both nodes have met the older schema, neither may change it.
  await on(url, async (client) => {
    await client.query(`SELECT pg_advisory_lock(${MIGRATION})`);
    const calls = Promise.all([
      again(() => a.store.messages.accept([newMessage('m')])),
      again(() => register(b.store, 'machine')),
    ]);
    await until(
      'both nodes wait',
      () => waitingFor(client),
      (count) => count === 2,
    );
    await client.query(`SELECT pg_advisory_unlock(${MIGRATION})`);
    await calls;
  });
  await again(() => meeting(b.store, 'm', 'machine'));
  for (const { store } of [b, a]) {
    const [accepted] = await again(() => store.messages.accept([newMessage('m')]));
    assert.equal(accepted?.kind, 'accepted');
    const [delivery] = await again(() => lane(store, 'machine', 'm'));
    assert.equal(await again(() => store.deliveries.settle([settled(delivery!)], [])), null);
    assert.equal(await store.deliveries.countPending(), 0);
  }
  for (const { changes } of [a, b]) assert.ok(changes.includes('resync'), changes.join());
  await on(url, async (client) => {
    const { rows } = await client.query('SELECT version FROM schema_version');
    assert.deepEqual(rows, [{ version: MIGRATIONS.length }]);
  });
});

test('while somebody uses a table, calls end with an error that says so, and the schema is brought up to date after it', async (t) => {
  const url = await makeDatabase();
  const [{ store, changes }] = await nodesOn(t, url);
  await on(url, restoreOlder);
  changes.splice(0);
  await on(url, async (dump) => {
    await dump.query('BEGIN; SELECT count(*) FROM deliveries');
    const busy = { name: 'StoreError', code: 'SCHEMA_OLDER', message: /pg_dump/ };
    await Promise.all([
      assert.rejects(store.messages.accept([newMessage('m')]), busy),
      assert.rejects(store.instances.get('machine'), busy),
    ]);
  });
  await again(() => meeting(store, 'm', 'machine'));
  assert.ok(changes.includes('resync'), changes.join());
  assert.equal((await again(() => store.messages.accept([newMessage('m')])))[0]?.kind, 'accepted');
});

test('a database without the tables is left as it is, and the error says what to do', async (t) => {
  const url = await makeDatabase();
  const [{ store }] = await nodesOn(t, url);
  await on(url, async (client) => void (await client.query('DROP SCHEMA public CASCADE; CREATE SCHEMA public')));
  const missing = { name: 'StoreError', code: 'SCHEMA_MISSING', message: /restore a backup/ };
  await assert.rejects(store.messages.accept([newMessage('m')]), missing);
  await assert.rejects(store.instances.get('machine'), missing);
  await on(url, async (client) => {
    assert.deepEqual((await client.query("SELECT to_regclass('schema_version') AS made")).rows, [{ made: null }]);
  });
});

test('a statement that does not fit the newest schema stays a defect', async (t) => {
  const url = await makeDatabase();
  const [{ store, changes }] = await nodesOn(t, url);
  await on(url, async (client) => void (await client.query('ALTER TABLE invites RENAME COLUMN digest TO another')));
  changes.splice(0);
  await assert.rejects(store.invites.find('none'), /digest/);
  assert.ok(!changes.includes('resync'));
});
