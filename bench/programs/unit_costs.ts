/**
 * Measures what a message and a push cost the PostgreSQL server: bytes on disk and in the WAL, processor time, commits.
 * From these figures docs/scaling.md computes how much load one server can carry.
 *
 *   node bench/programs/unit_costs.ts [--seconds 20] [--rounds 3]
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ConvokeClient } from '@convoke/sdk';
import pg from 'pg';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { importDataFile } from '../../src/store/postgres/import.ts';
import { dataOf, endProcess, scratchDirectory, startService } from '../contenders/contenders.ts';
import { memberOf } from '../load/fleet.ts';
import { Bench } from '../measure/measure.ts';
import { type BenchPostgres, startPostgres } from '../contenders/postgres.ts';
import { cpuSeconds } from '../measure/processes.ts';
import { FAN_OUT_1, FAN_OUT_100 } from '../scenarios/throughput.ts';

const WARM_UP_S = 3;
/** How many heartbeats are measured, and how many are in flight at a time. */
const HEARTBEATS = 2_000;
const HEARTBEATS_AT_A_TIME = 32;
/**
 * The computation gives a server work for this share of its processor time. The rest is for peaks, vacuum and backups.
 */
const BUSY_SHARE = 0.6;
const MESSAGE_DAYS = 30;
const DELIVERY_DAYS = 7;
/** Longer than PostgreSQL takes to report statistics: a busy session reports once a second, an idle session at once. */
const STATISTICS_MS = 2_000;

type Costs = Record<string, number>;

const { values: options } = parseArgs({
  options: { seconds: { type: 'string', default: '20' }, rounds: { type: 'string', default: '3' } },
});

const bench = new Bench({ backlog: 0, herd: { machines: 0, each: 0 }, messages: 0 });
await bench.start();
const postgres = await startPostgres(await scratchDirectory());
const administrator = new pg.Client(postgres.url);
await administrator.connect();
const { rows: versions } = await administrator.query<{ version: string }>('SELECT version()');
console.log(versions[0]!.version);
const shapes = [FAN_OUT_1, { ...FAN_OUT_1, members: 10, meetings: 16 }, FAN_OUT_100];
const rounds: Costs[][] = [];
for (let round = 0; round < Number(options.rounds); round++) {
  const measured: Costs[] = [];
  for (const [i, shape] of shapes.entries()) measured.push(await costsOf(shape, `bench_${round}_${i}`));
  rounds.push(measured);
}
print(shapes.map((_, i) => medianOf(rounds.map((measured) => measured[i]!))));
await administrator.end();
await postgres.stop();
await bench.stop();

/** Sends to a node as fast as the node accepts messages, on a new database, and measures what that costs. */
async function costsOf({ meetings, members, connections }: typeof FAN_OUT_1, database: string): Promise<Costs> {
  const fleet = { meetings, members, origin: bench.origin };
  const { url, data } = await makeDatabase(postgres, database, fleet);
  const node = await startService(data, { env: { CONVOKE_DATABASE_URL: url } });
  const client = new pg.Client(url);
  await client.connect();
  try {
    const load = { ports: [Number(new URL(node.url).port)], meetings, connections };
    await bench.receivers.call('reset', { lanes: true });
    const { accepted: warm } = await bench.senders.call('send', { ...load, seconds: WARM_UP_S });
    await bench.drained(warm * members);
    await settled(client);
    await bench.receivers.call('reset', { lanes: false });
    const before = await countersOf(client, node.pids);
    const { accepted, first_us } = await bench.senders.call('send', { ...load, seconds: Number(options.seconds) });
    await bench.drained(accepted * members);
    await settled(client);
    const after = await countersOf(client, node.pids);
    const { pushes, last_us } = await bench.receivers.call('received');
    if (pushes !== accepted * members) throw new Error(`${pushes} pushes of ${accepted * members} arrived`);
    const per = (name: keyof typeof before, count: number): number => (after[name] - before[name]) / count;
    const heartbeats = await heartbeatCosts(client, node.url);
    return {
      fan_out: members,
      messages_per_s: accepted / ((last_us - first_us) / 1e6),
      commits_per_100_messages: 100 * per('commits', accepted),
      wal_bytes_per_message: per('wal_bytes', accepted),
      full_pages_per_message: per('full_pages', accepted),
      server_us_per_message: 1e6 * per('server_s', accepted),
      node_us_per_message: 1e6 * per('node_s', accepted),
      ...(await sizesOf(client)),
      ...heartbeats,
    };
  } finally {
    await client.end();
    await endProcess(node.probe);
    await administrator.query(`DROP DATABASE ${database} WITH (FORCE)`);
  }
}

async function makeDatabase({ url }: BenchPostgres, database: string, fleet: Parameters<typeof dataOf>[0]) {
  await administrator.query(`CREATE DATABASE ${database} ENCODING 'UTF8' TEMPLATE template0`);
  const of_database = new URL(url);
  of_database.pathname = `/${database}`;
  const filled = await dataOf(fleet);
  const data = join(await scratchDirectory(), 'node');
  await mkdir(data, { mode: 0o700 });
  const from = join(filled, DATABASE_FILE);
  await importDataFile({ from, url: of_database.href, data, keys: null, onProgress() {}, wall_ms: Date.now() });
  return { url: of_database.href, data };
}

/** Waits until every delivery is settled and the sessions have reported their statistics. */
async function settled(client: pg.Client): Promise<void> {
  for (;;) {
    const { rows } = await client.query("SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1");
    if (rows.length === 0) break;
    await sleep(100);
  }
  await sleep(STATISTICS_MS);
}

