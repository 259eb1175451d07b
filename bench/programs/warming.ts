/**
 * Measures how latency and processor time change while a service gets warm. The load is that of scenario (m), 200
 * messages a second, on a service that has just started. The program prints a line for every few seconds (`--each`).
 *
 *     node bench/programs/warming.ts [--nodes 0|1|2] [--pulls] [--rate 200] [--seconds 60] [--each 5]
 *
 * `--nodes 0` is Convoke on SQLite. Processor time is in microseconds per message, by who spent it: the serving
 * threads, the threads of V8 (which compile and collect), all other threads of the nodes, and PostgreSQL.
 */
import { loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { convoke } from '../contenders/contenders.ts';
import { oneNode, twoNodes } from '../contenders/on_postgres.ts';
import { type Fleet, WAIT_S } from '../load/fleet.ts';
import { Bench } from '../measure/measure.ts';
import { processorTime } from '../measure/processes.ts';

const { values } = parseArgs({
  options: {
    nodes: { type: 'string', default: '2' },
    pulls: { type: 'boolean', default: false },
    rate: { type: 'string', default: '200' },
    seconds: { type: 'string', default: '60' },
    each: { type: 'string', default: '5' },
  },
});
const [rate, each] = [Number(values.rate), Number(values.each)];
const contender = [convoke, oneNode, twoNodes][Number(values.nodes)];
if (contender === undefined) throw new Error('--nodes says 0, 1 or 2');
const CONNECTIONS = 32;

const bench = new Bench({ backlog: 0, herd: { machines: 0, each: 0 }, messages: 0 });
await bench.start();
const fleet: Fleet = { meetings: 64, members: 1, pulls: values.pulls, origin: bench.origin };
const running = await contender.start({ fleet });
const hearers = values.pulls ? bench.pullers : bench.receivers;
const ports = [running.url, ...(running.more_urls ?? [])].map((url) => Number(new URL(url).port));
await hearers.call('reset', { lanes: true });
if (values.pulls) await bench.pullers.call('start', { ports, fleet, wait_s: WAIT_S });
console.log(`${contender.name}, ${values.pulls ? 'pull' : 'webhook'}, load ${loadavg()[0]!.toFixed(1)}`);
for (let from_s = 0; from_s < Number(values.seconds); from_s += each) {
  await hearers.call('reset', { lanes: false });
  const commits = await running.commits?.();
  const before = processorTime(running.pids);
  const { accepted } = await bench.senders.call('send', {
    ports,
    meetings: fleet.meetings,
    connections: CONNECTIONS,
    rate,
    seconds: each,
  });
  await bench.drained(accepted, hearers);
  const after = processorTime(running.pids);
  const { latency_ms } = await hearers.call('received');
  const us = [...after].map(
    ([name, s]) => [name, Math.round(((s - (before.get(name) ?? 0)) * 1e6) / accepted)] as const,
  );
  const made =
    commits === undefined ? '' : `, commits ${(((await running.commits!()) - commits) / accepted).toFixed(2)}`;
  console.log(
    `from ${from_s} s: p50 ${latency_ms.p50.toFixed(1)}, p99 ${latency_ms.p99.toFixed(1)}, max ${latency_ms.max.toFixed(1)} ms;` +
      ` ${us.map(([name, spent]) => `${name} ${spent}`).join(', ')}${made}`,
  );
}
if (values.pulls) await bench.pullers.call('stop');
await running.stop();
await bench.stop();
