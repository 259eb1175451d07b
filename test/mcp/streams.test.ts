/** A stream of MCP Events: its heartbeats, and a client that reads slowly. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { before, describe, test, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ConvokeClient } from '@convoke/sdk';
import { Caller } from '../../src/mcp/caller.ts';
import { StreamRoom } from '../../src/http/stream_room.ts';
import { NextMessages } from '../../src/mcp/events/next_messages.ts';
import { MeetingNews } from '../../src/mcp/events/meeting_news.ts';
import { streamEvents } from '../../src/mcp/events/stream.ts';
import { useService } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

interface Sent {
  method: string;
  params?: { cursor?: string; data?: { seq: number } };
}

interface StreamOptions {
  hasRoom?: () => Promise<void>;
  heartbeat_ms?: number;
  messages?: NextMessages;
  fetch?: typeof fetch;
}

describe('a stream', () => {
  const service = useService();
  let token = '';
  before(async () => {
    await service.endOpenMode();
    ({ token } = await service.createKey({ scopes: ['read'] }));
  });

  /** Opens a stream from the beginning of a meeting. */
  function stream(t: TestContext, meeting_id: string, options: StreamOptions = {}) {
    const { hasRoom = async () => {}, heartbeat_ms, messages = new NextMessages(), fetch } = options;
    const abort = new AbortController();
    t.after(() => abort.abort());
    const caller = new Caller({
      client: new ConvokeClient({ base_url: service.url, api_key: token, ...(fetch && { fetch }) }),
      signal: abort.signal,
      hasRoom,
      onAnswered: () => {},
      onUnsettled: () => assert.fail(),
    });
    const sent: Sent[] = [];
    const notify = async (notification: object) => void sent.push(notification as Sent);
    const params = { name: 'meeting.message' as const, arguments: { meeting_id }, cursor: '0' };
    const ended = streamEvents(caller, params, { id: 1, notify, messages }, heartbeat_ms);
    return { sent, ended, end: () => (abort.abort(), inTime('the end of the stream', ended)) };
  }
  const kindsOf = (sent: Sent[]) => sent.map(({ method }) => method.slice('notifications/events/'.length));

  test('without events shows with its cursor that it lives, and ends with its caller', async (t) => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'one' });
    const { sent, end } = stream(t, meeting_id, { heartbeat_ms: 1 });
    await until(
      'two heartbeats',
      () => kindsOf(sent),
      (kinds) => kinds.filter((kind) => kind === 'heartbeat').length >= 2,
    );
    assert.deepEqual(kindsOf(sent).slice(0, 4), ['active', 'event', 'heartbeat', 'heartbeat']);
    assert.deepEqual(
      sent.slice(0, 3).map(({ params }) => params?.cursor),
      ['0', '1', '1'],
    );
    assert.equal((await end()).resultType, 'complete');
  });

  test('sends nothing while its client does not read, and continues in order', async (t) => {
    const meeting_id = service.name('meeting');
    for (const content of ['one', 'two', 'three']) await service.send(meeting_id, { content });
    let asked = 0;
    const room = Promise.withResolvers<void>();
    // There is room for the first event.
    const { sent, end } = stream(t, meeting_id, {
      hasRoom: () => (++asked > 1 ? room.promise : Promise.resolve()),
    });
    await until(
      'a stream that waits for room',
      () => asked,
      (times) => times === 2,
    );
    await service.send(meeting_id, { content: 'four' });
    assert.deepEqual(kindsOf(sent), ['active', 'event']);
    room.resolve();
    await until(
      'the other events',
      () => sent.length,
      (frames) => frames === 5,
    );
    assert.deepEqual(
      sent.slice(1).map(({ params }) => params?.data?.seq),
      [1, 2, 3, 4],
    );
    await end();
  });

  test('reads its meeting again for a new message and for a gap, and not for what happens to messages', async (t) => {
    const abort = new AbortController();
    t.after(() => abort.abort());
    const feed = new TransformStream<{ name: string }, { name: string }>();
    const events = (_: object, { onConnection }: { onConnection: (state: string, error: null) => void }) => {
      onConnection('connected', null);
      return feed.readable;
    };
    const news = await MeetingNews.follow({ client: { events } } as unknown as Caller, 'm', abort.signal);
    const writer = feed.writable.getWriter();
    const rings = async (name: string): Promise<boolean> => {
      news.reset();
      await writer.write({ name });
      await turn();
      return await news.wait(0);
    };
    for (const name of ['delivery.attempted', 'delivery.settled', 'instance.joined', 'meeting.changed'])
      assert.equal(await rings(name), false, name);
    for (const name of ['message.accepted', 'gap']) assert.equal(await rings(name), true, name);
  });

  const STREAMS = 20;
  const MESSAGES = 24;

  /** How many messages all streams of a meeting read until each has sent every message. */
  async function messagesRead(t: TestContext, messagesOf: () => NextMessages): Promise<number> {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'first' });
    let read = 0;
    const counted: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      if (!(input as string | URL).toString().includes('/messages/')) return response;
      read += ((await response.clone().json()) as { data: object[] }).data.length;
      return response;
    };
    const streams = Array.from({ length: STREAMS }, () =>
      stream(t, meeting_id, { messages: messagesOf(), fetch: counted }),
    );
    const haveEvents = (count: number) =>
      until(
        `${count} events of each stream`,
        () => streams.map(({ sent }) => sent.filter(({ params }) => params?.data !== undefined).length),
        (counts) => counts.every((each) => each === count),
      );
    await haveEvents(1);
    read = 0;
    for (let i = 0; i < MESSAGES; i++) await service.send(meeting_id, { content: String(i) });
    await haveEvents(1 + MESSAGES);
    for (const { sent } of streams) {
      const seqs = sent.flatMap(({ params }) => params?.data?.seq ?? []);
      assert.deepEqual(
        seqs,
        Array.from({ length: 1 + MESSAGES }, (_, i) => i + 1),
      );
    }
    await Promise.all(streams.map(({ end }) => end()));
    return read;
  }

  test('shares what it reads with the other streams of its meeting', async (t) => {
    const shared = new NextMessages();
    const read = await messagesRead(t, () => shared);
    // Messages that were read are kept for a while. A stream that needs such a message later must read it again.
    assert.ok(read < MESSAGES * 4, `${read} messages`);
    const alone = await messagesRead(t, () => new NextMessages());
    assert.ok(alone >= MESSAGES * STREAMS, `control: ${alone} messages`);
  });

  test('sends what another stream read only if it may read the meeting itself', async (t) => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'one' });
    const messages = new NextMessages();
    const allowed = stream(t, meeting_id, { messages });
    await until(
      'the event',
      () => kindsOf(allowed.sent),
      (kinds) => kinds.includes('event'),
    );
    const other = await service.createKey({ scopes: ['read'], meeting_ids: ['another'] });
    const as_other: typeof fetch = (input, init) =>
      fetch(input, { ...init, headers: { ...(init?.headers as object), authorization: `Bearer ${other.token}` } });
    const refused = stream(t, meeting_id, { messages, fetch: as_other });
    await assert.rejects(inTime('the refusal', refused.ended), { code: -32_024, data: { code: 'not_permitted' } });
    assert.deepEqual(refused.sent, []);
    await allowed.end();
  });

  test('sends a bounded number of characters in a turn of the event loop, with all others', async () => {
    const messages = new NextMessages();
    const went: string[] = [];
    const go = (name: string) => messages.turn(256 << 10).then(() => void went.push(name));
    const all = [go('one'), go('two')];
    queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => void went.push('the end of the turn'))));
    await Promise.all(all);
    assert.deepEqual(went, ['one', 'the end of the turn', 'two']);
  });
});

