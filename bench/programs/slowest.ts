/**
 * Finds out what the slowest messages of scenario (c) wait for. The program sends 200 messages a second, and takes the
 * slowest hundred. For each kind of pause of each thread it prints how many of these messages the pause delayed.
 *
 *     node bench/programs/slowest.ts [--nodes 0|1] [--seconds 300] [--rate 200] [--slowest 100]
 *
 * `--nodes 0` is Convoke on SQLite. The program needs gcc. A pause counts for a message when it covers a third or more
 * of the time that the message took beyond the median. Several pauses may count for one message: for example a late
 * event loop, and the garbage collector that stopped the event loop.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { convoke } from '../contenders/contenders.ts';
import { oneNode } from '../contenders/on_postgres.ts';
import type { Fleet } from '../load/fleet.ts';
import { Bench } from '../measure/measure.ts';
import { Samples } from '../measure/figures.ts';
import type { Pause } from '../measure/pauses.ts';

const { values } = parseArgs({
  options: {
    nodes: { type: 'string', default: '0' },
    seconds: { type: 'string', default: '300' },
    rate: { type: 'string', default: '200' },
    slowest: { type: 'string', default: '100' },
  },
});
const contender = [convoke, oneNode][Number(values.nodes)];
if (contender === undefined) throw new Error('--nodes says 0 or 1');
const rate = Number(values.rate);
const WARM_UP_S = 30;
const CONNECTIONS = 32;
/** How long the program waits, after the last message, until all threads have written their pauses to files. */
const WRITTEN_MS = 6_000;

const directory = mkdtempSync(join(tmpdir(), 'convoke-bench-pauses-'));
// The server of PostgreSQL runs as another user, and must be able to read the library.
chmodSync(directory, 0o755);
process.once('exit', () => rmSync(directory, { recursive: true }));
const library = join(directory, 'fsync_log.so');
const source = fileURLToPath(new URL('../measure/fsync_log.c', import.meta.url));
execFileSync('gcc', ['-O2', '-shared', '-fPIC', '-o', library, source, '-ldl']);
const fsync_log = join(directory, 'fsync.jsonl');
writeFileSync(fsync_log, '');
chmodSync(fsync_log, 0o666);
// All processes that this program starts from here on inherit these variables.
Object.assign(process.env, {
  NODE_OPTIONS: `--import ${new URL('../measure/pauses.ts', import.meta.url).href}`,
  PAUSES_DIRECTORY: directory,
  LD_PRELOAD: library,
  FSYNC_LOG: fsync_log,
});

const bench = new Bench({ backlog: 0, herd: { machines: 0, each: 0 }, messages: 0 });
await bench.start();
const fleet: Fleet = { meetings: 64, members: 1, origin: bench.origin };
const running = await contender.start({ fleet });
const ports = [Number(new URL(running.url).port)];
const load = { ports, meetings: fleet.meetings, connections: CONNECTIONS, rate };
console.log(`${contender.name}, ${values.seconds} s, load ${loadavg()[0]!.toFixed(1)}`);
await bench.receivers.call('reset', { lanes: true });
const { accepted } = await bench.senders.call('send', { ...load, seconds: WARM_UP_S });
await bench.drained(accepted);
await bench.receivers.call('reset', { lanes: false, each: true });
const sent = await bench.senders.call('send', { ...load, seconds: Number(values.seconds), listed: true });
await bench.drained(sent.accepted);
const { latency_ms } = await bench.receivers.call('received');
const slowest = await bench.receivers.call('slowest', { messages: sent.messages, most: Number(values.slowest) });
await new Promise((resolve) => setTimeout(resolve, WRITTEN_MS));
await running.stop();
await bench.stop();

const pauses = readdirSync(directory)
  .filter((name) => name.endsWith('.jsonl'))
  .flatMap((name) => readFileSync(join(directory, name), 'utf8').split('\n').filter(Boolean))
  .map((line) => JSON.parse(line) as Pause);
const from_us = sent.first_us;
for (const what of new Set(pauses.map(([what]) => what))) {
  const taken = new Samples();
  let sum_ms = 0;
  for (const [of_what, began_us, ended_us] of pauses) {
    if (of_what !== what || began_us < from_us) continue;
    taken.add((ended_us - began_us) / 1000);
    sum_ms += (ended_us - began_us) / 1000;
  }
  const { count, p50, p99, max } = taken.distribution();
  const share = (100 * sum_ms) / (1000 * Number(values.seconds));
  console.log(
    `${what}: ${count}, p50 ${p50.toFixed(1)}, p99 ${p99.toFixed(1)}, max ${max.toFixed(1)} ms, ${share.toFixed(1)} % of the time`,
  );
}
const causes = new Map<string, { messages: number; ms: number }>();
let without = 0;
for (const { sent_us, arrived_us } of slowest) {
  const beyond_us = arrived_us - sent_us - latency_ms.p50 * 1000;
  const waited = new Map<string, number>();
  for (const [what, from_us, to_us] of pauses) {
    const us = Math.min(to_us, arrived_us) - Math.max(from_us, sent_us);
    if (us > 0) waited.set(what, (waited.get(what) ?? 0) + us);
  }
  const found = [...waited].filter(([, us]) => us >= beyond_us / 3);
  if (found.length === 0) without++;
  for (const [what, us] of found) {
    const { messages, ms } = causes.get(what) ?? { messages: 0, ms: 0 };
    causes.set(what, { messages: messages + 1, ms: ms + us / 1000 });
  }
}
const { p50, p99, max, count } = latency_ms;
console.log(`${count} messages: p50 ${p50.toFixed(1)}, p99 ${p99.toFixed(1)}, max ${max.toFixed(1)} ms`);
const of_slowest = slowest.map(({ sent_us, arrived_us }) => (arrived_us - sent_us) / 1000);
console.log(`the slowest ${slowest.length}: ${of_slowest.at(-1)?.toFixed(1)} to ${of_slowest[0]?.toFixed(1)} ms`);
for (const [what, { messages, ms }] of [...causes].toSorted(([, a], [, b]) => b.messages - a.messages)) {
  console.log(`${what}: ${messages} messages, ${(ms / messages).toFixed(1)} ms each`);
}
console.log(`nothing of this: ${without} messages`);
