/** Ways around the connector that other clients have: redirects, proxies from the environment, another protocol. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { parseCidr } from '../../src/domain/address.ts';
import {
  createWebhookTransport,
  type WebhookTransportOptions,
} from '../../src/delivery/transport/webhook_transport.ts';
import { tapSockets } from '../support/socket_tap.ts';
import { WAIT_MS_MAX } from '../support/wait.ts';

/** A policy that allows only 127.0.0.1 of this machine, so no push may reach a listener on ::1. */
const ONLY_IPV4 = { mode: 'lan', allow: [parseCidr('127.0.0.1/32')!], allow_http: true } as const;

async function listening(t: TestContext, server: Server | ReturnType<typeof createTcpServer>, host = '127.0.0.1') {
  await once(server.listen(0, host), 'listening');
  t.after(() => {
    server.close();
    if ('closeAllConnections' in server) server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

const pushWith = (t: TestContext, options: Partial<WebhookTransportOptions> = {}) => {
  const transport = createWebhookTransport({ policy: ONLY_IPV4, ...options });
  t.after(() => transport.close());
  return (url: string) =>
    transport.push({ instance_id: 'machine', url, headers: {}, body: Buffer.from('{}'), success_statuses: '2xx' });
};

async function counting(t: TestContext, host?: string, listener: RequestListener = (_, response) => response.end()) {
  let requests = 0;
  const server = createServer((request, response) => {
    requests++;
    listener(request, response);
  });
  return { port: await listening(t, server, host), requests: () => requests };
}

test('no response from 300 to 308 leads anywhere, whatever it points to', async (t) => {
  const secret = await counting(t, '::1');
  const places = [
    `http://[::1]:${secret.port}/`,
    `//[::1]:${secret.port}/`,
    `https://[::1]:${secret.port}/`,
    'http://169.254.169.254/latest/meta-data/',
    'http://localhost:1/',
    '/elsewhere',
    'file:///etc/passwd',
  ];
  const machine = await counting(t, '127.0.0.1', ({ url }, response) => {
    const [, status, place] = /^\/(\d+)\/(\d+)$/.exec(url ?? '') ?? [];
    const location = places[Number(place)] ?? '';
    const headers = {
      location,
      refresh: `0;url=${location}`,
      'alt-svc': `h2="[::1]:${secret.port}"`,
      link: `<${location}>`,
    };
    response.writeHead(Number(status), headers).end();
  });
  const tap = tapSockets(t, ({ host }) => (host === '127.0.0.1' || host === '::1' ? 'pass' : 'refuse'));
  const push = pushWith(t);
  let pushes = 0;
  for (let status = 300; status <= 308; status++) {
    for (const place of places.keys()) {
      pushes++;
      const result = await push(`http://127.0.0.1:${machine.port}/${status}/${place}`);
      assert.deepEqual([result.outcome, result.status_code], ['bad_status', status], places[place]);
    }
  }
  assert.equal(machine.requests(), pushes);
  assert.equal(secret.requests(), 0);
  assert.deepEqual([...new Set(tap.dialled.map(({ host, port }) => `${host} ${port}`))], [`127.0.0.1 ${machine.port}`]);
  assert.equal(tap.lookups, 0);

  // The control: with the same responses, a client that follows redirects reaches the listener.
  for (const status of [301, 302, 303, 307, 308]) {
    await (await fetch(`http://127.0.0.1:${machine.port}/${status}/0`, { method: 'POST', body: '{}' })).text();
  }
  assert.equal(secret.requests(), 5);
  assert.equal(tap.dialledPort(secret.port).length > 0, true);
});

test('a proxy that the environment names is not used', { timeout: 2 * WAIT_MS_MAX }, async (t) => {
  const machine = await counting(t);
  let proxied = 0;
  const proxy = createTcpServer((socket) => {
    proxied++;
    socket.on('error', () => {}).destroy();
  });
  const at_proxy = `http://127.0.0.1:${await listening(t, proxy)}`;
  const named: Record<string, string> = { NODE_USE_ENV_PROXY: '1' };
  for (const name of ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY']) named[name] = named[name.toLowerCase()] = at_proxy;
  const child = async (code: string): Promise<string> => {
    const args = ['--input-type=module', '--eval', code];
    const env = { ...process.env, NO_PROXY: '', no_proxy: '', ...named };
    const running = spawn(process.execPath, args, {
      cwd: import.meta.dirname,
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return text(running.stdout);
  };
  const url = `http://127.0.0.1:${machine.port}/`;
  const pushed = child(`
    import { createWebhookTransport } from '${new URL('../../src/delivery/transport/webhook_transport.ts', import.meta.url).href}';
    const transport = createWebhookTransport({ policy: { mode: 'local', allow: [], allow_http: true } });
    const push = { instance_id: 'i', url: '${url}', headers: {}, body: Buffer.from('{}'), success_statuses: '200' };
    const result = await transport.push(push);
    await transport.close();
    process.stdout.write(result.outcome + ' ' + result.detail);
  `);
  assert.equal(await pushed, 'ok ');
  assert.deepEqual([machine.requests(), proxied], [1, 0]);

  // The control: in the same environment, fetch uses the proxy.
  assert.equal(await child(`await fetch('${url}').catch(() => process.stdout.write('failed'))`), 'failed');
  assert.equal(machine.requests(), 1);
  assert.ok(proxied > 0);
});

test('HTTP/2 is neither offered nor spoken: a machine that knows both speaks HTTP/1.1, one that knows only it is not reached', async (t) => {
  const pem = (name: string) => readFileSync(new URL(`../fixtures/tls/${name}.pem`, import.meta.url), 'utf8');
  const spoken: (string | false | null)[] = [];
  const machine = async (ALPNProtocols: string[]) => {
    const server = createTlsServer({ key: pem('key'), cert: pem('good'), ALPNProtocols }, (socket) => {
      spoken.push(socket.alpnProtocol);
      socket.on('error', () => {});
      socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'));
    });
    server.on('tlsClientError', () => {});
    return listening(t, server);
  };
  const push = pushWith(t, { extra_ca: [pem('ca')] });
  const both = await machine(['h2', 'http/1.1']);
  const result = await push(`https://127.0.0.1:${both}/`);
  assert.equal(result.outcome, 'ok', result.detail);
  assert.deepEqual(spoken, ['http/1.1']);
  assert.equal((await push(`https://127.0.0.1:${await machine(['h2'])}/`)).outcome, 'tls_failed');
  assert.equal(spoken.length, 1);

  // The control: a client that offers HTTP/2 gets it from the same machine.
  const client = connectTls({ port: both, host: '127.0.0.1', ca: pem('ca'), ALPNProtocols: ['h2', 'http/1.1'] });
  await once(client, 'secureConnect');
  assert.equal(client.alpnProtocol, 'h2');
  client.destroy();
});
