/** Scenarios with a large backlog, with a large registry, and with an idle service. */
import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Contender, convoke, dataOf, endProcess, relay, startService } from '../contenders/contenders.ts';
import type { Fleet } from '../load/fleet.ts';
import type { Bench, Figures } from '../measure/measure.ts';
import { PEERS } from '../peers/peers.ts';
import { cpuSeconds, memoryMib } from '../measure/processes.ts';
import { CPU_PER_MESSAGE, FAULTS, LAG, MESSAGES, type Row, type Scenario } from './scenario.ts';
import { FAN_OUT_100, saturated } from './throughput.ts';

const FEW = 1_000;
/** The pause after the ready line, in which the service finishes the work of its start. */
const SETTLED_MS = 6_000;

/**
 * Measures the memory while no receiver can be reached. Then starts the service again, with equal data and with
 * receivers that respond, and measures how fast the backlog drains.
 */
async function drain(bench: Bench, pending: number): Promise<Figures> {
  const { meetings, members } = FAN_OUT_100;
  const fleet: Fleet = { meetings, members, origin: bench.origin };
  const messages = Math.max(1, Math.floor(pending / members));

  const held_data = await dataOf(fleet, messages);
  await bench.receivers.call('down');
  const held = await startService(held_data);
  await sleep(SETTLED_MS);
  const held_mib = memoryMib(held.probe.process.pid!).now;
  await endProcess(held.probe);
  await rm(held_data, { recursive: true });
  await bench.receivers.call('up', { port: bench.port });

  const data = await dataOf(fleet, messages);
  await bench.receivers.call('reset', { lanes: true });
  const running = await startService(data);
  await bench.drained(messages * members);
  const received = await bench.receivers.call('received');
  const { peak } = memoryMib(running.probe.process.pid!);
  await endProcess(running.probe);
  await rm(data, { recursive: true });
  return {
    held_mib,
    ready_ms: running.ready_ms,
    pushes_per_s: received.pushes / ((received.last_us - received.first_us) / 1e6),
    rss_peak_mib: peak,
    missing: messages * members - received.pushes,
    out_of_order: received.out_of_order,
    repeated: received.repeated,
  };
}

const FLOWING = { ...saturated(convoke, FAN_OUT_100), name: '(b), beside it' };

export const backlog: Scenario = {
  name: 'e',
  title: 'a backlog to 100 instances in one meeting, found at the start',
  columns: [
    { figure: 'held_mib', title: 'RSS MiB, nobody reachable' },
    { figure: 'ready_ms', title: 'ready ms' },
    { figure: 'pushes_per_s', title: 'pushes/s' },
    { figure: 'rss_peak_mib', title: 'peak RSS MiB' },
    ...FAULTS,
  ],
  rows: [
    { name: '1,000 pending', measure: (bench) => drain(bench, FEW) },
    { name: 'backlog', measure: (bench) => drain(bench, bench.backlog) },
    FLOWING,
  ],
  targets: [
    {
      says: 'memory ≤ 1.3 × that with 1,000 pending, nobody reachable',
      row: 'backlog',
      figure: 'held_mib',
      against: { row: '1,000 pending' },
      at_most: 1.3,
    },
    {
      says: 'peak memory while draining ≤ 1.3 × that of (b)',
      row: 'backlog',
      figure: 'rss_peak_mib',
      against: { row: FLOWING.name },
      at_most: 1.3,
    },
    { says: 'ready ≤ 3,000 ms', row: 'backlog', figure: 'ready_ms', at_most: 3_000 },
    {
      says: 'drain ≥ 0.8 × the rate of (b)',
      row: 'backlog',
      figure: 'pushes_per_s',
      against: { row: FLOWING.name },
      at_least: 0.8,
    },
  ],
};

const MEMBERS = 100;
const FEW_MEETINGS = 10;
const MANY_MEETINGS = 1_000;

/**
 * In each row 1,000 instances get pushes, so that the service keeps the same number of connections. It keeps
 * connections to 1,000 instances, but not to 100,000.
 */
function registryRow(
  name: string,
  meetings: number,
  sent: { meetings: number; targets?: number },
  connections: number,
): Row {
  return {
    name,
    measure: (bench, seconds) =>
      bench.measure(
        convoke,
        { fleet: { meetings, members: MEMBERS, origin: bench.origin } },
        { ...sent, connections, seconds },
        { seconds: 2 },
      ),
  };
}

export const registry: Scenario = {
  name: 'f',
  title: 'registry: sends among 100,000 instances in 1,000 meetings, against 1,000 in 10',
  columns: [MESSAGES, CPU_PER_MESSAGE, { figure: 'answer_p50_ms', title: '201 p50 ms', digits: 1 }, LAG, ...FAULTS],
  rows: [
    registryRow('1,000, to one of 100', FEW_MEETINGS, { meetings: FEW_MEETINGS, targets: MEMBERS }, 256),
    registryRow('100,000, to one of 100', MANY_MEETINGS, { meetings: MANY_MEETINGS, targets: 1 }, 256),
    registryRow('1,000, to all of 100', FEW_MEETINGS, { meetings: FEW_MEETINGS }, 64),
    registryRow('100,000, to all of 100', MANY_MEETINGS, { meetings: FEW_MEETINGS }, 64),
  ],
  targets: [
    {
      says: 'a send to one of 100 costs ≤ 1.2 ×',
      row: '100,000, to one of 100',
      figure: 'cpu_us_per_message',
      against: { row: '1,000, to one of 100' },
      at_most: 1.2,
    },
    {
      says: 'a send to all of 100 costs ≤ 1.2 ×',
      row: '100,000, to all of 100',
      figure: 'cpu_us_per_message',
      against: { row: '1,000, to all of 100' },
      at_most: 1.2,
    },
  ],
};

const IDLE_MS = 5_000;

function idleRow(contender: Contender): Row {
  return {
    name: contender.name,
    missing: contender.missing?.() ?? null,
    async measure(bench) {
      const running = await contender.start({ fleet: { meetings: 1, members: 1, origin: bench.origin } });
      await sleep(IDLE_MS);
      const cpu_before = cpuSeconds(running.pids);
      await sleep(IDLE_MS);
      const cpu_s = cpuSeconds(running.pids) - cpu_before;
      const { now } = memoryMib(running.probe.process.pid!);
      await running.stop();
      return { ready_ms: running.ready_ms, idle_mib: now, idle_cpu_percent: (cpu_s / (IDLE_MS / 1000)) * 100 };
    },
  };
}

export const idle: Scenario = {
  name: 'g',
  title: 'cold start and idle: one instance, nothing to do',
  columns: [
    { figure: 'ready_ms', title: 'ready ms' },
    { figure: 'idle_mib', title: 'RSS MiB, idle' },
    { figure: 'idle_cpu_percent', title: 'CPU %, idle', digits: 1 },
  ],
  rows: [relay, convoke, ...PEERS].map(idleRow),
  targets: [],
};
