/** Scenarios at a rate that everybody can keep up with: how long a message takes, and whose trouble is whose. */
import { type Contender, convoke, convokeWithNameServers, relay, unstored } from './contenders.ts';
import type { Fleet } from './fleet.ts';
import type { Bench } from './measure.ts';
import { PEERS } from './peers.ts';
import { CPU_PER_MESSAGE, FAULTS, LAG, LATENCY, type Row, type Scenario } from './scenario.ts';

const CONNECTIONS = 32;

const RATE_PER_S = 200;
const WARM_UP_S = 1.5;

export const latency: Scenario = {
  name: 'c',
  title: `latency at ${RATE_PER_S} messages/s, fan-out 1 over 64 instances, from the sending to the arrival`,
  columns: [...LATENCY, { figure: 'answer_p50_ms', title: '201 p50 ms', digits: 1 }, CPU_PER_MESSAGE, ...FAULTS],
  rows: [relay, unstored, convoke, ...PEERS].map((contender) => ({
    name: contender.name,
    missing: contender.missing?.() ?? null,
    measure: (bench, seconds) =>
      bench.measure(
        contender,
        { fleet: { meetings: 64, members: 1, origin: bench.origin } },
        { connections: CONNECTIONS, rate: RATE_PER_S, seconds },
        { seconds: WARM_UP_S },
      ),
  })),
  targets: [{ says: 'p99 ≤ 10 ms', row: 'convoke', figure: 'p99_ms', at_most: 10 }],
};

/** Every instance is in all of them, so that one that hangs can hang in all of them at a time. */
const MEETINGS = 4;
const COUNTED = 50;
const HANGING = 50;
const UNRESOLVABLE = 500;
/** Attempts that hang take 5 s: long enough for many of them to end and to be tried again. */
const SECONDS_MIN = 15;
const MESSAGES_PER_S_AMONG_HANGING = 20;
const MESSAGES_PER_S_AMONG_UNRESOLVABLE = 6;

function among(
  name: string,
  contender: Contender,
  rate: number,
  others: Omit<Fleet, 'meetings' | 'members' | 'origin'>,
) {
  const { hanging = 0, unresolvable = 0, uncounted = 0 } = others;
  return {
    name,
    async measure(bench: Bench, seconds: number) {
      const fleet: Fleet = {
        meetings: MEETINGS,
        shared: true,
        members: COUNTED + hanging + unresolvable + uncounted,
        origin: bench.origin,
        ...others,
      };
      const name_servers = [await bench.nameServer()];
      const load = { connections: CONNECTIONS, rate, seconds: Math.max(seconds, SECONDS_MIN) };
      return bench.measure(contender, { fleet, name_servers }, load, { seconds: 3, rate: 500, targets: COUNTED });
    },
  } satisfies Row;
}

export const isolation: Scenario = {
  name: 'd',
  title: `isolation: ${COUNTED} instances that answer, among others that do not`,
  columns: [...LATENCY, LAG, ...FAULTS],
  rows: [
    among('beside 50 that answer', convoke, MESSAGES_PER_S_AMONG_HANGING, { uncounted: HANGING }),
    among('beside 50 that hang', convoke, MESSAGES_PER_S_AMONG_HANGING, { hanging: HANGING }),
    among('beside 500 that answer', convokeWithNameServers, MESSAGES_PER_S_AMONG_UNRESOLVABLE, {
      uncounted: UNRESOLVABLE,
    }),
    among('beside 500 names that nobody resolves', convokeWithNameServers, MESSAGES_PER_S_AMONG_UNRESOLVABLE, {
      unresolvable: UNRESOLVABLE,
    }),
  ],
  targets: [
    {
      says: '50 hang: p99 ≤ +50 ms',
      row: 'beside 50 that hang',
      figure: 'p99_ms',
      against: { row: 'beside 50 that answer' },
      difference: true,
      at_most: 50,
    },
    {
      says: '500 names that nobody resolves: p99 ≤ +50 ms',
      row: 'beside 500 names that nobody resolves',
      figure: 'p99_ms',
      against: { row: 'beside 500 that answer' },
      difference: true,
      at_most: 50,
    },
  ],
};
