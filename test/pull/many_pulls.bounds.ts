/**
 * Machines that pull too much, or do not read what they pull: the other machines still pull, and every other client
 * gets its responses.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { describe, test, type TestContext } from 'node:test';
import { queryObjects } from 'node:v8';
import type { Pulled } from '@convoke/sdk';
import { makeDatabase } from '../support/postgres.ts';
import { pullPath, pullsWaiting } from '../support/pulling.ts';
import { RawClient, describeAnswers } from '../support/raw_client.ts';
import { BODY, head, JSON_TYPE, post } from '../support/raw_requests.ts';
import { messagesPath, type Service, startService } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

const CONNECTIONS = 16;

interface Machine {
  instance_id: string;
  authorization: string;
}

/** Makes machines that all belong to one new key. */
async function machinesOfKey(service: Service, count: number, meeting_id: string): Promise<Machine[]> {
  const { token } = await service.createKey({ scopes: ['instance'] });
  const authorization = `Bearer ${token}`;
  const machines: Machine[] = [];
  for (let i = 0; i < count; i++) {
    const instance_id = service.name('puller');
    const body = { instance_id, instance_name: 'x', agent_ids: ['a'], transport: 'pull' };
    assert.equal((await service.post('/api/v1/instances/register/', body, { authorization })).status, 201);
    await service.join(meeting_id, instance_id, ['a']);
    machines.push({ instance_id, authorization });
  }
  return machines;
}

/** Starts a pull on a new connection, which waits as long as the service allows. */
function waitingPull(t: TestContext, service: Service, { instance_id, authorization }: Machine): RawClient {
  const client = new RawClient(service.url);
  t.after(() => client.destroy());
  client.write(post(pullPath(instance_id), '{"wait_s":60}', `${JSON_TYPE}authorization: ${authorization}\r\n`));
  return client;
}

/** Starts a request of another client on a new connection. It is in progress until its body arrives. */
async function heldRequest(t: TestContext, service: Service): Promise<RawClient> {
  const client = new RawClient(service.url);
  t.after(() => client.destroy());
  const headers = `${JSON_TYPE}authorization: Bearer ${service.token}\r\nexpect: 100-continue\r\n`;
  client.write(head('POST', messagesPath('held'), `${headers}content-length: ${BODY.length}\r\n`));
  await inTime('its turn', client.read());
  return client;
}

function waitingOnes(service: Service, wanted: number): Promise<unknown> {
  return until(
    `${wanted} to wait`,
    () => pullsWaiting(service),
    (count) => count === wanted,
  );
}

/** Makes a pull with one key, and further pulls with a second key, until all connections are in use. */
async function fill(t: TestContext, service: Service) {
  const [modest] = await machinesOfKey(service, 1, 'modest');
  const greedy = await machinesOfKey(service, 2, 'greedy');
  const waits = waitingPull(t, service, modest!);
  await waitingOnes(service, 1);
  // Starts the pulls one after the other, so that the test knows which pull waits longest. The last place is for the
  // request that counts the pulls.
  const pulls: RawClient[] = [];
  while (pulls.length < CONNECTIONS - 2) {
    pulls.push(waitingPull(t, service, greedy[pulls.length % 2]!));
    await waitingOnes(service, pulls.length + 1);
  }
  return { waits, pulls };
}

