/**
 * What PostgreSQL promises beyond the contract of the store (test/store/contract.ts): about connections, nodes and
 * servers.
 */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import pg from 'pg';
import { LEASE_WATCHED_MS, partitionOf, PARTITIONS } from '../../src/domain/partition.ts';
import { openPostgresStore } from '../../src/store/postgres/open.ts';
import { ACCEPT_MESSAGES_5 } from '../../src/store/postgres/functions/accept_messages.ts';
import { SETTLE_DELIVERIES_4 } from '../../src/store/postgres/functions/settle_deliveries.ts';
import { RAISE_NUMBERS, TAKE_NUMBERS } from '../../src/store/postgres/functions/take_numbers.ts';
import { RENEW_LEASE } from '../../src/store/postgres/cluster/lease_functions.ts';
import { Executor } from '../../src/store/postgres/executor.ts';
import { migrateDatabase } from '../../src/store/postgres/schema.ts';
import type { Change } from '../../src/store/contract/cluster.ts';
import type { NewOrigin } from '../../src/store/contract/messages.ts';
import { NO_QUOTAS } from '../../src/store/contract/quotas.ts';
import type { Store } from '../../src/store/store.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { openPostgresHere, POSTGRES_KEYS } from '../support/engines.ts';
import { temporaryFile } from '../support/node.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PostgresServer } from '../support/postgres_server.ts';
import { lane, meeting, messages, NEVER, newMessage, register, settled } from '../support/store_contents.ts';
import { TRACE } from '../support/store_commands.ts';
import { until } from '../support/wait.ts';

async function open(t: TestContext, url: string, now_ms?: () => number): Promise<Store> {
  const store = await openPostgresHere(url, NO_QUOTAS, now_ms);
  t.after(() => store.close());
  return store;
}

/** Runs a statement on the database without the store. */
async function sql<Row extends object>(url: string, text: string, values: unknown[] = []): Promise<Row[]> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return (await client.query<Row>(text, values)).rows;
  } finally {
    await client.end();
  }
}

function through(url: string, proxy: CuttingProxy): string {
  const proxied = new URL(url);
  proxied.port = String(proxy.port);
  return proxied.href;
}

async function proxyTo(t: TestContext, url: string): Promise<CuttingProxy> {
  const proxy = await CuttingProxy.start(Number(new URL(url).port));
  t.after(() => proxy.close());
  return proxy;
}

/** Cuts a connection whose request contains this text, after the server has done the work and responds. */
function cutAnswerTo(proxy: CuttingProxy, text: string): { cuts: number } {
  const seen = { cuts: 0 };
  let awaiting: number | null = null;
  proxy.onRequest = (bytes, connection) => {
    if (seen.cuts === 0 && bytes.includes(text)) awaiting = connection;
    return 'pass';
  };
  proxy.onAnswer = (_, connection) => {
    if (connection !== awaiting) return 'pass';
    awaiting = null;
    seen.cuts++;
    return 'cut';
  };
  return seen;
}

function seqsOf(accepted: Awaited<ReturnType<Store['messages']['accept']>>): number[] {
  return accepted.map((each) => (each.kind === 'accepted' ? each.message.seq : 0));
}

/** The ids of the messages and their deliveries. */
function idsOf(accepted: Awaited<ReturnType<Store['messages']['accept']>>): string[] {
  return accepted.flatMap((each) =>
    each.kind === 'accepted' ? [each.message.message_id, ...each.deliveries.map(({ delivery_id }) => delivery_id)] : [],
  );
}

/** Replaces a function in the database by a copy that has `instead` in place of a part. */
async function withoutPart(url: string, definition: string, part: string | RegExp, instead: string): Promise<void> {
  const spoilt = definition.replace(part, instead);
  assert.notEqual(spoilt, definition);
  await sql(url, spoilt.replace('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION'));
}

describe('a database that knows less than a node, because it took over without the last commits', () => {
  const ACCEPTED = 3;

  /** Makes a meeting of which the node has seen more messages than the database now has. */
  async function fallenBehind(t: TestContext, url: string): Promise<Store> {
    const store = await open(t, url);
    for (let i = 0; i < ACCEPTED; i++) await store.messages.accept([newMessage('m')]);
    await sql(url, 'DELETE FROM messages WHERE seq = $1', [ACCEPTED]);
    return store;
  }

  test('continues after the last message that is there', async (t) => {
    const store = await fallenBehind(t, await makeDatabase());
    assert.deepEqual(seqsOf(await store.messages.accept([newMessage('m')])), [ACCEPTED]);
  });

  test('control: with only what the node knows, it would repeat a seq, and accept no more', async (t) => {
    const url = await makeDatabase();
    const WHOLE_LOOK =
      /,\s+\(SELECT m\.seq FROM messages m WHERE m\.meeting_id = w\.meeting_id ORDER BY m\.seq DESC LIMIT 1\)/;
    await withoutPart(url, ACCEPT_MESSAGES_5, WHOLE_LOOK, '');
    const store = await fallenBehind(t, url);
    assert.deepEqual(await store.messages.accept([newMessage('m')]), [{ kind: 'damaged' }]);
  });

  test('may have given a seq again: a node learns that before its next message, also while it cannot listen', async (t) => {
    const url = await makeDatabase();
    const proxy = await proxyTo(t, url);
    const store = await open(t, through(url, proxy));
    const kinds: string[] = [];
    store.onChange(({ kind }) => kinds.push(kind));
    await store.messages.accept([newMessage('m')]);
    assert.ok(!kinds.includes('resync'), 'the control: nothing was lost yet');
    // From now on, no connection listens.
    proxy.onRequest = (bytes) => (bytes.includes('LISTEN ') ? 'cut' : 'pass');
    proxy.cutAll();
    await store.messages.accept([newMessage('m')]);
    assert.deepEqual(
      kinds.filter((kind) => kind === 'resync'),
      ['resync'],
    );
  });

  /** Makes three meetings. The node has seen all; then the database loses the second of them. */
  async function lost(t: TestContext, url: string): Promise<Store> {
    const store = await open(t, url);
    await store.messages.accept([newMessage('l'), newMessage('m'), newMessage('n')]);
    await sql(url, "DELETE FROM messages WHERE meeting_id = 'm'");
    await sql(url, "DELETE FROM meetings WHERE meeting_id = 'm'");
    return store;
  }

  const OF_ALL = ['l', 'm', 'n'].map((meeting_id) => newMessage(meeting_id));
  const FIRST_PAGE = { after_seq: 0, limit: 10, chars_max: 1000 };

  test('makes a meeting again that is missing', async (t) => {
    const store = await lost(t, await makeDatabase());
    assert.deepEqual(seqsOf(await store.messages.accept(OF_ALL)), [2, 1, 2]);
    assert.equal((await store.messages.list('m', FIRST_PAGE))?.data.length, 1);
  });

  test('control: trusting that what the node knows is there, it would store messages of no meeting', async (t) => {
    const url = await makeDatabase();
    const IS_LOST = 'IF cardinality(last_seqs) IS DISTINCT FROM cardinality(meeting_ids)';
    await withoutPart(url, ACCEPT_MESSAGES_5, IS_LOST, 'IF false');
    const store = await lost(t, url);
    await store.messages.accept(OF_ALL);
    assert.equal(await store.messages.list('m', FIRST_PAGE), null);
  });
});

