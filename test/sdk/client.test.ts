/**
 * The client of the SDK follows the API, and its errors explain what went wrong. The tests use real HTTP, and do not
 * wait in pauses.
 */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { inspect } from 'node:util';
import {
  all,
  ConvokeClient,
  type ConvokeClientOptions,
  ConvokeError,
  type Message,
  type Page,
  pages,
  RawJson,
  rawJson,
} from '@convoke/sdk';

interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
}

type Answer = (response: ServerResponse, request: Seen, number: number) => void;

const json =
  (status: number, value: unknown, headers: Record<string, string> = {}): Answer =>
  (response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
  };

const problem = (status: number, code: string, more: object = {}, headers: Record<string, string> = {}) =>
  json(status, { type: 'about:blank', title: 'T', status, detail: `what to do about ${code}`, code, ...more }, headers);

const inTurn =
  (...answers: Answer[]): Answer =>
  (response, request, number) =>
    answers[Math.min(number, answers.length) - 1]!(response, request, number);

const cut: Answer = (response) => void response.socket?.destroy();

const SENT = {
  message_id: 'msg_1',
  meeting_id: 'm',
  seq: 1,
  accepted_at: '2026-03-01T09:30:00.000Z',
  deliveries_queued: 2,
};

/** Has the fields by which the client knows every response. */
const ANY = {
  ...SENT,
  ...Object.fromEntries(
    'instance_id step_s webhook_secret recovered left_at success instances delivery_id deliveries done backup_id key_id api_key state'
      .split(' ')
      .map((field) => [field, `the ${field}`]),
  ),
  link: 'http://127.0.0.1:8080/join/the-secret',
  data: [],
};

/** A server that remembers its requests, and a client that notes its pauses and does not wait. */
async function start(t: TestContext, answer: Answer, options: Partial<ConvokeClientOptions> = {}) {
  const seen: Seen[] = [];
  const pauses_ms: number[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      // The client gave up before the end of its request.
      return;
    }
    const { method = '', url = '', headers } = request;
    seen.push({ method, path: url, headers, body: Buffer.concat(chunks).toString() });
    answer(response, seen.at(-1)!, seen.length);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const base_url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const sleep = async (ms: number) => void pauses_ms.push(ms);
  return { client: new ConvokeClient({ base_url, sleep, ...options }), seen, pauses_ms, base_url, server };
}

