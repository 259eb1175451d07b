/**
 * Measures what a push costs PostgreSQL: bytes of WAL, the processor time of the server, and room on disk. The cost has
 * three parts: to accept the message, to settle the delivery, and to vacuum afterwards. The program pushes nothing: it
 * calls the store as a node does.
 *
 *     node bench/programs/write_costs.ts [--messages 400] [--rounds 3] [--only TEXT] [--idle]
 *
 * With `--idle` another session stays in a transaction during the measurement, so vacuum removes nothing. The server
 * writes no full-page images, and autovacuum is off. So the bytes differ by only a few per cent between runs, even on a
 * busy machine. Processor time differs more, so report it together with the load of the machine.
 */
import { loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import type { AcceptedDelivery } from '../../src/store/contract/messages.ts';
import type { DeliverySettlement } from '../../src/store/contract/deliveries.ts';
import { partitionOf } from '../../src/domain/partition.ts';
import type { Store } from '../../src/store/store.ts';
import { SWEEP } from '../../src/store/postgres/locks.ts';
import { migrateDatabase } from '../../src/store/postgres/schema.ts';
import { openPostgresHere } from '../../test/support/engines.ts';
import { newMessage, register } from '../../test/support/store_contents.ts';
import { PostgresServer } from '../../test/support/postgres_server.ts';
import { cpuSeconds } from '../measure/processes.ts';
import { VARIANTS, type Variant } from './write_variants.ts';

const FLAGS = [
  '-cfull_page_writes=off',
  '-cautovacuum=off',
  '-cshared_buffers=512MB',
  '-cmax_wal_size=8GB',
  '-ccheckpoint_timeout=1h',
  '-csynchronous_commit=on',
];
/** As in scenario (b), each message goes to a hundred machines. */
const MEETINGS = 4;
const MEMBERS = 100;
const TEXT = JSON.stringify({ text: 'x'.repeat(480) });
const MESSAGES_IN_A_BATCH = 10;
const SETTLED_IN_A_BATCH = 400;
const EXPIRES_AT = Date.now() + 72 * 3_600_000;

const NODE = { node_id: 'bench', version: '0', address: 'http://127.0.0.1:1', stopping: false };
const OF_LANE = 'instance_id = $1 AND meeting_id = $2 AND partition_no = $3';
const READ = `SELECT delivery_no FROM pending_deliveries WHERE ${OF_LANE} AND aside = 0 ORDER BY seq LIMIT 200`;
/** The sweep that a node makes every few seconds. Its cost is shown together with that of the vacuum. */
const SWEPT = 'SELECT sweep_deliveries((SELECT last_value FROM numbers), 1000000)';

const { values: options } = parseArgs({
  options: {
    messages: { type: 'string', default: '400' },
    rounds: { type: 'string', default: '3' },
    only: { type: 'string', default: '' },
    idle: { type: 'boolean', default: false },
  },
});

interface Cost {
  accept: number;
  settle: number;
  vacuum: number;
}
interface Measured {
  wal: Cost;
  us: Cost;
  read_ms: number;
  disk_bytes: number;
  hot: number;
}

const server = await PostgresServer.start(FLAGS);
const administrator = new pg.Client(server.urlOf('postgres'));
await administrator.connect();
const { rows: versions } = await administrator.query<{ version: string }>('SELECT version()');
console.log(`${versions[0]!.version}; load ${loadavg()[0]!.toFixed(1)}`);
const server_pid = Number(readFileSync(join(server.directory, 'data', 'postmaster.pid'), 'utf8').split('\n')[0]);
const chosen = VARIANTS.filter(({ name }) => name.includes(options.only));
console.log(
  '\n| variant | WAL bytes a push | accept | settle | vacuum | server µs a push | accept | settle | vacuum | ms to read an empty lane | bytes kept | HOT |',
);
console.log(`| --- |${' ---: |'.repeat(11)}`);
for (const variant of chosen) {
  const rounds: Measured[] = [];
  for (let round = 0; round < Number(options.rounds); round++) rounds.push(await measured(variant, round));
  print(variant.name, rounds);
}
await administrator.end();
await server.stop();

async function measured(variant: Variant, round: number): Promise<Measured> {
  const database = `costs_${round}_${Math.floor(Math.random() * 1e9)}`;
  await administrator.query(`CREATE DATABASE ${database} ENCODING 'UTF8' TEMPLATE template0`);
  const url = server.urlOf(database);
  await migrateDatabase(url);
  const client = new pg.Client(url);
  await client.connect();
  await client.query('SET random_page_cost = 1.1; SET enable_hashjoin = off; SET enable_mergejoin = off');
  const idle = new pg.Client(url);
  await idle.connect();
  const store = await openPostgresHere(url);
  try {
    const { partitions } = await store.cluster!.renew(NODE, []);
    const epochs = new Map(partitions.map(({ partition_no, epoch }) => [partition_no, epoch]));
    await fill(store);
    await variant.change(client);
    // With this lock only this program sweeps. On a busy machine, a sweep by the store would find deliveries that this
    // program has not settled yet.
    await client.query(`SELECT pg_advisory_lock(${SWEEP})`);
    await settle(store, await accept(store, 40), variant, epochs);
    await client.query(SWEPT);
    await client.query('VACUUM ANALYZE');
    if (options.idle) await idle.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM instances');
    const before = await counters(client);
    const deliveries = await accept(store, Number(options.messages));
    const accepted = await counters(client);
    await settle(store, deliveries, variant, epochs);
    const settled = await counters(client);
    const read_ms = await msToRead(client);
    await client.query(SWEPT);
    await client.query('VACUUM');
    const vacuumed = await counters(client);
    const per = (of: 'wal' | 'us'): Cost => ({
      accept: (accepted[of] - before[of]) / deliveries.length,
      settle: (settled[of] - accepted[of]) / deliveries.length,
      vacuum: (vacuumed[of] - settled[of]) / deliveries.length,
    });
    // A session may report its statistics late, so this ends the sessions of the store: a session reports when it ends.
    await store.close();
    const { rows } = await client.query<{ pending: number; n: number; bytes: number; hot: number }>(
      `SELECT (SELECT count(*) FROM deliveries WHERE state = 'pending')::int AS pending, (SELECT count(*) FROM deliveries)::int AS n,
         (SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname = 'deliveries')::float8 AS bytes,
         (SELECT sum(n_tup_hot_upd)::float8 / greatest(sum(n_tup_upd), 1) FROM pg_stat_user_tables WHERE relname = 'deliveries') AS hot`,
    );
    const { pending, n, bytes, hot } = rows[0]!;
    if (pending !== 0) throw new Error(`${pending} deliveries of ${n} are not settled`);
    return { wal: per('wal'), us: per('us'), read_ms, disk_bytes: bytes / n, hot };
  } finally {
    await store.close();
    await Promise.all([client.end(), idle.end()]);
    await administrator.query(`DROP DATABASE ${database} WITH (FORCE)`);
  }
}

async function fill(store: Store): Promise<void> {
  for (let member = 0; member < MEMBERS; member++) {
    await register(store, `i${digits(member)}`);
    for (let n = 0; n < MEETINGS; n++)
      await store.meetings.join(`m${digits(n)}`, `i${digits(member)}`, [`a${digits(member)}`], Date.now());
  }
}

async function accept(store: Store, messages: number): Promise<AcceptedDelivery[]> {
  const accepted: AcceptedDelivery[] = [];
  for (let done = 0; done < messages; done += MESSAGES_IN_A_BATCH) {
    const wall_ms = Date.now();
    const batch = Array.from({ length: MESSAGES_IN_A_BATCH }, (_, i) =>
      newMessage(`m${digits((done + i) % MEETINGS)}`, { message: TEXT, wall_ms, expires_at: EXPIRES_AT }),
    );
    for (const result of await store.messages.accept(batch)) {
      if (result.kind === 'accepted') accepted.push(...result.deliveries);
    }
  }
  return accepted;
}

/** Settles in batches of deliveries of several messages, in a mixed order, as a hundred machines respond. */
async function settle(store: Store, deliveries: AcceptedDelivery[], variant: Variant, epochs: Map<number, number>) {
  const started_at = new Date().toISOString();
  const attempt = {
    attempt: 1,
    started_at,
    duration_ms: 3,
    outcome: 'delivered',
    status_code: 200,
    detail: '',
    response_excerpt: '',
  };
  const attempts = variant.attempts === 'short' ? JSON.stringify([Date.now(), 3, 200]) : JSON.stringify([attempt]);
  for (let first = 0; first < deliveries.length; first += SETTLED_IN_A_BATCH) {
    const settled_at = Date.now();
    const batch = deliveries
      .slice(first, first + SETTLED_IN_A_BATCH)
      .map(({ delivery_id, instance_id }, i): [number, DeliverySettlement] => [
        (i * 7) % SETTLED_IN_A_BATCH,
        {
          delivery_id,
          expires_at: EXPIRES_AT,
          state: 'delivered',
          reason: null,
          attempt_count: 1,
          answered_badly: 0,
          attempts,
          next_attempt_at: null,
          aside: false,
          settled_at,
          epoch: epochs.get(partitionOf(instance_id))!,
        },
      ]);
    await store.deliveries.settle(
      batch.toSorted(([a], [b]) => a - b).map(([, settlement]) => settlement),
      [],
    );
  }
}

async function counters(client: pg.Client): Promise<{ wal: number; us: number }> {
  const { rows } = await client.query<{ wal: number }>(
    "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS wal",
  );
  return { wal: rows[0]!.wal, us: 1e6 * cpuSeconds([server_pid]) };
}

/**
 * How long it takes to read the pending deliveries of a lane that has none, before a sweep. The read passes every
 * settled delivery of the lane, because the mark of the sweep is still below all of them.
 */
async function msToRead(client: pg.Client): Promise<number> {
  const lane = ['i000007', 'm000003', partitionOf('i000007')];
  const times: number[] = [];
  for (let i = 0; i < 21; i++) {
    const started_ms = performance.now();
    const { rows } = await client.query({ name: 'read', text: READ, values: lane });
    if (rows.length > 0) throw new Error('the lane has pending deliveries');
    times.push(performance.now() - started_ms);
  }
  return times.toSorted((a, b) => a - b)[10]!;
}

function digits(n: number): string {
  return String(n).padStart(6, '0');
}

function print(name: string, rounds: Measured[]): void {
  const median = (of: (each: Measured) => number): number =>
    rounds.map(of).toSorted((a, b) => a - b)[rounds.length >> 1]!;
  const cells = (['wal', 'us'] as const).flatMap((of) => [
    median((each) => each[of].accept + each[of].settle + each[of].vacuum),
    ...(['accept', 'settle', 'vacuum'] as const).map((part) => median((each) => each[of][part])),
  ]);
  const shown = cells.map((cell, i) => cell.toFixed(i < 4 ? 0 : 1));
  console.log(
    `| ${[name, ...shown, median(({ read_ms }) => read_ms).toFixed(2), median(({ disk_bytes }) => disk_bytes).toFixed(0), `${(100 * median(({ hot }) => hot)).toFixed(0)} %`].join(' | ')} |`,
  );
}
