/** A stream of MCP Events as its caller drives it: heartbeats, and the pace of a client that reads slowly. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { before, describe, test, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ConvokeClient } from '@convoke/sdk';
import { Caller } from '../../src/mcp/caller.ts';
import { hasRoom } from '../../src/http/routes/mcp.ts';
import { streamEvents } from '../../src/mcp/events/stream.ts';
import { useService } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

interface Sent {
  method: string;
  params?: { cursor?: string; data?: { seq: number } };
}

describe('a stream', () => {
  const service = useService();
  let token = '';
  before(async () => {
    await service.endOpenMode();
    ({ token } = await service.createKey({ scopes: ['read'] }));
  });

  /** Opens a stream from the beginning of a meeting. */
  function stream(t: TestContext, meeting_id: string, hasRoom: () => Promise<void>, heartbeat_ms?: number) {
    const abort = new AbortController();
    t.after(() => abort.abort());
    const caller = new Caller({
      client: new ConvokeClient({ base_url: service.url, api_key: token }),
      signal: abort.signal,
      hasRoom,
      onAnswered: () => {},
      onUnsettled: () => assert.fail(),
    });
    const sent: Sent[] = [];
    const notify = async (notification: object) => void sent.push(notification as Sent);
    const params = { name: 'meeting.message' as const, arguments: { meeting_id }, cursor: '0' };
    const ended = streamEvents(caller, params, { id: 1, notify }, heartbeat_ms);
    return { sent, end: () => (abort.abort(), inTime('the end of the stream', ended)) };
  }
  const kindsOf = (sent: Sent[]) => sent.map(({ method }) => method.slice('notifications/events/'.length));

  test('without events shows with its cursor that it lives, and ends with its caller', async (t) => {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content: 'one' });
    const { sent, end } = stream(t, meeting_id, async () => {}, 1);
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
    // There is room for the first two frames.
    const { sent, end } = stream(t, meeting_id, () => (++asked > 2 ? room.promise : Promise.resolve()));
    await until(
      'a stream that waits for room',
      () => asked,
      (times) => times === 3,
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
    await hasRoom(response);
    // More than the buffers of both sockets take.
    response.write(Buffer.alloc(32 << 20));
    let has_room = false;
    const room = hasRoom(response).then(() => (has_room = true));
    await turn();
    assert.equal(has_room, false);
    client[go]();
    await inTime('room', room);
  });
}
