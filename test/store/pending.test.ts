/**
 * Pending deliveries are always found: before and after a sweep, when a node of an earlier version wrote them, and
 * during an upgrade. See src/store/postgres/pending/pending_deliveries.ts.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import pg from 'pg';
import { Connection } from '../../src/store/postgres/connection/connection.ts';
import { Database, Session } from '../../src/store/postgres/database.ts';
import { deliveryOperations } from '../../src/store/postgres/deliveries.ts';
import { IdCodec } from '../../src/domain/id.ts';
import { REMOVAL } from '../../src/store/postgres/locks.ts';
import { MIGRATIONS, NOTED_STEPS } from '../../src/store/postgres/migrations.ts';
import { Sweeper } from '../../src/store/postgres/pending/sweeper.ts';
import { endUpgrade } from '../../src/store/postgres/pending/upgrade.ts';
import { migrateDatabase, schemaOfDatabase } from '../../src/store/postgres/schema.ts';
import type { Store } from '../../src/store/store.ts';
import { openPostgresHere } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { lane, meeting, messages, settled } from '../support/store_contents.ts';
import {
  answersAsWithoutSweeps,
  assertFound,
  connect,
  databaseOfBefore,
  hasSwitched,
  markOf,
  nodeLeaves,
  open,
  sweepAll,
} from './pending.ts';

/** The statements with which a node of the version before queues a delivery again, and lets deliveries expire. */
const QUEUE_AGAIN = `
  UPDATE deliveries SET state = 'pending', reason = NULL, aside = 1, answered_badly = 0, next_attempt_at = 1, expires_at = 9000000000000, settled_at = NULL
  WHERE state = 'failed'`;
const EXPIRE = `UPDATE deliveries SET state = 'failed', reason = 'expired', next_attempt_at = NULL, settled_at = 5 WHERE state = 'pending'`;

function sweeperOf(t: TestContext, url: string): Sweeper {
  const db = new Database(url, { connections_max: 4 });
  t.after(() => db.close());
  return new Sweeper(db, url, (error) => assert.fail(String(error)));
}

/** Until a session of this database waits for the lock of a table. */
async function waitsForTable(client: pg.Client): Promise<void> {
  const waiting = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation'`;
  while ((await client.query(waiting)).rows.length === 0);
}

// pending.slow.ts runs four times as many.
answersAsWithoutSweeps(100);

