/** Work that a store does by itself: its failures reach the log. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { NO_QUOTAS } from '../../src/store/contract/quotas.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { type OwnWork, OwnWorkFailures } from '../../src/store/thread/own_work.ts';
import { openPostgresHere } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/wait.ts';
import { connect } from './pending.ts';

const SWEEP_EVERY_MS = 5_000;
const A_MINUTE_MS = 60_000;

test('a sweep that fails is reported with its reason, and the next sweeps go on', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const url = await makeDatabase();
  const client = await connect(t, url);
  await client.query('ALTER TABLE sweeps RENAME TO sweeps_away');
  let now_ms = 0;
  const reports: [OwnWork, string][] = [];
  const failed = (work: OwnWork, error: unknown): void => void reports.push([work, (error as Error).message]);
  const store = await openPostgresHere(url, NO_QUOTAS, () => now_ms, failed);
  t.after(() => store.close());
  for (const sweeps of [1, 2]) {
    t.mock.timers.tick(SWEEP_EVERY_MS);
    await until(
      'the sweep failed',
      () => reports.length,
      (count) => count === sweeps,
    );
    now_ms += A_MINUTE_MS;
  }
  for (const [work, message] of reports) {
    assert.equal(work, 'sweep');
    assert.match(message, /sweeps/);
  }
});

test('work that fails all the time is reported once a minute, each kind by itself, and not while the store closes', () => {
  let now_ms = 0;
  const reports: string[] = [];
  const failures = new OwnWorkFailures(
    (work) => void reports.push(`${work} at ${now_ms / 1_000} s`),
    () => now_ms,
  );
  for (; now_ms < 2 * A_MINUTE_MS; now_ms += SWEEP_EVERY_MS) {
    failures.note('sweep', new Error('away'));
    if (now_ms >= SWEEP_EVERY_MS) failures.note('listen', new Error('away'));
    failures.note('read_changes', new StoreError('STORE_CLOSED', 'the store is closed'));
  }
  assert.deepEqual(reports, ['sweep at 0 s', 'listen at 5 s', 'sweep at 60 s', 'listen at 65 s']);
});

test('a node that does not hear the other nodes says so in its log, with the reason', async (t) => {
  const database_url = await makeDatabase();
  const client = await connect(t, await makeDatabase());
  const service = await startService(t, { database_url, encryption_key: randomBytes(32).toString('base64') });
  const name = new URL(database_url).pathname.slice(1);
  await client.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
  await client.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [name]);
  const line = await until(
    'a line of the log',
    () => service.log.find(({ msg }) => msg.startsWith('this node does not hear the other nodes')),
    (found) => found !== undefined,
  );
  await client.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS true`);
  assert.match(JSON.stringify(line?.['err']), /not currently accepting connections/);
});
