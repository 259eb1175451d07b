/** Saturated scenarios: each sender sends its next request as soon as it has a response. */
import { type Contender, convoke, relay } from '../contenders/contenders.ts';
import type { Bench } from '../measure/measure.ts';
import { oneNode, oneNodeBesideIdleTransaction, twoNodes } from '../contenders/on_postgres.ts';
import { traced } from '../contenders/traced.ts';
import { PEERS, skipLocked, skipLockedBesideIdleTransaction } from '../peers/peers.ts';
import {
  COMMITS,
  CPU_PER_MESSAGE,
  CPU_PER_PUSH,
  FAULTS,
  LAG,
  LATENCY,
  MEMORY,
  MESSAGES,
  PUSHES,
  type Row,
  type Scenario,
} from './scenario.ts';

interface Shape {
  meetings: number;
  members: number;
  /** How many connections the senders have. */
  connections: number;
  /** How many messages a request has; when absent, a request sends one message. */
  together?: number;
  /** How many agents take turns as `from_agent`; when absent, a message has no `from_agent`. */
  speakers?: number;
  /** How many connections to each receiver the ceiling (undici alone) has. */
  ceiling_connections: number;
}

/**
 * How long the warm-up takes. Node compiles a program while it runs. Two nodes on two cores need twice as long for that
 * as one node.
 */
const WARM_UP_S = 10;
export const FAN_OUT_1: Shape = { meetings: 64, members: 1, connections: 256, ceiling_connections: 2 };
/** With so few senders, a batch stays small: soon all senders wait for their responses. */
const FEW_SENDERS: Shape = { meetings: 64, members: 1, connections: 32, ceiling_connections: 2 };
export const FAN_OUT_100: Shape = { meetings: 1, members: 100, connections: 64, ceiling_connections: 1 };
export const ONE_LANE: Shape = { meetings: 1, members: 1, connections: 64, ceiling_connections: 1 };

export function saturated(contender: Contender, shape: Shape, name = contender.name): Row {
  const { meetings, members, connections, together, speakers } = shape;
  return {
    name,
    missing: contender.missing?.() ?? null,
    measure: (bench, seconds) =>
      bench.measure(
        contender,
        { fleet: { meetings, members, origin: bench.origin } },
        {
          connections,
          seconds,
          ...(together !== undefined && { together }),
          ...(speakers !== undefined && { speakers }),
        },
        { seconds: WARM_UP_S },
      ),
  };
}

function ceiling({ meetings, members, ceiling_connections }: Shape): Row {
  return {
    name: 'ceiling',
    measure: (bench: Bench, seconds) =>
      bench.ceiling({ meetings, members, origin: bench.origin }, ceiling_connections, seconds),
  };
}

function rowsOf(shape: Shape): Row[] {
  return [
    ceiling(shape),
    ...[relay, convoke, oneNode, twoNodes, ...PEERS].map((contender) => saturated(contender, shape)),
  ];
}

export const fanOut1: Scenario = {
  name: 'a',
  title: 'fan-out 1, saturated: 64 instances, each alone in its meeting',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, LAG, MEMORY, COMMITS, ...FAULTS],
  rows: rowsOf(FAN_OUT_1),
  targets: [
    { says: '≥ 0.60 × relay', row: 'convoke', figure: 'messages_per_s', against: { row: 'relay' }, at_least: 0.6 },
    {
      says: '≥ 1.5 × BullMQ at equal durability',
      row: 'convoke',
      figure: 'messages_per_s',
      against: { row: 'BullMQ always' },
      at_least: 1.5,
    },
    { says: '≥ 5 × pg-boss', row: 'convoke', figure: 'messages_per_s', against: { row: 'pg-boss' }, at_least: 5 },
    {
      says: 'on PostgreSQL ≥ 0.6 × on SQLite',
      row: oneNode.name,
      figure: 'messages_per_s',
      against: { row: 'convoke' },
      at_least: 0.6,
    },
    {
      says: 'two nodes no slower than one',
      row: twoNodes.name,
      figure: 'messages_per_s',
      against: { row: oneNode.name },
      at_least: 1,
    },
    { says: 'at most 2 commits per 100 messages', row: oneNode.name, figure: 'commits_per_100', at_most: 2 },
  ],
};

export const fanOut100: Scenario = {
  name: 'b',
  title: 'fan-out 100, saturated: 100 instances in one meeting',
  columns: [PUSHES, MESSAGES, CPU_PER_PUSH, ...LATENCY, LAG, MEMORY, COMMITS, ...FAULTS],
  rows: rowsOf(FAN_OUT_100),
  targets: [
    { says: '≥ 0.75 × relay', row: 'convoke', figure: 'pushes_per_s', against: { row: 'relay' }, at_least: 0.75 },
    {
      says: '≥ 2 × BullMQ at equal durability',
      row: 'convoke',
      figure: 'pushes_per_s',
      against: { row: 'BullMQ always' },
      at_least: 2,
    },
    {
      says: 'on PostgreSQL ≥ 0.6 × on SQLite',
      row: oneNode.name,
      figure: 'pushes_per_s',
      against: { row: 'convoke' },
      at_least: 0.6,
    },
    {
      says: 'two nodes no slower than one',
      row: twoNodes.name,
      figure: 'pushes_per_s',
      against: { row: oneNode.name },
      at_least: 1,
    },
    { says: 'at most 2 commits per 100 messages', row: oneNode.name, figure: 'commits_per_100', at_most: 2 },
  ],
};

