/**
 * The time for a long input or result grows in proportion to its bytes, and there is a limit of bytes. The test sends
 * the largest accepted request to every route of the server's own table, with both databases, which contain the longest
 * accepted values. No turn of the event loop is long, and memory does not grow. The test measures processor time of
 * this thread, with the share of the client, so other work on the machine does not count.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { before, describe, test } from 'node:test';
import { AGENT_IDS_BYTES_MAX, AGENT_IDS_MAX } from '../../src/domain/id.ts';
import { PULL_BODY_BYTES_MAX, RESULTS_MAX } from '../../src/http/schemas/pull.ts';
import { leastCost, onThisMachine } from '../support/least_cost.ts';
import { routesOnly } from '../support/routes.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PullingMachine, pullPath, pullsWaiting } from '../support/pulling.ts';
import { RawClient } from '../support/raw_client.ts';
import { HOST, JSON_TYPE } from '../support/raw_requests.ts';
import { messagesPath, type Service, startService, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const TURN_MS_MAX = 100;
const GROWN_BYTES_MAX = 384 << 20;

const INSTANCES = 100;
const MESSAGE_BYTES = 262_144;
const MESSAGES = 40;
/** A webhook address to which the test sends no push. */
const WEBHOOK_URL = 'http://127.0.0.1:9/';