describe('a key whose pulls take all connections', () => {
  test('makes room for everybody else with its own pulls, and the pull of another key waits on', async (t) => {
    const service = await startService(t, { max_connections: String(CONNECTIONS) });
    await service.endOpenMode();
    const { waits, pulls } = await fill(t, service);
    const held: RawClient[] = [];
    // The first of these requests takes the last place. Each other request ends a pull, until each key has one pull.
    while (held.length < CONNECTIONS - 2) held.push(await heldRequest(t, service));
    assert.deepEqual(new Set(held.map(({ answers }) => describeAnswers(answers))), new Set(['100']));
    // The pulls that wait longest end first.
    const ended = pulls.slice(0, -1);
    for (const client of ended) await client.end();
    for (const { answers } of ended) {
      assert.equal(describeAnswers(answers), '503 overloaded');
      assert.deepEqual([answers[0]!.headers['retry-after'], answers[0]!.headers['connection']], ['1', 'close']);
    }
    for (const client of held) client.write(BODY);
    for (const client of held) assert.equal(describeAnswers(await client.read(2)), '100, 201');
    await service.send('modest', { content: 'hello' });
    const [answer] = await inTime('the push', waits.read());
    assert.equal((JSON.parse(answer!.text) as Pulled).pushes.length, 1);
  });

  test('control: a request that the service works on makes no room, no matter who asks', async (t) => {
    const service = await startService(t, { max_connections: String(CONNECTIONS) });
    await service.endOpenMode();
    const held: RawClient[] = [];
    while (held.length < CONNECTIONS) held.push(await heldRequest(t, service));
    assert.equal(describeAnswers((await heldRequest(t, service)).answers), '503 overloaded');
    for (const client of held) client.destroy();
  });

  test('makes room at a node that only forwards its pulls, too', async (t) => {
    const settings = { database_url: await makeDatabase(), encryption_key: randomBytes(32).toString('base64') };
    const first = await startService(t, { ...settings, max_connections: String(CONNECTIONS) });
    const second = await startService(t, settings);
    second.token = (await first.endOpenMode()).token;
    const machines = await machinesOfKey(first, CONNECTIONS - 1, 'greedy');
    // The last place is for the request that counts the pulls. A pull that does not wait yet makes no room.
    const pulls = machines.map((machine) => waitingPull(t, first, machine));
    await until(
      'all pulls to wait, some at the second node',
      () => Promise.all([pullsWaiting(first), pullsWaiting(second)]),
      ([here, there]) => here + there === pulls.length && there > 0,
    );
    const held: RawClient[] = [];
    while (held.length < CONNECTIONS) held.push(await heldRequest(t, first));
    assert.deepEqual(new Set(held.map(({ answers }) => describeAnswers(answers))), new Set(['100']));
    for (const client of pulls) await client.end();
    for (const client of held) client.destroy();
    await until(
      'the forwarded ones to end',
      () => pullsWaiting(second),
      (count) => count === 0,
    );
  });
});

/** The class from which Fastify makes the classes of its requests. */
const FastifyRequest = createRequire(import.meta.url)('fastify/lib/request.js') as new () => unknown;
const requestsInMemory = (): number => queryObjects(FastifyRequest, { format: 'count' });

test('a pull that waits takes no memory for the framework: its request is forgotten', async (t) => {
  const service = await startService(t);
  await service.endOpenMode();
  const machines = await machinesOfKey(service, 20, 'waiting');
  const before = requestsInMemory();
  for (const machine of machines) waitingPull(t, service, machine);
  await waitingOnes(service, machines.length);
  assert.ok(requestsInMemory() <= before + 1, `${before}, then ${requestsInMemory()}`);
});

test('control: the request of a route that responds itself stays in memory until then', async (t) => {
  const service = await startService(t);
  await service.endOpenMode();
  const before = requestsInMemory();
  const held: RawClient[] = [];
  while (held.length < 20) held.push(await heldRequest(t, service));
  assert.ok(requestsInMemory() >= before + held.length);
  for (const client of held) client.destroy();
});

test('a machine that does not read what it pulled delays nobody, and its push arrives again as if it was not handed out', async (t) => {
  // This is more than the buffers of two sockets take.
  const content = 'x'.repeat(14 << 20);
  const service = await startService(t, {
    // Leaves room for the requests of the test itself: otherwise the service would close their idle connection.
    max_connections: String(2 * CONNECTIONS),
    max_message_bytes: String(16 << 20),
  });
  await service.endOpenMode();
  const [slow] = await machinesOfKey(service, 1, 'large');
  const [modest] = await machinesOfKey(service, 1, 'small');
  await service.send('large', { content });
  const pulls = Array.from({ length: CONNECTIONS }, () => {
    const client = new RawClient(service.url);
    t.after(() => client.destroy());
    client.socket.pause();
    const { instance_id, authorization } = slow!;
    const to = `${JSON_TYPE}authorization: ${authorization}\r\ncontent-length: 2\r\n`;
    client.write(`${head('POST', pullPath(instance_id), to)}{}`);
    return client;
  });
  await until(
    'the push to be in flight',
    async () => (await service.get('/metrics')).text,
    (text) => /^convoke_pushes_in_hand [1-9]/m.test(text),
  );
  await service.send('small', { content: 'hello' });
  const client = waitingPull(t, service, modest!);
  const [answer] = await inTime('the push of somebody else', client.read());
  assert.equal((JSON.parse(answer!.text) as Pulled).pushes.length, 1);
  // The control: when the slow client has gone, a client that reads gets the push, as its first attempt.
  for (const each of pulls) each.destroy();
  const headers = { authorization: slow!.authorization };
  const read = await service.post<Pulled>(pullPath(slow!.instance_id), { wait_s: 60 }, headers);
  assert.equal(read.body.pushes[0]?.attempt, 1, read.text.slice(0, 200));
  assert.equal(read.body.pushes[0].body.length > content.length, true);
});
