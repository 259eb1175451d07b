/** MCP Events: what a client lists, polls and streams. */
import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import type { ApiKeyWithToken, Page } from '@convoke/sdk';
import type { Timer } from '../../src/delivery/clock.ts';
import { connectMcp, ERAS, rpc, RPC_HEADERS } from '../support/mcp.ts';
import { makeDatabase } from '../support/postgres.ts';
import { messagesPath, Service, startService, useService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { inTime, until } from '../support/wait.ts';

const EXTENSION = 'io.modelcontextprotocol/events';
const NAME = 'meeting.message';

interface Occurrence {
  eventId: string;
  name: string;
  timestamp: string;
  cursor?: string;
  data: { seq: number; message?: { content: string }; part?: { text: string; chars: number } };
}
interface Polled {
  events: Occurrence[];
  cursor: string;
  truncated: boolean;
  hasMore: boolean;
  nextPollMs: number;
}
interface Initialized {
  result: { capabilities: object };
}
interface RpcError {
  code: number;
  message: string;
  data?: { code?: string; kind?: string };
}

const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'a test', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {},
};

const headersOf = (token: string, method: string) => ({
  ...RPC_HEADERS,
  authorization: `Bearer ${token}`,
  'content-type': 'application/json',
  'mcp-protocol-version': '2026-07-28',
  'mcp-method': method,
});

async function ask<Result>(service: Service, token: string, method: string, params: object = {}): Promise<Result> {
  const { result, error } = await answer<Result>(service, token, method, params);
  assert.equal(error, undefined, JSON.stringify(error));
  return result as Result;
}

async function refused(service: Service, token: string, method: string, params: object): Promise<RpcError> {
  const { error } = await answer(service, token, method, params);
  assert.ok(error !== undefined, 'it was not refused');
  return error;
}

async function answer<Result>(service: Service, token: string, method: string, params: object) {
  return JSON.parse(await askText(service, token, method, params)) as { result?: Result; error?: RpcError };
}

async function askText(service: Service, token: string, method: string, params: object): Promise<string> {
  const response = await fetch(`${service.url}/mcp`, {
    method: 'POST',
    headers: headersOf(token, method),
    body: JSON.stringify(rpc(method, { ...params, _meta: META })),
  });
  return response.text();
}

interface Frame {
  /** The JSON of the frame. */
  text: string;
  method?: string;
  id?: number;
  result?: { resultType: string };
  params?: Occurrence & { cursor: string; truncated?: boolean; error?: RpcError; _meta: Record<string, unknown> };
}

/** Opens a stream, and reads its frames one after the other. */
async function openStream(t: TestContext, service: Service, token: string, params: object) {
  const abort = new AbortController();
  t.after(() => abort.abort());
  const response = await fetch(`${service.url}/mcp`, {
    method: 'POST',
    headers: headersOf(token, 'events/stream'),
    body: JSON.stringify(rpc('events/stream', { name: NAME, ...params, _meta: META }, 7)),
    signal: abort.signal,
  });
  assert.match(String(response.headers.get('content-type')), /^text\/event-stream/);
  const frames = framesOf(response.body as ReadableStream<Uint8Array>);
  const next = async (): Promise<Frame | undefined> => {
    const { value } = await inTime('a frame', frames.next());
    return value as Frame | undefined;
  };
  return { next, close: () => abort.abort() };
}

async function* framesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Frame, void, undefined> {
  let text = '';
  const decoder = new TextDecoder();
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true });
    const parts = text.split('\n\n');
    text = parts.pop() as string;
    for (const part of parts) {
      const data = part.split('\n').find((line) => line.startsWith('data: '));
      if (data !== undefined && data !== 'data: ') {
        yield { ...(JSON.parse(data.slice(6)) as Frame), text: data.slice(6) };
      }
    }
  }
}

const contentsOf = ({ events }: Polled) => events.map(({ data }) => data.message?.content);

