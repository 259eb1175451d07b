/** Scenarios with machines that pull. They compare the cost of pulls with that of webhooks. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Contender, convoke, under } from '../contenders/contenders.ts';
import { twoNodes } from '../contenders/on_postgres.ts';
import { type Fleet, WAIT_S } from '../load/fleet.ts';
import type { Bench, Figures } from '../measure/measure.ts';
import { cpuSeconds, memoryMib } from '../measure/processes.ts';
import { COMMITS, CPU_PER_MESSAGE, FAULTS, LAG, LATENCY, MESSAGES, type Row, type Scenario } from './scenario.ts';

const RATE_PER_S = 200;
const CONNECTIONS = 32;

type Shape = Pick<Fleet, 'meetings' | 'members' | 'shared'>;
type How = { connections: number; rate?: number; warm_up_s: number };

/** Two rows with the same load: receivers of webhooks, and machines that pull. */
function pair(contender: Contender, shape: Shape, { warm_up_s, ...load }: How): [webhook: Row, pull: Row] {
  const row = (pulls: boolean): Row => ({
    name: contender.name.replace('convoke', pulls ? 'pull' : 'webhook'),
    measure: (bench, seconds) =>
      bench.measure(
        contender,
        { fleet: { ...shape, pulls, origin: bench.origin } },
        { ...load, seconds },
        { seconds: warm_up_s },
      ),
  });
  return [row(false), row(true)];
}

function pairs(shape: Shape, how: How): [webhook: Row, pull: Row][] {
  return [convoke, twoNodes].map((contender) => pair(contender, shape, how));
}

const AT_A_RATE = pairs({ meetings: 64, members: 1 }, { connections: CONNECTIONS, rate: RATE_PER_S, warm_up_s: 5 });

export const pullLatency: Scenario = {
  name: 'm',
  title: `machines that pull: latency at ${RATE_PER_S} messages/s as in (c), beside webhooks`,
  columns: [...LATENCY, CPU_PER_MESSAGE, ...FAULTS],
  rows: AT_A_RATE.flat(),
  targets: AT_A_RATE.map(([webhook, pull]) => ({
    says: `${pull.name}: p99 ≤ +3 ms`,
    row: pull.name,
    figure: 'p99_ms',
    against: { row: webhook.name },
    difference: true,
    at_most: 3,
  })),
};

const MACHINES = 10_000;
/**
 * The limit of connections. It is enough for machines and senders, also when the other node forwards half of the pulls.
 */
const MAX_CONNECTIONS = String(2 * MACHINES);
/**
 * The pause after a start, after all machines have connected, and after a broadcast: until the service is idle again.
 */
const SETTLED_MS = 10_000;
const BROADCAST_MS_MAX = 60_000;
const LOOK_MS = 20;

async function crowd(bench: Bench, contender: Contender, wait_s: number): Promise<Figures> {
  const fleet: Fleet = { meetings: 1, members: MACHINES, pulls: true, origin: bench.origin };
  const running = await contender.start({ fleet });
  const { pullers } = bench;
  const ports = [running.url, ...(running.more_urls ?? [])].map((url) => Number(new URL(url).port));
  const memory = (): number => running.pids.reduce((sum, pid) => sum + memoryMib(pid).now, 0);
  const broadcast = async (): Promise<{ p50: number; max: number; missing: number }> => {
    await pullers.call('reset', { lanes: false });
    // In 0.4 s, at a rate of 1 a second, exactly one message is sent. All machines of the meeting get it.
    await bench.senders.call('send', { ports, meetings: 1, connections: 1, rate: 1, seconds: 0.4 });
    const given_up = performance.now() + BROADCAST_MS_MAX;
    while ((await pullers.call('count')) < MACHINES && performance.now() < given_up) await sleep(LOOK_MS);
    const { pushes, latency_ms } = await pullers.call('received');
    return { ...latency_ms, missing: MACHINES - pushes };
  };
  try {
    await sleep(SETTLED_MS);
    const alone_mib = memory();
    await pullers.call('start', { ports, fleet, wait_s });
    await sleep(SETTLED_MS);
    const crowd_mib = memory();
    const cpu_before = cpuSeconds(running.pids);
    await sleep(wait_s * 1000);
    const idle_cpu_s = cpuSeconds(running.pids) - cpu_before;
    const first = await broadcast();
    await sleep(SETTLED_MS);
    await running.probe.call('lagFromHere');
    const cpu_before_second = cpuSeconds(running.pids);
    const second = await broadcast();
    await sleep(1_000);
    const broadcast_cpu_s = cpuSeconds(running.pids) - cpu_before_second;
    const lag = await running.probe.call('lag');
    return {
      machine_kib: ((crowd_mib - alone_mib) * 1024) / MACHINES,
      idle_cpu_percent: (idle_cpu_s / wait_s) * 100,
      first_last_ms: first.max,
      p50_ms: second.p50,
      last_ms: second.max,
      broadcast_cpu_s,
      lag_p99_ms: lag.p99,
      missing: first.missing + second.missing,
      pulls_refused: await pullers.call('refused'),
    };
  } finally {
    await pullers.call('stop');
    await running.stop();
  }
}

/** How long a pull without `wait_s` waits, in seconds: see src/http/routes/pull.ts. */
const WAIT_S_DEFAULT = 30;

function crowdRow(contender: Contender, wait_s: number): Row {
  const roomy = under({ env: { CONVOKE_MAX_CONNECTIONS: MAX_CONNECTIONS } }, contender, contender.name);
  return {
    name: contender.name.replace('convoke', `pulls of ${wait_s} s`),
    measure: (bench) => crowd(bench, roomy, wait_s),
  };
}

const CROWDED = [crowdRow(convoke, WAIT_S), crowdRow(twoNodes, WAIT_S)];

export const pullCrowd: Scenario = {
  name: 'n',
  title: `${MACHINES.toLocaleString('en-US')} machines that wait in a pull, all in one meeting`,
  columns: [
    { figure: 'machine_kib', title: 'KiB each', digits: 1 },
    { figure: 'idle_cpu_percent', title: 'CPU %, idle', digits: 1 },
    { figure: 'first_last_ms', title: 'first broadcast: the last has it after ms' },
    { figure: 'last_ms', title: 'second broadcast: ms' },
    { figure: 'p50_ms', title: 'p50 ms' },
    { figure: 'broadcast_cpu_s', title: 'CPU s', digits: 2 },
    LAG,
    { figure: 'pulls_refused', title: 'pulls refused', only_if_any: true },
    ...FAULTS,
  ],
  rows: [...CROWDED, crowdRow(convoke, WAIT_S_DEFAULT)],
  targets: CROWDED.map(({ name }) => ({
    says: `${name}: at most 3 % of a core when idle`,
    row: name,
    figure: 'idle_cpu_percent',
    at_most: 3,
  })),
};

const SATURATED = pairs({ meetings: 64, members: 1, shared: true }, { connections: 256, warm_up_s: 10 });

export const pullThroughput: Scenario = {
  name: 'o',
  title: 'one machine in 64 meetings, saturated: it pulls over one connection, beside a webhook',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, LAG, COMMITS, ...FAULTS],
  rows: SATURATED.flat(),
  targets: SATURATED.map(([webhook, pull]) => ({
    says: `${pull.name}: ≥ 0.8 × ${webhook.name}`,
    row: pull.name,
    figure: 'messages_per_s',
    against: { row: webhook.name },
    at_least: 0.8,
  })),
};