async function countersOf(client: pg.Client, pids: number[]) {
  const { rows } = await client.query<{ commits: string; wal_bytes: string; full_pages: string }>(
    `SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS commits, wal_bytes, wal_fpi AS full_pages
     FROM pg_stat_wal`,
  );
  const { commits, wal_bytes, full_pages } = rows[0]!;
  return {
    commits: Number(commits),
    wal_bytes: Number(wal_bytes),
    full_pages: Number(full_pages),
    server_s: cpuSeconds([postgres.pid]),
    node_s: cpuSeconds(pids),
  };
}

/** Measures what a heartbeat costs. Each heartbeat is a transaction of its own. */
async function heartbeatCosts(client: pg.Client, base_url: string): Promise<Costs> {
  const api = new ConvokeClient({ base_url });
  const { instance_id } = memberOf({ meetings: 1, members: 1, origin: '' }, 0, 0);
  const before = await countersOf(client, []);
  let left = HEARTBEATS;
  const beat = async (): Promise<void> => {
    while (left-- > 0) await api.heartbeat(instance_id);
  };
  await Promise.all(Array.from({ length: HEARTBEATS_AT_A_TIME }, beat));
  await sleep(STATISTICS_MS);
  const after = await countersOf(client, []);
  return {
    server_us_per_heartbeat: (1e6 * (after.server_s - before.server_s)) / HEARTBEATS,
    wal_bytes_per_heartbeat: (after.wal_bytes - before.wal_bytes) / HEARTBEATS,
  };
}

/** The bytes of a row on disk, measured after a vacuum. */
async function sizesOf(client: pg.Client): Promise<Costs> {
  const sizes: Costs = {};
  for (const [table, name] of Object.entries({ messages: 'message', deliveries: 'delivery' })) {
    await client.query(`VACUUM ${table}`);
    const { rows } = await client.query<{ rows: string; table_bytes: string; index_bytes: string }>(
      `SELECT count(*) AS rows, pg_table_size('${table}') AS table_bytes, pg_indexes_size('${table}') AS index_bytes FROM ${table}`,
    );
    const { rows: count, table_bytes, index_bytes } = rows[0]!;
    sizes[`table_bytes_per_${name}`] = Number(table_bytes) / Number(count);
    sizes[`index_bytes_per_${name}`] = Number(index_bytes) / Number(count);
  }
  // The share of settlements whose new row version stays in the same page and needs no new entry in an index (HOT).
  const { rows: updates } = await client.query<{ share: number }>(
    "SELECT n_tup_hot_upd::float8 / greatest(n_tup_upd, 1) AS share FROM pg_stat_user_tables WHERE relname = 'deliveries'",
  );
  sizes['settlements_heap_only'] = updates[0]!.share;
  return sizes;
}

function medianOf(measured: Costs[]): Costs {
  const names = Object.keys(measured[0]!);
  return Object.fromEntries(
    names.map((name) => {
      const values = measured.map((costs) => costs[name]!).toSorted((a, b) => a - b);
      return [name, values[values.length >> 1]!];
    }),
  );
}

function print(costs: Costs[]): void {
  const names = Object.keys(costs[0]!);
  console.log(`| | ${costs.map(({ fan_out }) => `fan-out ${fan_out}`).join(' | ')} |`);
  console.log(`| --- |${costs.map(() => ' ---: |').join('')}`);
  for (const name of names.filter((name) => name !== 'fan_out')) {
    const cells = costs.map((each) => each[name]!.toFixed(Math.abs(each[name]!) < 10 ? 2 : 0));
    console.log(`| ${name} | ${cells.join(' | ')} |`);
  }
  // A message costs a fixed amount, and an amount for each of its pushes. The shapes with fan-out 1 and 100 give two
  // equations, from which this computes both amounts.
  const [one, , hundred] = costs as [Costs, Costs, Costs];
  const split = (name: string): { message: number; push: number } => {
    const push = (hundred[name]! - one[name]!) / (hundred['fan_out']! - one['fan_out']!);
    return { message: one[name]! - push, push };
  };
  const parts = {
    server: split('server_us_per_message'),
    node: split('node_us_per_message'),
    wal: split('wal_bytes_per_message'),
  };
  for (const [name, { message, push }] of Object.entries(parts)) {
    console.log(`${name}: ${message.toFixed(0)} for the message and ${push.toFixed(0)} for each push of it`);
  }
  const bytes = (name: string, i: number): number =>
    costs[i]![`table_bytes_per_${name}`]! + costs[i]![`index_bytes_per_${name}`]!;
  console.log('\nComputed from it:\n');
  console.log(
    '| fan-out | messages/s per core | pushes/s per core | cores of nodes beside it | WAL MB/s | GB kept per million messages a day |',
  );
  console.log('| ---: | ---: | ---: | ---: | ---: | ---: |');
  for (const [i, { fan_out }] of costs.entries()) {
    const of = ({ message, push }: { message: number; push: number }): number => message + fan_out! * push;
    const messages_per_s = (BUSY_SHARE * 1e6) / of(parts.server);
    const kept = MESSAGE_DAYS * bytes('message', i) + DELIVERY_DAYS * fan_out! * bytes('delivery', i);
    const cells = [
      fan_out!,
      messages_per_s,
      messages_per_s * fan_out!,
      (messages_per_s * of(parts.node)) / 1e6 / BUSY_SHARE,
      (messages_per_s * of(parts.wal)) / 1e6,
      (kept * 1e6) / 1e9,
    ];
    console.log(`| ${cells.map((cell) => cell.toLocaleString('en', { maximumSignificantDigits: 3 })).join(' | ')} |`);
  }
}
