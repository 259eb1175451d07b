/** SIGTERM ends a node whose PostgreSQL no longer responds, whatever the node is doing at that moment. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import pg from 'pg';
import { MIGRATION } from '../../src/store/postgres/locks.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PostgresServer } from '../support/postgres_server.ts';
import { until } from '../support/wait.ts';
import { enroll, send } from './api.ts';
import { balanced } from './cluster.ts';
import { NodeProcess } from './node_process.ts';
import { temporaryDirectory } from './run.ts';
import type { Protection } from './without.ts';

const MEMBERS = new Map([['one', ['a', 'b', 'c', 'd']]]);
const NOTHING_LISTENS = 'http://127.0.0.1:9';

/** Starts two nodes that share the partitions, and senders that send to both nodes until the test ends. */
async function twoNodes(t: TestContext, database_url: string): Promise<NodeProcess[]> {
  const data = await temporaryDirectory(t);
  const first = NodeProcess.serveOn(t, database_url, data);
  const url = await first.ready;
  const second = NodeProcess.serveOn(t, database_url, data);
  const urls = [url, await second.ready];
  await balanced(url, 2);
  await enroll(url, NOTHING_LISTENS, MEMBERS);
  let accepted = 0;
  const over = new AbortController();
  const speaking = urls.map(async (each) => {
    for (let number = 1; !over.signal.aborted; number++) {
      const answer = await send(each, 'one', number).catch(() => null);
      if (answer?.status === 201) accepted++;
      else await new Promise((rest) => setTimeout(rest, 50));
    }
  });
  t.after(async () => {
    over.abort();
    await Promise.all(speaking);
  });
  await until(
    'load',
    () => accepted,
    (count) => count > 100,
  );
  return [first, second];
}

async function assertEnd(t: TestContext, nodes: NodeProcess[]): Promise<void> {
  const ends = await Promise.all(nodes.map((node) => node.end('SIGTERM')));
  t.diagnostic(`ended after ${ends.map(({ duration_ms }) => Math.round(duration_ms)).join(' and ')} ms`);
  for (const [k, { code }] of ends.entries()) assert.equal(code, 0, nodes[k]?.log);
}

test('two nodes whose PostgreSQL is gone for good end on SIGTERM', async (t) => {
  const server = await PostgresServer.start();
  t.after(() => server.kill());
  const nodes = await twoNodes(t, server.urlOf('postgres'));
  await server.halt();
  await assertEnd(t, nodes);
});

test('two nodes whose PostgreSQL stands still, with every connection open, end on SIGTERM', async (t) => {
  const server = await PostgresServer.start();
  const nodes = await twoNodes(t, server.urlOf('postgres'));
  const client = new pg.Client(server.urlOf('postgres'));
  await client.connect();
  // Stops the main process first: it would start other processes, and would forget the numbers of those that end.
  const [main = ''] = readFileSync(join(server.directory, 'data/postmaster.pid'), 'utf8').split('\n');
  const stopped: number[] = [];
  const stopOne = (pid: number): void => {
    process.kill(pid, 'SIGSTOP');
    stopped.push(pid);
  };
  t.after(async () => {
    for (const pid of stopped) process.kill(pid, 'SIGCONT');
    await client.end();
    await server.stop();
  });
  stopOne(Number(main));
  const others = 'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()';
  for (const { pid } of (await client.query<{ pid: number }>(others)).rows) stopOne(pid);
  await assertEnd(t, nodes);
});

test('a node ends on SIGTERM while its start waits for the database without end; control: it waits on', async (t) => {
  const database_url = await makeDatabase();
  const holder = new pg.Client(database_url);
  await holder.connect();
  t.after(() => holder.end());
  const data = await temporaryDirectory(t);
  await holder.query(`SELECT pg_advisory_lock(${MIGRATION})`);
  const start = (without?: Protection): NodeProcess =>
    NodeProcess.run(
      t,
      ['--import', './test/faults/without.ts', 'src/cli/main.ts', 'serve', '--port', '0', '--data', data],
      {},
      { CONVOKE_DATABASE_URL: database_url, ...(without !== undefined && { WITHOUT: without }) },
    );
  const [node, control] = [start(), start('a stop during the start')];
  const waiting = `SELECT count(*)::int AS nodes FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()`;
  await until(
    'both to wait for the lock',
    async () => (await holder.query<{ nodes: number }>(waiting)).rows[0]?.nodes,
    (nodes) => nodes === 2,
  );
  const control_ended = control.end('SIGTERM');
  await assertEnd(t, [node]);
  assert.equal(control.isAlive, true, 'without the protection it still waits');
  await holder.query(`SELECT pg_advisory_unlock(${MIGRATION})`);
  assert.equal((await control_ended).code, 0, control.log);
});