describe('a sweep', () => {
  test('notes what was pending at the sweep before, and nothing that is settled or newer', async (t) => {
    const url = await makeDatabase();
    const [store, client, sweeper] = [await open(t, url), await connect(t, url), sweeperOf(t, url)];
    await meeting(store, 'm', 'i');
    await store.messages.accept(messages('m', 3));
    const [first, ...others] = await lane(store, 'i', 'm');
    await sweeper.sweep();
    await store.messages.accept(messages('m', 2));
    await store.deliveries.settle([settled(first!)], []);
    await sweeper.sweep();
    const { rows } = await client.query('SELECT seq::int FROM deliveries WHERE noted = 1 ORDER BY seq');
    assert.deepEqual(
      rows.map(({ seq }) => seq),
      [2, 3],
    );
    assert.equal((await lane(store, 'i', 'm')).length, others.length + 2);
    await assertFound(client);
  });

  for (const waits of [true, false]) {
    const name = 'passes no number whose transaction is not over';
    test(waits ? name : 'control: without waiting for accepts it does, and the delivery is lost', async (t) => {
      const url = await makeDatabase();
      const [store, client, sweeper] = [await open(t, url), await connect(t, url), sweeperOf(t, url)];
      await meeting(store, 'm', 'i');
      if (!waits)
        await client.query(
          'CREATE OR REPLACE FUNCTION await_accepts() RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$',
        );
      const accepting = await connect(t, url);
      await accepting.query('BEGIN');
      await accepting.query(`SELECT pg_advisory_xact_lock_shared(${REMOVAL})`);
      await accepting.query(`
        INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
        SELECT no + 1, no, 'm', 1, 'i', 0, '["a"]', 9000000000000, 1 FROM take_numbers(2) no`);
      await store.deliveries.countPending();
      await sweeper.sweep();
      if (waits) await assert.rejects(sweeper.sweep(), { code: '55P03' });
      else await sweeper.sweep();
      await accepting.query('COMMIT');
      assert.equal(await store.deliveries.countPending(), waits ? 1 : 0);
    });
  }

  test('waits for no row that another transaction holds, and leaves its mark before it', async (t) => {
    const url = await makeDatabase();
    const [store, client, sweeper] = [await open(t, url), await connect(t, url), sweeperOf(t, url)];
    await meeting(store, 'm', 'i');
    await store.messages.accept(messages('m', 3));
    await sweeper.sweep();
    const settling = await connect(t, url);
    await settling.query('BEGIN');
    await settling.query("UPDATE deliveries SET next_attempt_at = 1 WHERE seq = 2 AND state = 'pending'");
    await sweeper.sweep();
    const noted = async (): Promise<number[]> =>
      (await client.query('SELECT seq::int FROM deliveries WHERE noted = 1 ORDER BY seq')).rows.map(({ seq }) => seq);
    assert.deepEqual(await noted(), [1, 3]);
    assert.equal((await lane(store, 'i', 'm')).length, 3, 'while it is held');
    await settling.query('COMMIT');
    await assertFound(client);
    await sweeper.sweep();
    assert.deepEqual(await noted(), [1, 2, 3]);
    await assertFound(client);
  });

  test('that comes in the middle of a scan for lanes hides none from it', async (t) => {
    const url = await makeDatabase();
    const [store, client] = [await open(t, url), await connect(t, url)];
    await meeting(store, 'm', 'i', 'j');
    await store.messages.accept(messages('m', 2));
    const connection = await Connection.open(url);
    t.after(() => connection.close());
    class Interrupted extends Session {
      override async query<Row>(text: string, values: readonly unknown[] = []) {
        const result = await super.query<Row>(text, values);
        await sweepAll(client);
        return result;
      }
    }
    const deliveries = deliveryOperations(new Interrupted(connection), { ids: new IdCodec('tag') });
    const lanes = await deliveries.pendingLanes(null, 10);
    assert.deepEqual(lanes.map(({ instance_id }) => instance_id).toSorted(), ['i', 'j']);
  });

  test('makes a damaged mark right, which hides nothing meanwhile', async (t) => {
    const url = await makeDatabase();
    const [store, client] = [await open(t, url), await connect(t, url)];
    await meeting(store, 'm', 'i');
    await store.messages.accept(messages('m', 2));
    for (const damaged of ['9223372036854775807', '-1']) {
      await client.query(`UPDATE sweeps SET swept_to = ${damaged}`);
      assert.equal(await store.deliveries.countPending(), 2);
      await sweepAll(client);
      assert.ok((await markOf(client)) > 0 && (await markOf(client)) < 2 ** 53);
      await assertFound(client);
    }
  });

  test('of a database that went back believes the database, and not what it saw before', async (t) => {
    const url = await makeDatabase();
    const [store, client, sweeper] = [await open(t, url), await connect(t, url), sweeperOf(t, url)];
    await meeting(store, 'm', 'i');
    await store.messages.accept(messages('m', 1));
    await client.query("SELECT setval('numbers', (SELECT last_value FROM numbers) + 1000)");
    await sweeper.sweep();
    await client.query("SELECT setval('numbers', (SELECT last_value FROM numbers) - 500)");
    await sweeper.sweep();
    const { rows } = await client.query('SELECT last_value FROM numbers');
    assert.equal(await markOf(client), Number(rows[0].last_value));
  });
});

