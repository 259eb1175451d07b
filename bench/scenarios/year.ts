/**
 * A year of data: how long a start, a send, a list and a search take with 10,000,000 messages, and with 10,000
 * messages. The instances are the same in both rows.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { endProcess, scratchDirectory, startService } from '../contenders/contenders.ts';
import { startPostgres } from '../contenders/postgres.ts';
import type { Load } from '../load/load.ts';
import { walk } from '../load/walk.ts';
import { LARGE_MEETINGS, YEAR_MEMBERS, yearInto } from '../load/year.ts';
import { meetingId } from '../load/fleet.ts';
import type { Bench, Figures } from '../measure/measure.ts';
import { cpuSeconds } from '../measure/processes.ts';
import { CPU_PER_MESSAGE, FAULTS, LATENCY, MESSAGES, type Row, type Scenario } from './scenario.ts';

const FEW = 10_000;
const INSTANCES = 100_000;
/** How many of the meetings that are not large get messages. */
const MEETINGS = 64;
const CONNECTIONS = 256;
const WARM_UP_S = 5;
/** The target for every list: a list that takes longer counts as slow. */
const LIST_MS_MAX = 100;
/** Without these settings the service would remove most of the year's rows. */
const KEPT = {
  CONVOKE_RETENTION_DELIVERIES: '3650d',
  CONVOKE_RETENTION_MESSAGES: '3650d',
  CONVOKE_RETENTION_AUDIT: '3650d',
};

async function yearOf(bench: Bench, messages: number, seconds: number, is_postgres: boolean): Promise<Figures> {
  const scratch = await scratchDirectory();
  const postgres = is_postgres ? await startPostgres(scratch) : null;
  const data = join(scratch, 'node');
  await mkdir(data, { mode: 0o700 });
  try {
    const url = postgres?.url ?? null;
    await yearInto({ data, url, messages, instances: INSTANCES, origin: bench.origin, onProgress() {} });
    const env = { ...KEPT, ...(postgres !== null && { CONVOKE_DATABASE_URL: postgres.url }) };
    const running = await startService(data, { env });
    const pids = [...running.pids, ...(postgres === null ? [] : [postgres.pid])];
    const sent = await sendTo(bench, running.url, pids, seconds);
    const asked = await walk(running.url, await valuesOf(running.url));
    await endProcess(running.probe);
    const lists = asked.filter(({ is_search }) => !is_search).map(({ ms }) => ms);
    const searches = asked.filter(({ is_search }) => is_search).map(({ ms }) => ms);
    for (const { what, ms, status } of asked.filter(
      (one) => one.status >= 500 || (!one.is_search && one.ms > LIST_MS_MAX),
    ))
      console.error(`  ${status} after ${Math.round(ms)} ms: ${what}`);
    return {
      ready_ms: running.ready_ms,
      ...sent,
      lists: lists.length,
      list_ms_max: Math.max(...lists),
      slow_lists: lists.filter((ms) => ms > LIST_MS_MAX).length,
      search_ms_max: Math.max(0, ...searches),
      failed: asked.filter(({ status }) => status >= 500).length,
    };
  } finally {
    await postgres?.stop();
    await rm(scratch, { recursive: true });
  }
}

/**
 * Sends each message to one of the ten members of a small meeting, as scenario (f) sends to one of a hundred members.
 */