describe('the events of a meeting', () => {
  const service = useService();
  let key: ApiKeyWithToken;
  before(async () => {
    await service.endOpenMode();
    key = await service.createKey({ scopes: ['read'] });
  });
  const poll = (params: object) => ask<Polled>(service, key.token, 'events/poll', { name: NAME, ...params });

  test('a client finds the extension, in the place of the final text and in that of earlier clients', async (t) => {
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'a test', version: '1' } };
    const headers = { ...RPC_HEADERS, authorization: `Bearer ${key.token}` };
    const { text } = await service.post('/mcp', rpc('initialize', params), headers);
    const { capabilities } = await ask<{ capabilities: object }>(service, key.token, 'server/discover');
    for (const each of [capabilities, (JSON.parse(text.slice(text.indexOf('{'))) as Initialized).result.capabilities])
      assert.deepEqual(each, { tools: {}, resources: {}, prompts: {}, events: {}, extensions: { [EXTENSION]: {} } });
    for (const era of ERAS) {
      const { client } = await connectMcp(t, service, key.token, era);
      assert.deepEqual(client.getServerCapabilities()?.extensions, { [EXTENSION]: {} });
    }
  });

  test('the list says the name, the ways of delivery, and both schemas', async () => {
    const { events } = await ask<{ events: Record<string, unknown>[] }>(service, key.token, 'events/list');
    const [event, ...more] = events;
    assert.deepEqual(more, []);
    assert.deepEqual([event?.['name'], event?.['delivery']], [NAME, ['webhook', 'push', 'poll']]);
    const { inputSchema, payloadSchema } = event as Record<string, { required?: string[]; properties: object }>;
    assert.deepEqual(inputSchema?.required, ['meeting_id']);
    assert.ok('message' in (payloadSchema?.properties ?? {}));
  });

  test('a poll without a cursor begins now, and each later one continues where the last one ended', async () => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'before' });
    const begun = await poll({ arguments: { meeting_id } });
    assert.deepEqual([begun.events, begun.cursor, begun.truncated, begun.hasMore], [[], '1', false, false]);
    const sent = await service.send(meeting_id, { content: 'one' });
    await service.send(meeting_id, { content: 'two' });
    const first = await poll({ arguments: { meeting_id }, cursor: begun.cursor, maxEvents: 1 });
    assert.deepEqual([contentsOf(first), first.cursor, first.hasMore], [['one'], '2', true]);
    assert.deepEqual([first.events[0]?.eventId, first.events[0]?.name], [sent.message_id, NAME]);
    // The time of the event comes from its id. It can be before `accepted_at` by no more than the millisecond in which
    // the service makes both.
    assert.ok(Math.abs(Date.parse(String(first.events[0]?.timestamp)) - Date.parse(sent.accepted_at)) < 60_000);
    const second = await poll({ arguments: { meeting_id }, cursor: first.cursor });
    assert.deepEqual([contentsOf(second), second.cursor, second.hasMore], [['two'], '3', false]);
    const third = await poll({ arguments: { meeting_id }, cursor: second.cursor });
    assert.deepEqual([third.events, third.cursor, third.truncated], [[], '3', false]);
  });

  test('with an agent it is what that agent hears; without one it is what is said to everybody', async () => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'for all' });
    await service.send(meeting_id, { content: 'for anna' }, ['anna']);
    await service.send(meeting_id, { content: 'for ben' }, ['ben']);
    await service.send(meeting_id, { content: 'for all, with an empty list' }, []);
    const of = async (arguments_: object) => contentsOf(await poll({ arguments: arguments_, cursor: '0' }));
    assert.deepEqual(await of({ meeting_id }), ['for all', 'for all, with an empty list']);
    assert.deepEqual(await of({ meeting_id, agent: 'anna' }), ['for all', 'for anna', 'for all, with an empty list']);
  });

  test('a cursor of another time begins at what is there, and says that events may be missing', async () => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'one' });
    const polled = await poll({ arguments: { meeting_id }, cursor: '99' });
    assert.deepEqual([polled.events, polled.cursor, polled.truncated], [[], '1', true]);
    const aged = await poll({ arguments: { meeting_id }, cursor: '0', maxAgeMs: 0 });
    assert.deepEqual([aged.events, aged.cursor, aged.truncated], [[], '1', true]);
  });

  test('no digit of a number is lost in an event', async (t) => {
    const meeting_id = service.name('meeting');
    const message = '{"order":12345678901234567890,"price":1.10}';
    await service.sendText(meeting_id, message);
    const params = { name: NAME, arguments: { meeting_id }, cursor: '0' };
    const polled = await askText(service, key.token, 'events/poll', params);
    assert.ok(polled.includes(`"message":${message}`), polled);
    const { next } = await openStream(t, service, key.token, params);
    assert.ok((await next())?.text.includes('events/active'));
    const event = (await next())?.text;
    assert.ok(event?.includes(`"message":${message}`), event);
  });

  test('an id that no client can put into a path, and a cursor that no service gave, are wrong arguments', async () => {
    const subscribing = {
      delivery: { mode: 'webhook', url: 'http://127.0.0.1:1/', secret: `whsec_${'A'.repeat(32)}` },
    };
    for (const [method, more] of [
      ['events/poll', { cursor: '0' }],
      ['events/stream', {}],
      ['events/subscribe', subscribing],
    ] as const) {
      const { code, message } = await refused(service, key.token, method, {
        name: NAME,
        arguments: { meeting_id: '..' },
        ...more,
      });
      assert.deepEqual([code, message], [-32_602, 'meeting_id cannot be ".."'], method);
    }
    const params = { name: NAME, arguments: { meeting_id: service.name('meeting') }, cursor: '9'.repeat(16) };
    assert.match((await refused(service, key.token, 'events/poll', params)).message, /cursor that the service gave/);
  });

  test('an event fits into 256 KiB, whatever the message', async () => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'ü'.repeat(120_000) });
    const { events } = await poll({ arguments: { meeting_id }, cursor: '0' });
    assert.ok(Buffer.byteLength(JSON.stringify(events[0])) < 256 << 10);
    assert.equal(events[0]?.data.part?.chars, 120_014);
  });

  for (const [what, chars, count] of [
    ['long messages', 180_000, 6],
    ['messages of which events have a part', 250_000, 5],
  ] as const) {
    test(`a page of ${what} ends early, and the next one continues there`, async () => {
      const meeting_id = service.name('meeting');
      for (let i = 0; i < 7; i++) await service.send(meeting_id, { content: 'x'.repeat(chars) });
      const first = await poll({ arguments: { meeting_id }, cursor: '0' });
      assert.deepEqual([first.events.length, first.cursor, first.hasMore], [count, String(count), true]);
      const second = await poll({ arguments: { meeting_id }, cursor: first.cursor });
      assert.deepEqual([second.events.length, second.cursor, second.hasMore], [7 - count, '7', false]);
    });
  }

  test('what is wrong is refused with the code of the extension', async () => {
    const codeOf = async (params: object, token = key.token) =>
      (await refused(service, token, 'events/poll', params)).code;
    assert.equal(await codeOf({ name: 'meeting.nothing', arguments: { meeting_id: 'm' } }), -32_023);
    assert.equal(await codeOf({ name: NAME, arguments: { meeting_id: service.name('none') } }), -32_023);
    assert.equal(await codeOf({ name: NAME, arguments: {} }), -32_602);
    assert.equal(await codeOf({ name: NAME, arguments: { meeting_id: 'm', more: 1 } }), -32_602);
    assert.equal(await codeOf({ name: NAME, arguments: { meeting_id: 'm' }, cursor: 'x' }), -32_602);
    const sender = await service.createKey({ scopes: ['send'] });
    assert.equal(await codeOf({ name: NAME, arguments: { meeting_id: 'm' } }, sender.token), -32_024);
  });

  test('a stream confirms, replays what follows the cursor, and goes on with what is said', async (t) => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'one' });
    const stream = await openStream(t, service, key.token, { arguments: { meeting_id }, cursor: '0' });
    const active = await stream.next();
    assert.equal(active?.method, 'notifications/events/active');
    assert.deepEqual([active.params?.cursor, active.params?.truncated], ['0', false]);
    for (const [content, cursor] of [
      ['one', '1'],
      ['two', '2'],
      ['three', '3'],
    ]) {
      if (content !== 'one') await service.send(meeting_id, { content });
      const frame = await stream.next();
      assert.equal(frame?.method, 'notifications/events/event');
      assert.deepEqual([frame.params?.data.message?.content, frame.params?.cursor], [content, cursor]);
      assert.equal(frame.params?._meta['io.modelcontextprotocol/subscriptionId'], 7);
    }
    const later = await openStream(t, service, key.token, { arguments: { meeting_id } });
    assert.equal((await later.next())?.params?.cursor, '3', 'without a cursor it begins now');
    await service.send(meeting_id, { content: 'four' });
    assert.equal((await later.next())?.params?.data.message?.content, 'four');
  });

  test('a stream that is refused has no frame but the error', async () => {
    const params = { name: NAME, arguments: { meeting_id: service.name('none') } };
    assert.equal((await refused(service, key.token, 'events/stream', params)).code, -32_023);
  });

  test('a stream ends with its key, and says so', async (t) => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'one' });
    const own = await service.createKey({ scopes: ['read'] });
    const stream = await openStream(t, service, own.token, { arguments: { meeting_id } });
    await stream.next();
    assert.equal((await service.request('DELETE', `/api/v1/keys/${own.key_id}/`)).status, 204);
    const ended = await stream.next();
    assert.equal(ended?.method, 'notifications/events/terminated');
    assert.deepEqual([ended.params?.error?.code, ended.params?.error?.data?.code], [-32_024, 'api_key_revoked']);
    assert.equal((await stream.next())?.result?.resultType, 'complete');
    assert.equal(await stream.next(), undefined);
  });
});