describe('a database that went back while nodes are at work on it', () => {
  for (const [lost, statement] of [
    ['the last batch', 'DELETE FROM batches WHERE batch_no = 2'],
    ['the run', 'WITH gone AS (DELETE FROM batches) DELETE FROM runs'],
  ] as const) {
    test(`does not know ${lost} of a node: the node accepts all the same, in a new run, and everything is looked at`, async (t) => {
      const url = await makeDatabase();
      const store = await open(t, url);
      const changes: Change[] = [];
      store.onChange((change) => changes.push(change));
      await meeting(store, 'm', 'i');
      for (let batch = 1; batch <= 2; batch++) await store.messages.accept(messages('m', 1));
      await sql(url, 'DELETE FROM messages WHERE seq = 2');
      await sql(url, statement);
      assert.deepEqual(seqsOf(await store.messages.accept(messages('m', 1))), [2]);
      await until('resync', () => changes.some(({ kind }) => kind === 'resync'), Boolean);
      assert.deepEqual(seqsOf(await store.messages.accept(messages('m', 1))), [3]);
      const runs = await sql<{ run_no: string }>(url, 'SELECT run_no FROM runs ORDER BY started_at');
      assert.equal(runs.length, lost === 'the run' ? 1 : 2);
      // The number of a run is far above the numbers that the database counts up.
      for (const { run_no } of runs) assert.ok(Number(run_no) > 1e12);
    });
  }

  for (const raised of [true, false]) {
    const name = 'gives no id again, with a clock that is behind as well';
    test(raised ? name : `control: without what the node knows of its numbers it would`, async (t) => {
      const url = await makeDatabase();
      const proxy = await proxyTo(t, url);
      const store = await open(t, through(url, proxy));
      if (!raised)
        await withoutPart(url, RAISE_NUMBERS, "PERFORM setval('numbers', greatest(given_no, reached_no));", '');
      await meeting(store, 'm', 'i');
      // The clock of a standby is behind: until it has caught up, its numbers count up by one.
      const ahead = Number.MAX_SAFE_INTEGER - 1e12;
      await sql(url, "SELECT setval('numbers', $1)", [ahead]);
      const ids = idsOf(await store.messages.accept(messages('m', 2)));
      await sql(url, 'DELETE FROM deliveries');
      await sql(url, 'DELETE FROM messages');
      await sql(url, "SELECT setval('numbers', $1)", [ahead]);
      proxy.cutAll();
      const again = idsOf(await store.messages.accept(messages('m', 2)));
      assert.equal(
        again.some((id) => ids.includes(id)),
        !raised,
      );
    });
  }

  test('gives a partition no epoch again', async (t) => {
    const url = await makeDatabase();
    const taken = async (node_id: string): Promise<number> => {
      await sql(url, 'UPDATE partitions SET node_no = NULL, epoch = 7');
      const store = await open(t, url);
      const lease = await store.cluster!.renew({ node_id, version: '', address: '', stopping: false }, []);
      await store.cluster!.leave();
      return lease.partitions[0]!.epoch;
    };
    const epochs = [await taken('a'), await taken('b')];
    assert.ok(epochs.every((epoch) => epoch > 7));
    assert.notEqual(epochs[0], epochs[1]);
  });
});

test('a key of a sender is found by a node of the version before, and one that such a node stored is found as well', async (t) => {
  const url = await makeDatabase();
  const store = await open(t, url);
  const by = (sender: string) => newMessage('m', { idempotency: { key: 'k', sender, fingerprint: 'f' } });
  const kindsOf = async (...senders: string[]) =>
    (await store.messages.accept(senders.map(by))).map(({ kind }) => kind);
  assert.deepEqual(await kindsOf('one', 'two'), ['accepted', 'accepted']);
  const rows = await sql<{ key: string; sender: string }>(
    url,
    'SELECT key, sender FROM idempotency_keys ORDER BY sender',
  );
  // A node of the version before looks for the key without the sender.
  assert.deepEqual(rows, [
    { key: 'k', sender: 'one' },
    { key: 'two\nk', sender: 'two' },
  ]);
  await sql(url, "DELETE FROM idempotency_keys WHERE sender = 'two'");
  // Makes the row as an earlier version wrote it, which did not store the sender of the key.
  await sql(url, 'UPDATE idempotency_keys SET sender = NULL');
  assert.deepEqual(await kindsOf('one', 'two'), ['repeated', 'repeated']);
});

test('a damaged row of an idempotency key spoils neither the other messages of its batch nor what is sent later', async (t) => {
  const url = await makeDatabase();
  const proxy = await proxyTo(t, url);
  const store = await open(t, through(url, proxy));
  const damages = ['message_no', 'seq', 'accepted_at', 'deliveries_queued'].flatMap((column) =>
    ['-9223372036854775808', '9223372036854775807'].map((value) => ({ column, value })),
  );
  for (const { column, value } of damages) {
    const meeting_id = `${column} ${value}`;
    const keyed = newMessage(meeting_id, { idempotency: { key: 'k', sender: 's', fingerprint: 'f' } });
    await store.messages.accept([keyed]);
    await sql(url, `UPDATE idempotency_keys SET ${column} = ${value} WHERE meeting_id = $1`, [meeting_id]);
    const [next, repeated] = await store.messages.accept([newMessage(meeting_id), keyed]);
    assert.ok(next?.kind === 'accepted');
    assert.deepEqual([next.message.seq, (await store.messages.get(next.message.message_id))?.seq], [2, 2]);
    assert.deepEqual(repeated, { kind: 'damaged' }, meeting_id);
    // Every new connection tells the database the highest number that this node knows.
    proxy.cutAll();
    assert.deepEqual(seqsOf(await store.messages.accept(messages(meeting_id, 1))), [3], meeting_id);
  }
});

/** An origin whose agent is in no meeting of these tests. */
const AGENT: NewOrigin = { from_agent: 'somebody', in_reply_to: null, speaks_for: null };

