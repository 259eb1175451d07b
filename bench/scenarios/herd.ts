/**
 * A herd: tens of thousands of machines that were away come back at once, and a backlog waits for each. A few other
 * machines were never away. The scenario measures how soon these few machines get their pushes, and how fast the
 * backlog of the herd drains.
 */
import { Agent, request as post } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Tool } from '../load/channel.ts';
import { convoke, endProcess, startService } from '../contenders/contenders.ts';
import { type Home, onPostgres, onSqlite } from '../contenders/homes.ts';
import { type Fleet, membersOf } from '../load/fleet.ts';
import type { Bench, Figures } from '../measure/measure.ts';
import { oneNode } from '../contenders/on_postgres.ts';
import { memoryMib } from '../measure/processes.ts';
import type { Receivers } from '../load/receivers.ts';
import { FAULTS, LAG, type Row, type Scenario } from './scenario.ts';
import { FAN_OUT_100, saturated } from './throughput.ts';

/** How many machines were never away. Each is alone in its meeting. */
const HEALTHY = 64;
const MESSAGES_PER_S = 200;
const CONNECTIONS = 32;
/** How many machines of the herd are in each of its meetings. */
const HERD_MEMBERS = 100;
/** How long the herd stays away: long enough for the first attempts after the start and for a few back-offs. */
const AWAY_MS = 30_000;
/** The longest that the scenario waits for the pushes of the herd. */
const SECONDS_MAX = 600;
const LOOK_MS = 250;
/** How many heartbeats are in flight at a time when the herd comes back. */
const HEARTBEATS_AT_ONCE = 32;
/** When no push arrives for this long, the scenario expects no more pushes to the herd. */
const SILENCE_MS = 15_000;

interface Herd {
  machines: number;
  /** How many deliveries wait for each machine. */
  each: number;
}

/** When the herd comes back. */
type Return = 'is there at the start' | 'comes back while it runs';

async function herd(bench: Bench, { machines, each }: Herd, how: Return, home: Home): Promise<Figures> {
  const receivers = new Tool<Receivers>('./load/receivers.ts');
  const { port } = await receivers.call('up', { port: 0 });
  const healthy: Fleet = { meetings: HEALTHY, members: 1, origin: bench.origin };
  const herd: Fleet = {
    meetings: Math.ceil(machines / HERD_MEMBERS),
    members: HERD_MEMBERS,
    first: HEALTHY,
    origin: `http://127.0.0.1:${port}`,
  };
  const pending = herd.meetings * HERD_MEMBERS * each;
  try {
    const { data, env, leave } = await home([{ fleet: healthy }, { fleet: herd, pending_messages: each }]);
    await bench.receivers.call('reset', { lanes: true });
    const is_away = how === 'comes back while it runs';
    if (is_away) await receivers.call('down');
    const running = await startService(data, { env });
    const pid = running.probe.process.pid!;
    await running.probe.call('lagFromHere');
    const ports = [Number(new URL(running.url).port)];
    const load = { ports, meetings: HEALTHY, connections: CONNECTIONS, rate: MESSAGES_PER_S, seconds: SECONDS_MAX };
    const sending = bench.senders.call('send', load);
    let away_p99_ms = 0;
    if (is_away) {
      await sleep(AWAY_MS);
      away_p99_ms = (await bench.receivers.call('received')).latency_ms.p99;
      await bench.receivers.call('reset', { lanes: false });
      await receivers.call('up', { port });
      await comeBack(running.url, herd);
    }
    await silent(receivers, pending);
    await bench.senders.call('stop');
    const sent = await sending;
    await sleep(LOOK_MS);
    const received = await bench.receivers.call('received');
    const drained = await receivers.call('received');
    const lag = await running.probe.call('lag');
    const { peak } = memoryMib(pid);
    await endProcess(running.probe);
    await leave();
    return {
      pushes_per_s: drained.pushes / ((drained.last_us - drained.first_us) / 1e6),
      p50_ms: received.latency_ms.p50,
      p99_ms: received.latency_ms.p99,
      max_ms: received.latency_ms.max,
      ...(is_away && { away_p99_ms }),
      answer_p99_ms: sent.answer_ms.p99,
      lag_p99_ms: lag.p99,
      rss_peak_mib: peak,
      missing: pending - drained.pushes,
      refused: sent.refused,
      out_of_order: drained.out_of_order + received.out_of_order,
      repeated: drained.repeated + received.repeated,
    };
  } finally {
    await receivers.stop();
  }
}

