/** `convoke deliveries drop` where so much waits that no single call counts or drops all of it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { json as jsonOf } from 'node:stream/consumers';
import { convoke } from '../support/command_line.ts';

/** A service that gives these responses, one after the other. */
async function scripted(t: TestContext, ...responses: object[]): Promise<{ url: string; bodies: unknown[] }> {
  const bodies: unknown[] = [];
  const server = createServer((request, response) => {
    void jsonOf(request).then((body) => {
      bodies.push(body);
      response.setHeader('content-type', 'application/json').end(JSON.stringify(responses.shift()));
    });
  });
  t.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bodies };
}

test('a count that was not completed is said to be one', async (t) => {
  const counted = { deliveries: 100_000, up_to: 'msg_9', dry_run: true, done: true, at_least: true };
  const { url, bodies } = await scripted(t, counted);
  const { stdout, stderr } = await convoke(['deliveries', 'drop', '--meeting', 'm', '--url', url]);
  assert.equal(stdout, 'would be dropped: at least 100000 deliveries; --yes drops them\n', stderr);
  assert.deepEqual(bodies, [{ meeting_id: 'm', dry_run: true }]);
});

test('a drop counts nothing first, and goes on to the last part of what waited when it began', async (t) => {
  const part = { up_to: 'msg_9', dry_run: false };
  const parts = [5, 3, 1].map((deliveries, k) => ({ ...part, deliveries, done: k === 2 }));
  const { url, bodies } = await scripted(t, ...parts);
  const { stdout, stderr } = await convoke(['deliveries', 'drop', '--meeting', 'm', '--yes', '--json', '--url', url]);
  assert.deepEqual(JSON.parse(stdout), { ...part, deliveries: 9, done: true }, stderr);
  assert.deepEqual(bodies, [
    { meeting_id: 'm' },
    { meeting_id: 'm', up_to: 'msg_9' },
    { meeting_id: 'm', up_to: 'msg_9' },
  ]);
});
