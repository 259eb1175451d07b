/** Runs a service under load, ends it again and again, and starts it each time with the same data. */
import assert from 'node:assert/strict';
import { spawnSync, type SpawnSyncReturns } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { deliveriesByState, enroll, history, nothingPending } from './api.ts';
import { check, type Ending, type Figures, type Findings, type Record } from './checker.ts';
import { Machines } from './machines.ts';
import { NodeProcess } from './node_process.ts';
import { Speakers } from './speakers.ts';

/** Three receivers in different meetings, so that their lanes differ. */
const MEMBERS = new Map([
  ['alpha', ['one', 'two', 'slow']],
  ['beta', ['one', 'slow']],
  ['gamma', ['two']],
  ['delta', ['one', 'two', 'slow']],
]);

export async function temporaryDirectory(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'convoke-faults-'));
  t.after(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  return directory;
}

/** Runs a command of the system. The status is null when the command is missing. */
export function run(command: string, ...args: string[]): SpawnSyncReturns<Buffer> {
  return spawnSync(command, args);
}

/** Reads a whole number above 0 from an environment variable. */
export function numberFrom(variable: string, otherwise: number): number {
  const number = Number(process.env[variable] ?? otherwise);
  assert.ok(Number.isSafeInteger(number) && number > 0, `${variable} must be a whole number above 0`);
  return number;
}

/** A generator from FAULTS_SEED, or from a new seed. The test prints the seed, to repeat the moments of a run. */
export function seededRandom(t: TestContext): () => number {
  const seed = numberFrom('FAULTS_SEED', randomInt(1, 2 ** 31));
  t.diagnostic(`FAULTS_SEED=${seed}`);
  let state = seed;
  // mulberry32
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface Plan {
  ends: number;
  /** Ends a process that has just started, maybe before it is ready. */
  end: (node: NodeProcess, speakers: Speakers) => Promise<void>;
  /** Whether pushes in flight may arrive again. */
  is_violent: boolean;
}

/** Runs the plan, waits until everything is delivered, and returns what senders, machines and the service saw. */
export async function runUnderLoad(t: TestContext, { ends, end, is_violent }: Plan): Promise<Record> {
  const data = await temporaryDirectory(t);
  const machines = await Machines.start(t);
  const endings: Ending[] = [];
  let node = NodeProcess.serve(t, data, { machines });
  const url = await node.ready;
  await enroll(url, machines.origin, MEMBERS);
  const speakers = new Speakers(url, MEMBERS.keys());
  for (let ended = 0; ended < ends; ended++) {
    await end(node, speakers);
    if (is_violent) endings.push(node.ending());
    // Waits until the machines have noted the pushes of this process, before the next process sends any.
    await machines.received();
    node = NodeProcess.serve(t, data, { machines });
    node.ready.then((ready) => (speakers.url = ready)).catch(() => {});
  }
  const last = await node.ready;
  await speakers.end();
  await nothingPending(last);
  const record = await recordOf(last, speakers, machines, endings);
  assert.equal((await node.end('SIGTERM')).code, 0);
  return record;
}

/** Returns what senders, machines and the service saw, when everything is delivered. */
async function recordOf(url: string, { sent }: Speakers, machines: Machines, endings: Ending[]): Promise<Record> {
  return {
    sent,
    received: await machines.received(),
    stored: await history(url, MEMBERS.keys()),
    members: MEMBERS,
    deliveries: await deliveriesByState(url),
    endings,
  };
}

/** Does something to a process under load that the process must survive. */
export async function surviveUnderLoad(
  t: TestContext,
  data: string,
  fault: (parts: { node: NodeProcess; url: string; speakers: Speakers; machines: Machines }) => Promise<void>,
): Promise<Record> {
  const machines = await Machines.start(t);
  const node = NodeProcess.serve(t, data, { machines });
  const url = await node.ready;
  await enroll(url, machines.origin, MEMBERS);
  const speakers = new Speakers(url, MEMBERS.keys());
  try {
    await fault({ node, url, speakers, machines });
  } finally {
    await speakers.end();
  }
  assert.ok(node.isAlive, node.log);
  await nothingPending(url);
  const record = await recordOf(url, speakers, machines, []);
  assert.equal((await node.end('SIGTERM')).code, 0);
  return record;
}

/** Asserts that the checker finds nothing; prints and returns the figures. */
export function assertClean(t: TestContext, record: Record): Figures {
  const { findings, figures } = check(record);
  t.diagnostic(JSON.stringify(figures));
  const counts = Object.entries(findings).map(([kind, texts]) => [kind, texts.length, texts.slice(0, 5)]);
  assert.ok(
    counts.every(([, count]) => count === 0),
    JSON.stringify(counts, null, 2),
  );
  return figures;
}

/** The control: falsifies one fact in a copy of the record, and checks that the checker finds it. */
export function assertFound(record: Record, kind: keyof Findings, doctor: (copy: Record) => void): void {
  const copy: Record = { ...record, received: record.received.map((push) => ({ ...push })) };
  doctor(copy);
  const { findings } = check(copy);
  assert.ok(findings[kind].length > 0, `the checker did not find what is ${kind}`);
}

/** Three controls: a lost message, a repeated message, and two messages in the wrong order. */
export function assertControls(record: Record): void {
  const accepted = new Set(record.sent.filter(({ result }) => result === 'ok').map(({ number }) => number));
  const middle = Math.floor(record.received.length / 2);
  // A message whose sender got no response does not count as lost.
  const at = record.received.findIndex(({ number }, i) => i >= middle && accepted.has(number));
  assert.ok(at !== -1, 'something accepted was received');
  const { webhook_id, instance_id, meeting_id } = record.received[at] as Record['received'][number];
  assertFound(record, 'lost', (copy) => {
    copy.received = copy.received.filter((push) => push.webhook_id !== webhook_id);
  });
  assertFound(
    record,
    'repeated',
    ({ received }) => void received.push({ ...(received[at] as Record['received'][number]) }),
  );
  assertFound(record, 'disordered', ({ received }) => {
    const lane = received.filter((push) => push.instance_id === instance_id && push.meeting_id === meeting_id);
    const firsts = lane.filter((push, i) => lane.findIndex((one) => one.webhook_id === push.webhook_id) === i);
    const [one, two] = firsts.slice(-2) as [Record['received'][number], Record['received'][number]];
    [one.seq, two.seq] = [two.seq, one.seq];
  });
  assertFound(record, 'books', (copy) => {
    copy.deliveries = { ...copy.deliveries, delivered: (copy.deliveries['delivered'] ?? 0) - 1 };
  });
}