describe('a connection that is cut inside the commit of a batch', { concurrency: true }, () => {
  /** A store with a meeting, whose connections go through a proxy, and the changes that it reports. */
  async function behindProxy(
    t: TestContext,
  ): Promise<{ url: string; proxy: CuttingProxy; store: Store; changes: Change[] }> {
    const url = await makeDatabase();
    const proxy = await proxyTo(t, url);
    const store = await open(t, through(url, proxy));
    const changes: Change[] = [];
    store.onChange((change) => changes.push(change));
    await meeting(store, 'm', 'i');
    return { url, proxy, store, changes };
  }

  const IDEMPOTENCY = { key: 'k', sender: '', fingerprint: 'f' };

  for (const has_memory of [true, false]) {
    const name = 'leaves it stored exactly once, and answered as it was stored';
    test(has_memory ? name : `control: without its number it is stored twice`, async (t) => {
      const url = await makeDatabase();
      const proxy = await proxyTo(t, url);
      const store = await open(t, through(url, proxy));
      await meeting(store, 'm', 'i', 'j');
      await store.messages.accept([newMessage('m', { idempotency: IDEMPOTENCY })]);
      if (!has_memory) {
        await withoutPart(url, ACCEPT_MESSAGES_5, 'batch.batch_no = my_batch_no THEN', 'false THEN');
        await sql(url, 'ALTER TABLE batches DROP CONSTRAINT batches_pkey');
      }
      const seen = cutAnswerTo(proxy, 'the marked one');
      const accepted = await store.messages.accept([
        newMessage('m', { message: '{"t":"the marked one"}' }),
        newMessage('m', { idempotency: IDEMPOTENCY }),
        newMessage('m', { target_agents: ['nobody'] }),
        newMessage('m', { origin: AGENT, idempotency: { key: 'other', sender: '', fingerprint: 'f' } }),
      ]);
      assert.equal(seen.cuts, 1);
      const stored = await sql<{ message: string }>(url, 'SELECT message FROM messages');
      const marked = stored.filter(({ message }) => message.includes('the marked one')).length;
      if (!has_memory) return assert.equal(marked, 2);
      assert.equal(marked, 1);
      assert.deepEqual(
        accepted.map((each) => (each.kind === 'accepted' ? [each.message.seq, each.deliveries.length] : each.kind)),
        [[2, 2], 'repeated', [3, 0], [4, 2]],
      );
      assert.ok(accepted[3]?.kind === 'accepted');
      assert.deepEqual(accepted[3].origin, { from_agent: AGENT.from_agent, in_reply_to: null, hops: 1 });
      const in_lane = await lane(store, 'j', 'm');
      const answered = accepted.flatMap((each) => (each.kind === 'accepted' ? each.deliveries : []));
      assert.deepEqual(
        in_lane.slice(1).map(({ delivery_id }) => delivery_id),
        answered.filter(({ instance_id }) => instance_id === 'j').map(({ delivery_id }) => delivery_id),
      );
      assert.deepEqual(seqsOf(await store.messages.accept(messages('m', 1))), [5]);
    });
  }

  test('before it reached the server: it is sent again, and stored once', async (t) => {
    const url = await makeDatabase();
    const proxy = await proxyTo(t, url);
    const store = await open(t, through(url, proxy));
    await meeting(store, 'm', 'i');
    let cuts = 0;
    proxy.onRequest = (bytes) => (bytes.includes('the marked one') && cuts++ === 0 ? 'cut' : 'pass');
    const accepted = await store.messages.accept([newMessage('m', { message: '{"t":"the marked one"}' })]);
    assert.deepEqual([seqsOf(accepted), cuts > 0], [[1], true]);
    assert.equal((await lane(store, 'i', 'm')).length, 1);
  });

  test('of a settlement leaves it written', async (t) => {
    const url = await makeDatabase();
    const proxy = await proxyTo(t, url);
    const store = await open(t, through(url, proxy));
    await meeting(store, 'm', 'i');
    await store.messages.accept(messages('m', 2));
    const queued = await lane(store, 'i', 'm');
    const seen = cutAnswerTo(proxy, 'the marked one');
    await store.deliveries.settle(
      queued.map((each) => settled(each, { attempts: '[{"detail":"the marked one"}]' })),
      [],
    );
    assert.equal(seen.cuts, 1);
    assert.equal(await store.deliveries.countPending(), 0);
  });

  test('and a database that stays away: the senders hear that it is in doubt, and what was stored is found later', async (t) => {
    const { proxy, store, changes } = await behindProxy(t);
    const [before] = await store.messages.accept(messages('m', 1));
    const seen = cutAnswerTo(proxy, 'the marked one');
    const onAnswer = proxy.onAnswer;
    let is_away = false;
    proxy.onAnswer = (bytes, connection) => {
      if (is_away) return 'cut';
      const verdict = onAnswer(bytes, connection);
      is_away = verdict === 'cut';
      return verdict;
    };
    const sent = store.messages.accept([newMessage('m', { message: '{"t":"the marked one"}' })]);
    await assert.rejects(sent, { name: 'StoreError', code: 'IN_DOUBT' });
    assert.equal(seen.cuts, 1);
    is_away = false;
    proxy.onAnswer = () => 'pass';
    const [after] = await store.messages.accept(messages('m', 1));
    assert.ok(before?.kind === 'accepted' && after?.kind === 'accepted');
    // A seq is missing, so the node that delivers must read the rows in between.
    assert.deepEqual([before.message.seq, after.message.seq], [1, 3]);
    await until('resync', () => changes.some(({ kind }) => kind === 'resync'), Boolean);
    assert.deepEqual(
      (await lane(store, 'i', 'm')).map(({ seq }) => seq),
      [1, 2, 3],
    );
  });

  test('and a database that then refuses the batch: the senders hear that it is in doubt, and what was stored is found', async (t) => {
    const { url, proxy, store, changes } = await behindProxy(t);
    await store.messages.accept(messages('m', 1));
    cutAnswerTo(proxy, 'the marked one');
    const { onAnswer } = proxy;
    const is_full = Promise.withResolvers<void>();
    proxy.onAnswer = (bytes, connection) => {
      const verdict = onAnswer(bytes, connection);
      if (verdict !== 'cut') return verdict;
      // Nobody gets through before the disk of the database is full.
      proxy.onRequest = () => 'cut';
      const FULL = "  BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100';";
      is_full.resolve(withoutPart(url, ACCEPT_MESSAGES_5, '  BEGIN', FULL));
      return verdict;
    };
    const sent = store.messages.accept([newMessage('m', { message: '{"t":"the marked one"}' })]);
    void is_full.promise.then(() => (proxy.onRequest = () => 'pass'));
    await assert.rejects(sent, { name: 'StoreError', code: 'IN_DOUBT', message: /full$/ });
    await sql(url, ACCEPT_MESSAGES_5.replace('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION'));
    changes.length = 0;
    assert.deepEqual(seqsOf(await store.messages.accept(messages('m', 1))), [3]);
    await until('resync', () => changes.some(({ kind }) => kind === 'resync'), Boolean);
  });

  test('is no doubt where nothing was sent: nothing was stored', async (t) => {
    const url = await makeDatabase();
    const proxy = await proxyTo(t, url);
    const store = await open(t, through(url, proxy));
    await meeting(store, 'm', 'i');
    proxy.onRequest = () => 'cut';
    await assert.rejects(store.messages.accept(messages('m', 1)), ({ code }: StoreError) => code !== 'IN_DOUBT');
    proxy.onRequest = () => 'pass';
    assert.deepEqual(seqsOf(await store.messages.accept(messages('m', 1))), [1]);
  });
});