const escaped = (text: string): string =>
  text.replaceAll(/./gs, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** A list with as many agents as allowed, each with the longest id. */
const AGENTS = Array.from({ length: AGENT_IDS_MAX }, (_, i) =>
  String(i).padStart(AGENT_IDS_BYTES_MAX / AGENT_IDS_MAX, 'x'),
);
/** The same list in the longest form that JSON allows. */
const AGENTS_TEXT = `[${AGENTS.map((id) => `"${escaped(id)}"`).join()}]`;
const HEADERS_TEXT = `{${[1, 2, 3].map((i) => `"x-${i}":"${escaped('v'.repeat(4_096))}"`).join()}}`;
/** The text of a message with these parts. */
const messageOf = (head: string, piece: string, tail: string): string =>
  head + piece.repeat(Math.floor((MESSAGE_BYTES - head.length - tail.length) / piece.length)) + tail;
const LIST_ROOM = 380 << 10;
const MANY_BYTES = 4 << 20;
const manyMessages = (meeting_id: string, messages: string[], more = ''): string =>
  `{"messages":[${messages.map((message) => `{"meeting_id":"${meeting_id}","message":${message}${more}}`).join()}]}`;
const PULL_ROOM = PULL_BODY_BYTES_MAX - 2_000;

/**
 * For each route that takes a body: the largest body, and the body that costs most for each byte. The other routes get
 * an empty body.
 */
const BODIES: Record<string, string[]> = {
  'POST /api/v1/instances/register/': [
    `{"instance_id":"large","instance_name":"n","agent_ids":${AGENTS_TEXT},"webhook_url":"${WEBHOOK_URL}","webhook_headers":${HEADERS_TEXT}}`,
    `{"agent_ids":[${'{},'.repeat(LIST_ROOM / 3)}{}]}`,
    `{"webhook_headers":${'{"a":'.repeat(97)}[${'1,'.repeat(LIST_ROOM / 2 - 1_000)}1]${'}'.repeat(97)}}`,
    `{${Array.from({ length: 25_000 }, (_, i) => `"f${i}":0`).join()}}`,
  ],
  'POST /api/v1/instances/join-meeting/': [
    `{"instance_id":"i0","meeting_id":"m","agent_ids":${AGENTS_TEXT}}`,
    `{"instance_id":"i0","meeting_id":"m","agent_ids":["${'é'.repeat(LIST_ROOM / 2 - 100)}"]}`,
  ],
  'PATCH /api/v1/instances/:instance_id/': [`{"webhook_headers":${HEADERS_TEXT}}`],
  'PATCH /api/v1/meetings/:meeting_id/instances/:instance_id/': [`{"agent_ids":${AGENTS_TEXT}}`],
  'POST /api/v1/meetings/:meeting_id/messages/': [
    `{"message":${messageOf('{"a":"', 'x', '"}')},"target_agents":${AGENTS_TEXT}}`,
    `{"message":${messageOf('{"a":[', '{},', '0]}')}}`,
    `{"message":${messageOf('{', '"created_at":[],', '"created_at":[]}')}}`,
    `{"message":{},"target_agents":{${Array.from({ length: 40_000 }, (_, i) => `"${i}":[]`).join()}}}`,
    '['.repeat(MESSAGE_BYTES),
  ],
  'POST /api/v1/messages/': [
    manyMessages('x', Array(500).fill(`{"text":"${'x'.repeat(8_200)}"}`)),
    manyMessages('x', Array(500).fill(`{"a":[${'{},'.repeat(290)}0]}`)),
    manyMessages('m', Array(6).fill(messageOf('{"a":"', 'x', '"}')), `,"target_agents":${AGENTS_TEXT}`),
    `{"messages":[${'{},'.repeat(MANY_BYTES / 3 - 100)}{}]}`,
    `{"messages":${'{"a":'.repeat(97)}[${'1,'.repeat(70_000)}1]${'}'.repeat(97)}}`,
  ],
  'POST /api/v1/instances/:instance_id/pull/': [
    `{"results":[${'{},'.repeat(PULL_ROOM / 3)}{}]}`,
    `{"results":${'{"a":'.repeat(97)}[${'1,'.repeat(PULL_ROOM / 2 - 1_000)}1]${'}'.repeat(97)}}`,
    `{"results":[${'['.repeat(97)}${'{},'.repeat(PULL_ROOM / 3 - 1_000)}{}${']'.repeat(97)}]}`,
    `{"results":[${Array.from({ length: RESULTS_MAX }, (_, i) => `{"delivery_id":"dlv_${String(i).padStart(20, '0')}","attempt":1,"status_code":500,"body":"${'x'.repeat(3_700)}"}`).join()}],"max":0}`,
  ],
  'POST /api/v1/keys/': [
    `{"scopes":["read"],"meeting_ids":[${Array.from({ length: 380 }, (_, i) => `"${String(i).padStart(36, 'm')}"`).join()}]}`,
  ],
};

/** The queries for the longest lists. */
const QUERIES: Record<string, string[]> = {
  'GET /api/v1/instances/': [
    '?limit=500',
    `?limit=500&agent_id=${AGENTS[0]}`,
    '?limit=500&agent_id=nobody',
    '?limit=500&q=x',
  ],
  'GET /api/v1/meetings/': ['?limit=500', '?limit=500&q=m'],
  'GET /api/v1/meetings/:meeting_id/instances/': ['?limit=500'],
  'GET /api/v1/meetings/:meeting_id/messages/': ['?limit=500', '?limit=500&after_seq=0'],
  'GET /api/v1/deliveries/': ['?limit=500', '?limit=500&meeting_id=m'],
  'GET /api/v1/keys/': ['?limit=500'],
  'GET /api/v1/audit/': ['?limit=500'],
};

/** A route whose response does not end. It has its own test. */
const WITHOUT_END = new Set(['GET /api/v1/events/']);
/** Routes that come last, each once, because they delete what the other routes need. */
const LAST = ['DELETE /api/v1/instances/:instance_id/', 'DELETE /api/v1/keys/:key_id/', 'DELETE /api/v1/session/'];

for (const store of ['SQLite', 'PostgreSQL'] as const) {
  describe(store, () => {
    const settings: { database_url?: string } = {};
    if (store === 'PostgreSQL') before(async () => void (settings.database_url = await makeDatabase()));
    const service = useService(settings);

    before(async () => {
      await service.endOpenMode();
      await fill(service);
      // The first request makes the document; later requests only read it.
      await service.get('/openapi.json');
    });

    test('every route costs its bytes at most: no turn is long, and memory stays what it is', async () => {
      const turn_ms_max = await onThisMachine(TURN_MS_MAX);
      const rss = process.memoryUsage().rss;
      const late = [];
      for (const { name, requests } of await asks()) {
        for (const [i, bytes] of requests.entries()) {
          // The first tries also compile, and read something for the first time. So the smallest figure counts.
          const turn_ms = await leastCost(turn_ms_max, () => longestTurn(service, bytes));
          if (turn_ms > turn_ms_max) late.push(`${name} (${i}): ${turn_ms} ms`);
        }
      }
      assert.deepEqual(late, []);
      const grown = process.memoryUsage().rss - rss;
      assert.ok(grown < GROWN_BYTES_MAX, `${grown} bytes`);
    });
  });
}

test('machines that wait for pushes keep no bodies of others out', async (t) => {
  const service = await startService(t, { max_request_bytes_in_flight: '33554432' });
  // Together these bodies have twice as many bytes as all bodies may have.
  const body = '{"wait_s":60}'.padEnd(PULL_BODY_BYTES_MAX, ' ');
  const machines = await Promise.all([1, 2, 3, 4, 5].map(() => PullingMachine.start(service, [])));
  const clients = machines.flatMap(({ instance_id }) =>
    Array.from({ length: 14 }, () => {
      const client = new RawClient(service.url);
      t.after(() => client.destroy());
      const headers = `${JSON_TYPE}content-length: ${body.length}\r\n`;
      client.write(`POST ${pullPath(instance_id)} HTTP/1.1\r\n${HOST}${headers}\r\n${body}`);
      return client;
    }),
  );
  await until(
    'all of them to wait',
    () => pullsWaiting(service),
    (waiting) => waiting === clients.length,
  );
  const sent = await service.post(messagesPath('m'), `{"message":${messageOf('{"a":"', 'x', '"}')}}`);
  assert.equal(sent.status, 201, sent.text);
});

/**
 * Fills the store with instances that have the longest lists, and lets them join a meeting until its limit. The meeting
 * also gets the longest messages.
 */
async function fill(service: Service): Promise<void> {
  const ids = Array.from({ length: INSTANCES }, (_, i) => `i${i}`);
  for (let i = 0; i < ids.length; i += 8) {
    await Promise.all(
      ids.slice(i, i + 8).map(async (instance_id) => {
        await service.register({ instance_id, agent_ids: AGENTS, webhook_url: WEBHOOK_URL });
        await service.patch(instance_id, { is_active: false });
        await service.post('/api/v1/instances/join-meeting/', { instance_id, meeting_id: 'm', agent_ids: AGENTS });
      }),
    );
  }
  await Promise.all(
    Array.from({ length: MESSAGES }, () =>
      service.post(messagesPath('m'), `{"message":${messageOf('{"a":"', 'x', '"}')},"target_agents":["nobody"]}`),
    ),
  );
  for (const instance_id of ids) await service.patch(instance_id, { is_active: true });
  // This message goes to all instances.
  await service.send('m', {});
}

async function asks(): Promise<{ name: string; requests: string[] }[]> {
  const app = await routesOnly(MESSAGE_BYTES);
  await app.ready();
  const names = app.route_table.flatMap(({ methods, url }) => methods.map((method) => `${method} ${url}`));
  await app.close();
  for (const known of [...Object.keys(BODIES), ...Object.keys(QUERIES), ...LAST])
    assert.ok(names.includes(known), known);
  const in_order = [...names.filter((name) => !LAST.includes(name)), ...LAST];
  return in_order
    .filter((name) => !WITHOUT_END.has(name))
    .map((name) => {
      const [method = '', url = ''] = name.split(' ');
      const path = url.replace(':meeting_id', 'm').replace(':instance_id', 'i1').replaceAll(/:\w+/g, 'x');
      const bodies = BODIES[name] ?? ['{}'];
      const has_body = ['POST', 'PATCH', 'PUT'].includes(method);
      const requests = has_body
        ? bodies.map((body) =>
            requestOf(method, path, `${JSON_TYPE}content-length: ${Buffer.byteLength(body)}\r\n`, body),
          )
        : (QUERIES[name] ?? ['']).map((query) => requestOf(method, path + query, '', ''));
      return { name, requests };
    });
}

const requestOf = (method: string, path: string, headers: string, body: string): string =>
  `${method} ${path} HTTP/1.1\r\n${HOST}connection: close\r\nauthorization: TOKEN\r\n${headers}\r\n${body}`;

/** The longest turn of the event loop during a request, in milliseconds of processor time of this thread. */
async function longestTurn(service: Service, request: string): Promise<number> {
  const bytes = Buffer.from(request.replace('TOKEN', `Bearer ${service.token}`));
  const client = new RawClient(service.url);
  await once(client.socket, 'connect');
  // The test does not collect the response, because that would be work of the client.
  client.socket.removeAllListeners('data').resume();
  let longest = 0;
  let is_over = false;
  let previous = process.threadCpuUsage();
  const look = (): void => {
    const { user, system } = process.threadCpuUsage(previous);
    longest = Math.max(longest, user + system);
    previous = process.threadCpuUsage();
    if (!is_over) setImmediate(look);
  };
  setImmediate(look);
  client.socket.write(bytes);
  await client.end();
  is_over = true;
  return longest / 1000;
}
