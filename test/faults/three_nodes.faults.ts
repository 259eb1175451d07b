/**
 * Three nodes on one PostgreSQL, as real processes with real signals. Every node accepts messages for all meetings, and
 * delivers its share. When a node is lost, the other nodes take over its share, in order. cluster.faults.ts tests
 * faults of the network and the database.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Nodes } from './cluster.ts';
import type { NodeProcess } from './node_process.ts';
import { assertClean, assertControls } from './run.ts';
import { makeDatabase } from '../support/postgres.ts';

const LOAD_MS = 1_000;
/** How many messages are accepted at least between two faults. */
const ACCEPTED_MIN = 40;
const STOP_MS_MAX = 7_000;

test('three nodes share the work; one stops, one is killed; nothing is lost, nothing out of order', async (t) => {
  const database_url = await makeDatabase();
  const nodes = await Nodes.start(t, [database_url, database_url, database_url]);
  const [first, killed, stopped] = nodes.processes as [NodeProcess, NodeProcess, NodeProcess];
  await pause(LOAD_MS);
  await nodes.speakers.more(ACCEPTED_MIN);

  nodes.speakers.urls = nodes.urls.slice(0, 2);
  const { code, duration_ms } = await stopped.end('SIGTERM');
  assert.equal(code, 0);
  assert.ok(duration_ms < STOP_MS_MAX, `it took ${duration_ms} ms to stop`);
  t.diagnostic(`handed over ${Math.round(await nodes.shared(2))} ms after the end of the one that stopped`);
  await pause(LOAD_MS);
  await nodes.speakers.more(ACCEPTED_MIN);

  nodes.speakers.url = nodes.url;
  await killed.end('SIGKILL');
  t.diagnostic(`taken over ${Math.round(await nodes.shared(1))} ms after the kill`);
  await pause(LOAD_MS);
  await nodes.speakers.more(ACCEPTED_MIN);

  // Only pushes of the killed node may arrive again.
  const record = await nodes.record(killed.ending());
  const { accepted, received } = assertClean(t, record);
  assert.ok(accepted > 100 && received > accepted, 'there was load');
  assertControls(record);
  assert.equal((await first.end('SIGTERM')).code, 0);
});