describe('a server that crashes and comes back', () => {
  test('costs no accepted message, and the store continues by itself', async (t) => {
    const server = await PostgresServer.start();
    t.after(() => server.stop());
    const client = new pg.Client(server.urlOf('postgres'));
    await client.connect();
    await client.query(`CREATE DATABASE crashing ENCODING 'UTF8' TEMPLATE template0`);
    const url = server.urlOf('crashing');
    const store = await open(t, url);
    const changes: Change[] = [];
    store.onChange((change) => changes.push(change));
    await meeting(store, 'm', 'i');
    // The test needs every connection to be cut.
    let is_cut = false;
    client.on('error', () => {});
    client.on('end', () => (is_cut = true));

    // The store gives up after some seconds. On a slow machine the server takes longer, so this time passes slowly.
    const now = performance.now.bind(performance);
    const began_ms = now();
    const slowly = t.mock.method(performance, 'now', () => began_ms + (now() - began_ms) / 12);
    const answered: number[] = [];
    let failed = 0;
    for (let crash = 0; crash < 3; crash++) {
      const sending = Array.from({ length: 20 }, async () => {
        await store.messages.accept(messages('m', 10)).then(
          (accepted) => answered.push(...seqsOf(accepted)),
          (error: unknown) => {
            assert.ok(error instanceof StoreError);
            failed++;
          },
        );
      });
      await Promise.all([server.halt().then(() => server.resume()), ...sending]);
      answered.push(...seqsOf(await store.messages.accept(messages('m', 1))));
      await store.meetings.join('m', 'i', ['a'], 1);
    }
    slowly.mock.restore();
    assert.ok(is_cut);
    const stored = await sql<{ seq: string }>(url, 'SELECT seq FROM messages ORDER BY seq');
    const seqs = stored.map(({ seq }) => Number(seq));
    assert.equal(new Set(answered).size, answered.length);
    assert.deepEqual(
      answered.filter((seq) => !seqs.includes(seq)),
      [],
    );
    assert.equal(failed, 0, 'it was back before anybody was given up');
    assert.equal(seqs.length, answered.length, 'nothing was stored twice');
    await until('that changes may have been missed', () => changes.some(({ kind }) => kind === 'resync'), Boolean);
  });
});

describe('numbers', () => {
  const ASLEEP = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`;
  const LOCKED = `
    SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

  test('are taken without a lock that is held afterwards: others take theirs while the transaction is still open', async (t) => {
    const url = await makeDatabase();
    const client = new pg.Client(url);
    await client.connect();
    t.after(() => client.end());
    await client.query('BEGIN');
    const first = (await client.query<{ no: string }>('SELECT take_numbers(1000) AS no')).rows[0]!;
    const [next] = await sql<{ no: string }>(url, 'SELECT take_numbers(1) AS no');
    assert.ok(Number(next!.no) >= Number(first.no) + 1000);
    assert.deepEqual(await sql(url, LOCKED), []);
  });

  for (const ends of [true, false]) {
    const name = 'are not locked for ever when the statement that takes them is cancelled in between';
    test(ends ? name : 'control: under a lock of the session they are', async (t) => {
      const url = await makeDatabase();
      await withoutPart(url, TAKE_NUMBERS, 'PERFORM setval', 'PERFORM pg_sleep(60); PERFORM setval');
      const slow = TAKE_NUMBERS.replace('PERFORM setval', 'PERFORM pg_sleep(60); PERFORM setval');
      if (!ends) await withoutPart(url, slow, 'pg_advisory_xact_lock(', 'pg_advisory_lock(');
      const client = new pg.Client(url);
      await client.connect();
      t.after(() => client.end());
      const taken = assert.rejects(client.query('SELECT take_numbers(1)'), { code: '57014' });
      const [asleep] = await until(
        'it to be in between',
        () => sql<{ pid: number }>(url, ASLEEP),
        (rows) => rows.length === 1,
      );
      await sql(url, 'SELECT pg_cancel_backend($1)', [asleep!.pid]);
      await taken;
      // The server says that it cancels a statement before it releases its locks, and then takes the next statement.
      await client.query('SELECT 1');
      assert.equal((await sql(url, LOCKED)).length, ends ? 0 : 1);
    });
  }
});

const NODE = { version: '1', address: 'http://node', stopping: false };
const node = (node_id: string) => ({ ...NODE, node_id });

/** Ends a lease as if its time had passed on the clock of the database. */
function endLease(url: string, node_id: string): Promise<object[]> {
  return sql(url, 'UPDATE nodes SET lease_until = lease_until - 60000 WHERE node_id = $1', [node_id]);
}

const RENEW_MS = 3_000;

/** Sets the clock of the database, as the functions of the leases see it, for present and later connections. */
async function setClock(url: string, is_set: string): Promise<void> {
  const SET = `floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint ${is_set}`;
  const NOW = 'floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint';
  await sql(url, RENEW_LEASE.replaceAll(NOW, SET).replace('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION'));
}