async function failure(promise: Promise<unknown>): Promise<ConvokeError> {
  const error = await promise.then(
    () => assert.fail('it should have failed'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ConvokeError, String(error));
  return error;
}

describe('every method makes the request of the wire contract:', () => {
  const cases: [string, (client: ConvokeClient) => Promise<unknown>, string, string, unknown?][] = [
    [
      'register',
      (c) => c.register({ instance_id: 'i', instance_name: 'n', agent_ids: ['a'], webhook_url: 'http://h/' }),
      'POST',
      '/api/v1/instances/register/',
      { instance_id: 'i', instance_name: 'n', agent_ids: ['a'], webhook_url: 'http://h/' },
    ],
    ['listInstances', (c) => c.listInstances(), 'GET', '/api/v1/instances/'],
    [
      'listInstances with a query',
      (c) => c.listInstances({ is_active: false, q: 'a&b', health: undefined, limit: 5 }),
      'GET',
      '/api/v1/instances/?is_active=false&q=a%26b&limit=5',
    ],
    ['getInstance', (c) => c.getInstance('i'), 'GET', '/api/v1/instances/i/'],
    ['getInstanceHistory', (c) => c.getInstanceHistory('i'), 'GET', '/api/v1/instances/i/history/'],
    ['getCounts', (c) => c.getCounts(), 'GET', '/api/v1/counts/'],
    ['getHistory', (c) => c.getHistory({ span: '1h' }), 'GET', '/api/v1/history/?span=1h'],
    [
      'updateInstance',
      (c) => c.updateInstance('i', { is_active: true }),
      'PATCH',
      '/api/v1/instances/i/',
      { is_active: true },
    ],
    ['deleteInstance', (c) => c.deleteInstance('i'), 'DELETE', '/api/v1/instances/i/'],
    ['heartbeat', (c) => c.heartbeat('i'), 'POST', '/api/v1/instances/i/heartbeat/'],
    [
      'rotateSecret',
      (c) => c.rotateSecret('i', { overlap_seconds: 0 }),
      'POST',
      '/api/v1/instances/i/rotate-secret/',
      { overlap_seconds: 0 },
    ],
    [
      'recover',
      (c) => c.recover('i', { since: '2026-03-01T09:30:00Z' }),
      'POST',
      '/api/v1/instances/i/recover/',
      { since: '2026-03-01T09:30:00Z' },
    ],
    [
      'joinMeeting',
      (c) => c.joinMeeting({ instance_id: 'i', meeting_id: 7, agent_ids: [] }),
      'POST',
      '/api/v1/instances/join-meeting/',
      { instance_id: 'i', meeting_id: 7, agent_ids: [] },
    ],
    [
      'leaveMeeting',
      (c) => c.leaveMeeting({ instance_id: 'i', meeting_id: 'm' }),
      'POST',
      '/api/v1/instances/leave-meeting/',
      { instance_id: 'i', meeting_id: 'm' },
    ],
    [
      'updateMembership',
      (c) => c.updateMembership(7, 'i', { wake: 'people' }),
      'PATCH',
      '/api/v1/meetings/7/instances/i/',
      { wake: 'people' },
    ],
    ['testWebhook', (c) => c.testWebhook('i'), 'POST', '/api/v1/instances/webhook-test/', { instance_id: 'i' }],
    ['listMeetings', (c) => c.listMeetings({ cursor: 'x=' }), 'GET', '/api/v1/meetings/?cursor=x%3D'],
    ['getMeeting', (c) => c.getMeeting('m'), 'GET', '/api/v1/meetings/m/'],
    ['updateMeeting', (c) => c.updateMeeting(7, { paused: true }), 'PATCH', '/api/v1/meetings/7/', { paused: true }],
    [
      'listMeetingInstances',
      (c) => c.listMeetingInstances('m', { include_left: true }),
      'GET',
      '/api/v1/meetings/m/instances/?include_left=true',
    ],
    ['getMessage', (c) => c.getMessage('msg_1', { limit: 2 }), 'GET', '/api/v1/messages/msg_1/?limit=2'],
    [
      'explain',
      (c) => c.explain('m', { target_agents: ['a', 'b&'], from_agent: undefined }),
      'GET',
      '/api/v1/meetings/m/explain/?target_agents=a&target_agents=b%26',
    ],
    [
      'sendMessage',
      (c) => c.sendMessage('m', { content: 'hi' }),
      'POST',
      '/api/v1/meetings/m/messages/',
      { message: { content: 'hi' } },
    ],
    [
      'sendMessage to some',
      (c) => c.sendMessage(7, { content: 'hi' }, { target_agents: ['a'] }),
      'POST',
      '/api/v1/meetings/7/messages/',
      { message: { content: 'hi' }, target_agents: ['a'] },
    ],
    [
      'sendMessage as an agent',
      (c) => c.sendMessage('m', {}, { from_agent: 'a', in_reply_to: 'msg_1', expires_in_s: 60 }),
      'POST',
      '/api/v1/meetings/m/messages/',
      { message: {}, from_agent: 'a', in_reply_to: 'msg_1', expires_in_s: 60 },
    ],
    ['sendReply', (c) => c.sendReply('cvr_x', 'hi'), 'POST', '/api/v1/replies/', { reply: 'hi' }],
    ['listMessages', (c) => c.listMessages('m', { after_seq: 0 }), 'GET', '/api/v1/meetings/m/messages/?after_seq=0'],
    ['listDeliveries', (c) => c.listDeliveries({ state: 'failed' }), 'GET', '/api/v1/deliveries/?state=failed'],
    ['getDelivery', (c) => c.getDelivery('dlv_1'), 'GET', '/api/v1/deliveries/dlv_1/'],
    ['getDeliveryPush', (c) => c.getDeliveryPush('dlv_1'), 'GET', '/api/v1/deliveries/dlv_1/push/'],
    ['retryDelivery', (c) => c.retryDelivery('dlv_1'), 'POST', '/api/v1/deliveries/dlv_1/retry/'],
    [
      'dropDeliveries',
      (c) => c.dropDeliveries({ meeting_id: 'm', dry_run: true }),
      'POST',
      '/api/v1/deliveries/drop/',
      { meeting_id: 'm', dry_run: true },
    ],
    ['ids are percent-encoded', (c) => c.getInstance('a/b?c#d é'), 'GET', '/api/v1/instances/a%2Fb%3Fc%23d%20%C3%A9/'],
  ];
  for (const [name, call, method, path, body] of cases) {
    test(name, async (t) => {
      const is_gone = method === 'DELETE';
      const answer: Answer = is_gone ? (response) => response.writeHead(204).end() : json(200, ANY);
      const { client, seen } = await start(t, answer);
      assert.deepEqual(await call(client), is_gone ? undefined : ANY);
      assert.equal(seen.length, 1);
      assert.deepEqual([seen[0]!.method, seen[0]!.path], [method, path]);
      assert.deepEqual(seen[0]!.body === '' ? undefined : JSON.parse(seen[0]!.body), body);
      assert.equal(seen[0]!.headers['content-type'], body === undefined ? undefined : 'application/json');
    });
  }
});

test('a trace travels in headers with one message, and in the fields of each of many', async (t) => {
  const { client, seen, base_url } = await start(t, json(200, { ...SENT, results: [{ status: 201, message: SENT }] }));
  const trace = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', tracestate: 'a=1' };
  const headersOf = ({ headers: { traceparent, tracestate } }: Seen) => ({ traceparent, tracestate });
  await client.sendMessage('m', {}, trace);
  await client.sendReply('cvr_x', 'hi', trace);
  await client.sendMessage('m', {});
  assert.deepEqual(seen.map(headersOf), [trace, trace, { traceparent: undefined, tracestate: undefined }]);
  assert.equal(seen[0]?.body, '{"message":{}}');
  await client.sendMany([{ meeting_id: 'm', message: {}, idempotency_key: 'k', ...trace }]);
  await new ConvokeClient({ base_url, gather_ms: 0 }).sendMessage('m', {}, { idempotency_key: 'k', ...trace });
  const item = { meeting_id: 'm', idempotency_key: 'k', ...trace, message: {} };
  for (const { body } of seen.slice(3)) assert.deepEqual(JSON.parse(body), { messages: [item] });
  assert.equal(seen.length, 5);
});

test('a 204 resolves to nothing', async (t) => {
  const { client } = await start(t, (response) => response.writeHead(204).end());
  assert.equal(await client.deleteInstance('i'), undefined);
});

test('the key travels as a bearer token, and only when there is one', async (t) => {
  const { client, seen, base_url } = await start(t, json(200, ANY));
  await client.listInstances();
  await new ConvokeClient({ base_url, api_key: 'k' }).listInstances();
  assert.deepEqual(
    seen.map(({ headers }) => headers.authorization),
    [undefined, 'Bearer k'],
  );
});

test('base_url keeps its path, with or without a slash at its end', async (t) => {
  const { seen, base_url } = await start(t, json(200, ANY));
  await new ConvokeClient({ base_url: `${base_url}/convoke/` }).listMeetings();
  assert.equal(seen[0]!.path, '/convoke/api/v1/meetings/');
});

test('a base_url that cannot work is refused when the client is made', () => {
  for (const base_url of ['', 'localhost:8080', 'ftp://h', 'http://user:pass@h']) {
    assert.throws(() => new ConvokeClient({ base_url }), TypeError, base_url);
  }
});

test('the link of an invite may be written in another way than base_url', async () => {
  const asked: unknown[] = [];
  const fetch = async (url: unknown, init?: RequestInit) => {
    asked.push([url, init?.body]);
    return Response.json(ANY);
  };
  const client = new ConvokeClient({ base_url: 'https://Annas-MacBook.local/Convoke', fetch });
  const links = ['https://Annas-MacBook.local/Convoke/invite/S', 'HTTPS://ANNAS-MACBOOK.LOCAL:443/Convoke/invite/S/'];
  for (const link of links) await client.redeemInvite(link);
  const request = ['https://annas-macbook.local/Convoke/api/v1/invites/redeem/', '{"secret":"S"}'];
  assert.deepEqual(asked, [request, request]);
  for (const link of [
    'http://annas-macbook.local/Convoke/invite/S',
    'https://annas-macbook.local:8080/Convoke/invite/S',
    'https://annas-macbook.local/convoke/invite/S',
    'https://annas-macbook.local.example/Convoke/invite/S',
    '/invite/S',
    '',
  ]) {
    const message = 'a link of an invite begins with https://annas-macbook.local/Convoke/invite/';
    await assert.rejects(client.redeemInvite(link), { name: 'TypeError', message });
  }
  assert.equal(asked.length, 2);
});

test('an id that would address something else is never sent', async (t) => {
  const { client, seen } = await start(t, json(200, ANY));
  const none = [undefined, null, NaN, 1.5, 2 ** 53, {}] as unknown[] as string[];
  for (const id of ['', '.', '..', 'lone \ud800', ...none]) {
    await assert.rejects(client.deleteInstance(id), TypeError);
    await assert.rejects(client.sendMessage(id, {}), TypeError);
  }
  assert.equal(seen.length, 0);
});

test('a raw JSON message is sent character for character', async (t) => {
  const { client, seen } = await start(t, json(201, SENT));
  const text = '{ "big": 12345678901234567890, "nul": "\\u0000", "one": 1.0, "huge": 1e400 }';
  await client.sendMessage('m', rawJson(text), { target_agents: [] });
  assert.equal(seen[0]!.body, `{"message":${text},"target_agents":[]}`);
});

test('a raw JSON message is sent character for character in a reply too', async (t) => {
  const { client, seen } = await start(t, json(201, SENT));
  const text = '{ "big": 12345678901234567890, "cash": "$& $1" }';
  await client.sendReply('cvr_x', { message: rawJson(text), from_agent: 'a' });
  assert.equal(seen[0]!.body, `{"reply":{"message":${text},"from_agent":"a"}}`);
});

test('the half of a surrogate pair in a raw JSON message is escaped: UTF-8 cannot hold it', async (t) => {
  const { client, seen } = await start(t, json(201, SENT));
  const text = '{"\ud83d": "\udc4b \u{1f44b}"}';
  await client.sendMessage('m', rawJson(text));
  assert.equal(seen[0]!.body, '{"message":{"\\ud83d": "\\udc4b \u{1f44b}"}}');
  assert.deepEqual(JSON.parse(seen[0]!.body), { message: JSON.parse(text) as object });
});

test('a field that does not exist is sent, so that the service refuses it: the message may be only for some', async (t) => {
  const { client, seen } = await start(t, json(200, { ...SENT, results: [{ status: 201, message: SENT }] }));
  const mistyped = { target_agent: ['a'], idempotency_key: 'k' } as object;
  await client.sendMessage('m', {}, mistyped);
  await client.sendMany([{ meeting_id: 'm', message: {}, ...mistyped }]);
  assert.deepEqual(
    seen.map(({ body }) => JSON.parse(body) as object),
    [
      { message: {}, target_agent: ['a'] },
      { messages: [{ meeting_id: 'm', idempotency_key: 'k', message: {}, target_agent: ['a'] }] },
    ],
  );
});

test('raw messages come back character for character, whatever they contain', async (t) => {
  const texts = [
    '{ "big": 12345678901234567890, "one": 1.10, "two": 1, "two": 2, "huge": 1e400 }',
    String.raw`{"message":{"message":"}]\"\\"},"data":[{"message":1}],"\u006dessage":2}`,
    '{}',
  ];
  const head = '"message_id":"msg_1","seq":1,"accepted_at":"","target_agents":["message",":{"],"from_agent":"message"';
  const page = `{"data":[${texts.map((text) => `{${head},"message":${text}}`).join(',')}],"has_more":true}`;
  const { client, seen } = await start(
    t,
    inTurn(
      (response) => void response.end(page),
      (response) => void response.end('{"data":[{"seq":1}],"has_more":false}'),
      problem(404, 'meeting_does_not_exist'),
    ),
  );
  const { data, has_more } = await client.listRawMessages('a/b', { before_seq: 9 });
  assert.deepEqual(
    data.map(({ message }) => message.text),
    texts,
  );
  assert.deepEqual([data[0]?.message_id, data[0]?.from_agent, has_more], ['msg_1', 'message', true]);
  assert.equal(seen[0]?.path, '/api/v1/meetings/a%2Fb/messages/?before_seq=9');
  await assert.rejects(client.listRawMessages('m'), { code: 'unexpected_response' });
  await assert.rejects(client.listRawMessages('m'), { code: 'meeting_does_not_exist' });
});

test('the messages of a search, and the message of a trace, come as they were written', async (t) => {
  const text = '{"big": 12345678901234567890, "message": {"message": 1.10}}';
  const about = { message_id: 'msg_1', answered: [{ excerpt: '"message":{' }] };
  const { client, seen } = await start(
    t,
    inTurn(
      (response) => void response.end(`{"data":[{"seq":1,"message":${text}}],"next_cursor":"c","searched_to":"t"}`),
      (response) => void response.end(`${JSON.stringify(about).slice(0, -1)},"message":${text}}`),
      (response) => void response.end('{"data":[]}'),
      problem(404, 'message_does_not_exist'),
    ),
  );
  const { data, ...page } = await client.findRawMessages({ text: 'big' });
  assert.deepEqual([data, page], [[{ seq: 1, message: rawJson(text) }], { next_cursor: 'c', searched_to: 't' }]);
  assert.deepEqual(await client.getRawMessage('msg_1', { limit: 2 }), { ...about, message: rawJson(text) });
  assert.deepEqual(
    seen.map(({ path }) => path),
    ['/api/v1/messages/?text=big', '/api/v1/messages/msg_1/?limit=2'],
  );
  await assert.rejects(client.getRawMessage('msg_1'), { code: 'unexpected_response' });
  await assert.rejects(client.getRawMessage('msg_1'), { code: 'message_does_not_exist' });
});

test('raw messages are read again when the service was overloaded', async (t) => {
  const { client } = await start(
    t,
    inTurn(problem(503, 'overloaded', {}, { 'retry-after': '0' }), (response) =>
      response.end('{"data":[],"has_more":false}'),
    ),
  );
  assert.deepEqual(await client.listRawMessages('m'), { data: [], has_more: false });
});

test('raw messages are cut out of their page and not read', async (t) => {
  // No service sends this number. It shows whether the message was read.
  const text = '{"unread":01}';
  const { client } = await start(t, (response) =>
    response.end(`{"data":[{"seq":1,"message":${text},"hops":2}],"has_more":false}`),
  );
  const [{ message, ...about } = { message: rawJson('{}') }] = (await client.listRawMessages('m')).data;
  assert.deepEqual([message, about], [Object.assign(rawJson('{}'), { text }), { seq: 1, hops: 2 }]);
  assert.ok(message instanceof RawJson);
});

test('metrics come as the text that they are, and a refusal of them as any other', async (t) => {
  const text = '# HELP convoke_deliveries_pending Deliveries.\nconvoke_deliveries_pending 3\n';
  const { client, seen } = await start(
    t,
    inTurn((response) => void response.end(text), problem(403, 'not_permitted')),
    { api_key: 'cvk_x' },
  );
  assert.equal(await client.metrics(), text);
  assert.equal(seen[0]?.path, '/metrics');
  assert.equal(seen[0]?.headers.authorization, 'Bearer cvk_x');
  await assert.rejects(client.metrics(), { code: 'not_permitted' });
});

test('only one JSON object can become a message', async (t) => {
  const { client, seen } = await start(t, json(201, SENT));
  assert.throws(() => rawJson('{},"target_agents":["a"]'), SyntaxError);
  assert.throws(() => rawJson('[]'), TypeError);
  assert.throws(() => rawJson('null'), TypeError);
  await assert.rejects(client.sendMessage('m', []), TypeError);
  await assert.rejects(client.sendMessage('m', '{}' as unknown as object), TypeError);
  assert.equal(seen.length, 0);
});

describe('sending again:', () => {
  test('every send has an idempotency key of its own', async (t) => {
    const { client, seen } = await start(t, json(201, SENT));
    await client.sendMessage('m', {});
    await client.sendMessage('m', {});
    await client.sendMessage('m', {}, { idempotency_key: 'mine' });
    const keys = seen.map(({ headers }) => headers['idempotency-key']);
    assert.match(String(keys[0]), /^[0-9a-f]{32}$/);
    assert.equal(new Set(keys).size, 3);
    assert.equal(keys[2], 'mine');
  });

  test('a cut connection, a 429 and a 503 are tried again with the same key and the same bytes', async (t) => {
    const { client, seen, pauses_ms } = await start(
      t,
      inTurn(
        cut,
        problem(429, 'too_many', {}, { 'retry-after': '7' }),
        problem(503, 'overloaded', {}, { 'retry-after': '0' }),
        json(201, SENT),
      ),
    );
    assert.deepEqual(await client.sendMessage('m', { content: 'hi' }), SENT);
    assert.equal(seen.length, 4);
    assert.equal(new Set(seen.map(({ headers, body }) => `${headers['idempotency-key']} ${body}`)).size, 1);
    assert.ok(pauses_ms[0]! >= 125 && pauses_ms[0]! <= 250, `pauses ${pauses_ms.join()}`);
    assert.deepEqual(pauses_ms.slice(1), [7000, 0]);
  });

  test('a request whose node was lost behind a proxy is repeated, with the same key', async (t) => {
    const page: Answer = (response) =>
      void response.writeHead(502, { 'content-type': 'text/html' }).end('<h1>502</h1>');
    const late: Answer = (response) => void response.writeHead(504).end();
    const { client, seen } = await start(t, inTurn(page, late, json(201, SENT)));
    assert.deepEqual(await client.sendMessage('m', { content: 'hi' }), SENT);
    assert.equal(new Set(seen.map(({ headers, body }) => `${headers['idempotency-key']} ${body}`)).size, 1);
  });

  test('the tries are bounded, and the error has the key', async (t) => {
    const { client, seen, pauses_ms } = await start(t, problem(503, 'overloaded'));
    const error = await failure(client.sendMessage('m', {}));
    assert.equal(error.code, 'overloaded');
    assert.equal(error.idempotency_key, seen[0]!.headers['idempotency-key']);
    assert.equal(seen.length, 4);
    assert.equal(pauses_ms.length, 3);
    assert.ok(pauses_ms[2]! > pauses_ms[0]!, 'the pauses grow');
  });

  test('a pause is half a minute at most, however many tries there are', async (t) => {
    const fetch = () => Promise.reject(new TypeError('fetch failed'));
    const { client, pauses_ms } = await start(t, cut, { send_attempts_max: 30, fetch });
    await failure(client.sendMessage('m', {}));
    assert.ok(Math.max(...pauses_ms) <= 30_000, `pauses ${pauses_ms.join()}`);
  });

  test('send_attempts_max 1 means no retry', async (t) => {
    const { client, seen } = await start(t, problem(503, 'overloaded'), { send_attempts_max: 1 });
    await failure(client.sendMessage('m', {}));
    assert.equal(seen.length, 1);
  });

  test('other failures are not tried again', async (t) => {
    for (const [status, code] of [
      [404, 'meeting_does_not_exist'],
      [409, 'idempotency_key_reused'],
      [422, 'invalid_fields'],
      [500, 'internal_error'],
    ] as const) {
      const { client, seen } = await start(t, problem(status, code));
      assert.equal((await failure(client.sendMessage('m', {}))).code, code);
      assert.equal(seen.length, 1);
    }
  });

  test('a pause of more than half a minute is left to the caller', async (t) => {
    const { client, seen } = await start(t, problem(503, 'overloaded', {}, { 'retry-after': '31' }));
    const error = await failure(client.sendMessage('m', {}));
    assert.equal(error.retry_after_s, 31);
    assert.equal(seen.length, 1);
  });

  test('every call is tried again while the service is overloaded, after its Retry-After, and as often as a send', async (t) => {
    const busy = problem(503, 'overloaded', {}, { 'retry-after': '3' });
    const joining = { instance_id: 'i', meeting_id: 'm', agent_ids: [] };
    const { client, seen, pauses_ms } = await start(t, inTurn(busy, busy, json(200, { left_at: null })));
    await client.leaveMeeting({ instance_id: 'i', meeting_id: 'm' });
    assert.deepEqual(pauses_ms, [3000, 3000]);
    assert.equal(new Set(seen.map(({ body }) => body)).size, 1);
    const bounded = await start(t, busy);
    assert.equal((await failure(bounded.client.joinMeeting(joining))).code, 'overloaded');
    assert.equal(bounded.seen.length, 4);
    const once = await start(t, busy, { send_attempts_max: 1 });
    await failure(once.client.joinMeeting(joining));
    assert.equal(once.seen.length, 1);
  });

  test('a call that is no send is not tried again for another reason: it may have been carried out', async (t) => {
    for (const answer of [
      problem(503, 'storage_failed', {}, { 'retry-after': '0' }),
      problem(429, 'rate_limited', {}, { 'retry-after': '0' }),
      problem(503, 'overloaded'),
      problem(503, 'overloaded', {}, { 'retry-after': '31' }),
      cut,
    ]) {
      const { client, seen } = await start(t, answer);
      await failure(client.joinMeeting({ instance_id: 'i', meeting_id: 'm', agent_ids: [] }));
      assert.equal(seen.length, 1);
    }
  });

  test('aborting during the pause ends it', async (t) => {
    const abort = new AbortController();
    const { base_url, seen } = await start(t, (response, request, number) => {
      problem(503, 'overloaded', {}, { 'retry-after': '30' })(response, request, number);
      setImmediate(() => abort.abort(new Error('enough')));
    });
    const client = new ConvokeClient({ base_url });
    await assert.rejects(client.sendMessage('m', {}, { signal: abort.signal }), /enough/);
    assert.equal(seen.length, 1);
  });
});

for (const [what, call, ms] of [
  ['a webhook test waits for as long as the service gives a slow machine', (c) => c.testWebhook('slow'), 40_000],
  ['a deletion waits until a million pending deliveries are cancelled', (c) => c.deleteInstance('large'), 60_000],
] satisfies [string, (client: ConvokeClient) => Promise<unknown>, number][]) {
  test(what, async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    let signal: AbortSignal | null | undefined;
    const waiting = Promise.withResolvers<Response>();
    const client = new ConvokeClient({
      base_url: 'http://127.0.0.1:1',
      fetch(_url, init) {
        signal = init?.signal;
        signal?.addEventListener('abort', () => waiting.reject(new Error('aborted')));
        return waiting.promise;
      },
    });
    const called = call(client);
    t.mock.timers.tick(ms - 10_000);
    assert.equal(signal?.aborted, false);
    t.mock.timers.tick(10_000);
    await assert.rejects(called, { code: 'timeout' });
  });
}

