/**
 * Wide meetings: one message goes to 10,000 instances. The scenario measures what each push costs, when the last
 * instance has the message, and how long messages of other meetings take meanwhile.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Contender, convoke, endProcess, relay, startService } from '../contenders/contenders.ts';
import { type Home, onPostgres, onSqlite } from '../contenders/homes.ts';
import { oneNode } from '../contenders/on_postgres.ts';
import { Tool } from '../load/channel.ts';
import type { Fleet } from '../load/fleet.ts';
import type { Senders } from '../load/load.ts';
import type { Receivers } from '../load/receivers.ts';
import type { Bench, Figures } from '../measure/measure.ts';
import { CPU_PER_PUSH, FAULTS, LAG, LATENCY, MEMORY, type Row, type Scenario } from './scenario.ts';

const WIDE = 10_000;
/**
 * For comparison: a meeting with 100 members, as in scenario (b). It gets as many pushes a second as a wide meeting.
 */
const NARROW = 100;
/** In a wide meeting this is one message every four seconds. */
const PUSHES_PER_S = 2_500;
const WARM_UP_S = 10;
/** The least time of a measurement: in less time there are too few wide messages. */
const SECONDS_MIN = 20;
/** How many other instances there are, each alone in its meeting. */
const OTHERS = 64;
const MESSAGES_PER_S = 200;
const CONNECTIONS = 32;
/**
 * The pause after the last push. The service writes its result at once, the health of its instance in up to two
 * seconds.
 */
const SETTLED_MS = 2_000;
/**
 * With at most 1,000 clients, 16,000 file descriptors are enough to keep the connections to 10,000 receivers open. With
 * the default number of clients 25,000 would be necessary; the unit in docs/deploy allows 65,536.
 */
const env = { CONVOKE_MAX_CONNECTIONS: '1000' };

function paced(contender: Contender, members: number): Row {
  return {
    name: `${contender.name}, ${members === WIDE ? 'one to 10,000' : 'fan-out 100'}`,
    measure: (bench, seconds) =>
      bench.measure(
        contender,
        { fleet: { meetings: 1, members, origin: bench.origin }, env },
        { connections: 4, rate: PUSHES_PER_S / members, seconds: Math.max(seconds, SECONDS_MIN) },
        { seconds: WARM_UP_S },
      ),
  };
}

/** Measures the other instances, while the wide meeting gets a message every four seconds, or no message. */
function others(home: Home, is_beside: boolean, name: string): Row {
  return { name, measure: (bench, seconds) => othersOf(bench, home, is_beside, Math.max(seconds, SECONDS_MIN)) };
}

async function othersOf(bench: Bench, home: Home, is_beside: boolean, seconds: number): Promise<Figures> {
  const receivers = new Tool<Receivers>('./load/receivers.ts');
  const senders = new Tool<Senders>('./load/load.ts');
  const { port } = await receivers.call('up', { port: 0 });
  // The wide meeting has the number 0, because `toAll` sends without `first_meeting`, so to meeting 0.
  const wide: Fleet = { meetings: 1, members: WIDE, origin: `http://127.0.0.1:${port}` };
  const narrow: Fleet = { meetings: OTHERS, members: 1, first: WIDE, origin: bench.origin };
  const { data, env: env_of_home, leave } = await home([{ fleet: wide }, { fleet: narrow }]);
  try {
    const running = await startService(data, { env: { ...env, ...env_of_home } });
    const ports = [Number(new URL(running.url).port)];
    const toOthers = (for_s: number) =>
      bench.senders.call('send', {
        ports,
        meetings: OTHERS,
        first_meeting: WIDE,
        connections: CONNECTIONS,
        rate: MESSAGES_PER_S,
        seconds: for_s,
      });
    const toAll = (for_s: number) =>
      senders.call('send', { ports, meetings: 1, connections: 1, rate: PUSHES_PER_S / WIDE, seconds: for_s });
    /** Waits until the other instances and the members of the wide meeting have their messages. */
    const delivered = (to_others: number, to_all: number) =>
      Promise.all([bench.drained(to_others), bench.drained(to_all * WIDE, receivers)]);
    await bench.receivers.call('reset', { lanes: true });
    const [warm, warm_to_all] = await Promise.all([toOthers(WARM_UP_S), toAll(WARM_UP_S)]);
    await delivered(warm.accepted, warm_to_all.accepted);
    await sleep(SETTLED_MS);
    await bench.receivers.call('reset', { lanes: true });
    await receivers.call('reset', { lanes: true });
    await running.probe.call('lagFromHere');
    const [sent, sent_to_all] = await Promise.all([toOthers(seconds), is_beside ? toAll(seconds) : null]);
    await delivered(sent.accepted, sent_to_all?.accepted ?? 0);
    const received = await bench.receivers.call('received');
    const wide_received = await receivers.call('received');
    const lag = await running.probe.call('lag');
    await endProcess(running.probe);
    return {
      p50_ms: received.latency_ms.p50,
      p99_ms: received.latency_ms.p99,
      max_ms: received.latency_ms.max,
      lag_p99_ms: lag.p99,
      missing: sent.accepted - received.pushes + (sent_to_all?.accepted ?? 0) * WIDE - wide_received.pushes,
      refused: sent.refused + (sent_to_all?.refused ?? 0),
      out_of_order: received.out_of_order + wide_received.out_of_order,
      repeated: received.repeated + wide_received.repeated,
    };
  } finally {
    await leave();
    await Promise.all([receivers.stop(), senders.stop()]);
  }
}

const CONTENDERS = [convoke, oneNode].map((contender) => ({
  narrow: paced(contender, NARROW),
  wide: paced(contender, WIDE),
}));
const BESIDE = (
  [
    [onSqlite, ''],
    [onPostgres, ', PostgreSQL'],
  ] as const
).map(([home, name]) => ({
  alone: others(home, false, `others, alone${name}`),
  beside: others(home, true, `others, beside a wide meeting${name}`),
}));

export const wideMeetings: Scenario = {
  name: 'q',
  title: `wide meetings: one message every four seconds to 10,000 instances, beside fan-out 100 with as many pushes; ${OTHERS} others get ${MESSAGES_PER_S} messages/s`,
  columns: [CPU_PER_PUSH, ...LATENCY, { figure: 'max_ms', title: 'the last has it after ms' }, LAG, MEMORY, ...FAULTS],
  rows: [
    paced(relay, WIDE),
    ...CONTENDERS.flatMap(({ narrow, wide }) => [narrow, wide]),
    ...BESIDE.flatMap(({ alone, beside }) => [alone, beside]),
  ],
  targets: [
    ...CONTENDERS.map(({ narrow, wide }) => ({
      says: `${wide.name}: a push costs ≤ 1.2 × that of fan-out 100`,
      row: wide.name,
      figure: 'cpu_us_per_push',
      against: { row: narrow.name },
      at_most: 1.2,
    })),
    ...BESIDE.map(({ alone, beside }) => ({
      says: `${beside.name}: p99 ≤ +20 ms`,
      row: beside.name,
      figure: 'p99_ms',
      against: { row: alone.name },
      difference: true,
      at_most: 20,
    })),
  ],
};
