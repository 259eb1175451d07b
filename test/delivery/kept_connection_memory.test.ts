/** What a connection that waits for the next push keeps in memory. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { queryObjects } from 'node:v8';
import { PushAttempt } from '../../src/delivery/transport/push_attempt.ts';
import type { Push } from '../../src/delivery/transport/transport.ts';
import { createWebhookTransport, type WebhookTransport } from '../../src/delivery/transport/webhook_transport.ts';

const pem = (name: string): string => readFileSync(new URL(`../fixtures/tls/${name}.pem`, import.meta.url), 'utf8');
const SERVERS: [scheme: string, (answer: RequestListener) => Server][] = [
  ['http', (answer) => createServer(answer)],
  ['https', (answer) => createTlsServer({ key: pem('key'), cert: pem('good') }, answer)],
];

/** How many pushes are in memory. It collects first what nothing needs. */
const pushesInMemory = (): number => queryObjects(PushAttempt, { format: 'count' });

function transportFor(t: TestContext): WebhookTransport {
  const policy = { mode: 'local', allow: [], allow_http: true } as const;
  const transport = createWebhookTransport({ policy, extra_ca: [pem('ca')] });
  t.after(() => transport.close());
  return transport;
}

async function receiverFor(t: TestContext, server: Server, scheme: string): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `${scheme}://localhost:${(server.address() as AddressInfo).port}/`;
}

const pushTo = (url: string): Push => ({
  instance_id: 'machine',
  url,
  headers: { 'content-type': 'application/json' },
  body: Buffer.from('{"event":"message"}'),
  success_statuses: '200',
});

for (const [scheme, serverOf] of SERVERS) {
  test(`a connection that is kept forgets the push that it was opened for (${scheme})`, async (t) => {
    const server = serverOf((request, response) => void request.resume().on('end', () => response.end('ok')));
    const url = await receiverFor(t, server, scheme);
    const transport = transportFor(t);
    assert.equal((await transport.push(pushTo(url))).outcome, 'ok');
    assert.equal(transport.counts().idle_connections, 1);
    assert.equal(pushesInMemory(), 0);
  });

  test(`control: a push that waits for its response is in memory (${scheme})`, async (t) => {
    const { promise: arrived, resolve } = Promise.withResolvers<void>();
    const url = await receiverFor(
      t,
      serverOf(() => resolve()),
      scheme,
    );
    const transport = transportFor(t);
    const pushed = transport.push(pushTo(url));
    await arrived;
    assert.equal(pushesInMemory(), 1);
    await transport.close();
    await pushed;
  });
}