test('a timeout that is longer than a timer can be is none', async (t) => {
  const { base_url } = await start(t, (response) => setTimeout(() => response.end('{"data":[]}'), 20));
  const client = new ConvokeClient({ base_url, timeout_ms: Infinity });
  assert.deepEqual(await client.listNodes(), { data: [] });
});

describe('an error says what to do:', () => {
  test('a problem keeps its code, status, title, detail and fields', async (t) => {
    const errors = [
      { path: 'agent_ids.3', message: 'must be a string' },
      { path: 'webhook_url', message: 'must be an http or https URL' },
    ];
    const { client } = await start(t, problem(422, 'invalid_fields', { title: 'Some fields are not valid', errors }));
    const error = await failure(client.testWebhook('i'));
    assert.equal(error.code, 'invalid_fields');
    assert.equal(error.status, 422);
    assert.equal(error.title, 'Some fields are not valid');
    assert.equal(error.detail, 'what to do about invalid_fields');
    assert.deepEqual(error.errors, errors);
    assert.equal(
      error.message,
      'invalid_fields (422): Some fields are not valid. what to do about invalid_fields; agent_ids.3 must be a string; webhook_url must be an http or https URL',
    );
  });

  test('Retry-After is understood as seconds or as a date, and never as NaN', async (t) => {
    for (const [header, expected] of [
      ['5', 5],
      ['-5', null],
      ['1e99', null],
      ['soon', null],
      ['retry 5', null],
      ['Thu, 01 Jan 1970 00:00:00 GMT', 0],
      // The clock of the server says so, whatever this machine says.
      ['Fri, 02 Jan 2026 10:00:07 GMT', 7],
      ['Friday, 02-Jan-26 10:00:07 GMT', 7],
    ] as const) {
      const date = 'Fri, 02 Jan 2026 10:00:00 GMT';
      const { client } = await start(t, problem(429, 'too_many', {}, { 'retry-after': header, date }));
      assert.equal((await failure(client.listInstances())).retry_after_s, expected, header);
    }
  });

  test('nothing listens: unreachable, with the address and the reason', async (t) => {
    const { client, server, base_url } = await start(t, json(200, ANY));
    await new Promise((resolve) => server.close(resolve));
    const error = await failure(client.listInstances());
    assert.equal(error.code, 'unreachable');
    assert.equal(error.status, null);
    assert.ok(error.message.includes(base_url), error.message);
    assert.match(error.message, /ECONNREFUSED/);
    assert.match(error.message, /convoke serve/);
  });

  test('a connection cut in the middle of the answer: unreachable', async (t) => {
    const { client } = await start(t, (response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('{', () => response.socket?.destroy());
    });
    assert.equal((await failure(client.listInstances())).code, 'unreachable');
  });

  test('a server that says nothing, or stops in the middle: timeout', async (t) => {
    for (const answer of [() => {}, (response: ServerResponse) => response.writeHead(200).flushHeaders()]) {
      const { client } = await start(t, answer, { timeout_ms: 50 });
      const error = await failure(client.listInstances());
      assert.equal(error.code, 'timeout');
      assert.match(error.message, /50 ms/);
    }
  });

  test('no response to a call for a backup: timeout, until the copy begins', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    let signal: AbortSignal | null | undefined;
    /** Fails when it is aborted, as a body does. */
    const body = () =>
      new ReadableStream({
        start: (controller) => signal?.addEventListener('abort', () => controller.error(signal?.reason)),
      });
    const type = { 'content-type': 'application/octet-stream' };
    const never = () => new Promise<Response>((_, fail) => signal?.addEventListener('abort', fail));
    const asked = (respond: () => Response | Promise<Response>, options = {}) =>
      new ConvokeClient({
        base_url: 'http://127.0.0.1:1',
        fetch: async (_url, init) => {
          signal = init?.signal;
          return respond();
        },
      }).fetchBackup('b', options);
    for (const respond of [never, () => new Response(body(), { status: 202 })]) {
      const late = failure(asked(respond));
      t.mock.timers.tick(10_000);
      assert.equal((await late).code, 'timeout');
    }
    const ending = new AbortController();
    const copy = await asked(() => new Response(body(), { headers: type }), { signal: ending.signal });
    t.mock.timers.tick(60_000);
    assert.equal(signal?.aborted, false);
    ending.abort(new Error('enough'));
    await assert.rejects(new Response(copy as ReadableStream).text(), /enough/);
  });

  test('a problem of another service whose errors are no fields keeps its code', async (t) => {
    const { client } = await start(t, problem(422, 'other', { errors: [null, 'x', 1, { path: 'a', message: 'b' }] }));
    const error = await failure(client.heartbeat('i'));
    assert.deepEqual([error.code, error.errors], ['other', [{ path: 'a', message: 'b' }]]);
  });

  test('a redirect in a browser, which hides all of it, is named as one', async (t) => {
    const hidden = { type: 'opaqueredirect', status: 0, ok: false, headers: new Headers(), text: async () => '' };
    const { client } = await start(t, cut, { fetch: async () => hidden as unknown as Response });
    assert.match((await failure(client.heartbeat('i'))).message, /redirects to another address; redirects are not/);
  });

  test('something that is not Convoke: unexpected_response, with its text', async (t) => {
    for (const [status, body] of [
      [502, '<h1>Bad gateway</h1>'],
      [404, '{"error":"not found"}'],
      [200, '<h1>Welcome</h1>'],
    ] as const) {
      const { client } = await start(t, (response) =>
        response.writeHead(status, { 'content-type': 'text/html' }).end(body),
      );
      const error = await failure(client.listInstances());
      assert.equal(error.code, 'unexpected_response');
      assert.equal(error.status, status);
      assert.match(error.message, /text\/html/);
      assert.match(error.message, /base_url/);
    }
  });

  test('a success of something that is not Convoke: nobody is told that a message is stored, or anything else', async (t) => {
    const calls: Record<string, (client: ConvokeClient) => Promise<unknown>> = {
      register: (c) => c.register({ instance_id: 'i', instance_name: 'n', agent_ids: [], webhook_url: 'http://h/' }),
      listInstances: (c) => c.listInstances(),
      allMessages: (c) => c.allMessages('m').next(),
      deleteInstance: (c) => c.deleteInstance('i'),
      recovering: (c) => c.recovering('i', {}).next(),
      dropping: (c) => c.dropping({ meeting_id: 'm' }).next(),
      sendMessage: (c) => c.sendMessage('m', {}),
      sendReply: (c) => c.sendReply('cvr_x', 'hi'),
      'sendMessage that gathers': ({ base_url }) =>
        new ConvokeClient({ base_url, gather_ms: 0 }).sendMessage('m', { gathered: true }),
      sendMany: async (c) => {
        const [result] = await c.sendMany([{ meeting_id: 'm', message: {} }]);
        if (result?.status === 'rejected') throw result.reason;
      },
      createInvite: (c) => c.createInvite({ meeting_ids: ['m'], agent_ids: ['a'] }),
      metrics: (c) => c.metrics(),
      session: (c) => c.session(),
      fetchBackup: (c) => c.fetchBackup('b'),
    };
    for (const body of [
      '{"status":"ok"}',
      '{"results":[]}',
      '{"results":[null]}',
      '{"data":{}}',
      '[]',
      'null',
      '"link"',
      '{"link":"not a URL"}',
    ]) {
      const { client } = await start(t, (response) => response.end(body));
      for (const [name, call] of Object.entries(calls)) {
        const error = await failure(call(client)).catch((reason: Error) =>
          assert.fail(`${name}, ${body}: ${reason.message}`),
        );
        assert.deepEqual([error.code, error.status], ['unexpected_response', 200], `${name}, ${body}`);
      }
    }
    const { client } = await start(t, (response) => response.writeHead(204).end());
    assert.equal((await failure(client.sendMessage('m', {}))).code, 'unexpected_response');
  });

  test('a redirect is not followed but named: a POST would arrive as a GET', async (t) => {
    const { client, seen } = await start(t, (response) =>
      response.writeHead(301, { location: 'https://elsewhere/' }).end(),
    );
    const error = await failure(client.heartbeat('i'));
    assert.match(error.message, /redirects to https:\/\/elsewhere\//);
    assert.equal(seen.length, 1);
  });

  test('an aborted call rejects with the reason of its signal', async (t) => {
    const abort = new AbortController();
    const { client, seen } = await start(t, () => abort.abort(new Error('changed my mind')));
    await assert.rejects(client.listInstances({}, { signal: abort.signal }), /changed my mind/);
    await assert.rejects(client.listInstances({}, { signal: abort.signal }), /changed my mind/);
    assert.equal(seen.length, 1);
  });

  test('no error shows the key', async (t) => {
    const { client } = await start(t, cut, { api_key: 'very-secret' });
    const error = await failure(client.listInstances());
    assert.ok(!inspect(error, { depth: 20, showHidden: true }).includes('very-secret'));
  });
});

