/** Machines that pull at two nodes on one PostgreSQL: one node delivers to each instance, and both accept its pulls. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request as sendRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import type { Instance } from '@convoke/sdk';
import { Connection } from '../../src/store/postgres/connection/connection.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PullingMachine, pullPath, pullsWaiting } from '../support/pulling.ts';
import { startReceiver } from '../support/receiver.ts';
import { assertProblem, instancePath, type Service, startService } from '../support/service.ts';
import { startTwoNodes, untilKnown, untilShared } from '../support/two_nodes.ts';
import { beforeTimer, until } from '../support/wait.ts';

/** How many machines there are: enough for each node to deliver to some of them. */
const MACHINES = 8;
/** What a machine reports about itself. */
const AGENT = { 'user-agent': 'agent/1.0' };
/** What a proxy says when its client used https. */
const HTTPS = { 'x-forwarded-proto': 'https' };

/** Whether a node delivers to the instance. Asks with a pull that looks forwarded, which a node does not forward. */
async function isWith(service: Service, { instance_id }: PullingMachine): Promise<boolean> {
  const answer = await service.post(
    pullPath(instance_id),
    { wait_s: 0 },
    { ...AGENT, 'convoke-forwarded': 'not signed' },
  );
  if (answer.status === 200) return true;
  assertProblem(answer, 503, 'overloaded');
  assert.equal(answer.headers['retry-after'], '1');
  return false;
}

/** Starts two nodes, and a proxy through which the first one reaches the second. */
async function startNodesApart(t: TestContext): Promise<[first: Service, second: Service, in_between: CuttingProxy]> {
  const in_between = await CuttingProxy.start(0);
  t.after(() => in_between.close());
  const settings = { database_url: await makeDatabase(), encryption_key: randomBytes(32).toString('base64') };
  const first = await startService(t, settings);
  const second = await startService(t, { ...settings, advertised_url: `http://127.0.0.1:${in_between.port}` });
  in_between.to_port = Number(new URL(second.url).port);
  await untilShared(first);
  return [first, second, in_between];
}

test('a page with a session pulls at either node, whichever of them delivers to the instance', async (t) => {
  const [first] = await startTwoNodes(t);
  await first.endOpenMode();
  const machines = await Promise.all(Array.from({ length: MACHINES }, () => PullingMachine.start(first, [])));
  const here = await Promise.all(machines.map((machine) => isWith(first, machine)));
  assert.ok(here.includes(true) && here.includes(false), 'each node has some of them');
  const { headers, body } = await first.post<{ csrf_token: string }>('/api/v1/session/');
  const cookie = String(headers['set-cookie']?.[0]).split(';')[0] as string;
  const by_session = { cookie, origin: first.url, 'convoke-csrf': body.csrf_token };
  // Without the origin of the other node, forwarded pulls get 403 origin_not_allowed.
  for (const machine of machines) {
    const answer = await machine.ask({ wait_s: 0 }, by_session);
    assert.equal(answer.status, 200, answer.text);
  }
  const elsewhere = { ...by_session, origin: 'http://elsewhere.example' };
  for (const machine of machines) assertProblem(await machine.ask({ wait_s: 0 }, elsewhere), 403, 'origin_not_allowed');
});

for (const way of ['past the proxy', 'through a proxy that speaks https, too'] as const) {
  test(`a page behind a proxy that speaks https pulls at either node, when nodes reach each other ${way}`, async (t) => {
    const settings = {
      database_url: await makeDatabase(),
      encryption_key: randomBytes(32).toString('base64'),
      trust_proxy: '127.0.0.1',
    };
    const first = await startService(t, settings);
    let second: Service;
    const proxy = createServer((request, response) => {
      const { method, url, headers } = request;
      const ahead = sendRequest(new URL(String(url), second.url), { method, headers: { ...headers, ...HTTPS } });
      ahead.on('response', (answer) => answer.pipe(response.writeHead(Number(answer.statusCode), answer.headers)));
      request.pipe(ahead);
    });
    t.after(() => proxy.close().closeAllConnections());
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    const advertised_url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    second = await startService(t, way === 'past the proxy' ? settings : { ...settings, advertised_url });
    await untilShared(first);
    const { token } = await first.endOpenMode();
    await untilKnown(second, token);
    const machines = await Promise.all(Array.from({ length: MACHINES }, () => PullingMachine.start(first, [])));
    const begun = await first.post<{ csrf_token: string }>(
      '/api/v1/session/',
      {},
      { ...HTTPS, authorization: `Bearer ${token}` },
    );
    const cookie = String(begun.headers['set-cookie']?.[0]).split(';')[0] as string;
    assert.match(cookie, /^__Host-/);
    const by_session = { ...HTTPS, cookie, origin: first.url, 'convoke-csrf': begun.body.csrf_token };
    for (const machine of machines) {
      const answer = await machine.ask({ wait_s: 0 }, by_session);
      assert.equal(answer.status, 200, answer.text);
    }
  });
}

test('both nodes take the pulls of every machine, and both say that it is connected, and from where', async (t) => {
  const [first, second] = await startTwoNodes(t);
  const machines = await Promise.all(Array.from({ length: MACHINES }, () => PullingMachine.start(first, ['m'])));
  const here = await Promise.all(machines.map((machine) => isWith(first, machine)));
  assert.ok(here.includes(true) && here.includes(false), 'each node has some of them');

  const elsewhere = machines.map(
    ({ instance_id, webhook_secret }) => new PullingMachine(second, instance_id, webhook_secret),
  );
  const waiting = elsewhere.map((machine) => machine.ask({}, AGENT));
  await until(
    'the pulls',
    async () => (await pullsWaiting(first)) + (await pullsWaiting(second)),
    (pulls) => pulls === MACHINES,
  );
  await first.send('m', { content: 'to all' });
  const pulled = await Promise.all(waiting);
  for (const [i, answer] of pulled.entries()) {
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.body.pushes.length, 1, machines[i]!.instance_id);
  }
  for (const service of [first, second]) {
    for (const { instance_id } of machines) {
      await until(
        'the connection',
        async () => (await service.get<Instance>(instancePath(instance_id))).body.connected,
        (connected) => connected?.client === 'agent/1.0' && /127\.0\.0\.1|::1/.test(connected.address ?? ''),
      );
    }
  }
  const reported = await Promise.all(machines.map((machine, i) => machine.report(pulled[i]!.body.pushes[0]!)));
  assert.deepEqual(new Set(reported.map(({ results }) => results[0]!.became)), new Set(['counted']));
});

