/**
 * What happens to a message that wait_for_message returns: no message is lost, and a message that a model got counts as
 * delivered.
 */
import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import { ConvokeClient, type Membership } from '@convoke/sdk';
import { Caller } from '../../src/mcp/caller.ts';
import { waitForMessage } from '../../src/mcp/tools/wait_for_message.ts';
import { connectMcp, type McpClient, rpc, RPC_HEADERS, type Waited } from '../support/mcp.ts';
import { pullsWaiting } from '../support/pulling.ts';
import { RawClient } from '../support/raw_client.ts';
import { type Service, startService, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const waiting = (service: Service, count: number) =>
  until(
    `${count} pulls that wait`,
    () => pullsWaiting(service),
    (waits) => waits === count,
  );

const contents = ({ messages }: Waited): string[] => messages.map(({ message }) => message?.content ?? '');

describe('wait_for_message', () => {
  const service = useService();
  let token = '';
  before(async () => {
    await service.endOpenMode();
    ({ token } = await service.createKey({ scopes: ['instance', 'send', 'read'] }));
  });

  async function joined(t: TestContext): Promise<{ client: McpClient; meeting_id: string; agent_id: string }> {
    const client = await connectMcp(t, service, token);
    const [meeting_id, agent_id] = [service.name('meeting'), service.name('agent')];
    await client.done<Membership>('join_meeting', { meeting_id, agent_id });
    return { client, meeting_id, agent_id };
  }

  test('messages that nobody waits for stay in order until somebody does, and each is given once', async (t) => {
    const { client, meeting_id, agent_id } = await joined(t);
    for (const content of ['one', 'two', 'three']) await service.send(meeting_id, { content });
    const given: string[] = [];
    for (let i = 0; i < 3; i++) given.push(...contents(await client.done<Waited>('wait_for_message', { agent_id })));
    assert.deepEqual(given, ['one', 'two', 'three']);
    assert.deepEqual(contents(await client.done<Waited>('wait_for_message', { agent_id, wait_s: 0 })), []);
  });

  test('one call gives the next message of each meeting, of at most three', async (t) => {
    const { client, meeting_id, agent_id } = await joined(t);
    const others = [1, 2, 3].map(() => service.name('other'));
    for (const other of others) await client.done('join_meeting', { meeting_id: other, agent_id });
    for (const each of [meeting_id, ...others]) await service.send(each, { content: each });
    const first = contents(await client.done<Waited>('wait_for_message', { agent_id }));
    const second = contents(await client.done<Waited>('wait_for_message', { agent_id }));
    assert.deepEqual([...first, ...second].toSorted(), [meeting_id, ...others].toSorted());
    assert.ok(first.length <= 3);
  });

  test('what a model was given counts as delivered by then', async (t) => {
    const { client, meeting_id, agent_id } = await joined(t);
    const sent = await service.send(meeting_id, { content: 'x' });
    await client.done<Waited>('wait_for_message', { agent_id });
    const { last_attempt } = await service.deliveryOf(sent, 'delivered', ({ state }) => state === 'delivered');
    assert.equal(last_attempt?.status_code, 200);
  });

  test('a client that is gone while it waits gets nothing, and the next one does: no attempt was spent', async (t) => {
    const { client, meeting_id, agent_id } = await joined(t);
    const cut = new RawClient(service.url);
    const body = JSON.stringify(rpc('tools/call', { name: 'wait_for_message', arguments: { agent_id, wait_s: 50 } }));
    cut.write(
      `POST /mcp HTTP/1.1\r\nhost: x\r\naccept: ${RPC_HEADERS.accept}\r\nauthorization: Bearer ${token}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    await waiting(service, 1);
    cut.destroy();
    await waiting(service, 0);
    const sent = await service.send(meeting_id, { content: 'x' });
    assert.deepEqual(contents(await client.done<Waited>('wait_for_message', { agent_id })), ['x']);
    const { attempt_count } = await service.deliveryOf(sent, 'delivered', ({ state }) => state === 'delivered');
    assert.equal(attempt_count, 1);
  });

  test('a client that calls its wait off gets nothing, and the next one does', async (t) => {
    const { client, meeting_id, agent_id } = await joined(t);
    const off = new AbortController();
    const wait = client.call('wait_for_message', { agent_id, wait_s: 50 }, off.signal);
    await waiting(service, 1);
    off.abort();
    await assert.rejects(wait);
    await waiting(service, 0);
    await service.send(meeting_id, { content: 'x' });
    assert.deepEqual(contents(await client.done<Waited>('wait_for_message', { agent_id })), ['x']);
  });

  test('a wait for which the service has no room begins again after its Retry-After, as long as there is time', async (t) => {
    const { meeting_id, agent_id } = await joined(t);
    await service.send(meeting_id, { content: 'at last' });
    const waitWhileBusy = (refusals: number, retry_after: string) => {
      let left = refusals;
      const body = { type: 't', title: 't', status: 503, detail: 'No room.', code: 'overloaded' };
      const headers = { 'content-type': 'application/problem+json', 'retry-after': retry_after };
      const client = new ConvokeClient({
        base_url: service.url,
        api_key: token,
        fetch: async (input, init) => {
          const is_refused = (input as string).endsWith('/pull/') && left-- > 0;
          return is_refused ? new Response(JSON.stringify(body), { status: 503, headers }) : fetch(input, init);
        },
      });
      const { signal } = new AbortController();
      const caller = new Caller({
        hasRoom: async () => {},
        client,
        signal,
        onAnswered: (callback) => callback(true),
        onUnsettled: () => assert.fail(),
      });
      return waitForMessage.call(caller, { agent_id, wait_s: 5 });
    };
    await assert.rejects(waitWhileBusy(1, '9'), { code: 'overloaded' });
    const { structuredContent } = await waitWhileBusy(3, '0');
    assert.deepEqual(contents(structuredContent as Waited), ['at last']);
  });

  test('a message whose response is lost on the way is given with the next call, as the same attempt', async (t) => {
    const { client, meeting_id, agent_id } = await joined(t);
    const sent = await service.send(meeting_id, { content: 'x' });
    let is_lost = false;
    const losing = new ConvokeClient({
      base_url: service.url,
      api_key: token,
      fetch: async (input, init) => {
        const response = await fetch(input, init);
        if (is_lost || !(input as string).endsWith('/pull/')) return response;
        is_lost = true;
        throw new TypeError('the connection broke');
      },
    });
    const caller = new Caller({
      hasRoom: async () => {},
      client: losing,
      signal: new AbortController().signal,
      onAnswered: () => assert.fail(),
      onUnsettled: () => assert.fail(),
    });
    await assert.rejects(waitForMessage.call(caller, { agent_id, wait_s: 5 }), { code: 'unreachable' });
    assert.deepEqual(contents(await client.done<Waited>('wait_for_message', { agent_id, wait_s: 10 })), ['x']);
    const { attempt_count } = await service.deliveryOf(sent, 'delivered', ({ state }) => state === 'delivered');
    assert.equal(attempt_count, 1);
  });

  test('several agents wait on one connection each, and each gets its own', async (t) => {
    const agents = await Promise.all([1, 2, 3].map(() => joined(t)));
    const waits = agents.map(({ client, agent_id }) =>
      client.done<Waited>('wait_for_message', { agent_id, wait_s: 50 }),
    );
    await waiting(service, 3);
    for (const { meeting_id, agent_id } of agents) await service.send(meeting_id, { content: agent_id });
    assert.deepEqual(
      (await Promise.all(waits)).map((waited) => contents(waited)),
      agents.map(({ agent_id }) => [agent_id]),
    );
  });

  test('a wait that makes room for another connection says so: the service is overloaded', async (t) => {
    const full = await startService(t, { max_connections: '16' });
    const agent_id = 'anna';
    await full.post('/api/v1/instances/register/', {
      instance_id: agent_id,
      instance_name: agent_id,
      agent_ids: [agent_id],
      transport: 'pull',
    });
    const body = JSON.stringify(rpc('tools/call', { name: 'wait_for_message', arguments: { agent_id, wait_s: 50 } }));
    const wait = (): RawClient => {
      const client = new RawClient(full.url);
      t.after(() => client.destroy());
      client.write(
        `POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: ${RPC_HEADERS.accept}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      );
      return client;
    };
    const oldest = wait();
    await waiting(full, 1);
    // A new connection takes the place of an idle one. When all of them wait, it takes that of the oldest wait.
    await until(
      'the end of the oldest wait',
      () => {
        wait();
        return oldest.closed || oldest.answers.length > 0;
      },
      (has_ended) => has_ended,
    );
    const [answer] = oldest.answers;
    assert.deepEqual([answer?.status, answer?.code, answer?.headers['retry-after']], [503, 'overloaded', '1']);
  });

  test('a stop of the service ends the waits with an empty result', async (t) => {
    const { client, agent_id } = await joined(t);
    const wait = client.done<Waited>('wait_for_message', { agent_id, wait_s: 50 });
    await waiting(service, 1);
    const closing = service.close(0);
    assert.deepEqual(contents(await wait), []);
    await closing;
  });
});
