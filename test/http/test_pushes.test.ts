/** Pushes that a request waits for, webhook tests and challenges: how many there may be, and when they end. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { createWebhookTransport } from '../../src/delivery/transport/webhook_transport.ts';
import { TestPushes } from '../../src/http/test_pushes.ts';
import { startReceiver } from '../support/receiver.ts';
import { assertProblem, instancePath, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

/** A machine that takes every connection and never responds. */
async function startSilent(
  t: TestContext,
): Promise<{ url: string; untilOpen: (connections: number) => Promise<void> }> {
  let open = 0;
  const server = createServer((socket) => {
    open++;
    socket.on('close', () => open--).on('error', () => {});
    socket.resume();
    t.after(() => socket.destroy());
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  const untilOpen = async (connections: number): Promise<void> => {
    await until(
      `${connections} connections`,
      () => open,
      (count) => count === connections,
    );
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, untilOpen };
}

const SECRET = `whsec_${Buffer.from('s'.repeat(32)).toString('base64')}`;

/** Makes requests that wait for a machine that does not respond. */
async function start(t: TestContext) {
  const machine = await startSilent(t);
  const service = await startService(t);
  const { token } = await service.endOpenMode();
  const post = (path: string, body: object, signal?: AbortSignal, of_key = token): Promise<Response> =>
    fetch(`${service.url}/api/v1/instances/${path}/`, {
      method: 'POST',
      headers: { authorization: `Bearer ${of_key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      ...(signal !== undefined && { signal }),
    });
  const register = async (instance_id: string): Promise<void> => {
    await service.register({ instance_id, webhook_url: machine.url, timeout_s: 30 });
  };
  const pushes = {
    test: (instance_id: string, signal?: AbortSignal, of_key?: string) =>
      post('webhook-test', { instance_id }, signal, of_key),
    challenge: (instance_id: string, signal?: AbortSignal) =>
      post(
        'register',
        {
          instance_id,
          instance_name: 'a subscription',
          agent_ids: ['a'],
          runtime: 'mcp_events',
          runtime_options: { id: instance_id },
          webhook_url: machine.url,
          webhook_secret: SECRET,
        },
        signal,
      ),
  };
  return { ...machine, service, register, pushes };
}

/** Lets a request wait until its client leaves. */
function hold(request: (signal: AbortSignal) => Promise<Response>): () => void {
  const client = new AbortController();
  request(client.signal).catch(() => {});
  return () => client.abort();
}

async function assertOverloaded(response: Response): Promise<void> {
  const text = await response.text();
  const headers = Object.fromEntries(response.headers);
  assertProblem({ status: response.status, headers, text, body: JSON.parse(text) as never }, 503, 'overloaded');
  assert.equal(headers['retry-after'], '2');
}

for (const kind of ['test', 'challenge'] as const) {
  describe(`a ${kind}`, () => {
    test('is refused while two of its instance wait; it ends when its client leaves, and gives its place back', async (t) => {
      const { untilOpen, service, register, pushes } = await start(t);
      if (kind === 'test') await register('machine');
      const push = (signal?: AbortSignal) => pushes[kind]('machine', signal);
      const leave = [hold(push), hold(push)];
      await untilOpen(2);
      await assertOverloaded(await push());
      leave[0]!();
      await untilOpen(1);
      leave.push(hold(push));
      await untilOpen(2);
      for (const each of leave) each();
      await untilOpen(0);
      const { status } = await service.get(instancePath('machine'));
      assert.equal(status, kind === 'test' ? 200 : 404, 'a client that left has no subscription');
    });
  });
}

test('a push ends when its client leaves, long before its deadline', async (t) => {
  const { url, untilOpen } = await startSilent(t);
  const transport = createWebhookTransport({ policy: { mode: 'local', allow: [], allow_http: true } });
  t.after(() => transport.close());
  const test_pushes = new TestPushes(transport);
  const push = { instance_id: 'machine', url, headers: {}, body: Buffer.from('{}'), success_statuses: '200' } as const;
  const server = createHttpServer((_request, response) => {
    void test_pushes.make({ instance_id: 'machine', key_id: null }, response, ({ pushFor }) =>
      pushFor({ ...push, fresh_connection: true }, 600_000),
    );
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const leave = hold((signal) => fetch(`http://127.0.0.1:${port}`, { signal }));
  await untilOpen(1);
  leave();
  await untilOpen(0);
});

test('fifty of them wait at a time, ten of one key: then tests and challenges are refused', async (t) => {
  const { untilOpen, service, register, pushes } = await start(t);
  const leave: (() => void)[] = [];
  for (let i = 0; i < 25; i++) await register(`machine-${i}`);
  await register('last');
  for (let key = 0; key < 5; key++) {
    const { token } = await service.createKey({ scopes: ['admin'] });
    for (let i = 0; i < 10; i++) {
      const instance_id = `machine-${key * 5 + (i >> 1)}`;
      leave.push(hold((signal) => pushes.test(instance_id, signal, token)));
    }
    await untilOpen(10 * (key + 1));
    if (key < 4) await assertOverloaded(await pushes.test('last', undefined, token));
  }
  await assertOverloaded(await pushes.test('last'));
  await assertOverloaded(await pushes.challenge('subscription'));
  for (const each of leave) each();
  await untilOpen(0);
});

test('the response of a machine is not for a key that was revoked while the machine took its time', async (t) => {
  const response = Promise.withResolvers<void>();
  const receiver = await startReceiver(t, { status: 500, body: 'what the machine says', after: response.promise });
  const service = await startService(t);
  await service.endOpenMode();
  const { key_id, token } = await service.createKey({ scopes: ['instance'] });
  const headers = { authorization: `Bearer ${token}` };
  const instance = { instance_id: 'mine', instance_name: 'mine', agent_ids: ['a'], webhook_url: receiver.url };
  assert.equal((await service.post('/api/v1/instances/register/', instance, headers)).status, 201);
  const tested = service.post('/api/v1/instances/webhook-test/', { instance_id: 'mine' }, headers);
  await receiver.next();
  assert.equal((await service.request('DELETE', `/api/v1/keys/${key_id}/`)).status, 204);
  response.resolve();
  assertProblem(await tested, 401, 'api_key_revoked');
});
