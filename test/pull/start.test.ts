import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
import { LEASES } from '../../src/store/postgres/locks.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PullingMachine } from '../support/pulling.ts';
import { Service } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

const WAITING_SESSIONS = `SELECT 1 FROM pg_locks
 WHERE locktype = 'advisory' AND NOT granted
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

test('a node has started when it has taken its partitions, so that it refuses no pull', async (t) => {
  const database_url = await makeDatabase();
  const other = new pg.Client(database_url);
  await other.connect();
  t.after(() => other.end());
  await other.query(`SELECT pg_advisory_lock(${LEASES})`);
  const service = new Service({ database_url });
  let has_started = false;
  const started = service.start().then(() => (has_started = true));
  t.after(async () => {
    await started;
    await service.close();
  });
  await until(
    'the first renewal',
    async () => (await other.query(WAITING_SESSIONS)).rows.length,
    (sessions) => sessions === 1,
  );
  assert.equal(has_started, false);
  await other.query(`SELECT pg_advisory_unlock(${LEASES})`);
  await inTime('the start', started);
  const machine = await PullingMachine.start(service, []);
  await machine.pull({ wait_s: 0 });
});
