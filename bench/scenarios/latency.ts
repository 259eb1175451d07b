/**
 * Scenarios at a rate that all contenders can keep up with. They measure how long a message takes, and whether
 * receivers that do not respond delay the other receivers.
 */
import { type Contender, convoke, convokeWithNameServers, relay } from '../contenders/contenders.ts';
import type { Fleet } from '../load/fleet.ts';
import type { Bench } from '../measure/measure.ts';
import { PEERS } from '../peers/peers.ts';
import { CPU_PER_MESSAGE, FAULTS, LAG, LATENCY, type Row, type Scenario } from './scenario.ts';

const CONNECTIONS = 32;

const RATE_PER_S = 200;
const WARM_UP_S = 1.5;

export const latency: Scenario = {
  name: 'c',
  title: `latency at ${RATE_PER_S} messages/s, fan-out 1 over 64 instances, from the sending to the arrival`,
  columns: [...LATENCY, { figure: 'answer_p50_ms', title: '201 p50 ms', digits: 1 }, CPU_PER_MESSAGE, ...FAULTS],
  rows: [relay, convoke, ...PEERS].map((contender) => ({
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

const COUNTED = 50;
const HANGING = 50;
const UNRESOLVABLE = 500;
const HANGING_SUDDENLY = 500;
/** Every instance is in all of these meetings, so an instance that hangs reaches its limit of attempts in flight. */
const MEETINGS = 4;
/** An attempt that hangs takes 5 s. So in 15 s many such attempts end, and the service tries again. */
const SECONDS_MIN = 15;
const MESSAGES_PER_S_AMONG_HANGING = 20;
const MESSAGES_PER_S_AMONG_UNRESOLVABLE = 6;

interface Company {
  contender: Contender;
  meetings: number;
  rate: number;
  others: Pick<Fleet, 'hanging' | 'unresolvable' | 'uncounted'>;
  /** Whether the others also get messages in the warm-up, and respond to them. */
  all_warm?: boolean;
}

function beside(name: string, { contender, meetings, rate, others, all_warm = false }: Company): Row {
  const { hanging = 0, unresolvable = 0, uncounted = 0 } = others;
  const members = COUNTED + hanging + unresolvable + uncounted;
  return {
    name,
    async measure(bench: Bench, seconds: number) {
      const fleet: Fleet = { meetings, shared: true, members, origin: bench.origin, ...others };
      const name_servers = [await bench.nameServer()];
      const load = { connections: CONNECTIONS, rate, seconds: Math.max(seconds, SECONDS_MIN) };
      // Unless all are warm, only receivers that are counted get messages in the warm-up. The others get their first
      // messages in the measurement.
      const warm_up = all_warm ? { rate, all_respond: true } : { rate: 500, targets: COUNTED };
      return bench.measure(contender, { fleet, name_servers }, load, { seconds: 3, ...warm_up });
    },
  };
}

/** Two rows: the counted receivers beside others that respond, and beside just as many that do not respond. */
function pair(trouble: string, company: Omit<Company, 'others'>, others: Company['others']): Row[] {
  const uncounted = (others.hanging ?? 0) + (others.unresolvable ?? 0);
  return [
    beside(`beside ${uncounted} that answer, ${company.meetings} meetings`, { ...company, others: { uncounted } }),
    beside(`beside ${uncounted} ${trouble}, ${company.meetings} meetings`, { ...company, others }),
  ];
}

const among_hanging = { contender: convoke, meetings: MEETINGS, rate: MESSAGES_PER_S_AMONG_HANGING };
const among_unresolvable = { contender: convokeWithNameServers, rate: MESSAGES_PER_S_AMONG_UNRESOLVABLE };
const PAIRS = [
  pair('that hang', among_hanging, { hanging: HANGING }),
  pair('unresolvable', { ...among_unresolvable, meetings: 1 }, { unresolvable: UNRESOLVABLE }),
  pair('unresolvable', { ...among_unresolvable, meetings: MEETINGS }, { unresolvable: UNRESOLVABLE }),
];
const SUDDEN = beside(`beside ${HANGING_SUDDENLY} that responded before and hang, ${MEETINGS} meetings`, {
  ...among_unresolvable,
  meetings: MEETINGS,
  all_warm: true,
  others: { hanging: HANGING_SUDDENLY },
});

export const isolation: Scenario = {
  name: 'd',
  title: `isolation: ${COUNTED} instances that answer, beside others in the same meetings`,
  columns: [...LATENCY, LAG, ...FAULTS],
  rows: [...PAIRS.flat(), SUDDEN],
  targets: [...PAIRS, [PAIRS.at(-1)![0], SUDDEN]].map(([calm, troubled]) => ({
    says: `${troubled!.name}: p99 ≤ +50 ms`,
    row: troubled!.name,
    figure: 'p99_ms',
    against: { row: calm!.name },
    difference: true,
    at_most: 50,
  })),
};