describe('partitions', () => {
  test('a machine counts as connected only while its node was seen in the last 5 s', async (t) => {
    const url = await makeDatabase();
    const store = await open(t, url);
    const lease = await store.cluster!.renew(node('a'), []);
    await register(store, 'i');
    await sql(url, "UPDATE instances SET transport = 'pull'");
    const epoch = lease.partitions.find(({ partition_no }) => partition_no === partitionOf('i'))!.epoch;
    const connection = { since: 1, address: null, client: null };
    await store.instances.noteConnections([{ instance_id: 'i', connection, epoch }]);
    const shown = async (): Promise<unknown[]> => {
      const listed = await store.instances.list({ limit: 1 });
      return [(await store.instances.get('i'))?.connection ?? null, listed.data[0]?.connection ?? null];
    };
    const seen = (ago_ms: number) =>
      sql(url, 'UPDATE nodes SET seen_at = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1', [ago_ms]);
    await seen(0);
    assert.deepEqual(await shown(), [connection, connection]);
    await seen(5_100);
    assert.deepEqual(await shown(), [null, null]);
    // The node was only slow, and renews again.
    await store.cluster!.renew(node('a'), []);
    assert.deepEqual(await shown(), [connection, connection]);
  });

  test('are shared by the live nodes; a node that is gone for a lease loses its own', async (t) => {
    const url = await makeDatabase();
    let now_ms = 0;
    const [a, b] = [await open(t, url), await open(t, url, () => now_ms)];
    assert.ok(a.cluster !== null && b.cluster !== null);
    const alone = await a.cluster.renew(node('a'), []);
    assert.equal(alone.partitions.length, PARTITIONS);
    const joined = await b.cluster.renew(node('b'), []);
    assert.deepEqual([joined.partitions.length, joined.nodes.length], [0, 2]);
    const released = alone.partitions.slice(0, 32).map(({ partition_no }) => partition_no);
    assert.equal((await a.cluster.renew(node('a'), [...released, 99])).partitions.length, 32);
    const shared = await b.cluster.renew(node('b'), []);
    assert.deepEqual(
      shared.partitions.map(({ partition_no }) => partition_no),
      released,
    );
    assert.ok(shared.partitions.every(({ epoch }, i) => epoch > alone.partitions[i]!.epoch));

    // Control: until the lease of the other node ends, nobody takes its partitions.
    assert.equal((await b.cluster.renew(node('b'), [])).partitions.length, 32);
    now_ms += LEASE_WATCHED_MS;
    const taken = await b.cluster.renew(node('b'), []);
    assert.deepEqual([taken.partitions.length, taken.nodes.map(({ node_id }) => node_id)], [64, ['b']]);
    // The node renews again, but it has lost all its partitions.
    assert.deepEqual((await a.cluster.renew(node('a'), [])).partitions, []);
    assert.deepEqual(
      (await a.cluster.list()).map(({ node_id, partition_count }) => [node_id, partition_count]),
      [
        ['a', 0],
        ['b', 64],
      ],
    );
  });

  for (const [step, is_set] of [
    ['ten minutes back', '- 600000'],
    ['ten minutes ahead', '+ 600000'],
  ] as const) {
    test(`are taken from a dead node and from no live one, though the clock of the database was set ${step}`, async (t) => {
      const url = await makeDatabase();
      let now_ms = 0;
      const [a, b] = [await open(t, url), await open(t, url, () => now_ms)];
      await a.cluster!.renew(node('a'), []);
      await b.cluster!.renew(node('b'), []);
      const release = Array.from({ length: PARTITIONS / 2 }, (_, partition_no) => partition_no);
      await a.cluster!.renew(node('a'), release);
      const held = async (): Promise<number> => {
        now_ms += RENEW_MS;
        return (await b.cluster!.renew(node('b'), [])).partitions.length;
      };
      await held();
      await setClock(url, is_set);
      // Both nodes live, and renew one after the other.
      for (let renewals = 0; renewals < 6; renewals++) {
        assert.equal(await held(), PARTITIONS / 2);
        await a.cluster!.renew(node('a'), []);
      }
      const counts: number[] = [];
      for (let renewals = 0; renewals < 7; renewals++) counts.push(await held());
      // Node b watches node a from its last renewal on, for the duration of its lease.
      assert.deepEqual(counts, [32, 32, 32, 32, 32, 64, 64]);
    });
  }

  for (const has_ended of [true, false]) {
    const name = 'in a dump are taken at once by a node that starts after their leases have ended';
    test(has_ended ? name : 'control: before their end they are taken after the time of a lease', async (t) => {
      const url = await makeDatabase();
      let now_ms = 0;
      const [dumped, started] = [await open(t, url), await open(t, url, () => now_ms)];
      await dumped.cluster!.renew(node('dumped'), []);
      if (has_ended) await endLease(url, 'dumped');
      const held = async () => (await started.cluster!.renew(node('started'), [])).partitions.length;
      const shown = async () => (await started.cluster!.list()).map(({ node_id }) => node_id);
      assert.equal(await held(), has_ended ? PARTITIONS : 0);
      assert.deepEqual(await shown(), has_ended ? ['started'] : ['dumped', 'started']);
      now_ms += LEASE_WATCHED_MS;
      assert.equal(await held(), PARTITIONS);
      assert.deepEqual(await shown(), ['started']);
    });
  }

  test('that nobody took while a lease had ended are kept, with their epochs', async (t) => {
    const url = await makeDatabase();
    const a = await open(t, url);
    const before = await a.cluster!.renew(node('a'), []);
    await endLease(url, 'a');
    assert.deepEqual((await a.cluster!.renew(node('a'), [])).partitions, before.partitions);
  });

  test('of a node that leaves are free at once; one that stops takes none', async (t) => {
    const url = await makeDatabase();
    const [a, b] = [await open(t, url), await open(t, url)];
    await a.cluster!.renew(node('a'), []);
    await b.cluster!.renew(node('b'), []);
    await a.cluster!.leave();
    assert.equal((await b.cluster!.renew({ ...node('b'), stopping: true }, [])).partitions.length, 0);
    const lease = await b.cluster!.renew(node('b'), []);
    assert.deepEqual([lease.partitions.length, lease.nodes.length], [PARTITIONS, 1]);
    await assert.rejects(a.cluster!.renew(node('a'), []), { code: 'NODE_LEFT' });
  });

  test('have an address for forwarded pulls, also after the database was restored to a state without their node', async (t) => {
    const url = await makeDatabase();
    const { cluster } = await open(t, url);
    const addresses = async () => [...new Set((await cluster!.addressesOfHolders()).values())];
    const { node_no } = await cluster!.renew(node('a'), []);
    assert.deepEqual(await addresses(), [node('a').address]);
    await sql(url, 'UPDATE partitions SET node_no = NULL');
    await sql(url, 'DELETE FROM nodes');
    await sql(url, `ALTER TABLE nodes ALTER COLUMN node_no RESTART WITH ${node_no}`);
    assert.equal((await cluster!.renew(node('a'), [])).node_no, node_no);
    assert.deepEqual(await addresses(), [node('a').address]);
  });

  test('that many nodes request at once go to one node each', async (t) => {
    const url = await makeDatabase();
    const stores = await Promise.all(['a', 'b', 'c'].map(() => open(t, url)));
    const leases = await Promise.all(stores.map((store, i) => store.cluster!.renew(node(`n${i}`), [])));
    const given = leases.flatMap(({ partitions }) => partitions.map(({ partition_no }) => partition_no));
    assert.equal(given.length, PARTITIONS);
    assert.equal(new Set(given).size, PARTITIONS);
  });

  for (const is_fenced of [true, false]) {
    const name = 'fence settlements: what a previous owner says does not land, of deliveries and of health';
    test(is_fenced ? name : 'control: without comparing epochs it lands', async (t) => {
      const url = await makeDatabase();
      const [a, b] = [await open(t, url), await open(t, url)];
      const before = await a.cluster!.renew(node('a'), []);
      const epochOf = ({ partitions }: typeof before): number =>
        partitions.find(({ partition_no }) => partition_no === partitionOf('i'))!.epoch;
      await meeting(a, 'm', 'i');
      await a.messages.accept(messages('m', 1));
      const [delivery] = await lane(a, 'i', 'm');
      assert.ok(delivery !== undefined);
      await endLease(url, 'a');
      const after = await b.cluster!.renew(node('b'), []);
      if (!is_fenced) {
        const spoilt = SETTLE_DELIVERIES_4.replaceAll(/AND [hs]\.epoch = present\[[^\]]*\]/g, '');
        assert.notEqual(spoilt, SETTLE_DELIVERIES_4);
        await sql(url, spoilt.replace('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION'));
      }
      const say = (store: Store, epoch: number) =>
        store.deliveries.settle(
          [settled(delivery, { epoch })],
          [
            {
              instance_id: 'i',
              webhook_url: 'http://i.test/',
              consecutive_failures: 3,
              health_since: null,
              last_success_at: null,
              last_failure: null,
              backoff_step: 0,
              backoff_until: null,
              gone_as_of: null,
              epoch,
            },
          ],
        );
      const seen = async () => [await a.deliveries.countPending(), (await a.instances.get('i'))?.consecutive_failures];
      await say(a, epochOf(before));
      assert.deepEqual(await seen(), is_fenced ? [1, 0] : [0, 3]);
      await say(b, epochOf(after));
      assert.deepEqual(await seen(), [0, 3]);
    });
  }
});

