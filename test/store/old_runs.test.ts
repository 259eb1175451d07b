/** The runs of killed nodes leave the database, and a node whose run was removed stores all the same. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Database } from '../../src/store/postgres/database.ts';
import { OldRuns } from '../../src/store/postgres/writers/old_runs.ts';
import { makeDatabase } from '../support/postgres.ts';
import { meeting, messages } from '../support/store_contents.ts';
import { connect, open } from './pending.ts';

const HOUR_MS = 3_600_000;
const IDLE = 7;

test('a run in which nothing was stored for a day is removed; a run in use and a run with a batch in progress stay', async (t) => {
  const url = await makeDatabase();
  const [store, client] = [await open(t, url), await connect(t, url)];
  const db = new Database(url, { connections_max: 2 });
  t.after(() => db.close());
  let now_ms = 0;
  const old_runs = new OldRuns(
    db,
    () => now_ms,
    (error) => assert.fail(String(error)),
  );
  const runs = async () => (await client.query<{ run_no: string }>('SELECT run_no FROM runs ORDER BY run_no')).rows;
  const counts = async () => [(await runs()).length, (await client.query('SELECT 1 FROM batches')).rowCount];

  await meeting(store, 'm', 'i');
  await store.messages.accept(messages('m', 1));
  await client.query('INSERT INTO runs (run_no, started_at) OVERRIDING SYSTEM VALUE VALUES ($1, 1)', [IDLE]);
  await client.query("INSERT INTO batches VALUES ($1, 3, 1, 1, '1')", [IDLE]);
  await old_runs.look();
  now_ms += 23 * HOUR_MS;
  await store.messages.accept(messages('m', 1));
  await old_runs.look();
  assert.deepEqual(await counts(), [2, 3], 'it is no day yet');

  now_ms += HOUR_MS;
  await client.query('BEGIN');
  await client.query('SELECT 1 FROM runs WHERE run_no = $1 FOR UPDATE', [IDLE]);
  await old_runs.look();
  await client.query('COMMIT');
  assert.deepEqual(await counts(), [2, 3], 'a batch is in progress');

  await old_runs.look();
  assert.deepEqual(await counts(), [1, 2]);
  assert.notEqual((await runs())[0]!.run_no, String(IDLE));

  now_ms += 23 * HOUR_MS;
  await old_runs.look();
  assert.deepEqual(await counts(), [0, 0], 'the node that lives has stored nothing either');
  const [accepted] = await store.messages.accept(messages('m', 1));
  assert.ok(accepted?.kind === 'accepted' && accepted.message.seq === 3, JSON.stringify(accepted));
  assert.deepEqual(await counts(), [1, 1]);
});