async function sendTo(bench: Bench, url: string, pids: number[], seconds: number): Promise<Figures> {
  const load: Load = {
    ports: [Number(new URL(url).port)],
    meetings: MEETINGS,
    first_meeting: LARGE_MEETINGS,
    targets: YEAR_MEMBERS,
    connections: CONNECTIONS,
    seconds,
  };
  await bench.receivers.call('reset', { lanes: true });
  const { accepted } = await bench.senders.call('send', { ...load, seconds: WARM_UP_S });
  await bench.drained(accepted);
  await bench.receivers.call('reset', { lanes: false });
  const cpu_before = cpuSeconds(pids);
  const sent = await bench.senders.call('send', load);
  await bench.drained(sent.accepted);
  const cpu_s = cpuSeconds(pids) - cpu_before;
  const received = await bench.receivers.call('received');
  return {
    messages_per_s: received.pushes / ((received.last_us - sent.first_us) / 1e6),
    p50_ms: received.latency_ms.p50,
    p99_ms: received.latency_ms.p99,
    cpu_us_per_message: (cpu_s * 1e6) / Math.max(1, sent.accepted),
    missing: sent.accepted - received.pushes,
    refused: sent.refused,
    out_of_order: received.out_of_order,
    repeated: received.repeated,
  };
}

/** Values for each filter. For many filters: a value that finds much, one that finds little, one that finds nothing. */
async function valuesOf(url: string): Promise<Record<string, string[]>> {
  const [large, small] = [meetingId(3), meetingId(LARGE_MEETINGS + 1_000)];
  const response = await fetch(`${url}/api/v1/deliveries/?meeting_id=${large}&limit=1`);
  const { data } = (await response.json()) as { data: { message_id: string; delivery_id: string }[] };
  const { message_id = '', delivery_id = '' } = data[0] ?? {};
  const half_a_year_ago = new Date(Date.now() - 182 * 86_400_000).toISOString();
  return {
    instance_id: ['i000033', 'i010103', 'nobody'],
    meeting_id: [large, small, 'none'],
    agent_id: ['a000003', 'nobody'],
    message_id: [message_id],
    id: [message_id],
    delivery_id: [delivery_id],
    q: ['0012', 'zzz'],
    text: ['topic0007', 'no such words'],
    since: [half_a_year_ago],
    until: [half_a_year_ago],
    after_seq: ['0', '100'],
    before_seq: ['200'],
    seq: ['7'],
    status_code: ['204', '503'],
    outcome: ['ok', 'not_200', 'gone'],
    limit: ['1', '500'],
    target_agents: ['a000003'],
    from_agent: ['a000001'],
    in_reply_to: [message_id],
    answers_after: ['0'],
    action: ['meeting.join', 'key.create'],
    key_id: ['open', 'nobody'],
  };
}

const ROWS = (['SQLite', 'PostgreSQL'] as const).map((engine) => {
  const row = (name: string, messages: (bench: Bench) => number): Row => ({
    name: `${name}, ${engine}`,
    measure: (bench, seconds) => yearOf(bench, messages(bench), seconds, engine === 'PostgreSQL'),
  });
  return { few: row('10,000 messages', () => FEW), year: row('a year', ({ messages }) => messages) };
});

export const year: Scenario = {
  name: 'p',
  title: 'a year of data: 100,000 instances, 10,000,000 messages and 30,000,000 deliveries, beside 10,000 messages',
  columns: [
    { figure: 'ready_ms', title: 'ready ms' },
    MESSAGES,
    CPU_PER_MESSAGE,
    ...LATENCY,
    { figure: 'lists', title: 'lists' },
    { figure: 'list_ms_max', title: 'slowest list ms' },
    { figure: 'slow_lists', title: 'lists over 100 ms' },
    { figure: 'search_ms_max', title: 'slowest search ms' },
    { figure: 'failed', title: 'failed', only_if_any: true },
    ...FAULTS,
  ],
  rows: ROWS.flatMap(({ few, year }) => [few, year]),
  targets: ROWS.flatMap(({ few, year }) => [
    {
      says: `${year.name}: a message costs ≤ 1.2 ×`,
      row: year.name,
      figure: 'cpu_us_per_message',
      against: { row: few.name },
      at_most: 1.2,
    },
    {
      says: `${year.name}: every list ≤ ${LIST_MS_MAX} ms`,
      row: year.name,
      figure: 'list_ms_max',
      at_most: LIST_MS_MAX,
    },
    { says: `${year.name}: ready ≤ 1,000 ms`, row: year.name, figure: 'ready_ms', at_most: 1_000 },
  ]),
};