for (const [way, go] of [
  ['reads on', 'resume'],
  ['leaves', 'destroy'],
] as const) {
  test(`a response that is full has room when its client ${way}, and not before`, async (t) => {
    const server = createServer();
    t.after(() => server.close().closeAllConnections());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    t.after(() => client.destroy());
    client.pause().write('GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    const [, response] = (await once(server, 'request')) as [unknown, ServerResponse];
    const room = new StreamRoom();
    await room.wait('key', response);
    // This is more than the buffers of both sockets take.
    response.write(Buffer.alloc(32 << 20));
    let has_room = false;
    const waited = room.wait('key', response).then(() => (has_room = true));
    await turn();
    assert.equal(has_room, false);
    client[go]();
    await inTime('room', waited);
  });
}

test('clients of many keys that do not read lose their connections, the slowest of the key with the most first', async (t) => {
  const server = createServer();
  t.after(() => server.close().closeAllConnections());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const room = new StreamRoom();
  const unread = async (key: string, bytes: number): Promise<ServerResponse> => {
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    t.after(() => client.destroy());
    client
      .on('error', () => {})
      .pause()
      .write('GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    const [, response] = (await once(server, 'request')) as [unknown, ServerResponse];
    response.write(Buffer.alloc(bytes));
    void room.wait(key, response);
    return response;
  };
  const MANY = 12 << 20;
  const responses = [
    await unread('a', MANY - 1),
    await unread('b', MANY / 2),
    await unread('b', MANY / 2),
    await unread('c', MANY - 1),
  ];
  assert.deepEqual(
    responses.map(({ destroyed }) => destroyed),
    [false, true, false, false],
  );
});

test('streams of a key wait while its other clients do not read much of theirs; those of other keys do not', async (t) => {
  const server = createServer();
  t.after(() => server.close().closeAllConnections());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const respond = async () => {
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    t.after(() => client.destroy());
    client.pause().write('GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    const [, response] = (await once(server, 'request')) as [unknown, ServerResponse];
    return { client, response };
  };
  const room = new StreamRoom();
  const [slow, quick] = [await respond(), await respond()];
  slow.response.write(Buffer.alloc(64 << 20));
  void room.wait('key', slow.response);
  await room.wait('another key', quick.response);
  let has_room = false;
  const waited = room.wait('key', quick.response).then(() => (has_room = true));
  await turn();
  assert.equal(has_room, false);
  slow.client.destroy();
  await inTime('room', waited);
});