export const oneLane: Scenario = {
  name: 'h',
  title: 'one lane: one instance in one meeting takes all',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, LAG, ...FAULTS],
  rows: rowsOf(ONE_LANE),
  targets: [],
};

/**
 * Shows whether Convoke gets slower while a transaction stays open. Every update of a row leaves a dead version of the
 * row, and PostgreSQL cannot remove dead versions that are newer than the oldest open transaction.
 */
export const idleTransaction: Scenario = {
  name: 'k',
  title:
    'PostgreSQL beside a session that is idle in a transaction, fan-out 1 as in (a); give it minutes: --seconds 180',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, COMMITS, ...FAULTS],
  rows: [oneNode, oneNodeBesideIdleTransaction, skipLocked, skipLockedBesideIdleTransaction].map((contender) =>
    saturated(contender, FAN_OUT_1),
  ),
  targets: [
    {
      says: '≥ 0.95 × that without it',
      row: oneNodeBesideIdleTransaction.name,
      figure: 'messages_per_s',
      against: { row: oneNode.name },
      at_least: 0.95,
    },
  ],
};

/** Shows whether batches wait for more messages while all senders wait for their responses. */
export const fewSenders: Scenario = {
  name: 'l',
  title: 'few senders: fan-out 1 as in (a), with 32 senders instead of 256',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, COMMITS, ...FAULTS],
  rows: [convoke, oneNode, twoNodes, ...PEERS].map((contender) => saturated(contender, FEW_SENDERS)),
  targets: [
    {
      says: 'two nodes no slower than one',
      row: twoNodes.name,
      figure: 'messages_per_s',
      against: { row: oneNode.name },
      at_least: 1,
    },
  ],
};

const TOGETHER: Shape = { ...FAN_OUT_1, connections: 8, together: 100 };
const togetherOf = ({ name }: Contender): string => `${name}, 100 in a request`;

export const manyInOne: Scenario = {
  name: 't',
  title: 'many messages in one request: fan-out 1 as in (a), 8 senders with 100 messages in each request',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, LAG, COMMITS, ...FAULTS],
  rows: [convoke, oneNode].flatMap((contender) => [
    saturated(contender, FAN_OUT_1),
    saturated(contender, TOGETHER, togetherOf(contender)),
  ]),
  targets: [
    {
      says: '≥ 2.5 × single sends',
      row: togetherOf(convoke),
      figure: 'messages_per_s',
      against: { row: convoke.name },
      at_least: 2.5,
    },
    { says: 'at most 50 µs of processor time', row: togetherOf(convoke), figure: 'cpu_us_per_message', at_most: 50 },
  ],
};

/** Records one in a hundred traces. */
const SAMPLED = { OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.01' };

export const withTraces: Scenario = {
  name: 'u',
  title: 'traces: fan-out 1 as in (a), without traces, with one in a hundred recorded, and with all recorded',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, LAG, MEMORY, ...FAULTS],
  rows: [convoke, traced(convoke, 'convoke, 1 % of traces', SAMPLED), traced(convoke, 'convoke, all traces')].map(
    (contender) => saturated(contender, FAN_OUT_1),
  ),
  targets: [
    {
      says: 'all traces: at least half as many messages',
      row: 'convoke, all traces',
      figure: 'messages_per_s',
      against: { row: convoke.name },
      at_least: 0.5,
    },
  ],
};

/** With 10,000 agents no pair of agents reaches the limit of the loop guard. */
const FROM_AGENTS: Shape = { ...FAN_OUT_1, speakers: 10_000 };

/**
 * Sets no limit of hops. Only agents speak in these meetings, so with a limit the loop guard would stop messages.
 * Without it the loop guard judges every message, and stops none.
 */
function withoutHopLimit(contender: Contender): Contender {
  return {
    ...contender,
    start: (options) => contender.start({ ...options, env: { ...options.env, CONVOKE_HOP_LIMIT: '0' } }),
  };
}

export const fromAgents: Scenario = {
  name: 'w',
  title: 'messages with from_agent, which the loop guard judges: fan-out 1 as in (a), 10,000 agents in turn',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, LAG, ...FAULTS],
  rows: [convoke, oneNode].flatMap((contender) => [
    saturated(contender, FAN_OUT_1),
    saturated(withoutHopLimit(contender), FROM_AGENTS, `${contender.name}, from_agent`),
  ]),
  targets: [],
};

const SENDERS = [8, 32, 64, 256];

/**
 * Shows whether a batch waits for messages of senders that wait for their responses. If it does, few senders get a
 * lower rate than many.
 */
export const sendersInTurn: Scenario = {
  name: 'x',
  title: '8 to 256 senders that wait for each response: fan-out 1 as in (a)',
  columns: [MESSAGES, CPU_PER_MESSAGE, ...LATENCY, COMMITS, ...FAULTS],
  rows: [convoke, oneNode].flatMap((contender) =>
    SENDERS.map((connections) =>
      saturated(contender, { ...FAN_OUT_1, connections }, `${contender.name}, ${connections} senders`),
    ),
  ),
  targets: [8, 32, 64].flatMap((connections) =>
    [convoke, oneNode].map(({ name }) => ({
      says: `${name}: ${connections} senders ≥ 0.85 × 256`,
      row: `${name}, ${connections} senders`,
      figure: 'messages_per_s',
      against: { row: `${name}, 256 senders` },
      at_least: 0.85,
    })),
  ),
};
