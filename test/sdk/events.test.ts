/** The live feed of the SDK on a network that responds in place of Convoke. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient, ConvokeError } from '@convoke/sdk';

type Respond = (response: ServerResponse) => void;

const feedWith =
  (...seqs: number[]): Respond =>
  (response) =>
    response
      .writeHead(200, { 'content-type': 'text/event-stream' })
      .end(seqs.map((seq) => `event: message.accepted\nid: ${seq}\ndata: {"seq":${seq}}\n\n`).join(''));
const signInPage: Respond = (response) =>
  response.writeHead(200, { 'content-type': 'text/html' }).end('<h1>Sign in</h1>');
const otherService: Respond = (response) => response.writeHead(404, { 'content-type': 'text/html' }).end('not here');

/** A client whose connections get these responses, one after the other. */
async function startClient(t: TestContext, responses: Respond[]): Promise<ConvokeClient> {
  const left = responses.values();
  const server = createServer((_, response) => left.next().value!(response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  return new ConvokeClient({ base_url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
}

const sleep = async (): Promise<void> => {};

describe('the live feed of the SDK', () => {
  test('goes on after a network responded in place of Convoke for a while', async (t) => {
    const client = await startClient(t, [feedWith(1), signInPage, otherService, feedWith(2)]);
    const seen: number[] = [];
    for await (const event of client.events({}, { sleep })) {
      if (event.name === 'message.accepted') seen.push(event.data.seq);
      if (seen.length === 2) break;
    }
    assert.deepEqual(seen, [1, 2]);
  });

  test('says so when nothing at its address is Convoke', async (t) => {
    for (const respond of [signInPage, otherService]) {
      const client = await startClient(t, [respond]);
      await assert.rejects(
        client.events({}, { sleep }).next(),
        (error) => error instanceof ConvokeError && error.code === 'unexpected_response',
      );
    }
  });

  test('gives no event after its signal was aborted, also when events arrived together', async (t) => {
    const client = await startClient(t, [feedWith(1, 2, 3)]);
    const ending = new AbortController();
    const seen: unknown[] = [];
    for await (const { id } of client.events({}, { sleep, signal: ending.signal })) {
      seen.push(id);
      ending.abort();
    }
    assert.deepEqual(seen, ['1']);
  });

  test('ends with what onConnection throws, or what is thrown into it, and does not connect again', async (t) => {
    const client = await startClient(t, [feedWith(1), feedWith(2)]);
    const onConnection = () => {
      throw new Error('of the program');
    };
    await assert.rejects(client.events({}, { sleep, onConnection }).next(), /^Error: of the program$/);
    const events = client.events({}, { sleep });
    assert.equal((await events.next()).value?.id, '2');
    await assert.rejects(events.throw(new Error('of the program')), /^Error: of the program$/);
  });

  test('says that an event is not JSON, and goes on behind it', async (t) => {
    const broken: Respond = (response) =>
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end('event: gap\nid: 1\ndata: {"since\n\n');
    const client = await startClient(t, [broken, feedWith(2)]);
    const losses: unknown[] = [];
    const onConnection = (_: string, error: ConvokeError | null) => void (error && losses.push(error.code));
    for await (const { id } of client.events({}, { sleep, onConnection })) {
      assert.equal(id, '2');
      break;
    }
    assert.deepEqual(losses, ['unexpected_response']);
  });

  test('pauses for longer and longer while each connection is cut at once, and anew after one that lasted', async (t) => {
    const client = await startClient(
      t,
      [1, 2, 3, 4, 5, 6].map((seq) => feedWith(seq)),
    );
    const waits: number[] = [];
    let now_ms = 0;
    for await (const { id } of client.events({}, { sleep: async (ms) => void waits.push(ms), now: () => now_ms })) {
      if (id === '4') now_ms += 5_000;
      if (id === '6') break;
    }
    const bounds = [500, 1_000, 2_000, 500, 1_000];
    assert.equal(waits.length, bounds.length);
    for (const [i, bound] of bounds.entries())
      assert.ok(waits[i]! >= bound / 2 && waits[i]! <= bound, `pause ${i}: ${waits[i]} ms`);
  });
});
