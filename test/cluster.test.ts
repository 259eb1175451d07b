/**
 * Three nodes on one PostgreSQL, as real processes with real signals: any of them takes any message, each delivers its
 * share, and what a node leaves the others take over, in order.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ask, deliveriesByState, enroll, history, nothingPending } from './faults/api.ts';
import type { Record } from './faults/checker.ts';
import { Machines } from './faults/machines.ts';
import { NodeProcess } from './faults/node_process.ts';
import { assertClean, assertControls, temporaryDirectory } from './faults/run.ts';
import { Speakers } from './faults/speakers.ts';
import { makeDatabase } from './support/postgres.ts';

/** Enough that every node has some of them. */
const MACHINES = [...Array.from({ length: 11 }, (_, k) => `machine-${k}`), 'slow'];
const MEMBERS = new Map(
  ['alpha', 'beta', 'gamma'].map((meeting_id, k) => [meeting_id, MACHINES.filter((_, i) => i % 3 !== k)]),
);
const TAKEN_OVER_MS = 20_000;
const LOAD_MS = 1_000;
/** What a killed node had under way, or answered and not yet written. */
const IN_FLIGHT_MS = 1_000;

interface NodeOfList {
  state: string;
  partitions: number;
}

async function nodesOf(url: string): Promise<NodeOfList[]> {
  return (await ask(url, 'GET', '/api/v1/nodes/')).body['data'] as NodeOfList[];
}

/** Waits until the nodes that are up hold these numbers of partitions; answers how long that took. */
async function balanced(url: string, ...partitions: number[]): Promise<number> {
  const from_ms = performance.now();
  for (;;) {
    const nodes = await nodesOf(url);
    const held = nodes.filter(({ state }) => state === 'up').map((node) => node.partitions);
    if (held.toSorted((a, b) => b - a).join() === partitions.join()) return performance.now() - from_ms;
    assert.ok(performance.now() - from_ms < TAKEN_OVER_MS, `still ${JSON.stringify(nodes)}`);
    await pause(100);
  }
}

async function recordOf(url: string, speakers: Speakers, machines: Machines, killed: NodeProcess): Promise<Record> {
  return {
    sent: speakers.sent,
    heard: await machines.heard(),
    stored: await history(url, MEMBERS.keys()),
    members: MEMBERS,
    deliveries: await deliveriesByState(url),
    // Only the end of the one that was killed lets anything come again.
    lives: [
      { from_ms: 0, to_ms: killed.life.to_ms },
      { from_ms: killed.life.to_ms, to_ms: Infinity },
    ],
    in_flight_ms: IN_FLIGHT_MS,
  };
}

async function startNodes(t: TestContext): Promise<{ nodes: NodeProcess[]; urls: string[] }> {
  const database_url = await makeDatabase();
  const data = await temporaryDirectory(t);
  const first = NodeProcess.serveOn(t, database_url, data);
  // It makes the key that all of them use.
  await first.ready;
  const nodes = [first, ...[1, 2].map(() => NodeProcess.serveOn(t, database_url, data))];
  return { nodes, urls: await Promise.all(nodes.map((node) => node.ready)) };
}

test('three nodes share the work; one stops, one is killed; nothing is lost, nothing out of order', async (t) => {
  const machines = await Machines.start(t);
  const { nodes, urls } = await startNodes(t);
  const [first, killed, stopped] = nodes as [NodeProcess, NodeProcess, NodeProcess];
  const [url, url_of_killed] = urls as [string, string, string];
  t.diagnostic(`shared after ${Math.round(await balanced(url, 22, 21, 21))} ms`);
  await enroll(url, machines.origin, MEMBERS);
  const speakers = new Speakers(url, MEMBERS.keys());
  speakers.urls = urls;
  await pause(LOAD_MS);

  speakers.urls = [url, url_of_killed];
  const { code, duration_ms } = await stopped.end('SIGTERM');
  assert.equal(code, 0);
  assert.ok(duration_ms < 7_000, `it took ${duration_ms} ms to stop`);
  t.diagnostic(`handed over ${Math.round(await balanced(url, 32, 32))} ms after the end of the one that stopped`);
  await pause(LOAD_MS);

  speakers.urls = [url];
  await killed.end('SIGKILL');
  const taken_over_ms = await balanced(url, 64);
  t.diagnostic(`taken over ${Math.round(taken_over_ms)} ms after the kill`);
  await pause(LOAD_MS);
  await speakers.end();
  await nothingPending(url);

  const record = await recordOf(url, speakers, machines, killed);
  const { accepted, heard } = assertClean(t, record);
  assert.ok(accepted > 100 && heard > accepted, 'there was load');
  assertControls(record);
  assert.equal((await first.end('SIGTERM')).code, 0);
});
