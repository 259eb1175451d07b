/**
 * The trace of a sender reaches every receiver in headers: with each transport, after a retry, after a restart, and
 * from another node.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { before, describe, test, type TestContext } from 'node:test';
import type { SentMessage, SentMessages, ServiceNode } from '@convoke/sdk';
import type { SettingName } from '../../src/config/settings.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PullingMachine } from '../support/pulling.ts';
import { pushOf, type Received } from '../support/receiver.ts';
import { assertProblem, messagesPath, ON_A_FILE, type Service, startService, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736';
const traceparent = `00-${TRACE_ID}-00f067aa0ba902b7-01`;
const other = `00-${TRACE_ID}-00000000000000a1-00`;
const tracestate = 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE';
const BODY = ['event', 'meeting_id', 'message', 'target_agents', 'timestamp'];

const tracesOf = (requests: readonly Pick<Received, 'headers'>[]) =>
  requests.map(({ headers }) => [headers['traceparent'], headers['tracestate']]);

async function send(service: Service, meeting_id: string, headers: Record<string, string> = {}, fields: object = {}) {
  const body = { message: {}, ...fields };
  const answer = await service.post<SentMessage>(messagesPath(meeting_id), body, headers);
  assert.equal(answer.status, 201, answer.text);
  return answer.body;
}

for (const store of ['SQLite', 'PostgreSQL'] as const) {
  describe(`the trace of a sender on ${store}`, { concurrency: true }, () => {
    const settings: Partial<Record<SettingName, string>> = { ...ON_A_FILE, retry_schedule: '1s' };
    if (store === 'PostgreSQL') before(async () => void (settings.database_url = await makeDatabase()));
    const service = useService(settings);

    test('is in the headers of the push as the sender gave it, and nowhere in the body', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id);
      await send(service, meeting_id, { traceparent, tracestate });
      await send(service, meeting_id, { traceparent: other });
      const pushes = await receiver.count(2);
      assert.deepEqual(tracesOf(pushes), [
        [traceparent, tracestate],
        [other, undefined],
      ]);
      for (const push of pushes) assert.deepEqual(Object.keys(pushOf(push)), BODY);
    });

    test('without one, and with one that cannot be read, the push is that of the specification', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id);
      const [, ...nonsense] = [{}, { tracestate }, { traceparent: 'nonsense' }, { traceparent: `${traceparent}x` }];
      await send(service, meeting_id);
      for (const headers of nonsense) await send(service, meeting_id, headers);
      const names = (await receiver.count(4)).map(({ headers }) => Object.keys(headers).toSorted());
      assert.ok(!names[0]?.includes('traceparent') && !names[0]?.includes('tracestate'));
      for (const each of names) assert.deepEqual(each, names[0]);
    });

    test('is the same on a retry', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id, {
        behaviour: (_, number) => ({ status: number === 1 ? 500 : 200 }),
      });
      await send(service, meeting_id, { traceparent, tracestate });
      assert.deepEqual(tracesOf(await receiver.count(2)), [
        [traceparent, tracestate],
        [traceparent, tracestate],
      ]);
    });

    test('of many messages is that of each item, and that of the request for an item without one', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id);
      const message = {};
      const messages = [
        { meeting_id, message },
        { meeting_id, message, traceparent: other },
        { meeting_id, message, traceparent: other, tracestate },
      ];
      await service.post<SentMessages>('/api/v1/messages/', { messages }, { traceparent });
      await service.post<SentMessages>('/api/v1/messages/', { messages });
      assert.deepEqual(tracesOf(await receiver.count(6)), [
        [traceparent, undefined],
        [other, undefined],
        [other, tracestate],
        [undefined, undefined],
        [other, undefined],
        [other, tracestate],
      ]);
    });

    test('of an item is checked: the problem names the field, and the other items are sent', async () => {
      const meeting_id = service.name('meeting');
      const items = [
        { traceparent: 'nonsense' },
        { traceparent: 7 },
        { traceparent: `00-${'0'.repeat(32)}-00f067aa0ba902b7-01` },
        { traceparent: `00-${TRACE_ID}-${'0'.repeat(16)}-01` },
        { traceparent, tracestate: 'é' },
        { traceparent },
      ];
      const messages = items.map((item) => ({ meeting_id, message: {}, ...item }));
      const { body } = await service.post<SentMessages>('/api/v1/messages/', { messages });
      assert.deepEqual(
        body.results.map(({ status, problem }) => [status, problem?.errors?.map(({ path }) => path)]),
        [
          [422, ['traceparent']],
          [422, ['traceparent']],
          [422, ['traceparent']],
          [422, ['traceparent']],
          [422, ['tracestate']],
          [201, undefined],
        ],
      );
      const answer = await service.post(messagesPath(meeting_id), { message: {}, traceparent });
      assertProblem(answer, 422, 'invalid_fields');
    });

    test('does not make a send with the same key another one: the first trace counts', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id);
      const first = await send(service, meeting_id, { 'idempotency-key': 'k', traceparent });
      const again = await send(service, meeting_id, { 'idempotency-key': 'k', traceparent: other });
      assert.deepEqual(again, first);
      await send(service, meeting_id);
      assert.deepEqual(tracesOf(await receiver.count(2)), [
        [traceparent, undefined],
        [undefined, undefined],
      ]);
    });

    test('of a request to /mcp is that of the message that its tool sends', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id);
      const params = { name: 'send_message', arguments: { meeting_id, content: 'hello' } };
      const answer = await service.post(
        '/mcp',
        { jsonrpc: '2.0', id: 1, method: 'tools/call', params },
        { accept: 'application/json, text/event-stream', traceparent, tracestate },
      );
      assert.equal(answer.status, 200, answer.text);
      assert.deepEqual(tracesOf([await receiver.next()]), [[traceparent, tracestate]]);
    });

    test('of a request to /mcp is that of its headers where its _meta has none that can be read', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id);
      for (const _meta of [
        { traceparent: 'nonsense', tracestate: 'a=1' },
        { traceparent: 'bad\nvalue' },
        { traceparent: 7, tracestate: 7 },
        { traceparent: other, tracestate: 'a=é→' },
        { traceparent: other, tracestate: `a=1,b=${'y'.repeat(100_000)}` },
      ]) {
        const params = { name: 'send_message', arguments: { meeting_id, content: 'hello' }, _meta };
        const answer = await service.post(
          '/mcp',
          { jsonrpc: '2.0', id: 1, method: 'tools/call', params },
          { accept: 'application/json, text/event-stream', traceparent, tracestate },
        );
        assert.match(answer.text, /message_id/);
      }
      assert.deepEqual(tracesOf(await receiver.count(5)), [
        [traceparent, tracestate],
        [traceparent, tracestate],
        [traceparent, tracestate],
        [other, undefined],
        [other, undefined],
      ]);
    });

    test('is in the push that a machine pulls', async () => {
      const meeting_id = service.name('meeting');
      const machine = await PullingMachine.start(service, [meeting_id]);
      await send(service, meeting_id, { traceparent, tracestate });
      const { headers } = await machine.next();
      assert.deepEqual([headers['traceparent'], headers['tracestate']], [traceparent, tracestate]);
    });

    test('reaches a runtime with a shape of its own', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id, {
        registration: { runtime: 'template', runtime_options: { body: { text: '{{message}}' } } },
      });
      await send(service, meeting_id, { traceparent, tracestate });
      assert.deepEqual(tracesOf([await receiver.next()]), [[traceparent, tracestate]]);
    });

    test('continues in the replies in a response; a later reply has the trace of its own request', async (t) => {
      const meeting_id = service.name('meeting');
      const registration = { replies: true };
      const speaker = await service.member(t, meeting_id, {
        agent_ids: ['anna'],
        registration,
        behaviour: (_, number) => ({ status: 200, body: number === 1 ? '{"reply":"at once"}' : '' }),
      });
      const { receiver } = await service.member(t, meeting_id, { agent_ids: ['bob'] });
      await send(service, meeting_id, { traceparent, tracestate }, { target_agents: ['anna'] });
      const push = await speaker.receiver.next();
      const token = String(push.headers['convoke-reply-token']);
      await receiver.next();
      const reply = (headers: Record<string, string>) =>
        service.post('/api/v1/replies/', { reply: 'later' }, { 'convoke-reply-token': token, ...headers });
      assert.equal((await reply({ traceparent: other })).status, 201);
      assert.deepEqual(tracesOf(await receiver.count(2)), [
        [traceparent, tracestate],
        [other, undefined],
      ]);
    });

    test('is there after a restart', async (t) => {
      const database_url = store === 'PostgreSQL' ? await makeDatabase() : '';
      const restarted = await startService(t, { database_url });
      const { receiver, instance_id } = await restarted.member(t, 'm');
      await restarted.patch(instance_id, { is_active: false });
      await restarted.patch(instance_id, { is_active: true });
      await receiver.down();
      await send(restarted, 'm', { traceparent, tracestate });
      await restarted.restart({});
      await receiver.up();
      await restarted.heartbeat(instance_id);
      assert.deepEqual(tracesOf([await receiver.next()]), [[traceparent, tracestate]]);
    });
  });
}

async function evenShare(t: TestContext): Promise<[Service, Service]> {
  const settings = { database_url: await makeDatabase(), encryption_key: randomBytes(32).toString('base64') };
  const nodes: [Service, Service] = [await startService(t, settings), await startService(t, settings)];
  await until(
    'an even share',
    async () => (await nodes[0].get<{ data: ServiceNode[] }>('/api/v1/nodes/')).body.data,
    (data) => data.length === 2 && data.every(({ partitions }) => partitions === 32),
  );
  return nodes;
}

test('the trace of a sender is in the pushes of the node that delivers, whichever stored the message', async (t) => {
  const nodes = await evenShare(t);
  const members = await Promise.all(Array.from({ length: 6 }, () => nodes[0].member(t, 'm')));
  for (const node of nodes) {
    await send(node, 'm', { traceparent, tracestate });
    await send(node, 'm');
  }
  for (const { receiver } of members)
    assert.deepEqual(tracesOf(await receiver.count(4)), [
      [traceparent, tracestate],
      [undefined, undefined],
      [traceparent, tracestate],
      [undefined, undefined],
    ]);
});
