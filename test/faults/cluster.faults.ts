/** Faults of nodes on one PostgreSQL: paused nodes, nodes without the database, and restarts of the database itself. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PostgresServer } from '../support/postgres_server.ts';
import { until } from '../support/wait.ts';
import { Nodes } from './cluster.ts';
import type { NodeProcess } from './node_process.ts';
import { assertClean, assertControls, numberFrom, seededRandom } from './run.ts';

const PAUSED_MS = 60_000;
const CUT_OFF_MS = 35_000;
const RESTARTS = numberFrom('FAULTS_RESTARTS', 8);
/** The longest delay between a node and the database, and how long the delay lasts. */
const DELAY_MS_MAX = 200;
const SLOW_MS = 4_000;
const CUTS = numberFrom('FAULTS_CUTS', 20);
const LOAD_MS = 1_000;
/** How many messages are accepted at least before a failover. */
const ACCEPTED_MIN = 40;
/** For how long nodes find, in place of the primary, a standby that accepts no writes. */
const READ_ONLY_MS = 1_000;
/**
 * How long a node that is cut off sends: it starts attempts for 9.5 s after its last renewal, and each ends within 5 s.
 */
const SENDS_ON_MS = 14_500;

/** Waits until the nodes have accepted a few of the sends that began after the first `before`. */
const loadSince = ({ speakers }: Nodes, before: number): Promise<number> =>
  until(
    'the nodes to accept messages',
    () => speakers.sent.slice(before).filter(({ result }) => result === 'ok').length,
    (accepted) => accepted > 15,
  );

test('a node that is paused for 60 s: its work is taken over, and what it says afterwards changes nothing', async (t) => {
  const database_url = await makeDatabase();
  const nodes = await Nodes.start(t, [database_url, database_url, database_url]);
  const paused = nodes.processes[1] as NodeProcess;
  await pause(LOAD_MS);

  const paused_at_ms = Date.now();
  paused.child.kill('SIGSTOP');
  nodes.speakers.urls = [nodes.url, nodes.urls[2] as string];
  t.diagnostic(`taken over after ${Math.round(await nodes.shared(2))} ms`);
  await pause(PAUSED_MS - (Date.now() - paused_at_ms));
  const resumed_at_ms = Date.now();
  paused.child.kill('SIGCONT');
  nodes.speakers.urls = nodes.urls;
  t.diagnostic(`shared again after ${Math.round(await nodes.shared(3))} ms`);
  await pause(LOAD_MS);

  const record = await nodes.record(paused.ending(paused_at_ms, resumed_at_ms));
  const { accepted, received } = assertClean(t, record);
  assert.ok(accepted > 100 && received > accepted, 'there was load');
  assertControls(record);
});

test('a node that is cut off from the database, and whose connections are slow, and cut again and again', async (t) => {
  const random = seededRandom(t);
  const database_url = new URL(await makeDatabase());
  const proxy = await CuttingProxy.start(Number(database_url.port));
  t.after(() => proxy.close());
  const through_proxy = new URL(database_url);
  through_proxy.port = String(proxy.port);
  const nodes = await Nodes.start(t, [database_url.href, through_proxy.href, database_url.href]);
  nodes.speakers.is_503_in_doubt = true;
  proxy.delayOf = () => random() * DELAY_MS_MAX;
  await pause(SLOW_MS);
  proxy.delayOf = () => 0;
  for (let cut = 0; cut < CUTS; cut++) {
    await pause(random() * 300);
    proxy.cutAll();
  }
  await pause(LOAD_MS);

  const cut_at_ms = Date.now();
  // The proxy passes no byte on, and closes no connection, so neither side learns of the cut.
  proxy.onRequest = () => 'swallow';
  proxy.onAnswer = () => 'swallow';
  nodes.speakers.urls = [nodes.url, nodes.urls[2] as string];
  t.diagnostic(`taken over after ${Math.round(await nodes.shared(2))} ms`);
  await pause(CUT_OFF_MS - (Date.now() - cut_at_ms));
  proxy.onRequest = () => 'pass';
  proxy.onAnswer = () => 'pass';
  proxy.cutAll();
  nodes.speakers.urls = nodes.urls;
  t.diagnostic(`shared again after ${Math.round(await nodes.shared(3))} ms`);
  await pause(LOAD_MS);

  const cut_off = nodes.processes[1] as NodeProcess;
  const record = await nodes.record(cut_off.ending(cut_at_ms, cut_at_ms + SENDS_ON_MS));
  const { accepted, received } = assertClean(t, record);
  assert.ok(accepted > 100 && received > accepted, 'there was load');
});

test(`the database is restarted ${RESTARTS} times, as after a crash: nothing lost, nothing sent twice`, async (t) => {
  const server = await PostgresServer.start();
  after(() => server.stop());
  const database_url = server.urlOf('postgres');
  const nodes = await Nodes.start(t, [database_url, database_url]);
  for (let restart = 0; restart < RESTARTS; restart++) {
    await pause(LOAD_MS);
    await server.halt();
    await server.resume();
    await loadSince(nodes, nodes.speakers.sent.length);
  }
  await pause(LOAD_MS);

  const { accepted, received, again } = assertClean(t, await nodes.record());
  assert.ok(accepted > 100 && received > accepted, 'there was load');
  assert.equal(again, 0);
});

test('the database fails over to its standby, which only reads at first: nothing lost, nothing sent twice', async (t) => {
  const primary = await PostgresServer.start();
  after(() => primary.stop());
  const replication = await CuttingProxy.start(primary.port);
  t.after(() => replication.close());
  const standby = await primary.startStandby(replication.port);
  after(() => standby.stop());
  const proxy = await CuttingProxy.start(primary.port);
  t.after(() => proxy.close());
  const database_url = primary.urlOf('postgres', proxy.port);
  const nodes = await Nodes.start(t, [database_url, database_url]);
  nodes.speakers.is_503_in_doubt = true;
  // On a slow machine the nodes accept few messages in a fixed time.
  await nodes.speakers.more(ACCEPTED_MIN);

  // Commits wait for the standby. It gets nothing now, so from here on no message is accepted that could be lost.
  replication.onAnswer = () => 'swallow';
  await pause(LOAD_MS);
  await primary.halt();
  proxy.to_port = standby.port;
  await pause(READ_ONLY_MS);
  await standby.promote();
  const before = nodes.speakers.sent.length;
  // It goes on by itself.
  await loadSince(nodes, before);
  await pause(LOAD_MS);

  const { received, again } = assertClean(t, await nodes.record());
  assert.ok(before > 20 && received > before, 'there was load');
  assert.equal(again, 0);
});
