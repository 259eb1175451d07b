/**
 * When a node was killed and its host proves that the process has ended, another process takes over the partitions at
 * once: the next start of the node, or a neighbour. Here leases last ten minutes, and the clocks with which nodes watch
 * leases hardly move. So only the proof can be the cause of a takeover.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { PARTITIONS } from '../../src/domain/partition.ts';
import type { Lease } from '../../src/store/contract/cluster.ts';
import { NO_QUOTAS } from '../../src/store/contract/quotas.ts';
import { Connection } from '../../src/store/postgres/connection/connection.ts';
import { REMOVAL } from '../../src/store/postgres/locks.ts';
import type { Store } from '../../src/store/store.ts';
import { openPostgresHere, POSTGRES_KEYS } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { headerOf, startReceiver } from '../support/receiver.ts';
import { until } from '../support/wait.ts';
import { ask, enroll, send } from './api.ts';
import { NodeProcess } from './node_process.ts';
import { temporaryDirectory } from './run.ts';

const skip = process.platform !== 'linux';

assert(POSTGRES_KEYS.kind === 'given');
const KEY = POSTGRES_KEYS.keys.current.export().toString('base64');

/** Makes the clock in the thread of the store slow: a second lasts a quarter of an hour. */
const SLOW = `data:text/javascript,import { isMainThread } from 'node:worker_threads';
  const now = performance.now.bind(performance);
  if (!isMainThread) performance.now = () => now() / 900;`;

/** Starts a node, and waits until it has every partition. */
async function start(t: TestContext, database_url: string): Promise<NodeProcess> {
  const node = NodeProcess.run(
    t,
    ['--import', SLOW, 'src/cli/main.ts', 'serve', '--port', '0', '--data', await temporaryDirectory(t)],
    {},
    { CONVOKE_DATABASE_URL: database_url, CONVOKE_ENCRYPTION_KEY: KEY },
  );
  const url = await node.ready;
  await until(
    'a node that has everything',
    async () => (await ask(url, 'GET', '/api/v1/nodes/')).body['data'] as { partitions: number }[],
    (nodes) => nodes.length === 1 && nodes[0]!.partitions === PARTITIONS,
  );
  return node;
}

async function database(t: TestContext): Promise<[url: string, lengthenLeases: () => Promise<unknown>]> {
  const url = await makeDatabase();
  const connection = await Connection.open(url);
  t.after(() => connection.close());
  return [url, () => connection.query('UPDATE nodes SET lease_until = lease_until + 600000')];
}

/** Another node, for which no time passes, so that no lease ends by its clock. */
async function neighbour(t: TestContext, url: string): Promise<Store> {
  const store = await openPostgresHere(url, NO_QUOTAS, () => 0);
  t.after(() => store.close());
  return store;
}

const renew = (store: Store): Promise<Lease> =>
  store.cluster!.renew({ node_id: 'neighbour', version: '0', address: 'http://127.0.0.1:1', stopping: false }, []);

const numberOf = ({ partitions }: Lease): number => partitions.length;

test(
  'a lone node that was killed and started again waits for no lease, and pushes what was on its way',
  { skip },
  async (t) => {
    const [url, lengthenLeases] = await database(t);
    const receiver = await startReceiver(t, 'hang');
    const killed = await start(t, url);
    await enroll(await killed.ready, receiver.origin, new Map([['m', ['i']]]));
    const sent = await send(await killed.ready, 'm', 1);
    assert.equal(sent.status, 201);
    await until(
      'an attempt without a result',
      () => receiver.requests.length,
      (requests) => requests === 1,
    );

    await killed.end('SIGKILL');
    await lengthenLeases();
    receiver.behaviour = {};
    await start(t, url);
    await until(
      'the push again',
      () => receiver.requests.map((request) => headerOf(request, 'webhook-id')),
      (ids) => ids.length === 2 && ids[0] === ids[1],
    );
  },
);

test(
  'a node that is paused keeps its lease; when it is killed, a neighbour on its host takes everything at once',
  { skip },
  async (t) => {
    const [url, lengthenLeases] = await database(t);
    const node = await start(t, url);
    node.child.kill('SIGSTOP');
    await lengthenLeases();
    const store = await neighbour(t, url);
    assert.equal(numberOf(await renew(store)), 0);
    assert.equal((await store.cluster!.list()).length, 2);

    await node.end('SIGKILL');
    assert.equal(numberOf(await renew(store)), PARTITIONS);
    assert.equal((await store.cluster!.list()).length, 1);
  },
);

test('a takeover by proof waits for accepts that do not know of it, and reads what they store', { skip }, async (t) => {
  const [url, lengthenLeases] = await database(t);
  const node = await start(t, url);
  await enroll(await node.ready, 'http://127.0.0.1:9', new Map([['m', ['i']]]));
  await node.end('SIGKILL');
  await lengthenLeases();
  // An accept of the killed node that the database still runs: it holds this lock, and has looked for other nodes.
  const accept = await Connection.open(url);
  t.after(() => accept.close());
  await accept.query('BEGIN');
  await accept.query(`SELECT pg_advisory_xact_lock_shared(${REMOVAL})`);
  const store = await neighbour(t, url);
  assert.equal(numberOf(await renew(store)), 0, 'the lease is renewed, and a later renewal takes them');
  const { rows } = await accept.query('SELECT DISTINCT node_no FROM partitions');
  assert.deepEqual(rows, [{ node_no: 1 }]);
  await accept.query('COMMIT');
  assert.equal(numberOf(await renew(store)), PARTITIONS);
});