/** A clock that a test sets. The test also decides when a minute is over. */
class MinuteClock extends SetClock {
  readonly #minutes = new Set<() => void>();
  #ahead_ms = 0;

  override now(): number {
    return super.now() + this.#ahead_ms;
  }

  override step(ms: number): void {
    super.step(ms);
    this.#ahead_ms += ms;
  }

  override after(delay_ms: number, callback: () => void): Timer {
    // After a round of maintenance that took long, the next one begins later than after a minute.
    if (delay_ms < 60_000) return super.after(delay_ms, callback);
    // This is no real timer, which would keep the process running for a minute after the last test.
    this.#minutes.add(callback);
    return { cancel: () => void this.#minutes.delete(callback) };
  }

  minuteIsOver(): void {
    const ended = [...this.#minutes];
    this.#minutes.clear();
    for (const callback of ended) callback();
  }
}

for (const store of ['SQLite', 'PostgreSQL']) {
  test(`a cursor before what retention removed says that events are missing, and one behind it does not: ${store}`, async (t) => {
    const clock = new MinuteClock();
    const database_url = store === 'SQLite' ? '' : await makeDatabase();
    const service = new Service({ database_url, retention_messages: '1h', retention_deliveries: '1h' }, clock);
    await service.start();
    t.after(() => service.close());
    await service.endOpenMode();
    const { token } = await service.createKey({ scopes: ['read'] });
    const params = (cursor: string) => ({ name: NAME, arguments: { meeting_id: 'm' }, cursor });
    const poll = async (cursor: string) => {
      const polled = await ask<Polled>(service, token, 'events/poll', params(cursor));
      return [contentsOf(polled), polled.cursor, polled.truncated];
    };
    /** Lets maintenance remove what is older than an hour. */
    const removed = async (left: number) => {
      await until(
        'the end of old messages',
        async () => {
          // Tries again and again: while a round runs, no minute has begun, and the next minute begins after the round.
          clock.minuteIsOver();
          return (await service.get<Page<object>>(messagesPath('m'))).body.data.length;
        },
        (length) => length === left,
      );
    };
    for (const content of ['one', 'two', 'three']) await service.send('m', { content });
    clock.step(2 * 3_600_000);
    await service.send('m', { content: 'four' });
    assert.deepEqual(await poll('0'), [['one', 'two', 'three', 'four'], '4', false], 'control: nothing was removed');
    await removed(1);
    assert.deepEqual(await poll('0'), [['four'], '4', true]);
    assert.deepEqual(await poll('2'), [['four'], '4', true]);
    assert.deepEqual(await poll('3'), [['four'], '4', false], 'the one after the cursor is there');
    const stream = await openStream(t, service, token, { arguments: { meeting_id: 'm' }, cursor: '1' });
    const active = await stream.next();
    assert.deepEqual([active?.params?.cursor, active?.params?.truncated], ['3', true]);
    assert.equal((await stream.next())?.params?.data.message?.content, 'four');
    stream.close();
    clock.step(2 * 3_600_000);
    await removed(0);
    assert.deepEqual(await poll('3'), [[], '4', true]);
    assert.deepEqual(await poll('4'), [[], '4', false]);
  });
}

describe('a feed that has no place', () => {
  const service = useService({ max_feed_listeners: '2' });
  const keys: ApiKeyWithToken[] = [];
  const params = { arguments: { meeting_id: 'm' } };
  before(async () => {
    await service.endOpenMode();
    await service.send('m', { content: 'one' });
    for (let i = 0; i < 3; i++) keys.push(await service.createKey({ scopes: ['read'] }));
  });

  test('a key that has fewer places gets one, and the stream that had it says what to do', async (t) => {
    const [rich, poor, late] = keys;
    const first = await openStream(t, service, rich!.token, params);
    const second = await openStream(t, service, rich!.token, params);
    for (const stream of [first, second]) assert.equal((await stream.next())?.method, 'notifications/events/active');
    const other = await openStream(t, service, poor!.token, params);
    assert.equal((await other.next())?.method, 'notifications/events/active');
    const ended = await second.next();
    assert.equal(ended?.method, 'notifications/events/terminated');
    assert.equal(ended.params?.error?.code, -32_025);
    assert.match(ended.params?.error?.message ?? '', /CONVOKE_MAX_FEED_LISTENERS.* Wait 5 s/);
    assert.equal((await second.next())?.result?.resultType, 'complete');

    // Each key has one place now.
    const answered = await inTime(
      'an answer',
      refused(service, late!.token, 'events/stream', { name: NAME, ...params }),
    );
    assert.equal(answered.code, -32_025);
    assert.match(answered.message, /CONVOKE_MAX_FEED_LISTENERS.* Wait 5 s/);
    await service.send('m', { content: 'two' });
    for (const stream of [first, other]) assert.equal((await stream.next())?.params?.data.message?.content, 'two');
  });
});

describe('a stream of a key that may not read the meeting', () => {
  const service = useService();
  before(() => service.endOpenMode());

  for (const cursor of ['0', undefined]) {
    test(`is refused, also while others stream it ${cursor === undefined ? 'from now on' : 'from a cursor'}`, async (t) => {
      const meeting_id = service.name('secret');
      await service.send(meeting_id, { content: 'for readers' });
      const reader = await service.createKey({ scopes: ['read'] });
      const machine = await service.createKey({ scopes: ['instance'] });
      const params = { arguments: { meeting_id }, ...(cursor !== undefined && { cursor }) };
      const stream = await openStream(t, service, reader.token, { ...params, cursor: '0' });
      let frame = await stream.next();
      while (frame?.method !== 'notifications/events/event') frame = await stream.next();
      assert.equal(frame.params?.data.message?.content, 'for readers', 'control');
      const { data } = await refused(service, machine.token, 'events/stream', { name: NAME, ...params });
      assert.equal(data?.code, 'not_permitted');
    });
  }
});

test('a stream ends when the service stops, and does not hold the stop', async (t) => {
  const service = await startService(t);
  await service.send('m', { content: 'one' });
  const response = await fetch(`${service.url}/mcp`, {
    method: 'POST',
    headers: { ...RPC_HEADERS, 'content-type': 'application/json' },
    body: JSON.stringify(rpc('events/stream', { name: NAME, arguments: { meeting_id: 'm' } })),
  });
  const frames = framesOf(response.body as ReadableStream<Uint8Array>);
  assert.equal((await inTime('the first frame', frames.next())).value?.method, 'notifications/events/active');
  const closed = service.close();
  const last = await inTime('the last frame', frames.next());
  assert.equal((last.value as Frame).result?.resultType, 'complete');
  await inTime('the stop', closed);
});