/** Sends a heartbeat for each machine. So the service knows that the machine is back. */
async function comeBack(url: string, fleet: Fleet): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: HEARTBEATS_AT_ONCE });
  const machines = membersOf(fleet);
  const work = async (): Promise<void> => {
    for (const { instance_id } of machines) {
      await new Promise<void>((resolve, reject) => {
        const request = post(`${url}/api/v1/instances/${instance_id}/heartbeat/`, { method: 'POST', agent }, (answer) =>
          answer.resume().once('end', resolve),
        );
        request.once('error', reject).end();
      });
    }
  };
  await Promise.all(Array.from({ length: HEARTBEATS_AT_ONCE }, work));
  agent.destroy();
}

/** Resolves when the herd has all its pushes, or when it gets no more pushes. */
async function silent(receivers: Tool<Receivers>, pending: number): Promise<void> {
  let moved_ms = performance.now();
  let before = -1;
  for (;;) {
    const count = await receivers.call('count');
    const now_ms = performance.now();
    if (count >= pending || now_ms - moved_ms > SILENCE_MS) return;
    if (count !== before) {
      before = count;
      moved_ms = now_ms;
    }
    await sleep(LOOK_MS);
  }
}

function rowsOn(home: Home, name: string): Row[] {
  const returns: Return[] = ['is there at the start', 'comes back while it runs'];
  return returns.map((how) => ({
    name: `the herd ${how}${name}`,
    measure: (bench) => herd(bench, bench.herd, how, home),
  }));
}

const STORES = [
  { rows: rowsOn(onSqlite, ''), flowing: { ...saturated(convoke, FAN_OUT_100), name: '(b), beside it' } },
  {
    rows: rowsOn(onPostgres, ', PostgreSQL'),
    flowing: { ...saturated(oneNode, FAN_OUT_100), name: '(b), beside it, PostgreSQL' },
  },
];

export const herdScenario: Scenario = {
  name: 'r',
  title: `a herd that comes back, beside ${HEALTHY} machines that were never away and hear ${MESSAGES_PER_S} messages/s`,
  columns: [
    { figure: 'pushes_per_s', title: 'pushes/s to the herd' },
    { figure: 'p50_ms', title: 'p50 ms', digits: 1 },
    { figure: 'p99_ms', title: 'p99 ms', digits: 1 },
    { figure: 'max_ms', title: 'max ms', digits: 1 },
    { figure: 'away_p99_ms', title: 'p99 ms while it is away', digits: 1 },
    LAG,
    { figure: 'rss_peak_mib', title: 'peak RSS MiB' },
    ...FAULTS,
  ],
  rows: STORES.flatMap(({ rows, flowing }) => [...rows, flowing]),
  targets: STORES.flatMap(({ rows, flowing }) =>
    rows.flatMap(({ name: row }) => [
      { says: `${row}: p99 ≤ 250 ms`, row, figure: 'p99_ms', at_most: 250 },
      ...(row.startsWith('the herd comes back')
        ? [{ says: `${row}: p99 ≤ 250 ms while it is away`, row, figure: 'away_p99_ms', at_most: 250 }]
        : []),
      {
        says: `${row}: drains at ≥ 0.6 × the rate of (b)`,
        row,
        figure: 'pushes_per_s',
        against: { row: flowing.name },
        at_least: 0.6,
      },
      { says: `${row}: peak memory ≤ 700 MiB`, row, figure: 'rss_peak_mib', at_most: 700 },
    ]),
  ),
};