test('a pull goes to no address that a node has not signed, and to none when the node does not answer', async (t) => {
  const [first, second, database_url] = await startTwoNodes(t);
  const receiver = await startReceiver(t);
  const machines = await Promise.all(Array.from({ length: MACHINES }, () => PullingMachine.start(first, [])));
  const here = await Promise.all(machines.map((machine) => isWith(first, machine)));
  const elsewhere = machines[here.indexOf(false)]!;

  const database = await Connection.open(database_url);
  t.after(() => database.close());
  // A node that renews its lease writes its signed address again: then the pull goes there, and the test forges again.
  const answer = await until(
    'a pull that finds only the forged address',
    async () => {
      await database.query('UPDATE nodes SET address = $1', [receiver.origin]);
      return elsewhere.ask({ wait_s: 0 });
    },
    ({ status }) => status !== 200,
  );
  assertProblem(answer, 503, 'overloaded');
  assert.equal(receiver.requests.length, 0);

  await until(
    'the signed address',
    () => elsewhere.ask({ wait_s: 0 }),
    ({ status }) => status === 200,
  );
  // When the other node stops, its forwarded pulls end at once, and soon this node delivers.
  const waiting = elsewhere.ask({ wait_s: 60 });
  await until(
    'the pull',
    () => pullsWaiting(second),
    (pulls) => pulls === 1,
  );
  await second.close();
  const ended = await waiting;
  assert.deepEqual([ended.status, ended.body.pushes], [200, []]);
  await until(
    'the new owner',
    () => elsewhere.ask({ wait_s: 0 }),
    ({ status }) => status === 200,
  );
});

test('a push whose response reached the other node, and not the client that left, was not handed out', async (t) => {
  const [first, second, in_between] = await startNodesApart(t);
  const machines = await Promise.all(Array.from({ length: MACHINES }, () => PullingMachine.start(first, [])));
  const here = await Promise.all(machines.map((machine) => isWith(first, machine)));
  const machine = machines[here.indexOf(false)]!;
  const meeting_id = first.name('meeting');
  await first.join(meeting_id, machine.instance_id, ['a']);
  let lost = 0;
  in_between.onAnswer = (bytes) => (bytes.includes('"pushes":[{') && lost++ === 0 ? 'swallow' : 'pass');
  const leaving = new AbortController();
  const left = fetch(first.url + pullPath(machine.instance_id), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ wait_s: 60 }),
    signal: leaving.signal,
  });
  await until(
    'the pull',
    () => pullsWaiting(second),
    (pulls) => pulls === 1,
  );
  const sent = await first.send(meeting_id, { content: 'to whoever pulls' });
  await until(
    'the response to be lost between the nodes',
    () => lost,
    (count) => count === 1,
  );
  leaving.abort();
  await assert.rejects(left);
  const push = await machine.next({ wait_s: 10 });
  assert.equal(push.attempt, 1);
  await machine.report(push);
  assert.equal((await first.settled(sent)).attempt_count, 1);
});

test('a revoked key ends a pull that was forwarded, within a second', async (t) => {
  const [first, second] = await startTwoNodes(t);
  await first.endOpenMode();
  second.token = first.token;
  const key = await first.createKey({ scopes: ['instance'] });
  const admin = first.token;
  const authorization = `Bearer ${key.token}`;
  first.token = key.token;
  const machines = await Promise.all(Array.from({ length: MACHINES }, () => PullingMachine.start(first, [])));
  const here = await Promise.all(machines.map((machine) => isWith(first, machine)));
  first.token = admin;
  const waiting = machines[here.indexOf(false)]!.ask({ wait_s: 60 }, { authorization });
  await until(
    'the pull',
    () => pullsWaiting(second),
    (pulls) => pulls === 1,
  );
  await first.request('DELETE', `/api/v1/keys/${key.key_id}/`);
  assertProblem(await beforeTimer('the end of the pull', 1_000, waiting), 401, 'api_key_revoked');
});

test('an owner that another node takes an instance from pulls no more', async (t) => {
  const [first, second] = await startTwoNodes(t);
  await first.endOpenMode();
  second.token = first.token;
  const key = await first.createKey({ scopes: ['instance'] });
  const authorization = `Bearer ${key.token}`;
  const admin = first.token;
  first.token = key.token;
  const machines = await Promise.all(Array.from({ length: MACHINES }, () => PullingMachine.start(first, [])));
  const here = await Promise.all(machines.map((machine) => isWith(first, machine)));
  first.token = admin;
  const machine = machines[here.indexOf(false)]!;
  const ask = () => machine.ask({ wait_s: 0 }, { authorization });
  assert.deepEqual([(await ask()).status, (await ask()).status], [200, 200]);
  await first.patch(machine.instance_id, { owner_key_id: null });
  assertProblem(
    await until('the end of the pulls', ask, ({ status }) => status !== 200),
    404,
    'instance_does_not_exist',
  );
  assert.equal((await machine.ask({ wait_s: 0 })).status, 200, 'the administrator still may');
});