describe('nodes notify each other', () => {
  async function two(t: TestContext) {
    const url = await makeDatabase();
    const [a, b] = [await open(t, url), await open(t, url)];
    const received: { a: Change[]; b: Change[] } = { a: [], b: [] };
    a.onChange((change) => received.a.push(change));
    b.onChange((change) => received.b.push(change));
    return { url, a, b, received };
  }

  /** Waits until both nodes are in the cluster and have half of the partitions each. Returns the partitions of `a`. */
  async function halves(a: Store, b: Store): Promise<Set<number>> {
    const all = await b.cluster!.renew(node('b'), []);
    const odd = all.partitions.filter(({ partition_no }) => partition_no % 2 === 1).map((each) => each.partition_no);
    await a.cluster!.renew(node('a'), []);
    await b.cluster!.renew(node('b'), odd);
    const held = (await a.cluster!.renew(node('a'), [])).partitions.map(({ partition_no }) => partition_no);
    assert.deepEqual(held, odd);
    return new Set(held);
  }

  const rangesOf = (changes: Change[]) => changes.flatMap((change) => (change.kind === 'stored' ? change.ranges : []));
  const storedOf = (changes: Change[]) => rangesOf(changes).flatMap((range) => range.messages);

  test("of every seq that is given, and of messages with deliveries in the reader's partitions; of no others", async (t) => {
    const { a, b, received } = await two(t);
    const held = await halves(a, b);
    const ids = Array.from({ length: 20 }, (_, k) => `i${k}`);
    await meeting(a, 'm', ...ids);
    await meeting(a, 'empty');
    const batch = [
      newMessage('m', { message: '{"n":1}', timestamp: '"then\\u0000"' }),
      newMessage('empty', { message: '{"n":2}' }),
      newMessage('m', { message: '{"n":3}', target_agents: ['nobody'] }),
      newMessage('m', {
        message: '{"n":4}',
        origin: AGENT,
        trace: TRACE,
        idempotency: { key: 'k', sender: '', fingerprint: 'f' },
      }),
    ];
    const accepted = await a.messages.accept(batch);
    await a.messages.accept([batch[3]!]);
    await until(
      'the batch',
      () => rangesOf(received.b),
      (ranges) => ranges.length > 0,
    );
    const stored = accepted.flatMap((each, i) => {
      assert.equal(each.kind, 'accepted');
      const { message_id, meeting_id, seq, accepted_at } = each.message;
      const { message, timestamp, trace, expires_at } = batch[i]!;
      const deliveries = each.deliveries.filter(({ instance_id }) => !held.has(partitionOf(instance_id)));
      if (deliveries.length === 0) return [];
      const { origin } = each;
      return [{ message_id, meeting_id, seq, accepted_at, message, timestamp, origin, trace, expires_at, deliveries }];
    });
    const counts = stored.map(({ deliveries }) => deliveries.length);
    assert.ok(counts[0]! > 0 && counts[0]! < ids.length);
    assert.deepEqual(counts, [counts[0], counts[0]]);
    assert.deepEqual(
      rangesOf(received.b).toSorted((one, other) => (one.meeting_id < other.meeting_id ? -1 : 1)),
      [
        { meeting_id: 'empty', first_seq: 1, last_seq: 1, messages: [] },
        { meeting_id: 'm', first_seq: 1, last_seq: 3, messages: stored },
      ],
    );
    assert.deepEqual(rangesOf(received.a), []);
  });

  test('of what was stored also when its answer was lost, and once', async (t) => {
    const url = await makeDatabase();
    const proxy = await proxyTo(t, url);
    const [a, b] = [await open(t, through(url, proxy)), await open(t, url)];
    const received: Change[] = [];
    b.onChange((change) => received.push(change));
    await b.cluster!.renew(node('b'), []);
    await meeting(b, 'm', 'i');
    const seen = cutAnswerTo(proxy, 'the marked one');
    await a.messages.accept([newMessage('m', { message: '{"t":"the marked one"}' })]);
    await a.messages.accept(messages('m', 1));
    assert.equal(seen.cuts, 1);
    await until(
      'messages',
      () => storedOf(received),
      (messages) => messages.length >= 2,
    );
    assert.deepEqual(
      storedOf(received).map(({ seq, deliveries }) => [seq, deliveries.length]),
      [
        [1, 1],
        [2, 1],
      ],
    );
  });

  test('of nothing where there is nobody else: a node alone commits its batches without a NOTIFY', async (t) => {
    const { a, b, received } = await two(t);
    await a.cluster!.renew(node('a'), []);
    await meeting(a, 'm', 'i');
    await a.messages.accept(messages('m', 1));
    // Later broadcasts on the same connections arrive, so the earlier broadcast was not sent.
    await b.cluster!.renew(node('b'), []);
    await a.messages.accept(messages('m', 1));
    await until(
      'a message',
      () => rangesOf(received.b),
      (ranges) => ranges.length > 0,
    );
    assert.deepEqual(
      rangesOf(received.b).map(({ first_seq }) => first_seq),
      [2],
    );
  });

  test('of changed instances, changed keys, and texts of any kind; a node does not get its own broadcasts', async (t) => {
    const { a, b, received } = await two(t);
    await register(a, 'i');
    await a.instances.patch('i', { instance_name: 'other' }, 1);
    await a.instances.patch('i', { is_active: true }, 1);
    await a.instances.heartbeat('i', 2);
    await a.deliveries.recover({ instance_id: 'i', since_ms: 0, until_ms: 1 }, 10, 1, 2);
    await a.instances.remove('i', 10, 1);
    await a.api_keys.create({
      key_id: 'k',
      name: null,
      scopes: ['admin'],
      meeting_ids: null,
      instance_id: null,
      digest: 'd',
      created_at: 1,
      expires_at: null,
    });
    await b.cluster!.broadcast('topic', 'back\n"');
    await a.cluster!.broadcast('topic', `é\n${'"'.repeat(5_590)}`);
    const instance = (lifts: boolean, requeued = false): Change => ({
      kind: 'instance',
      instance_id: 'i',
      resets_backoff: lifts,
      requeued,
    });
    await until(
      'all of it',
      () => received.b.length,
      (count) => count >= 7,
    );
    assert.deepEqual(received.b, [
      instance(true),
      instance(false),
      instance(true),
      instance(true, true),
      instance(false, true),
      { kind: 'keys' },
      { kind: 'broadcast', topic: 'topic', text: `é\n${'"'.repeat(5_590)}` },
    ] satisfies Change[]);
    await until(
      'an answer',
      () => received.a.length,
      (count) => count >= 1,
    );
    assert.deepEqual(received.a, [{ kind: 'broadcast', topic: 'topic', text: 'back\n"' }]);
  });

  test('what was refused is announced to no node', async (t) => {
    const { a, b, received } = await two(t);
    await assert.rejects(a.meetings.join('m', 'nobody', [], 1));
    assert.equal(await a.instances.patch('nobody', { is_active: true }, 1), null);
    await a.cluster!.broadcast('last', '');
    await until(
      'the last',
      () => received.b,
      (changes) => changes.length > 0,
    );
    assert.deepEqual(received.b, [{ kind: 'broadcast', topic: 'last', text: '' }]);
    await b.close();
  });

  test('and a node that could not listen for a while reads everything again', async (t) => {
    const url = await makeDatabase();
    const proxy = await proxyTo(t, url);
    const store = await open(t, through(url, proxy));
    const received: Change[] = [];
    store.onChange((change) => received.push(change));
    proxy.cutAll();
    await until(
      'resync',
      () => received,
      (changes) => changes.length > 0,
    );
    assert.deepEqual(received, [{ kind: 'resync' }]);
    const other = await open(t, url);
    await other.cluster!.broadcast('topic', 'again');
    await until(
      'what is told',
      () => received,
      (changes) => changes.length > 1,
    );
  });

  test('on one connection, however often it is lost and its LISTEN too; a close ends it', async (t) => {
    const url = await makeDatabase();
    const proxy = await proxyTo(t, url);
    const store = await open(t, through(url, proxy));
    let resyncs = 0;
    store.onChange(({ kind }) => (resyncs += Number(kind === 'resync')));
    // The last statement of a connection that listens is its LISTEN, or the probe that follows.
    const listening = async (): Promise<number> => {
      const IS_LISTENING = `
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'convoke' AND (query LIKE 'LISTEN %' OR query = 'SELECT 1')`;
      return (await sql(url, IS_LISTENING)).length;
    };
    for (let losses = 1; losses <= 3; losses++) {
      let cuts = 0;
      proxy.onRequest = (bytes) => (bytes.includes('LISTEN ') && cuts++ === 0 ? 'cut' : 'pass');
      proxy.cutAll();
      await until(
        'a connection that listens again',
        () => resyncs,
        (count) => count >= losses,
      );
      await until('one connection that listens', listening, (count) => count === 1);
      assert.deepEqual([cuts > 1, resyncs], [true, losses]);
    }
    await store.close();
    await until('no connection that listens', listening, (count) => count === 0);
  });
});