describe('an upgrade', () => {
  test('keeps what a node of the version before writes, and notes what was there', async (t) => {
    const { url, client } = await databaseOfBefore(t);
    await client.query(`
      INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, state, aside, next_attempt_at, expires_at, created_at, settled_at)
      SELECT n, 1, 'm', n, 'i', 0, '[]', CASE WHEN n < 7 THEN 'pending' WHEN n < 9 THEN 'failed' ELSE 'delivered' END, (n = 6)::int, CASE WHEN n = 6 THEN 1 END, 1, 1, CASE WHEN n > 6 THEN 4 END
      FROM generate_series(2, 10) n`);
    await client.query("SELECT setval('numbers', 100)");
    await migrateDatabase(url);
    await assertFound(client);
    await client.query(QUEUE_AGAIN);
    await assertFound(client);
    await sweepAll(client, 2);
    await client.query(`${EXPIRE} AND seq IN (3, 6, 8)`);
    await sweepAll(client);
    await nodeLeaves(client);
    await endUpgrade(url);
    await endUpgrade(url);
    assert.equal(await hasSwitched(client), true);
    await assertFound(client);
    const { rows } = await client.query(
      'SELECT array_agg(seq::int ORDER BY seq) AS seqs, (SELECT array_agg(failed_at::int) FROM failed_deliveries) AS failed_ats FROM pending_deliveries',
    );
    assert.deepEqual(rows, [{ seqs: [2, 4, 5, 7], failed_ats: [5, 5, 5] }]);
  });

  test('begins only when nobody uses the table for long, and otherwise changes nothing and says why', async (t) => {
    const { url, client } = await databaseOfBefore(t);
    const idle = await connect(t, url);
    await idle.query('BEGIN; SELECT count(*) FROM deliveries');
    await assert.rejects(migrateDatabase(url, 0), { code: 'POSTGRES_TABLE_IN_USE', message: /pg_dump/ });
    assert.equal((await client.query('SELECT version FROM schema_version')).rows[0].version, NOTED_STEPS - 1);
    await idle.query('ROLLBACK');
    assert.deepEqual(await migrateDatabase(url), { from: NOTED_STEPS - 1, to: MIGRATIONS.length });
  });

  test('waits for somebody who uses the table, and lets others use it meanwhile', async (t) => {
    const { url, client } = await databaseOfBefore(t);
    const dump = await connect(t, url);
    await dump.query('BEGIN; SELECT count(*) FROM deliveries');
    const migrated = migrateDatabase(url);
    await waitsForTable(client);
    await client.query("UPDATE deliveries SET state = 'failed' WHERE false");
    await dump.query('ROLLBACK');
    assert.deepEqual(await migrated, { from: NOTED_STEPS - 1, to: MIGRATIONS.length });
  });

  test('gives way to a transaction with which it stands in a deadlock, and begins again', async (t) => {
    const { url, client } = await databaseOfBefore(t);
    const busy = await connect(t, url);
    await busy.query("SET deadlock_timeout = '1min'; BEGIN; SELECT count(*) FROM instances");
    const migrated = migrateDatabase(url);
    await waitsForTable(client);
    await busy.query('SELECT count(*) FROM deliveries; ROLLBACK');
    assert.deepEqual(await migrated, { from: NOTED_STEPS - 1, to: MIGRATIONS.length });
  });

  test('does not end while such a node may be there, nor at once when it has left, and is then closed to it', async (t) => {
    const { url, client } = await databaseOfBefore(t);
    await migrateDatabase(url);
    const needs = async (): Promise<number> =>
      (await client.query('SELECT steps_known_min FROM schema_version')).rows[0].steps_known_min;
    await endUpgrade(url);
    assert.deepEqual([await hasSwitched(client), await needs()], [false, 1]);
    const waits_for = async () => (await schemaOfDatabase(url)).upgrade_waits_for.map(({ node_id }) => node_id);
    assert.deepEqual(await waits_for(), ['before']);
    await nodeLeaves(client);
    assert.deepEqual(await waits_for(), []);
    await endUpgrade(url);
    assert.deepEqual([await hasSwitched(client), await needs()], [false, NOTED_STEPS]);
    // Now a node of the earlier version joins, which had already started.
    await client.query("SELECT renew_lease_2('before', '0', 'http://127.0.0.1:1', 0::smallint, '{}')");
    await endUpgrade(url);
    assert.equal(await hasSwitched(client), false);
    await nodeLeaves(client);
    await endUpgrade(url);
    assert.equal(await hasSwitched(client), true);
    await endUpgrade(url).catch(() => {});
    assert.deepEqual(await migrateDatabase(url), { from: MIGRATIONS.length, to: MIGRATIONS.length });
    assert.equal(await needs(), NOTED_STEPS);
  });

  for (const day_is_over of [false, true]) {
    const name = 'does not end on the first day, so that operators can return to the version before';
    test(day_is_over ? 'control: after the day it ends by itself' : name, async (t) => {
      const { url, client } = await databaseOfBefore(t);
      const store = await open(t, url);
      await nodeLeaves(client);
      await meeting(store, 'm', 'i');
      await store.messages.accept(messages('m', 1));
      const day_ms = (await schemaOfDatabase(url)).upgrade_ends_at! - Date.now();
      assert.ok(day_ms > 23 * 3_600_000 && day_ms < 25 * 3_600_000, `operators read that it ends in ${day_ms} ms`);
      if (day_is_over) await client.query('UPDATE this_database SET upgrade_ends_at = now()');
      // Each sweeper tries once: it waits for half a minute before it tries again.
      for (const sweeper of [sweeperOf(t, url), sweeperOf(t, url)]) {
        await sweeper.sweep();
        await sweeper.sweep();
      }
      const { rows } = await client.query('SELECT steps_known_min FROM schema_version');
      assert.deepEqual(
        [await hasSwitched(client), rows[0].steps_known_min],
        [day_is_over, day_is_over ? NOTED_STEPS : 1],
      );
      assert.equal('upgrade_ends_at' in (await schemaOfDatabase(url)), !day_is_over);
    });
  }

  test('gives up when somebody uses the table, changes nothing then, and makes a broken index again', async (t) => {
    const { url, client } = await databaseOfBefore(t);
    await migrateDatabase(url);
    await nodeLeaves(client);
    await endUpgrade(url);
    const idle = await connect(t, url);
    await idle.query('BEGIN; SELECT count(*) FROM deliveries');
    await assert.rejects(endUpgrade(url), { code: '55P03' });
    assert.equal(await hasSwitched(client), false);
    await idle.query('ROLLBACK');
    await client.query(
      "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'deliveries_noted_in_lane'::regclass",
    );
    await endUpgrade(url);
    assert.equal(await hasSwitched(client), true);
    const { rows } = await client.query(
      "SELECT indisvalid FROM pg_index WHERE indexrelid = 'deliveries_noted_in_lane'::regclass",
    );
    assert.deepEqual(rows, [{ indisvalid: true }]);
  });

  test('holds up no node that stops while an index is made, and goes on later', async (t) => {
    const { url, client } = await databaseOfBefore(t);
    await migrateDatabase(url);
    await nodeLeaves(client);
    await endUpgrade(url);
    const idle = await connect(t, url);
    await idle.query('BEGIN; DELETE FROM deliveries');
    const stopped = new AbortController();
    let is_over = false;
    const ended = endUpgrade(url, stopped.signal).finally(() => (is_over = true));
    ended.catch(() => {});
    const isMaking = async (): Promise<boolean> => {
      const making =
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONC%' AND wait_event_type = 'Lock'";
      return (await client.query(making)).rows.length > 0;
    };
    while (!(await isMaking()));
    assert.equal(is_over, false, 'it waits for the transaction');
    stopped.abort();
    await assert.rejects(ended, { code: 'CONNECTION_LOST' });
    await idle.query('ROLLBACK');
    // The server first completes the index, and only then notices that its client has gone.
    while (!(await hasSwitched(client))) await endUpgrade(url);
    await assertFound(client);
  });

  test('once it has ended, a node of the version before that writes all the same fails loudly', async (t) => {
    const url = await makeDatabase();
    const [store, client] = [await open(t, url), await connect(t, url)];
    await meeting(store, 'm', 'i');
    await store.messages.accept(messages('m', 2));
    const [first, second] = await lane(store, 'i', 'm');
    await store.deliveries.settle([settled(first!, { state: 'failed', reason: 'not_200' })], []);
    await assert.rejects(client.query(QUEUE_AGAIN), /pending_is_found/);
    await sweepAll(client);
    await assert.rejects(client.query(EXPIRE), /pending_is_found/);
    assert.equal((await store.deliveries.get(second!.delivery_id, 1))!.state, 'pending');
    await assertFound(client);
  });
});

