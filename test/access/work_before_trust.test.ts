/**
 * A client without a key can cause only a limited amount of work, memory and connections, whatever it requests. The
 * test requests every route of the server's own table in the same ways, so it also covers new routes.
 */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect as connectTo } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { Connections } from '../../src/http/intake/connections.ts';
import { leastCost } from '../support/least_cost.ts';
import { routesOnly } from '../support/routes.ts';
import { RawClient, describeAnswers } from '../support/raw_client.ts';
import { get, head, HOST, JSON_TYPE } from '../support/raw_requests.ts';
import { type Service, startService } from '../support/service.ts';
import { VirtualClock } from '../support/virtual_clock.ts';
import { inTime, until } from '../support/wait.ts';

interface Route {
  name: string;
  method: string;
  path: string;
  is_public: boolean;
}

/** Every route, with an id for each parameter, and requests that no route takes. */
async function routesOf(): Promise<Route[]> {
  const app = await routesOnly();
  await app.ready();
  const found = app.route_table.flatMap(({ methods, url, access }) =>
    methods.map((method) => ({
      name: `${method} ${url}`,
      method,
      path: url.replaceAll(/:\w+/g, 'x'),
      is_public: access === 'public',
    })),
  );
  await app.close();
  const beside = ['/', '/docs/', '/assets/x.js', '/icon.svg', '/nowhere'].map((path) => ({
    name: `GET ${path}`,
    method: 'GET',
    path,
    is_public: true,
  }));
  return [...found, ...beside];
}

const MAX_CONNECTIONS = 16;
/** Node publishes here when it has made a request object from the bytes that it read. */
const REQUEST_READ = 'http.server.request.start';
/** How many requests one connection may have in progress. */
const PIPELINED = 8;
/** How many bytes the service may read after its last response. The buffers of the system take further bytes. */
const REST_BYTES_MAX = 16 << 20;
/**
 * How much processor time a response may take, with the share of the client. The most expensive response takes a fifth
 * of this today.
 */
const ANSWER_MS_MAX = 1;
/** One millisecond of processor time must be enough for this many bytes of a body. */
const BYTES_PER_MS_MIN = 50_000;

const hasBody = ({ method }: Route): boolean => method === 'POST' || method === 'PATCH' || method === 'PUT';
const whole = (route: Route, more = ''): string =>
  hasBody(route)
    ? `${head(route.method, route.path, `${JSON_TYPE}content-length: 2\r\n${more}`)}{}`
    : head(route.method, route.path, more);