test('a drop continues part by part, each up to the message at which the first part ended', async (t) => {
  const part = (deliveries: number, done: boolean): Answer => json(200, { deliveries, up_to: 'msg_9', done });
  const { client, seen } = await start(t, inTurn(part(3, false), part(2, false), part(1, true)));
  const dropped: number[] = [];
  for await (const so_far of client.dropping({ meeting_id: 'm' })) dropped.push(so_far);
  assert.deepEqual(dropped, [3, 5, 6]);
  const next = { meeting_id: 'm', up_to: 'msg_9' };
  assert.deepEqual(
    seen.map(({ body }) => JSON.parse(body) as object),
    [{ meeting_id: 'm' }, next, next],
  );
});

describe('walking through pages:', () => {
  const threePages: Answer = (response, request, number) => {
    const cursor = new URL(request.path, 'http://h').searchParams.get('cursor');
    const next_cursor = { '': 'two', two: 'three', three: null }[cursor ?? '']!;
    json(200, { data: [`${cursor ?? 'one'}-a`, `${cursor ?? 'one'}-b`], next_cursor })(response, request, number);
  };

  test('all gives every item of every page, and keeps the query', async (t) => {
    const { client, seen } = await start(t, threePages);
    const items = [];
    for await (const item of all((from) => client.listMeetings({ q: 'x', ...from }))) items.push(item);
    assert.deepEqual(items, ['one-a', 'one-b', 'two-a', 'two-b', 'three-a', 'three-b']);
    assert.ok(seen.every(({ path }) => path.includes('q=x')));
  });

  test('a list without cursors is refused, and not read again and again', async (t) => {
    const { client, seen } = await start(t, json(200, { data: [{ seq: 1 }], has_more: false }));
    // The compiler refuses this call, but plain JavaScript has no compiler.
    const messages = all((from) => client.listMessages('m', from as object) as unknown as Promise<Page<Message>>);
    assert.deepEqual((await messages.next()).value, { seq: 1 });
    await assert.rejects(messages.next(), /no next_cursor: client\.allMessages/);
    assert.equal(seen.length, 1);
  });

  test('a page that nobody asks for is not fetched', async (t) => {
    const { client, seen } = await start(t, threePages);
    for await (const page of pages((from) => client.listMeetings(from))) {
      assert.equal(page.length, 2);
      break;
    }
    assert.equal(seen.length, 1);
  });

  test('allMessages goes through the history from the beginning, in order', async (t) => {
    const { client, seen } = await start(t, (response, request, number) => {
      const after_seq = Number(new URL(request.path, 'http://h').searchParams.get('after_seq'));
      const data = [after_seq + 1, after_seq + 2].map((seq) => ({ seq }));
      json(200, { data, has_more: after_seq < 4 })(response, request, number);
    });
    const seqs = [];
    for await (const { seq } of client.allMessages('m', { limit: 2 })) seqs.push(seq);
    assert.deepEqual(seqs, [1, 2, 3, 4, 5, 6]);
    assert.equal(seen[0]!.path, '/api/v1/meetings/m/messages/?limit=2&after_seq=0');
  });
});