for (const in_an_index of [false, true]) {
  const name = 'a push that succeeds at once touches no index when it is settled';
  test(in_an_index ? 'control: with the state in the condition of an index it touches all' : name, async (t) => {
    const url = await makeDatabase();
    const client = await connect(t, url);
    if (in_an_index) await client.query("CREATE INDEX on_state ON deliveries (instance_id) WHERE state = 'pending'");
    const store = await open(t, url);
    await meeting(store, 'm', 'i', 'j');
    await store.messages.accept(messages('m', 20));
    const pushed = [...(await lane(store, 'i', 'm')), ...(await lane(store, 'j', 'm'))];
    await store.deliveries.settle(
      pushed.map((each) => settled(each)),
      [],
    );
    // Closes the store, because a session reports its counts when it ends.
    await store.close();
    const { rows } = await client.query(
      "SELECT n_tup_upd::int AS updated, n_tup_hot_upd::int AS hot FROM pg_stat_user_tables WHERE relname = 'deliveries'",
    );
    assert.deepEqual(rows, [{ updated: 40, hot: in_an_index ? 0 : 40 }]);
  });
}

for (const from_the_mark of [false, true]) {
  const name = 'a page of a lane reads nothing that was settled since the last sweep';
  test(from_the_mark ? 'control: a page from the begin of the lane reads all of it' : name, async (t) => {
    const url = await makeDatabase();
    const client = await connect(t, url);
    const store = await open(t, url);
    await meeting(store, 'm', 'i');
    for (let i = 0; i < 4; i++) {
      await store.messages.accept(messages('m', 100));
      await store.deliveries.settle(
        (await lane(store, 'i', 'm')).map((each) => settled(each)),
        [],
      );
    }
    await store.messages.accept(messages('m', 1));
    const last_seq = from_the_mark ? 0 : 400;
    // A session reports its counts when it ends.
    await store.close();
    const read = async (): Promise<number> => {
      const { rows } = await client.query(
        "SELECT sum(idx_tup_read)::int AS read FROM pg_stat_user_indexes WHERE relname = 'deliveries'",
      );
      return rows[0].read;
    };
    const before = await read();
    const reader = await openPostgresHere(url);
    const [page] = await reader.deliveries.loadLanes([
      { instance_id: 'i', meeting_id: 'm', after_seq: last_seq, limit: 10 },
    ]);
    assert.deepEqual(
      page?.map(({ seq }) => seq),
      [401],
    );
    await reader.close();
    const entries = (await read()) - before;
    assert.ok(from_the_mark ? entries >= 400 : entries <= 10, `${entries} entries of indexes`);
  });
}

