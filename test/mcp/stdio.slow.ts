/** `convoke mcp`, as a desktop program starts it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { before, describe, test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import type { Membership, Page } from '@convoke/sdk';
import { convoke, start } from '../support/command_line.ts';
import { ERAS, type Era, McpClient, optionsOf, type Waited } from '../support/mcp.ts';
import { pullsWaiting } from '../support/pulling.ts';
import { messagesPath, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));

describe('convoke mcp', () => {
  const service = useService();
  let token = '';
  before(async () => {
    await service.endOpenMode();
    ({ token } = await service.createKey({ scopes: ['instance', 'send', 'read'] }));
  });

  async function connect(t: TestContext, era: Era, api_key: string | null = token): Promise<McpClient> {
    const client = new Client({ name: 'a test', version: '1' }, optionsOf(era));
    const path = process.env['PATH'] ?? '';
    const env = { CONVOKE_URL: service.url, PATH: path, ...(api_key !== null && { CONVOKE_API_KEY: api_key }) };
    await client.connect(new StdioClientTransport({ command: process.execPath, args: [MAIN, 'mcp'], env }));
    t.after(() => client.close());
    return new McpClient(client);
  }

  for (const era of ERAS) {
    test(`does what /mcp does (${era}): what its client got is delivered, and a cancelled message arrives again`, async (t) => {
      const client = await connect(t, era);
      assert.equal((await client.tools()).length, 8);
      const [meeting_id, agent_id] = [service.name('meeting'), service.name('agent')];
      await client.done<Membership>('join_meeting', { meeting_id, agent_id });
      const off = new AbortController();
      const called_off = client.call('wait_for_message', { agent_id, wait_s: 50 }, off.signal);
      const waits = (count: number) =>
        until(
          'the pulls that wait',
          () => pullsWaiting(service),
          (waiting) => waiting === count,
        );
      await waits(1);
      off.abort();
      await assert.rejects(called_off);
      await waits(0);
      const sent = await service.send(meeting_id, { content: 'Hello' });
      const { messages } = await client.done<Waited>('wait_for_message', { agent_id });
      assert.deepEqual(
        messages.map(({ message }) => message),
        [{ content: 'Hello' }],
      );
      await service.deliveryOf(sent, 'delivered', ({ state }) => state === 'delivered');
      await client.done('reply', { meeting_id, message_id: sent.message_id, content: 'Hi', from_agent: agent_id });
      const history = await service.get<Page<{ from_agent?: string }>>(messagesPath(meeting_id));
      assert.equal(history.body.data.at(-1)?.from_agent, agent_id);
    });
  }

  test('a trace in _meta that cannot be read stops no message', async (t) => {
    const { client } = await connect(t, '2025-11-25');
    const meeting_id = service.name('meeting');
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    for (const _meta of [
      { traceparent: 'bad\nvalue' },
      { traceparent, tracestate: 'a=é→' },
      { traceparent, tracestate: 'y'.repeat(100_000) },
      { traceparent: 'y'.repeat(100_000) },
    ]) {
      const called = await client.callTool({ name: 'send_message', arguments: { meeting_id, content: 'Hi' }, _meta });
      assert.ok(called.isError !== true, JSON.stringify(called.content));
    }
    const history = await service.get<Page<object>>(messagesPath(meeting_id));
    assert.equal(history.body.data.length, 4);
  });

  test('is offered what its key permits, and says in words when the key is wrong', async (t) => {
    const { token: reader } = await service.createKey({ scopes: ['read'] });
    assert.deepEqual(await (await connect(t, '2025-11-25', reader)).tools(), [
      'list_meetings',
      'read_messages',
      'explain',
    ]);
    const wrong = await connect(t, '2025-11-25', `${token.slice(0, -4)}zzzz`);
    assert.match(await wrong.refused('list_meetings'), /^api_key_/);
    const without = await connect(t, '2025-11-25', null);
    await assert.rejects(without.tools(), /api_key_missing: .* CONVOKE_API_KEY/);
  });

  test('ends when nobody reads its output, and the message in hand counts as not reached and comes again', async (t) => {
    const child = start(['mcp', '--url', service.url, '--api-key', token]);
    t.after(() => child.kill());
    const [meeting_id, agent_id] = [service.name('meeting'), service.name('agent')];
    const answered = createInterface(child.stdout!)[Symbol.asyncIterator]();
    const ask = (id: number, method: string, params: object) =>
      child.stdin!.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    ask(1, 'initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'a', version: '1' } });
    await answered.next();
    child.stdin!.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n');
    ask(2, 'tools/call', { name: 'join_meeting', arguments: { meeting_id, agent_id } });
    await answered.next();
    ask(3, 'tools/call', { name: 'wait_for_message', arguments: { agent_id, wait_s: 50 } });
    await until(
      'the pull that waits',
      () => pullsWaiting(service),
      (waiting) => waiting === 1,
    );
    child.stdout!.destroy();
    const exited = once(child, 'exit');
    const sent = await service.send(meeting_id, { content: 'Hello' });
    assert.deepEqual(await exited, [0, null]);
    const { attempts, state } = await service.deliveryOf(
      sent,
      'one attempt',
      ({ attempt_count }) => attempt_count === 1,
    );
    assert.deepEqual([state, attempts.map(({ outcome }) => outcome)], ['pending', ['unreachable']]);
    const other = await connect(t, '2025-11-25');
    const { messages } = await other.done<Waited>('wait_for_message', { agent_id, wait_s: 50 });
    assert.deepEqual(
      messages.map(({ message }) => message),
      [{ content: 'Hello' }],
    );
  });

  test('ends when its client goes, and writes nothing but the protocol to its output', async () => {
    const input = `${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })}\n`;
    const { code, stdout, stderr } = await convoke(['mcp', '--url', service.url, '--api-key', token], { input });
    assert.equal(code, 0, stderr);
    for (const line of stdout.trim().split('\n').filter(Boolean))
      assert.equal((JSON.parse(line) as { jsonrpc: string }).jsonrpc, '2.0');
  });
});