test('a value that cannot be in a header is refused before a request, and not shown', async (t) => {
  const { client, seen, base_url } = await start(t, json(200, ANY));
  for (const value of ['very\nsecret', 'very\u200bsecret', ' very secret', 'very sécret']) {
    const refused = (name: string) => (error: Error) => {
      assert.ok(error instanceof TypeError, String(error));
      assert.equal(error.message, `${name} must be printable ASCII, with no space or line break at its ends`);
      return true;
    };
    if (value.trim() === value)
      assert.throws(() => new ConvokeClient({ base_url, api_key: value }), refused('api_key'));
    await assert.rejects(client.signIn(value), refused('api_key'));
    await assert.rejects(client.sendMessage('m', {}, { idempotency_key: value }), refused('idempotency-key'));
    await assert.rejects(client.sendReply(value, 'hi'), refused('convoke-reply-token'));
    assert.throws(() => client.events({ last_event_id: value }), refused('last_event_id'));
  }
  assert.equal(seen.length, 0);
});

test('a key may end with the line break of its file, and an empty text is no key', async (t) => {
  const { seen, base_url } = await start(t, json(200, ANY));
  for (const api_key of ['k\n', '', ' \n']) await new ConvokeClient({ base_url, api_key }).listInstances();
  assert.deepEqual(
    seen.map(({ headers }) => headers.authorization),
    ['Bearer k', undefined, undefined],
  );
});

