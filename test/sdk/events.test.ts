/** The live feed of the SDK on a network that responds in place of Convoke. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient, ConvokeError } from '@convoke/sdk';

type Respond = (response: ServerResponse) => void;

const feedWith =
  (seq: number): Respond =>
  (response) =>
    response
      .writeHead(200, { 'content-type': 'text/event-stream' })
      .end(`event: message.accepted\nid: ${seq}\ndata: {"seq":${seq}}\n\n`);
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
});
