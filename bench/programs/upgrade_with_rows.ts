/**
 * Upgrades a database with many deliveries to the columns of pending_deliveries.ts while a node works. It measures how
 * long each part of the upgrade takes, and how long the calls of the node take during each part.
 *
 *     node bench/programs/upgrade_with_rows.ts [--deliveries 10000000] [--keep]
 *
 * Of every thousand deliveries, ten are pending (one of them aside), and five have failed. During the upgrade the
 * program accepts one message after the other and settles its deliveries, with the calls of the store that a node
 * makes. For each kind of call it prints the longest.
 */
import { parseArgs } from 'node:util';
import { loadavg } from 'node:os';
import pg from 'pg';
import { partitionOf } from '../../src/domain/partition.ts';
import { MIGRATIONS, NOTED_STEPS } from '../../src/store/postgres/migrations.ts';
import { endUpgrade } from '../../src/store/postgres/pending/upgrade.ts';
import { migrateDatabase } from '../../src/store/postgres/schema.ts';
import type { Store } from '../../src/store/store.ts';
import { openPostgresHere } from '../../test/support/engines.ts';
import { PostgresServer } from '../../test/support/postgres_server.ts';
import { lane, meeting, messages, settled } from '../../test/support/store_contents.ts';

const { values: options } = parseArgs({
  options: { deliveries: { type: 'string', default: '10000000' }, keep: { type: 'boolean', default: false } },
});
const DELIVERIES = Number(options.deliveries);
const INSTANCES = 10_000;
const PER_MEETING = 100;
const AT_ONCE = 500_000;
const ROWS_PER_STEP = 10_000;

const server = await PostgresServer.start(['-cshared_buffers=512MB', '-cmax_wal_size=4GB', '-cautovacuum=off']);
const url = server.urlOf('postgres');
const client = new pg.Client(url);
await client.connect();
try {
  await measure();
} finally {
  await client.end();
  if (options.keep) console.log(`kept: ${url}`);
  else await server.stop();
}

async function measure(): Promise<void> {
  await timed('the steps before', async () => {
    await client.query('CREATE TABLE schema_version (version integer NOT NULL, steps_known_min integer NOT NULL)');
    for (const step of MIGRATIONS.slice(0, NOTED_STEPS - 1)) await client.query(step);
    await client.query(`INSERT INTO schema_version VALUES (${NOTED_STEPS - 1}, 1)`);
  });
  await timed(`${DELIVERIES} deliveries`, fill);
  await timed('vacuum', () => client.query('VACUUM ANALYZE deliveries'));
  const { rows } = await client.query<{ size: string }>(
    "SELECT pg_size_pretty(pg_total_relation_size('deliveries')) AS size",
  );
  console.log(`deliveries with its indexes: ${rows[0]!.size}`);
  await timed('the step', () => migrateDatabase(url));

  const store = await openPostgresHere(url);
  await store.cluster!.renew({ node_id: 'new', version: '0', address: 'http://127.0.0.1:1', stopping: false }, []);
  await meeting(store, 'm', 'i');
  const epochs = await store.cluster!.renew(
    { node_id: 'new', version: '0', address: 'http://127.0.0.1:1', stopping: false },
    [],
  );
  const { epoch } = epochs.partitions.find(({ partition_no }) => partition_no === partitionOf('i'))!;
  await besideWork(store, epoch, 'nothing else, for 5 s', () => new Promise((resolve) => setTimeout(resolve, 5_000)));
  const { rows: last } = await client.query<{ no: string }>('SELECT last_value AS no FROM numbers');
  await besideWork(store, epoch, 'the sweep of all rows', async () => {
    for (let mark = -1, before = -2; before < mark;) {
      before = mark;
      const swept = await client.query<{ mark: string | null }>('SELECT sweep_deliveries($1, $2) AS mark', [
        last[0]!.no,
        ROWS_PER_STEP,
      ]);
      mark = Number(swept.rows[0]!.mark ?? mark);
    }
  });
  await besideWork(store, epoch, 'the first try', () => endUpgrade(url));
  await besideWork(store, epoch, 'three indexes and the switch of the views', () => endUpgrade(url));
  await besideWork(store, epoch, 'nothing else, for 5 s', () => new Promise((resolve) => setTimeout(resolve, 5_000)));
  const { rows: counts } = await client.query<{ found: number; pending: number; failed: number; failures: number }>(
    `SELECT (SELECT count(*) FROM pending_deliveries)::int AS found, (SELECT count(*) FROM deliveries WHERE state = 'pending')::int AS pending,
       (SELECT count(*) FROM failed_deliveries)::int AS failed, (SELECT count(*) FROM deliveries WHERE state = 'failed')::int AS failures`,
  );
  console.log(`after it: ${JSON.stringify(counts[0])}`);
  await store.close();
}

