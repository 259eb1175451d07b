/**
 * Measures Convoke and the webhook servers of other projects. All products have the same interface here,
 * webhook_servers/server.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { answering, type Fleet } from '../load/fleet.ts';
import type { Load } from '../load/load.ts';
import type { Bench, Figures } from '../measure/measure.ts';
import { cpuSeconds } from '../measure/processes.ts';
import { convokeOnPostgres, convokeOnSqlite } from '../webhook_servers/convoke.ts';
import { convoy } from '../webhook_servers/convoy.ts';
import { outpost } from '../webhook_servers/outpost.ts';
import type { RunningServer, WebhookServer } from '../webhook_servers/server.ts';
import { svix } from '../webhook_servers/svix.ts';
import { CPU_PER_PUSH, FAULTS, LATENCY, PUSHES, type Column, type Row, type Scenario } from './scenario.ts';

const SERVERS = [convokeOnSqlite, convokeOnPostgres, svix, outpost, convoy];

const SENDERS = 64;
const RATE_PER_S = 200;
const WARM_UP_S = 10;
/** A push that arrives later than this after the last message counts as not arrived. */
const LATEST_MS = 10_000;
const HANGING_RATE_PER_S = 10;
const HANGING_S = 30;
const KILL_S = 15;
const KILL_AFTER_MS = 5_000;

interface Shape {
  fleet: Omit<Fleet, 'origin'>;
  /** Messages per second; when absent, each response starts the next message. */
  rate?: number;
  /** How long the load takes; when absent, as long as `--seconds` says. */
  seconds?: number;
  /** What happens to the service while messages are sent. The scenario then checks which of the messages arrived. */
  trouble?: (running: RunningServer) => Promise<Figures>;
}

/** Starts a server, warms it up, puts the load on it, and returns what arrived. */
async function measure(bench: Bench, server: WebhookServer, shape: Shape, seconds: number): Promise<Figures> {
  const fleet: Fleet = { ...shape.fleet, origin: bench.origin };
  const { receivers, senders } = bench;
  const running = await server.start(fleet);
  try {
    const { url, request } = running;
    const load: Load = {
      ports: [Number(new URL(url).port)],
      meetings: fleet.meetings,
      connections: SENDERS,
      seconds: shape.seconds ?? seconds,
      ...(shape.rate !== undefined && { rate: shape.rate }),
      ...(request !== undefined && { request }),
    };
    await receivers.call('hang', { on: false });
    await receivers.call('reset', { lanes: true });
    const warm_up = await senders.call('send', { ...load, seconds: WARM_UP_S });
    await bench.drained(warm_up.accepted * answering(fleet));
    await receivers.call('hang', { on: true });
    return await (shape.trouble === undefined
      ? undisturbed(bench, running, load, answering(fleet))
      : disturbed(bench, running, load, answering(fleet), shape.trouble));
  } finally {
    await running.stop();
  }
}

async function undisturbed(bench: Bench, running: RunningServer, load: Load, per_message: number): Promise<Figures> {
  const { receivers, senders } = bench;
  await receivers.call('reset', { lanes: false });
  const cpu_before_s = cpuSeconds(running.pids());
  const sent = await senders.call('send', load);
  await bench.drained(sent.accepted * per_message);
  const cpu_s = cpuSeconds(running.pids()) - cpu_before_s;
  const { pushes, last_us, latency_ms, repeated, out_of_order } = await receivers.call('received');
  return {
    pushes_per_s: pushes / ((last_us - sent.first_us) / 1e6),
    cpu_us_per_push: (cpu_s * 1e6) / Math.max(pushes, 1),
    p50_ms: latency_ms.p50,
    p99_ms: latency_ms.p99,
    missing: sent.accepted * per_message - pushes,
    refused: sent.refused,
    out_of_order,
    repeated,
  };
}

async function disturbed(
  bench: Bench,
  running: RunningServer,
  load: Load,
  per_message: number,
  trouble: NonNullable<Shape['trouble']>,
): Promise<Figures> {
  const { receivers, senders } = bench;
  await receivers.call('reset', { lanes: false, each: true });
  const sending = senders.call('send', { ...load, listed: true });
  const [figures, sent] = await Promise.all([trouble(running), sending]);
  await sleep(LATEST_MS);
  const { expected, not_arrived, repeated, latency_ms } = await receivers.call('account', {
    messages: sent.messages,
    per_message,
  });
  const { p50, p99 } = latency_ms;
  return { ...figures, p50_ms: p50, p99_ms: p99, expected, not_arrived, repeated, refused: sent.refused };
}

async function killed(running: RunningServer): Promise<Figures> {
  await sleep(KILL_AFTER_MS);
  const killed_ms = performance.now();
  await running.killAndRestart();
  return { ready_ms: performance.now() - killed_ms };
}

function scenario(name: string, title: string, columns: Column[], shape: Shape): Scenario {
  const rows: Row[] = SERVERS.map((server) => ({
    name: server.name,
    missing: server.missing(),
    measure: (bench, seconds) => measure(bench, server, shape, seconds),
  }));
  return { name, title: `beside webhook servers: ${title}`, columns, rows, targets: [] };
}

const ARRIVALS: Column[] = [
  { figure: 'expected', title: 'pushes expected' },
  { figure: 'not_arrived', title: `not arrived ${LATEST_MS / 1000} s after the end` },
  { figure: 'repeated', title: 'repeated' },
  { figure: 'refused', title: 'refused' },
];

/** These scenarios run only when `--only` names them, because few machines have the programs that they measure. */
export const BESIDE: Scenario[] = [
  scenario('v1', `fan-out 1, ${SENDERS} senders`, [PUSHES, CPU_PER_PUSH, ...LATENCY, ...FAULTS], {
    fleet: { meetings: 64, members: 1 },
  }),
  scenario('v2', `fan-out 100, ${SENDERS} senders`, [PUSHES, CPU_PER_PUSH, ...LATENCY, ...FAULTS], {
    fleet: { meetings: 1, members: 100 },
  }),
  scenario('v3', `${RATE_PER_S} messages/s, fan-out 1`, [...LATENCY, CPU_PER_PUSH, ...FAULTS], {
    fleet: { meetings: 64, members: 1 },
    rate: RATE_PER_S,
  }),
  scenario('v4', `${HANGING_RATE_PER_S} messages/s for 10 receivers, 5 of which hang`, [...LATENCY, ...ARRIVALS], {
    fleet: { meetings: 1, members: 10, hanging: 5 },
    rate: HANGING_RATE_PER_S,
    seconds: HANGING_S,
    trouble: async () => ({}),
  }),
  scenario(
    'v5',
    `${RATE_PER_S} messages/s, killed with SIGKILL and started again`,
    [{ figure: 'ready_ms', title: 'ready again ms' }, ...LATENCY, ...ARRIVALS],
    { fleet: { meetings: 64, members: 1 }, rate: RATE_PER_S, seconds: KILL_S, trouble: killed },
  ),
];
