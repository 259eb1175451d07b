/** `convoke connect` makes a result of whatever the runtime on this machine answers. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { createServer as createTlsServer, getCACertificates, setDefaultCACertificates } from 'node:tls';
import type { PushResult } from '@convoke/sdk';
import { LocalRuntime } from '../../src/cli/program/commands/connect/local_runtime.ts';
import { inTime, until } from '../support/wait.ts';

/** Gives a push to a runtime that answers with these bytes, and keeps the connection open. */
async function answered(t: TestContext, ...lines: string[]): Promise<PushResult> {
  const server = createServer((socket) => {
    t.after(() => socket.destroy());
    socket.on('error', () => {});
    socket.once('data', () => socket.write(`${lines.join('\r\n')}\r\n\r\n`));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  const runtime = new LocalRuntime(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`), {});
  const push = { body: '{}', headers: {}, signal: new AbortController().signal };
  return inTime('the result of the push', runtime.post(push));
}

describe('a status that is no result', () => {
  test('101 ends the push at once, although nothing more comes on its connection', async (t) => {
    const result = await answered(t, 'HTTP/1.1 101 Switching Protocols', 'connection: upgrade', 'upgrade: websocket');
    assert.equal('status_code' in result && result.status_code, 502);
    assert.match(JSON.stringify(result), /answered 101; a result has a status from 200 to 599/);
  });

  test('999, which the service would refuse, becomes 502', async (t) => {
    const result = await answered(t, 'HTTP/1.1 999 Odd', 'content-length: 0');
    assert.equal('status_code' in result && result.status_code, 502);
    assert.match(JSON.stringify(result), /answered 999/);
  });
});

test('control: a runtime that only offers another protocol, and an interim response, are no failure', async (t) => {
  const early = ['HTTP/1.1 103 Early Hints', '', 'HTTP/1.1 200 OK'];
  const offer = ['connection: upgrade', 'upgrade: h2c', 'content-length: 0'];
  assert.deepEqual(await answered(t, ...early, ...offer), { status_code: 200 });
});

test('a request that is called off before it has a connection says nothing about the runtime: it still counts as there', async () => {
  const runtime = new LocalRuntime(new URL('http://127.0.0.1:9/'), {});
  await runtime.post({ body: '{}', headers: {}, signal: AbortSignal.abort() });
  assert.equal(runtime.is_reached, true);
});

test('a reply may arrive until the time of the push is over, long after the head of its response', async (t) => {
  const { promise: asked, resolve } = Promise.withResolvers<Socket>();
  const server = createServer((socket) => {
    t.after(() => socket.destroy());
    socket.once('data', () => resolve(socket));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  const runtime = new LocalRuntime(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`), {});
  const push = { body: '{}', headers: {}, signal: new AbortController().signal };
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const posted = runtime.post(push, performance.now() + 600_000);
  const socket = await asked;
  socket.write('HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n');
  for (let seconds = 0; seconds < 60; seconds++) {
    await turn();
    t.mock.timers.tick(1_000);
  }
  socket.write('{"reply":"yes"}');
  assert.deepEqual(await posted, { status_code: 200, body: '{"reply":"yes"}' });
});

describe('a runtime at an https address', () => {
  const pem = (name: string) => readFileSync(new URL(`../fixtures/tls/${name}.pem`, import.meta.url), 'utf8');

  /** Waits until the runtime listens; returns the reasons why it waits. */
  async function waitFor(t: TestContext, certificate: string) {
    const server = createTlsServer({ key: pem('key'), cert: pem(certificate) });
    server.on('tlsClientError', () => {});
    await once(server.listen(0, '127.0.0.1'), 'listening');
    t.after(() => server.close());
    const runtime = new LocalRuntime(new URL(`https://localhost:${(server.address() as AddressInfo).port}/`), {});
    const ending = new AbortController();
    t.after(() => ending.abort());
    const reasons: string[] = [];
    const listens = runtime.listens(ending.signal, (why) => reasons.push(why));
    return { listens, reasons, ending };
  }

  test('is not there while its certificate is not valid, and the reason says so', async (t) => {
    const { listens, reasons, ending } = await waitFor(t, 'self_signed');
    await until(
      'the reason',
      () => reasons.length,
      (length) => length > 0,
    );
    assert.match(reasons[0]!, /certificate/);
    ending.abort();
    await assert.rejects(listens);
  });

  test('is there when its certificate is valid', async (t) => {
    const before = getCACertificates('default');
    setDefaultCACertificates([...before, pem('ca')]);
    t.after(() => setDefaultCACertificates(before));
    const { listens, reasons } = await waitFor(t, 'good');
    await inTime('the connection', listens);
    assert.deepEqual(reasons, []);
  });
});