async function fill(): Promise<void> {
  await client.query(`
    INSERT INTO instances (instance_id, partition_no, instance_name, agent_ids, webhook_url, webhook_headers, webhook_secret,
      success_statuses, webhook_enabled, is_active, created_at, updated_at)
    SELECT 'i' || n, n % 64, 'n', '["a"]', 'http://127.0.0.1:9/', '{}', '', '200', 1, 1, 1, 1 FROM generate_series(1, ${INSTANCES}) n`);
  for (let from = 0; from < DELIVERIES; from += AT_ONCE) {
    await client.query(
      `INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, state, reason, aside,
         attempt_count, attempts, next_attempt_at, expires_at, created_at, settled_at)
       SELECT n + n / ${PER_MEETING}, (n / ${PER_MEETING}) * ${PER_MEETING + 1}, 'm' || (n / ${PER_MEETING}) % 100, n / ${PER_MEETING}, 'i' || i, i % 64, '["a"]',
         CASE WHEN k < 10 THEN 'pending' WHEN k < 15 THEN 'failed' ELSE 'delivered' END, CASE WHEN k BETWEEN 10 AND 14 THEN 'expired' END,
         CASE WHEN k = 0 THEN 1 ELSE 0 END, CASE WHEN k < 10 THEN 0 ELSE 1 END, CASE WHEN k < 10 THEN '[]' ELSE '[1764000000000,3,200]' END,
         CASE WHEN k = 0 THEN 1 END, 9000000000000, n, CASE WHEN k >= 10 THEN n + 5 END
       FROM (SELECT n, n * 7919 % 1000 AS k, 1 + (n % ${PER_MEETING} + ${PER_MEETING} * ((n / ${PER_MEETING}) % 100)) % ${INSTANCES} AS i
         FROM generate_series($1::bigint, $2::bigint) n) numbered`,
      [from + 1, Math.min(DELIVERIES, from + AT_ONCE)],
    );
  }
  await client.query(`SELECT setval('numbers', ${2 * DELIVERIES})`);
}

async function timed(what: string, run: () => Promise<unknown>): Promise<void> {
  const started_ms = performance.now();
  await run();
  console.log(`${what}: ${((performance.now() - started_ms) / 1000).toFixed(1)} s (load ${loadavg()[0]!.toFixed(1)})`);
}

/** Accepts messages and settles their deliveries while `run` runs, and prints the longest calls. */
async function besideWork(store: Store, epoch: number, what: string, run: () => Promise<unknown>): Promise<void> {
  const longest = { accept: 0, read: 0, settle: 0 };
  let calls = 0;
  const progress = { is_done: false };
  const measured = async <T>(kind: keyof typeof longest, call: () => Promise<T>): Promise<T> => {
    const started_ms = performance.now();
    const value = await call();
    longest[kind] = Math.max(longest[kind], performance.now() - started_ms);
    calls++;
    return value;
  };
  const work = (async () => {
    while (!progress.is_done) {
      await measured('accept', () => store.messages.accept(messages('m', 1)));
      const found = await measured('read', () => lane(store, 'i', 'm'));
      const results = found.map((each) => settled(each, { epoch }));
      await measured('settle', () => store.deliveries.settle(results, []));
    }
  })();
  await timed(what, run);
  progress.is_done = true;
  await work;
  const shown = Object.entries(longest).map(([kind, ms]) => `${kind} ${ms.toFixed(0)} ms`);
  console.log(`  ${calls} calls beside it, the longest: ${shown.join(', ')}`);
}