describe('tables that have grown since the plans were made', () => {
  const ROWS = 2_000;
  const FILLED = [
    `INSERT INTO instances (instance_id, partition_no, instance_name, agent_ids, webhook_url, webhook_headers, webhook_secret,
       success_statuses, webhook_enabled, is_active, created_at, updated_at)
     SELECT 'other' || n, 0, 'n', '["a"]', 'http://other.test/', '{}', '', '200', 1, 1, 1, 1 FROM generate_series(1, ${ROWS}) n`,
    `INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at)
     SELECT 'other' || n, 0, 1, 1 FROM generate_series(1, ${ROWS}) n`,
    `INSERT INTO memberships (meeting_id, instance_id, agent_ids, joined_at)
     SELECT 'other' || n, 'other' || n, '["a"]', 1 FROM generate_series(1, ${ROWS}) n`,
    `INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, partition_no, target_agents, expires_at, created_at)
     SELECT n, n, 'other' || n, 1, 'other' || n, 0, '["a"]', 1, 1 FROM generate_series(1, ${ROWS}) n`,
    `INSERT INTO idempotency_keys (meeting_id, key, fingerprint, message_no, seq, accepted_at, deliveries_queued, created_at)
     SELECT 'other' || n, 'k', 'f', 1, 1, 1, 1, 1 FROM generate_series(1, ${ROWS}) n`,
  ];
  const READ = `
    SELECT max(coalesce(seq_tup_read, 0) + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid))::int AS rows
    FROM pg_stat_user_tables t WHERE relname IN ('instances', 'meetings', 'memberships', 'deliveries', 'idempotency_keys')`;

  for (const goes_by_keys of [true, false]) {
    const name = 'are not read as a whole to accept a message, or to settle a delivery';
    test(goes_by_keys ? name : 'control: without all keys of the batch as a condition they are', async (t) => {
      const url = await makeDatabase();
      if (!goes_by_keys) await withoutPart(url, SETTLE_DELIVERIES_4, 'd.delivery_no = ANY (delivery_nos) AND', '');
      for (const table of ['instances', 'meetings', 'memberships', 'deliveries', 'idempotency_keys']) {
        await sql(url, `ALTER TABLE ${table} SET (autovacuum_enabled = off)`);
      }
      const store = await open(t, url);
      await meeting(store, 'm', 'i');
      const once = async (key: string): Promise<void> => {
        await store.messages.accept([
          newMessage('m', { idempotency: { key, sender: '', fingerprint: 'f' }, target_agents: ['a'] }),
          newMessage('m'),
        ]);
        await store.deliveries.settle(
          (await lane(store, 'i', 'm')).map((each) => settled(each)),
          [],
        );
      };
      await once('first');
      for (const text of FILLED) await sql(url, text);
      await once('second');
      // Closes the store, because a session reports its counts when it ends.
      await store.close();
      const [read] = await sql<{ rows: number }>(url, READ);
      assert.equal(read!.rows < ROWS / 2, goes_by_keys, `${read!.rows} rows were read of one table`);
    });
  }
});

const SETTLES_FIRST = "UPDATE deliveries SET state = 'delivered', noted = 0, settled_at = 1 WHERE seq = 1";

