/**
 * Nodes on PostgreSQL under Patroni, in synchronous mode. The test kills the primary again and again, and each time a
 * standby takes over.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Ending } from './checker.ts';
import { Nodes } from './cluster.ts';
import { missingForPatroni, PatroniCluster, TTL_S } from './patroni_cluster.ts';
import { assertClean, assertControls, numberFrom } from './run.ts';
import type { Speakers } from './speakers.ts';

const KILLS = numberFrom('FAULTS_KILLS', 10);
const LOAD_MS = 2_000;
const BACK_MS_MAX = 120_000;
const LOOK_EVERY_MS = 10;
/** How long a node that cannot renew its lease sends: it starts attempts for 9.5 s, and each ends within 5 s. */
const SENDS_ON_MS = 14_500;

const missing = missingForPatroni();

test(`the primary is killed ${KILLS} times under load: nothing lost`, { skip: missing ?? false }, async (t) => {
  const database = await PatroniCluster.start(t);
  t.diagnostic(`${database.versions}; ttl ${TTL_S} s`);
  const database_url = database.urlOf('convoke', 'convoke');
  const nodes = await Nodes.start(t, [database_url, database_url]);
  nodes.speakers.is_503_in_doubt = true;

  const endings: Ending[] = [];
  const without_primary_s: number[] = [];
  const without_service_s: number[] = [];
  for (let kill = 0; kill < KILLS; kill++) {
    await pause(LOAD_MS);
    const primary = await database.settled();
    await database.kill(primary);
    const killed_at_ms = Date.now();
    endings.push(...nodes.processes.map((node) => node.ending(killed_at_ms, killed_at_ms + SENDS_ON_MS)));
    const [without_primary, without_service] = await Promise.all([
      secondsUntil(database.hasPrimary()),
      secondsUntil(acceptedAgain(nodes.speakers)),
    ]);
    without_primary_s.push(without_primary);
    without_service_s.push(without_service);
    database.startAgain(primary);
    const next = await database.settled();
    assert.notEqual(next, primary);
    t.diagnostic(`${primary} killed, ${next} next: ${without_primary} s no primary, ${without_service} s no service`);
  }
  await pause(LOAD_MS);

  const record = await nodes.record(...endings);
  const { accepted, received } = assertClean(t, record);
  t.diagnostic(`answers: ${JSON.stringify([...nodes.speakers.statuses])}`);
  t.diagnostic(`without a primary, in seconds: ${without_primary_s.join(', ')}`);
  t.diagnostic(`without service, in seconds: ${without_service_s.join(', ')}`);
  assert.ok(accepted > KILLS * 20 && received > accepted, 'there was load');
  assertControls(record);
});

/** How many seconds something takes, with one decimal. */
async function secondsUntil(done: Promise<void>): Promise<number> {
  const from_ms = performance.now();
  await done;
  return Math.round((performance.now() - from_ms) / 100) / 10;
}

/** Resolves when a message is accepted whose send began after this call. */
async function acceptedAgain({ sent }: Speakers): Promise<void> {
  const from_ms = performance.now();
  const before = sent.length;
  while (!sent.slice(before).some(({ result }) => result === 'ok')) {
    assert.ok(performance.now() - from_ms < BACK_MS_MAX, 'no service');
    await pause(LOOK_EVERY_MS);
  }
}
