/**
 * A database that goes back while nodes run: a standby takes over that does not have the latest commits, or an older
 * backup is restored. Messages that were accepted in the lost time are lost. All other messages are delivered soon, and
 * nobody needs to help.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { PostgresServer } from '../support/postgres_server.ts';
import { until } from '../support/wait.ts';
import type { Arrival, Record, Sent } from './checker.ts';
import { Nodes } from './cluster.ts';
import { assertClean } from './run.ts';

const LOAD_MS = 2_000;
/** After this time the standby has all accepted messages, and the results are written. */
const SETTLED_MS = 3_000;
/** For how long nodes go on with what they have in memory, before they notice that the database went back. */
const NOTICED_MS = 2_000;
/** How soon all messages are delivered that are accepted after the database went back. */
const DELIVERED_MS_MAX = 30_000;

/** A database that goes back, and the moment from which its commits are lost. */
interface Database {
  url: string;
  /** All commits after this call will be lost. */
  losesFromHere: () => Promise<void>;
  goesBack: () => Promise<void>;
}

test('a standby that lacks the latest commits takes over', async (t) => {
  const primary = await PostgresServer.start();
  after(() => primary.stop());
  const replication = await CuttingProxy.start(primary.port);
  t.after(() => replication.close());
  const standby = await primary.startStandby(replication.port, { is_waited_for: false });
  after(() => standby.stop());
  const proxy = await CuttingProxy.start(primary.port);
  t.after(() => proxy.close());
  await flowsOn(t, {
    url: primary.urlOf('postgres', proxy.port),
    async losesFromHere() {
      replication.onAnswer = () => 'swallow';
    },
    async goesBack() {
      await primary.halt();
      proxy.to_port = standby.port;
      await standby.promote();
    },
  });
});

test('an older backup is put back', async (t) => {
  const server = await PostgresServer.start();
  after(() => server.stop());
  let putBack = async (): Promise<void> => {};
  await flowsOn(t, {
    url: server.urlOf('postgres'),
    async losesFromHere() {
      putBack = await server.backup();
    },
    goesBack: () => putBack(),
  });
});

async function flowsOn(t: TestContext, database: Database): Promise<void> {
  const nodes = await Nodes.start(t, [database.url, database.url]);
  nodes.speakers.is_503_in_doubt = true;
  const { sent } = nodes.speakers;
  await pause(LOAD_MS);
  const kept = new Set(sent.filter(({ result }) => result === 'ok'));
  await pause(SETTLED_MS);
  const lost_from_ms = Date.now();
  await database.losesFromHere();
  /** Waits for load, also where the nodes need a while for a new connection to the database. */
  const acceptedSince = async (from: number): Promise<number> => {
    const count = (): number => sent.slice(from).filter(({ result }) => result === 'ok').length;
    await until('load', count, (accepted) => accepted > 20);
    await pause(LOAD_MS);
    return count();
  };
  const lost = await acceptedSince(sent.length);
  await database.goesBack();
  const before = sent.length;
  await until(
    'both nodes to work with the database that went back',
    () => nodes.urls.filter((url) => sent.slice(before).some(({ accepted }) => accepted?.url === url)).length,
    (working) => working === nodes.urls.length,
  );
  const back_at_ms = Date.now();
  const since = await acceptedSince(before);
  await nodes.speakers.end();
  const ended_at = performance.now();
  const record = await nodes.record();
  const took_ms = Math.round(performance.now() - ended_at);
  const ids = idsForSeveral(record.sent, record.received);
  t.diagnostic(`${lost} were answered and may be lost, ${since} accepted since; all delivered after ${took_ms} ms`);
  assert.deepEqual(ids, []);
  assert.ok(took_ms < DELIVERED_MS_MAX, `it took ${took_ms} ms`);
  const forgotten = { from_ms: lost_from_ms - SETTLED_MS, to_ms: back_at_ms + NOTICED_MS };
  const may_be_lost = sent.slice(0, before).filter((one) => !kept.has(one));
  assertClean(t, withoutLost({ ...record, received: receivedOnce(record.received, forgotten) }, may_be_lost));
}

/** Leaves out pushes that arrived again because the database lost their results with the commits of that time. */
function receivedOnce(received: readonly Arrival[], { from_ms, to_ms }: { from_ms: number; to_ms: number }): Arrival[] {
  const first = new Map<string, Arrival>();
  return received
    .toSorted((a, b) => a.at_ms - b.at_ms)
    .filter((push) => {
      const before = first.get(push.webhook_id);
      if (before === undefined) first.set(push.webhook_id, push);
      return before === undefined || before.at_ms < from_ms || before.at_ms > to_ms;
    });
}

/**
 * Leaves out the messages of the lost time, except those that are stored. When a sender got no response, its message
 * may have been stored and pushed, then lost, and then stored again under the same Idempotency-Key. Then the push of
 * the lost message is left out.
 */
function withoutLost(record: Record, may_be_lost: readonly Sent[]): Record {
  const stored = new Set(record.stored.map(({ number }) => number));
  const stored_ids = new Set(record.stored.map(({ message_id }) => message_id));
  const at_risk = new Set(may_be_lost.map(({ number }) => number));
  const lost = new Set([...at_risk].filter((number) => !stored.has(number)));
  assert.ok(lost.size > 20, 'the database went back');
  return {
    ...record,
    sent: record.sent.filter(({ number }) => !lost.has(number)),
    received: record.received.filter(({ number, message_id }) => !at_risk.has(number) || stored_ids.has(message_id)),
  };
}

/** The ids that belong to more than one message, or to more than one delivery. */
function idsForSeveral(sent: readonly Sent[], received: readonly Arrival[]): string[] {
  const meanings = new Map<string, string>();
  const found: string[] = [];
  const see = (id: string, meaning: string): void => {
    const known = meanings.get(id);
    if (known === undefined) meanings.set(id, meaning);
    else if (known !== meaning) found.push(`${id} is ${known} and ${meaning}`);
  };
  for (const { message_id, number } of sent) if (message_id !== null) see(message_id, `message ${number}`);
  for (const { message_id, number } of received) see(message_id, `message ${number}`);
  for (const { webhook_id, number, instance_id } of received) see(webhook_id, `${number} to ${instance_id}`);
  return found;
}