/** A lane with thirty deliveries. While a change is made, another client changes the first of them. */
async function thirtyWaiting(t: TestContext) {
  const url = await makeDatabase();
  const store = await open(t, url);
  await meeting(store, 'm', 'i');
  await store.messages.accept(messages('m', 30));
  const other = new pg.Client(url);
  await other.connect();
  t.after(() => other.end());
  const WAITING = `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
  const whileOther = async <Result>(text: string, change: () => Promise<Result>): Promise<Result> => {
    await other.query('BEGIN');
    await other.query(text);
    const changed = change();
    await until(
      'the change to wait for the other client',
      async () => (await sql<{ n: number }>(url, WAITING))[0]!.n,
      (count) => count === 1,
    );
    await other.query('COMMIT');
    return changed;
  };
  return { store, whileOther };
}

test('a step of a drop drops as many as it may, also when some of them are settled meanwhile', async (t) => {
  const { store, whileOther } = await thirtyWaiting(t);
  const waiting = { meeting_id: 'm', up_to: await store.messages.last() };
  const drop = () => store.deliveries.drop(waiting, 20, 1);
  const lanes = await whileOther(SETTLES_FIRST, drop);
  assert.deepEqual(
    lanes.map(({ count }) => count),
    [20],
  );
  assert.deepEqual(
    (await drop()).map(({ count }) => count),
    [9],
  );
});

for (const [done, text] of [
  ['removed by the retention', 'DELETE FROM deliveries WHERE seq = 1'],
  ['queued again', "UPDATE deliveries SET state = 'pending', noted = 1, aside = 1, failed_at = NULL WHERE seq = 1"],
] as const) {
  test(`a step of a recovery queues as many as it may, also when some of them are ${done} meanwhile`, async (t) => {
    const { store, whileOther } = await thirtyWaiting(t);
    const waiting = await lane(store, 'i', 'm');
    await store.deliveries.settle(
      waiting.map((delivery) => settled(delivery, { state: 'failed', reason: 'not_200', settled_at: delivery.seq })),
      [],
    );
    const recover = () => store.deliveries.recover({ instance_id: 'i', since_ms: 0, until_ms: 30 }, 20, 1, 2);
    assert.deepEqual(await whileOther(text, recover), { recovered: 20 });
    assert.deepEqual(await recover(), { recovered: 9 });
  });
}

for (const is_chosen of [false, true]) {
  const which = is_chosen ? 'chosen deliveries' : 'a period';
  test(`a recovery of ${which} leaves a delivery alone whose late result is written meanwhile`, async (t) => {
    const { store, whileOther } = await thirtyWaiting(t);
    const pending = await lane(store, 'i', 'm');
    await store.deliveries.expireLanes(null, 10, NEVER + 1, 1);
    const delivery_ids = pending.map(({ delivery_id }) => delivery_id);
    const of = { instance_id: 'i', ...(is_chosen ? { delivery_ids } : { since_ms: 0, until_ms: 1 }) };
    const recovered = await whileOther(SETTLES_FIRST, () => store.deliveries.recover(of, 100, 2, NEVER));
    assert.deepEqual(recovered, { recovered: 29 });
    assert.equal((await store.deliveries.get(delivery_ids[0]!, 2))?.state, 'delivered');
  });
}

describe('an instance that is removed while others send', () => {
  test('leaves nothing pending behind, however many nodes send', async (t) => {
    const url = await makeDatabase();
    const [a, b] = [await open(t, url), await open(t, url)];
    for (let round = 0; round < 5; round++) {
      await meeting(a, 'm', 'i');
      const sends = [a, b].flatMap((each) => Array.from({ length: 10 }, () => each.messages.accept(messages('m', 5))));
      for (let done = false; !done;) ({ done } = await b.instances.remove('i', 20, 1));
      await Promise.all(sends);
      assert.equal(await a.deliveries.countPending(), 0, `round ${round}`);
    }
  });

  test('leaves nothing pending behind when deliveries are settled meanwhile', async (t) => {
    const { store, whileOther } = await thirtyWaiting(t);
    const { done, cancelled } = await whileOther(SETTLES_FIRST, () => store.instances.remove('i', 20, 1));
    assert.deepEqual([done, cancelled], [false, 19]);
    assert.equal((await store.instances.remove('i', 20, 1)).done, true);
    assert.equal(await store.deliveries.countPending(), 0);
  });

  for (const excludes of [true, false]) {
    const name = 'waits for sends that have already looked for their recipients';
    test(excludes ? name : 'control: without waiting something is stored for nobody', async (t) => {
      const url = await makeDatabase();
      const [a, b] = [await open(t, url), await open(t, url)];
      await meeting(a, 'm', 'i');
      if (!excludes) await withoutPart(url, ACCEPT_MESSAGES_5, /PERFORM pg_advisory_xact_lock_shared[^;]*;/, '');
      // Only of this database: tests of other files wait for locks on the same server.
      const WAITING = `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
      const waiting = async () => (await sql<{ n: number }>(url, WAITING))[0]!.n;
      // Another client is about to store the same key. When the function has found the recipients, it waits for this
      // client.
      const other = new pg.Client(url);
      await other.connect();
      t.after(() => other.end());
      await other.query('BEGIN');
      await other.query(`INSERT INTO idempotency_keys VALUES ('m', 'k', 'f', 1, 1, 1, 1, 1)`);
      const sent = a.messages.accept([newMessage('m', { idempotency: { key: 'k', sender: '', fingerprint: 'f' } })]);
      await until('the send to wait', waiting, (count) => count === 1);
      const removed = b.instances.remove('i', 10, 1);
      if (excludes) await until('the removal to wait', waiting, (count) => count === 2);
      else await removed;
      await other.query('ROLLBACK');
      assert.equal((await sent)[0]?.kind, 'accepted');
      assert.equal((await removed).done, true);
      assert.equal(await a.deliveries.countPending(), excludes ? 0 : 1);
    });
  }
});

describe('a database', () => {
  const openAt = (url: string, keys = POSTGRES_KEYS) =>
    Executor.open(url, keys, NO_QUOTAS, { answer: () => {}, change: () => {}, failed: () => {} }, Date.now());

  test('is brought up to date by the first node, when many start at once', async (t) => {
    const url = await makeDatabase({ migrated: false });
    const opened = await Promise.all(Array.from({ length: 4 }, () => openAt(url)));
    t.after(() => Promise.all(opened.map((each) => each.close())));
    assert.deepEqual(await sql(url, 'SELECT count(*)::int AS tags FROM this_database'), [{ tags: 1 }]);
    const { to } = await migrateDatabase(url);
    assert.deepEqual(await sql(url, 'SELECT version FROM schema_version'), [{ version: to }]);
  });

  test('of a newer schema is refused, and left as it is', async () => {
    const url = await makeDatabase();
    await sql(url, 'UPDATE schema_version SET version = 99, steps_known_min = 99');
    await assert.rejects(openAt(url), {
      name: 'StoreError',
      code: 'SCHEMA_NEWER',
      message: /schema 99.*newer version/,
    });
    assert.deepEqual(await sql(url, 'SELECT version FROM schema_version'), [{ version: 99 }]);
  });

  test('under the key of another node is refused, and the sentence says what to do', async (t) => {
    const url = await makeDatabase();
    const first = await openAt(url);
    t.after(() => first.close());
    const other = { current: createSecretKey(Buffer.alloc(32, 1)), previous: null };
    const refused = {
      name: 'StoreError',
      code: 'ENCRYPTION_KEY_WRONG',
      message: /all nodes need the same.*CONVOKE_ENCRYPTION_KEY/,
    };
    await assert.rejects(openAt(url, { kind: 'given', keys: other }), refused);
    const path = join(temporaryFile(t), '..', 'encryption.key');
    const missing = {
      name: 'StoreError',
      code: 'ENCRYPTION_KEY_MISSING',
      message: /give it as CONVOKE_ENCRYPTION_KEY/,
    };
    await assert.rejects(openAt(url, { kind: 'file', path }), missing);
  });

  test('that would lose what it confirms, or cannot hold every text, is refused', async (t) => {
    const server = await PostgresServer.start(['-cfsync=off']);
    t.after(() => server.stop());
    await assert.rejects(openAt(server.urlOf('postgres')), { code: 'POSTGRES_FSYNC_OFF', message: /Set fsync=on/ });
    const url = await makeDatabase();
    const ascii = `ascii_${Date.now()}`;
    await sql(url, `CREATE DATABASE ${ascii} ENCODING 'SQL_ASCII' TEMPLATE template0`);
    const of_ascii = new URL(url);
    of_ascii.pathname = `/${ascii}`;
    await assert.rejects(openAt(of_ascii.href), { code: 'POSTGRES_ENCODING', message: /ENCODING 'UTF8'/ });
    await sql(url, `DROP DATABASE ${ascii}`);
  });

  test('that cannot be reached or is not there is named in words, without the password', async (t) => {
    const url = new URL(await makeDatabase());
    url.password = 'hunter2';
    url.pathname = '/nowhere';
    const { store, opened } = openPostgresStore(url.href, '', null);
    t.after(() => store.close());
    await assert.rejects(opened, (error: StoreError) => {
      assert.deepEqual(
        [error.code, /no database "nowhere".*CREATE DATABASE/.test(error.message)],
        ['POSTGRES_NO_DATABASE', true],
      );
      return !error.message.includes('hunter2');
    });
    url.port = '1';
    await assert.rejects(openAt(url.href), (error: StoreError) => {
      assert.deepEqual(
        [error.code, /does not answer.*CONVOKE_DATABASE_URL/.test(error.message)],
        ['POSTGRES_UNREACHABLE', true],
      );
      return !error.message.includes('hunter2');
    });
  });
});