test('a call that has ended leaves no timer behind', async (t) => {
  const { client } = await start(t, json(200, ANY), { timeout_ms: 3_600_000 });
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  await client.listInstances();
  const before = timers();
  for (let i = 0; i < 20; i++) await client.listInstances();
  assert.ok(timers() < before + 5, 'fetch itself may hold a few, for its kept-alive connections');
});

describe('sendMany', () => {
  const upTo = (count: number) => Array.from({ length: count }, (_, n) => n + 1);
  const many = (count: number) => upTo(count).map((n) => ({ meeting_id: 'm', message: { n } }));
  const storedAll: Answer = (response, { body }) => {
    const { messages } = JSON.parse(body) as { messages: object[] };
    json(200, { results: messages.map(() => ({ status: 201, message: SENT })) })(response, {} as Seen, 0);
  };
  const keysOf = ({ body }: Seen) =>
    (JSON.parse(body) as { messages: { idempotency_key: string }[] }).messages.map((each) => each.idempotency_key);
  const details = { type: 'about:blank', title: 'T', detail: 'what to do' };

  test('sends the whole list in one request, each message as it is written and with a key of its own', async (t) => {
    const { client, seen } = await start(t, storedAll);
    const messages = [
      { meeting_id: 'm', message: rawJson('{"n":1.10}'), target_agents: ['a'], idempotency_key: 'mine' },
      { meeting_id: 7, message: {}, from_agent: 'a', in_reply_to: 'msg_1', expires_in_s: 5 },
    ];
    const results = await client.sendMany(messages);
    assert.deepEqual(
      results,
      [1, 2].map(() => ({ status: 'fulfilled', value: SENT })),
    );
    assert.deepEqual([seen.length, seen[0]?.method, seen[0]?.path], [1, 'POST', '/api/v1/messages/']);
    const second_key = keysOf(seen[0]!)[1]!;
    assert.match(second_key, /^[0-9a-f]{32}$/);
    assert.equal(
      seen[0]?.body,
      `{"messages":[{"meeting_id":"m","idempotency_key":"mine","message":{"n":1.10},"target_agents":["a"]},` +
        `{"meeting_id":7,"idempotency_key":"${second_key}","message":{},"from_agent":"a","in_reply_to":"msg_1","expires_in_s":5}]}`,
    );
    assert.deepEqual(await client.sendMany([]), []);
    assert.equal(seen.length, 1);
  });

  test('sends what the service could not take again, with the same keys, and nothing that is stored or bad', async (t) => {
    const bad = { status: 422, problem: { ...details, status: 422, code: 'invalid_fields', errors: [] } };
    const busy = { status: 503, problem: { ...details, status: 503, code: 'overloaded' }, retry_after_s: 2 };
    const first = json(200, { results: [{ status: 201, message: SENT }, bad, busy, busy] });
    const { client, seen, pauses_ms } = await start(t, inTurn(cut, problem(503, 'overloaded'), first, storedAll));
    const results = await client.sendMany(many(4));
    const keys = keysOf(seen[0]!);
    assert.deepEqual(seen.map(keysOf), [keys, keys, keys, keys.slice(2)]);
    assert.equal(pauses_ms.at(-1), 2000);
    assert.deepEqual(
      results.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled', 'fulfilled'],
    );
    const { reason } = results[1] as PromiseRejectedResult;
    assert.ok(reason instanceof ConvokeError);
    assert.deepEqual([reason.code, reason.status, reason.idempotency_key], ['invalid_fields', 422, keys[1]]);
  });

  test('gives every message its error when no try is left, and sends none of the list behind it', async (t) => {
    const { client, seen } = await start(t, problem(503, 'overloaded'), { send_attempts_max: 2 });
    const results = await client.sendMany(many(700));
    assert.deepEqual(new Set(results.map(({ status }) => status)), new Set(['rejected']));
    assert.deepEqual(
      seen.map((request) => keysOf(request).length),
      [500, 500],
    );
    const own_keys = results.map(
      (result) => ((result as PromiseRejectedResult).reason as ConvokeError).idempotency_key,
    );
    assert.equal(new Set(own_keys).size, 700);
  });

  test('each request of a long list has all tries, however many failed before it', async (t) => {
    const busy = problem(503, 'overloaded');
    const answers = [1, 2, 3].flatMap(() => [busy, storedAll]);
    const { client, seen } = await start(t, inTurn(...answers), { send_attempts_max: 2 });
    const results = await client.sendMany(many(1500));
    assert.deepEqual(new Set(results.map(({ status }) => status)), new Set(['fulfilled']));
    assert.equal(seen.length, 6);
  });

  test('the tries start again when a part of a request was stored', async (t) => {
    const stored = { status: 201, message: SENT };
    const busy = { status: 503, problem: { ...details, status: 503, code: 'overloaded' }, retry_after_s: 2 };
    const answers = [[stored, busy, busy], [stored, busy], [busy], [stored]].map((results) => json(200, { results }));
    const { client, seen } = await start(t, inTurn(...answers), { send_attempts_max: 3 });
    const results = await client.sendMany(many(3));
    assert.deepEqual(new Set(results.map(({ status }) => status)), new Set(['fulfilled']));
    assert.equal(seen.length, 4);
  });

  test('sends nothing behind a message that has to wait for longer than half a minute: the meeting would have a hole', async (t) => {
    const late = { status: 429, problem: { ...details, status: 429, code: 'rate_limited' }, retry_after_s: 31 };
    const first = upTo(500).map((n) => (n <= 300 ? { status: 201, message: SENT } : late));
    const { client, seen } = await start(t, inTurn(json(200, { results: first }), storedAll));
    const results = await client.sendMany(many(700));
    assert.equal(seen.length, 1);
    assert.deepEqual(
      results.map(({ status }) => status),
      upTo(700).map((n) => (n <= 300 ? 'fulfilled' : 'rejected')),
    );
    assert.equal(((results[699] as PromiseRejectedResult).reason as ConvokeError).retry_after_s, 31);
  });

  test('a message for which all of its request are refused fails alone, and the order stays', async (t) => {
    for (const refused of [
      problem(400, 'malformed_json'),
      (response: ServerResponse) => response.writeHead(413).end(),
    ]) {
      const stored: number[] = [];
      const { client, seen } = await start(t, (response, request, number) => {
        const { messages } = JSON.parse(request.body) as { messages: { message: { n: number } }[] };
        if (messages.some(({ message }) => message.n === 300)) return refused(response, request, number);
        stored.push(...messages.map(({ message }) => message.n));
        storedAll(response, request, number);
      });
      const results = await client.sendMany(many(1000));
      const others = upTo(1000).filter((n) => n !== 300);
      assert.deepEqual(stored, others);
      assert.deepEqual(
        upTo(1000).filter((n) => results[n - 1]?.status === 'fulfilled'),
        others,
      );
      assert.ok(seen.length < 40, `${seen.length} requests`);
    }
  });

  test('divides a long list, by number and by size, and keeps its order', async (t) => {
    const { client, seen } = await start(t, storedAll);
    await client.sendMany(many(1100));
    assert.deepEqual(
      seen.map((request) => keysOf(request).length),
      [500, 500, 100],
    );
    await client.sendMany(upTo(5).map(() => ({ meeting_id: 'm', message: { text: 'x'.repeat(400_000) } })));
    assert.deepEqual(
      seen.slice(3).map((request) => keysOf(request).length),
      [2, 2, 1],
    );
  });

  test('with gather_ms, an aborted send is in no further request', async (t) => {
    const ending = new AbortController();
    const sleep = async () => ending.abort(new Error('no longer wanted'));
    const busy = problem(503, 'overloaded');
    const { client, seen } = await start(t, inTurn(busy, storedAll, busy), { gather_ms: 0, sleep });
    const [aborted, sent] = [{ signal: ending.signal }, {}].map((options) => client.sendMessage('m', {}, options));
    await assert.rejects(aborted!, /no longer wanted/);
    assert.deepEqual(await sent, SENT);
    assert.deepEqual(
      seen.map((request) => keysOf(request).length),
      [2, 1],
    );
  });

  test('with gather_ms, sends that are made together are one request, and each gets its own result', async (t) => {
    const bad = { status: 422, problem: { ...details, status: 422, code: 'invalid_fields', errors: [] } };
    const answer = json(200, { results: [{ status: 201, message: SENT }, bad] });
    const { client, seen } = await start(t, inTurn(answer, storedAll), { gather_ms: 2 });
    const abort = new AbortController();
    const [stored, refused, aborted] = [{}, {}, { signal: abort.signal }].map((options) =>
      client.sendMessage('m', {}, options),
    );
    await assert.rejects(client.sendMessage('m', 'no object' as never), TypeError);
    abort.abort(new Error('no longer wanted'));
    await assert.rejects(aborted!, /no longer wanted/);
    assert.deepEqual(await stored, SENT);
    await assert.rejects(refused!, { name: 'ConvokeError', code: 'invalid_fields' });
    assert.equal(seen.length, 1);
    assert.deepEqual(
      await Promise.all(upTo(600).map(() => client.sendMessage('m', {}))),
      upTo(600).map(() => SENT),
    );
    const sizes = seen.slice(1).map((request) => keysOf(request).length);
    // Requests that are made at the same time may arrive in any order.
    assert.deepEqual(new Set(sizes), new Set([500, 100]));
  });
});