describe('without a key', { concurrency: false }, async () => {
  const routes = await routesOf();

  async function start(t: TestContext, settings: Parameters<typeof startService>[1] = {}): Promise<Service> {
    const service = await startService(t, settings);
    await service.endOpenMode();
    // The first request makes the document.
    await service.get('/openapi.json');
    return service;
  }

  function connect(t: TestContext, service: Service): RawClient {
    const client = new RawClient(service.url);
    t.after(() => client.destroy());
    return client;
  }

  /** The statuses of all responses until the connection ends. Responses to HEAD have a length and no body. */
  async function statusesOf(client: RawClient): Promise<number[]> {
    let text = '';
    client.socket.on('data', (more: string) => (text += more));
    await client.end();
    return [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
  }

  test('the table has every route, and each of them says who may call it', () => {
    const names = routes.map(({ name }) => name);
    for (const name of ['GET /openapi.json', 'HEAD /openapi.json', 'GET /healthz', 'POST /api/v1/keys/'])
      assert.ok(names.includes(name), name);
    assert.ok(routes.filter(({ is_public }) => is_public).length > 10);
    assert.ok(routes.filter(({ is_public }) => !is_public).length > 40);
  });

  test('a whole request gets its answer from every route, and nothing that needs a key', async (t) => {
    const service = await start(t);
    for (const route of routes) {
      const client = connect(t, service);
      client.write(whole(route, 'connection: close\r\n'));
      const statuses = await statusesOf(client);
      assert.equal(statuses.length, 1, route.name);
      const [status = 0] = statuses;
      if (!route.is_public) assert.equal(status, 401, route.name);
      assert.ok(status < 500 || status === 503, `${route.name}: ${status}`);
    }
  });

  test('as many requests as may be pipelined cost no more than their answers, on every route', async (t) => {
    const service = await start(t, { auth_failure_rate: '0' });
    for (const route of routes) {
      let bytes = 0;
      const cost_ms = async (): Promise<number> => {
        const client = connect(t, service);
        await once(client.socket, 'connect');
        const before = process.cpuUsage();
        client.socket.removeAllListeners('data');
        bytes = 0;
        client.socket.on('data', (text: string) => (bytes += text.length));
        client.write(whole(route).repeat(PIPELINED - 1) + whole(route, 'connection: close\r\n'));
        await client.end();
        const { user, system } = process.cpuUsage(before);
        return (user + system) / 1000;
      };
      // The first run compiles the code, and returns the number of bytes.
      await cost_ms();
      const allowed = PIPELINED * ANSWER_MS_MAX + bytes / BYTES_PER_MS_MIN;
      const least = await leastCost(allowed, cost_ms);
      assert.ok(least <= allowed, `${route.name}: ${least} ms for ${bytes} bytes of ${PIPELINED} answers`);
    }
  });

  test('more than that are cut off behind them, on every route, and not even read as requests', async (t) => {
    const service = await start(t);
    let read = 0;
    const count = (): void => void read++;
    subscribe(REQUEST_READ, count);
    t.after(() => unsubscribe(REQUEST_READ, count));
    for (const route of routes) {
      read = 0;
      const client = connect(t, service);
      client.write(whole(route).repeat(300));
      const statuses = await statusesOf(client);
      assert.ok(statuses.length <= PIPELINED + 1, `${route.name}: ${statuses.length} answers`);
      assert.ok(read > 0 && read <= PIPELINED + 1, `${route.name}: ${read} requests`);
    }
    await assertAllFree(t, service);
  });

  test('a connection that continues to write after its last response is cut off', async (t) => {
    const service = await start(t);
    const client = connect(t, service);
    const requests = get('/healthz').repeat(1_000);
    const write = (): void => void (client.socket.destroyed || client.socket.write(requests));
    client.socket.on('drain', write);
    // The service resets the connection in the middle of a write.
    const closed = new Promise((resolve) => client.socket.once('close', resolve));
    write();
    await inTime('the end of the connection', closed);
    await assertAllFree(t, service);
  });

  test('what follows the last answer of a connection is bounded by bytes, however fast it is written', async (t) => {
    const server = createHttpServer((_request, response) => response.end());
    // The clock of this watch stands still, so no connection ends because of a timeout.
    new Connections(MAX_CONNECTIONS, new VirtualClock()).watch(server);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    t.after(() => server.close());
    // The client continues to write when the server has closed its side.
    const socket = connectTo({ port: (server.address() as AddressInfo).port, allowHalfOpen: true });
    t.after(() => socket.destroy());
    socket.on('error', () => {}).resume();
    const closed = new Promise((resolve) => socket.once('close', resolve));
    const ended = once(socket, 'end');
    const requests = get('/healthz').repeat(1_000);
    socket.write(requests);
    await inTime('the last answer', ended);
    const writeMore = (): void => {
      while (!socket.destroyed && socket.write(requests));
    };
    socket.on('drain', writeMore);
    writeMore();
    await inTime('the end of the connection', closed);
    assert.ok(socket.bytesWritten < REST_BYTES_MAX + (16 << 20), `${socket.bytesWritten} bytes`);
  });

  test('the document is compressed once, and sent only to clients that do not have it', async (t) => {
    const service = await start(t);
    const url = `${service.url}/openapi.json`;
    const plain = await fetch(url, { headers: { 'accept-encoding': 'identity' } });
    const bytes = Number(plain.headers.get('content-length'));
    const compressed = await fetch(url, { headers: { 'accept-encoding': 'gzip' } });
    assert.equal(compressed.headers.get('content-encoding'), 'gzip');
    assert.ok(Number(compressed.headers.get('content-length')) < bytes / 5);
    assert.deepEqual(await compressed.json(), await plain.json());
    const etag = compressed.headers.get('etag') ?? '';
    const again = await fetch(url, { headers: { 'accept-encoding': 'gzip', 'if-none-match': etag } });
    assert.deepEqual([again.status, await again.text()], [304, '']);
  });

  test('a caller that disconnects at once leaves nothing behind, on every route', async (t) => {
    const service = await start(t, { max_connections: String(MAX_CONNECTIONS) });
    for (const route of routes) {
      const clients = Array.from({ length: 4 }, () => connect(t, service));
      for (const client of clients) {
        await once(client.socket, 'connect');
        client.socket.write(whole(route).repeat(PIPELINED), () => client.destroy());
      }
    }
    await assertAllFree(t, service);
  });

  test('a caller that does not read makes room for others, on every route', async (t) => {
    const service = await start(t, { max_connections: String(MAX_CONNECTIONS) });
    const before = process.memoryUsage().rss;
    const slow = (route: Route): void => {
      const client = connect(t, service);
      client.socket.pause();
      client.write(whole(route).repeat(PIPELINED));
    };
    for (const route of routes) slow(route);
    await until(
      'somebody else to be answered, again and again',
      async () => {
        const answers = [await askOnce(t, service), await askOnce(t, service), await askOnce(t, service)];
        return answers.join();
      },
      (said) => said === '200,200,200',
    );
    const grown = process.memoryUsage().rss - before;
    assert.ok(grown < 256 << 20, `${grown} bytes`);
  });

  test('a caller that does not finish its request is cut off within seconds, and others are served meanwhile', async (t) => {
    const service = await start(t, { max_connections: '1000' });
    const clients = routes.flatMap((route) => [
      [route, `${route.method} ${route.path} HTTP/1.1\r\n${HOST}`] as const,
      ...(hasBody(route)
        ? [[route, head(route.method, route.path, `${JSON_TYPE}content-length: 9\r\n`)] as const]
        : []),
    ]);
    const waiting = clients.map(([route, bytes]) => {
      const client = connect(t, service);
      client.write(bytes);
      return { route, statuses: statusesOf(client) };
    });
    assert.equal(await askOnce(t, service), '200');
    for (const { route, statuses } of waiting) {
      const [status = 0] = await statuses;
      assert.ok([401, 404, 408].includes(status), `${route.name}: ${status}`);
    }
  });

  /** Makes a request on a new connection. */
  async function askOnce(t: TestContext, service: Service): Promise<string> {
    const client = connect(t, service);
    client.write(get('/healthz', 'connection: close\r\n'));
    await client.end();
    return describeAnswers(client.answers);
  }

  /** Checks that all connections are free: as many other clients as allowed connect, and each gets a response. */
  async function assertAllFree(t: TestContext, service: Service): Promise<void> {
    const clients = Array.from({ length: MAX_CONNECTIONS }, () => connect(t, service));
    for (const client of clients) {
      client.write(get('/healthz'));
      assert.equal(describeAnswers(await client.read()), '200');
    }
    for (const client of clients) {
      client.write(get('/healthz'));
      assert.equal(describeAnswers(await client.read(2)), '200, 200');
    }
  }
});