/** The time at which the first delivery aside is due that is of no paused meeting. */
const LEAST_TIME = `
  SELECT min(d.next_attempt_at) FROM noted_deliveries d WHERE d.aside = 1
    AND NOT EXISTS (SELECT 1 FROM meeting_settings t WHERE t.meeting_id = d.meeting_id AND t.paused = 1)`;

/** Runs statements in a session of their own, because a session reports its counts when it ends. */
async function inSession(url: string, ...statements: string[]): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
}

const READS: [name: string, read: ((store: Store) => Promise<void>) | null][] = [
  [
    'a page of deliveries aside reads only the first of them, also to find when the next one is due',
    async (store) => {
      const { deliveries, next_at } = await store.deliveries.loadAside('i', 2_000, 10);
      assert.deepEqual([deliveries.length, next_at], [10, 11]);
    },
  ],
  [
    'a search for the instances with deliveries aside reads only the first delivery of each',
    async (store) => {
      assert.deepEqual(await store.deliveries.pendingAside(null, 10), [{ instance_id: 'i', next_at: 1 }]);
    },
  ],
  ['control: to find the least time all are read', null],
];

for (const [name, readFrom] of READS) {
  test(name, async (t) => {
    const url = await makeDatabase();
    const client = await connect(t, url);
    const store = await open(t, url);
    await meeting(store, 'm', 'i');
    await store.messages.accept(messages('m', 2_000));
    await store.close();
    await inSession(
      url,
      'ALTER TABLE deliveries SET (autovacuum_enabled = off)',
      'UPDATE deliveries SET aside = 1, noted = 1, next_attempt_at = seq',
      'ANALYZE deliveries',
    );
    const read = async (): Promise<number> => {
      const { rows } = await client.query(`
        SELECT (seq_tup_read + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'deliveries'))::int AS read
        FROM pg_stat_user_tables WHERE relname = 'deliveries'`);
      return rows[0].read;
    };
    const before = await read();
    if (readFrom === null) await inSession(url, LEAST_TIME);
    else {
      const reader = await openPostgresHere(url);
      await readFrom(reader);
      await reader.close();
    }
    const rows = (await read()) - before;
    assert.ok(readFrom === null ? rows >= 2_000 : rows < 200, `${rows} rows and entries of indexes`);
  });
}
