/**
 * Measures what senders notice while a store with a year of data (programs/year.ts) removes old rows or makes backups.
 * The program puts 200 messages a second into the store.
 *
 *     node bench/programs/upkeep.ts --data DIRECTORY [--database-url URL] [--days 300] [--seconds 10] [--rounds 3]
 *     node bench/programs/upkeep.ts --data DIRECTORY --backup [--seconds 10] [--rounds 3]
 *
 * A round has three stretches of `--seconds` each. In the first nothing else happens. In the second the service's own
 * maintenance removes what is older than `--days`. In the third, steps of up to 500 rows of each kind follow each other
 * without a pause. With `--backup` a round has two stretches: nothing else happens; one backup follows the other. A
 * latency is the time from when a message is due until the store has it. Removed rows are gone for good, so copy the
 * directory first.
 */
import { closeSync, fstatSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { systemClock } from '../../src/delivery/clock.ts';
import { Expiry } from '../../src/delivery/expiry.ts';
import { Maintenance } from '../../src/delivery/maintenance.ts';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import type { DeliveryStore } from '../../src/store/contract/deliveries.ts';
import { openPostgresStore } from '../../src/store/postgres/open.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { newMessage } from '../../test/support/store_contents.ts';
import { agentId, meetingId } from '../load/fleet.ts';
import { Samples } from '../measure/figures.ts';

const DAY_MS = 86_400_000;
const RATE = 200;
const MEETINGS = 10_000;
const TEXT = JSON.stringify({ text: 'x'.repeat(300) });

const { values } = parseArgs({
  options: {
    data: { type: 'string' },
    'database-url': { type: 'string' },
    days: { type: 'string', default: '300' },
    seconds: { type: 'string', default: '10' },
    rounds: { type: 'string', default: '3' },
    backup: { type: 'boolean', default: false },
  },
});
const { data, 'database-url': url } = values;
if (data === undefined) throw new Error('--data says where');

const { store, opened } =
  url === undefined ? openSqliteStore(join(data, DATABASE_FILE), null) : openPostgresStore(url, data, null);
await opened;
const clock = systemClock();
const retention_ms = Number(values.days) * DAY_MS;
/** The work of a stretch so far: removed rows, or MiB of backups. */
let done = 0;

/** Runs the service's own maintenance, and counts the rows that it removes. */
async function removeAsService(stopped: AbortSignal): Promise<void> {
  const counted = async (...args: Parameters<DeliveryStore['prune']>) => {
    const step = await store.deliveries.prune(...args);
    done += step.removed;
    return step;
  };
  const deliveries = new Proxy(store.deliveries, {
    get: (target, name) => (name === 'prune' ? counted : Reflect.get(target, name)) as unknown,
  });
  const settings = {
    retention_deliveries_ms: retention_ms,
    retention_messages_ms: retention_ms,
    retention_audit_ms: 400 * DAY_MS,
  };
  const maintenance = new Maintenance(
    clock,
    { deliveries, audit: store.audit, ...(store.file && { file: store.file }) },
    settings,
    new Expiry(clock, 3 * DAY_MS),
    {
      expired() {},
      isMostlyEmpty() {},
      failed(error) {
        throw error;
      },
    },
  );
  const round = maintenance.run();
  while (!stopped.aborted) await sleep(10);
  maintenance.stop();
  await round;
}

async function removeAtOnce(stopped: AbortSignal): Promise<void> {
  const before_ms = clock.wall() - retention_ms;
  const before = { deliveries_ms: before_ms, messages_ms: before_ms, idempotency_ms: before_ms, future_ms: Infinity };
  while (!stopped.aborted) done += (await store.deliveries.prune(before, 500, Infinity, null)).removed;
}

async function backUp(stopped: AbortSignal): Promise<void> {
  const { backups } = store;
  if (backups === undefined) throw new Error('PostgreSQL has tools of its own for backups');
  while (!stopped.aborted) {
    const { backup_id } = await backups.begin();
    for (;;) {
      const progress = await backups.wait(backup_id, 1000);
      if (progress === null) throw new Error('the backup failed');
      if (!progress.is_whole) continue;
      const copy = backups.take(backup_id);
      if (copy === null) throw new Error('the copy is gone');
      done += fstatSync(copy).size / 2 ** 20;
      closeSync(copy);
      break;
    }
  }
}

let sent = 0;
async function send(): Promise<void> {
  const meeting = sent++ % MEETINGS;
  const target_agents = [0, 3, 6].map(agentId);
  const message = newMessage(meetingId(meeting), { message: TEXT, target_agents, wall_ms: clock.wall() });
  await store.messages.accept([message]);
}

async function stretch(work: ((stopped: AbortSignal) => Promise<void>) | null) {
  const stop = new AbortController();
  done = 0;
  const latencies = new Samples();
  const working = work?.(stop.signal);
  const from = performance.now();
  const sends: Promise<void>[] = [];
  for (let i = 0; i < Number(values.seconds) * RATE; i++) {
    const due = from + (i * 1000) / RATE;
    const wait_ms = due - performance.now();
    if (wait_ms > 0) await sleep(wait_ms);
    sends.push(send().then(() => latencies.add(performance.now() - due)));
  }
  stop.abort();
  await Promise.all([...sends, working]);
  return { ...latencies.distribution(), per_s: (done * 1000) / (performance.now() - from) };
}

const rows = values.backup
  ? ([
      ['nothing is done', null, ''],
      ['backups are made', backUp, 'MiB/s'],
    ] as const)
  : ([
      ['nothing is done', null, ''],
      ['the service removes', removeAsService, 'rows/s'],
      ['without a pause', removeAtOnce, 'rows/s'],
    ] as const);
await stretch(null);
for (let round = 0; round < Number(values.rounds); round++)
  for (const [name, work, unit] of rows) {
    const { p50, p99, max, per_s } = await stretch(work);
    const ms = [p50, p99, max].map((value) => value.toFixed(1).padStart(7)).join('');
    console.log(
      `${name.padEnd(20)} p50, p99, max ms ${ms} ${per_s.toFixed(0).padStart(7)} ${unit}, load ${loadavg()[0]!.toFixed(1)}`,
    );
  }
await store.close();
