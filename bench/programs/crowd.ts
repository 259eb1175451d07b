/**
 * Measures what machines cost while they wait in a pull, with a line for every few seconds (`--each`). The machines are
 * those of scenario (n); this program sends no messages.
 *
 *     node bench/programs/crowd.ts [--nodes 0|1|2] [--machines 10000] [--wait 55] [--seconds 55] [--each 5] [--bare] [--node-args=--no-memory-reducer]
 *
 * `--nodes 0` is Convoke on SQLite. With `--bare`, `node:http` alone responds instead of Convoke: in one process or,
 * with `--nodes 2`, in two processes that forward pulls to each other. Processor time is in per cent of a core: the
 * serving threads, the threads of V8 (which compile and collect), all other threads of the nodes, and PostgreSQL. The
 * line "in all" has the mean over the whole time. Memory is the sum over the nodes and the main process of PostgreSQL.
 */
import { loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { barePulls } from '../contenders/bare_pulls.ts';
import { convoke, under } from '../contenders/contenders.ts';
import { oneNode, twoNodes } from '../contenders/on_postgres.ts';
import { type Fleet, WAIT_S } from '../load/fleet.ts';
import { Bench } from '../measure/measure.ts';
import { memoryMib, processorTime } from '../measure/processes.ts';

const { values } = parseArgs({
  options: {
    nodes: { type: 'string', default: '2' },
    machines: { type: 'string', default: '10000' },
    wait: { type: 'string', default: String(WAIT_S) },
    seconds: { type: 'string', default: String(WAIT_S) },
    each: { type: 'string', default: '5' },
    bare: { type: 'boolean', default: false },
    'node-args': { type: 'string', default: '' },
  },
});
const [machines, wait_s, each] = [Number(values.machines), Number(values.wait), Number(values.each)];
const nodes = Number(values.nodes);
const chosen = values.bare ? barePulls(nodes === 2 ? 2 : 1) : [convoke, oneNode, twoNodes][nodes];
if (chosen === undefined) throw new Error('--nodes says 0, 1 or 2');
const node_args = values['node-args'].split(' ').filter(Boolean);
const conditions = { env: { CONVOKE_MAX_CONNECTIONS: String(2 * machines) }, node_args };
/** How long the service gets to become idle, as in scenarios/pull.ts. */
const SETTLED_MS = 10_000;

const bench = new Bench({ backlog: 0, herd: { machines: 0, each: 0 }, messages: 0 });
await bench.start();
const fleet: Fleet = { meetings: 1, members: machines, pulls: true, origin: bench.origin };
const running = await under(conditions, chosen, chosen.name).start({ fleet });
const ports = [running.url, ...(running.more_urls ?? [])].map((url) => Number(new URL(url).port));
const memory = (): number => running.pids.reduce((sum, pid) => sum + memoryMib(pid).now, 0);
try {
  await sleep(SETTLED_MS);
  const alone_mib = memory();
  const began = performance.now();
  await bench.pullers.call('start', { ports, fleet, wait_s });
  const connecting_s = (performance.now() - began) / 1000;
  await sleep(SETTLED_MS);
  console.log(
    `${chosen.name}, load ${loadavg()[0]!.toFixed(1)}; connecting took ${connecting_s.toFixed(1)} s; memory ${alone_mib.toFixed(0)}, then ${memory().toFixed(0)} MiB`,
  );
  const first = processorTime(running.pids);
  const commits = await running.commits?.();
  let before = first;
  for (let from_s = 0; from_s < Number(values.seconds); from_s += each) {
    await sleep(each * 1000);
    const after = processorTime(running.pids);
    console.log(`from ${from_s} s: ${shares(before, after, each)}, ${memory().toFixed(0)} MiB`);
    before = after;
  }
  console.log(`in all: ${shares(first, before, Number(values.seconds))}, load ${loadavg()[0]!.toFixed(1)}`);
  if (commits !== undefined) console.log(`transactions: ${(await running.commits!()) - commits}`);
  console.log(`pulls refused: ${await bench.pullers.call('refused')}`);
} finally {
  await bench.pullers.call('stop');
  await running.stop();
  await bench.stop();
}

function shares(before: Map<string, number>, after: Map<string, number>, seconds: number): string {
  const spent = [...after].map(([name, s]) => [name, (s - (before.get(name) ?? 0)) / seconds] as const);
  const sum = spent.reduce((total, [, share]) => total + share, 0);
  return `${percent(sum)} % = ${spent.map(([name, share]) => `${name} ${percent(share)}`).join(' + ')}`;
}

function percent(share: number): string {
  return (share * 100).toFixed(1);
}
