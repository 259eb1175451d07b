/**
 * `npm run bench`: measures Convoke and what it is compared with, prints a table for each scenario, and writes
 * everything as JSON. docs/benchmarks.md says what the rows mean.
 *
 *   npm run bench -- --only a,b --rounds 3 --seconds 5
 *   npm run bench -- --only a --rows convoke --rows relay
 *   npm run bench -- --only r --rounds 1 --herd 5000x20
 *   npm run bench -- --only p --rounds 1 --messages 1000000
 *   npm run bench -- --only v1,v2,v3,v4,v5 --rounds 1
 *   npm run bench -- --profile a
 */
import { parseArgs } from 'node:util';
import { BESIDE } from './scenarios/beside.ts';
import { commands } from './scenarios/commands.ts';
import { liveFeed } from './scenarios/feed.ts';
import { herdScenario } from './scenarios/herd.ts';
import { isolation, latency } from './scenarios/latency.ts';
import { Bench } from './measure/measure.ts';
import { profile } from './measure/profile.ts';
import { resultOf, markdownOf, type RowResult, type ScenarioResult } from './report/report.ts';
import { writeResults } from './report/results.ts';
import type { Row, Scenario } from './scenarios/scenario.ts';
import { pullCrowd, pullLatency, pullThroughput } from './scenarios/pull.ts';
import { backlog, idle, registry } from './scenarios/size.ts';
import { slowDiskScenario } from './scenarios/slow_disk.ts';
import { wideMeetings } from './scenarios/wide.ts';
import { year } from './scenarios/year.ts';
import {
  fanOut1,
  fanOut100,
  fewSenders,
  fromAgents,
  idleTransaction,
  manyInOne,
  oneLane,
  sendersInTurn,
  withTraces,
} from './scenarios/throughput.ts';

const SCENARIOS: Scenario[] = [
  fanOut1,
  fanOut100,
  latency,
  isolation,
  backlog,
  registry,
  idle,
  oneLane,
  slowDiskScenario,
  liveFeed,
  idleTransaction,
  fewSenders,
  pullLatency,
  pullCrowd,
  pullThroughput,
  year,
  wideMeetings,
  herdScenario,
  manyInOne,
  withTraces,
  fromAgents,
  sendersInTurn,
  commands,
];

const { values: options } = parseArgs({
  options: {
    only: { type: 'string' },
    rows: { type: 'string', multiple: true },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '5' },
    backlog: { type: 'string', default: '1000000' },
    herd: { type: 'string', default: '51000x20' },
    messages: { type: 'string', default: '10000000' },
    profile: { type: 'string' },
    save: { type: 'boolean', default: false },
  },
});
const rounds = Number(options.rounds);
const seconds = Number(options.seconds);

// Each helper process ends when its channel to this process closes, so it is enough to exit this process.
process.once('SIGINT', () => process.exit(130));

const [machines, each] = options.herd.split('x').map(Number);
if (machines === undefined || each === undefined) throw new Error('--herd says machines x deliveries: 5000x20');
const bench = new Bench({
  backlog: Number(options.backlog),
  herd: { machines, each },
  messages: Number(options.messages),
});
await bench.start();
if (options.profile === undefined) await measureAll();
else for (const name of options.profile.split(',')) console.log(`written to ${await profile(bench, name, seconds)}`);
await bench.stop();

async function measureAll(): Promise<void> {
  const names = options.only?.split(',') ?? SCENARIOS.map(({ name }) => name);
  const scenarios = names.map((name) => {
    const scenario = [...SCENARIOS, ...BESIDE].find((scenario) => scenario.name === name);
    if (scenario === undefined) throw new Error(`there is no scenario ${name}`);
    return scenario;
  });

  const results: ScenarioResult[] = [];
  for (const scenario of scenarios) {
    const result = await run(scenario);
    results.push(result);
    console.log(`\n${markdownOf(result)}`);
  }
  console.log(`written to ${await writeResults(results, options.save)}`);
}

/**
 * Measures all rows of a scenario in each round. Every second round has the reverse order, so that a machine that gets
 * slower or faster affects all rows alike.
 */
async function run(scenario: Scenario): Promise<ScenarioResult> {
  const wanted = options.rows ?? [''];
  const rows = scenario.rows.filter(({ name }) => wanted.some((beginning) => name.startsWith(beginning)));
  const results = new Map<string, RowResult>(
    rows.map(({ name, missing = null }) => [name, { name, missing, figures: {} }]),
  );
  for (let round = 0; round < rounds; round++) {
    for (const row of round % 2 === 0 ? rows : rows.toReversed()) {
      const result = results.get(row.name)!;
      if (row.missing === null || row.missing === undefined) await measureInto(result, row, round, scenario);
    }
  }
  return resultOf(scenario, [...results.values()], rounds, seconds);
}

async function measureInto(result: RowResult, row: Row, round: number, scenario: Scenario): Promise<void> {
  try {
    const figures = await row.measure(bench, seconds);
    for (const [name, value] of Object.entries(figures)) {
      const values = (result.figures[name] ??= Array.from({ length: rounds }, () => null));
      values[round] = value;
    }
    const said = scenario.columns.map(({ figure, title, digits = 0 }) => {
      const value = figures[figure];
      return value === undefined || !Number.isFinite(value) ? null : `${title} ${value.toFixed(digits)}`;
    });
    console.error(`(${scenario.name}) round ${round + 1} ${row.name}: ${said.filter(Boolean).join(', ')}`);
  } catch (error) {
    // A failed round is only reported: the other rounds of the row still count.
    console.error(`(${scenario.name}) round ${round + 1} ${row.name} failed: ${(error as Error).stack}`);
  }
}
