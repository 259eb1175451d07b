/** Errors are problems (RFC 9457) with stable codes, whatever a client sends. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { before, describe, test, type TestContext } from 'node:test';
import type { RegisteredInstance, Session } from '@convoke/sdk';
import { PROBLEMS, type ProblemCode } from '../../src/domain/problem.ts';
import { EARLIER_MAX } from '../../src/domain/rotation.ts';
import {
  type Answer,
  assertProblem,
  messagesPath,
  ON_A_FILE,
  type Service,
  startService,
  useService,
} from '../support/service.ts';
import { ID_BYTES, makeKeyId, makeToken, SECRET_BYTES } from '../../src/domain/api_key.ts';
import { startReceiver } from '../support/receiver.ts';
import { HOUR } from '../support/node.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const WEBHOOK_URL = 'http://127.0.0.1:9000/';

/** Codes that only a service with keys gives. The block about keys causes them. */
const codes_of_keys = [
  'api_key_missing',
  'api_key_malformed',
  'api_key_unknown',
  'api_key_revoked',
  'session_ended',
  'sign_in_link_not_valid',
  'csrf_token_wrong',
  'api_key_expired',
  'not_permitted',
  'session_does_not_exist',
  'key_does_not_exist',
  'instance_id_taken',
  'first_key_not_admin',
  'last_admin_key',
  'key_not_active',
];

/** Codes that test/access/invites.test.ts causes. */
const codes_of_invites = ['invite_does_not_exist', 'invite_ended', 'invite_redeemed'];

/** Codes that test/delivery/late_replies.test.ts causes. */
const codes_of_replies = ['reply_token_not_valid', 'replies_not_allowed', 'reply_limit_reached'];

/** The code that test/secrets/key_file.test.ts causes. */
const codes_of_key_file = ['encryption_key_not_written'];

/** The code that test/mcp/subscriptions.test.ts causes. */
const codes_of_subscriptions = ['callback_not_verified'];

describe('every code that a caller can bring about:', { concurrency: true }, () => {
  const encryption_key = Buffer.alloc(32, 7).toString('base64');
  const service = useService({ max_message_bytes: '1024', encryption_key, max_meetings_per_instance: '1' });
  const narrow = useService({ egress: 'lan' });
  const limited = useService({ register_rate_per_address: '1/h:1' });
  const on_a_file = useService(ON_A_FILE);
  const send = (body: object | string | Buffer, headers: Record<string, string> = {}) =>
    service.request('POST', messagesPath('m'), { body, headers });

  const cases: Partial<Record<ProblemCode, () => Promise<Answer<unknown>>>> = {
    malformed_json: () => send('{"message":'),
    malformed_request: () => service.get('/api/v1/instances/%zz/'),
    origin_not_allowed: () =>
      service.request('POST', '/api/v1/instances/i/heartbeat/', { headers: { origin: 'https://evil.example' } }),
    host_not_allowed: () => service.request('GET', '/api/v1/instances/', { headers: { host: 'evil.example' } }),
    route_does_not_exist: () => service.get('/api/v1/nothing/'),
    instance_does_not_exist: () => service.get('/api/v1/instances/nobody/'),
    meeting_does_not_exist: () => service.get('/api/v1/meetings/nowhere/messages/'),
    membership_does_not_exist: () =>
      service.request('PATCH', '/api/v1/meetings/nowhere/instances/nobody/', { body: { wake: 'all' } }),
    message_does_not_exist: () => service.get('/api/v1/messages/nothing/'),
    delivery_does_not_exist: () => service.get('/api/v1/deliveries/nothing/'),
    idempotency_key_reused: async () => {
      await send({ message: { n: 1 } }, { 'idempotency-key': 'k' });
      return send({ message: { n: 2 } }, { 'idempotency-key': 'k' });
    },
    quota_exceeded: async () => {
      const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
      await service.join('the first', instance_id, ['a']);
      const second = { instance_id, meeting_id: 'the second', agent_ids: ['a'] };
      return service.post('/api/v1/instances/join-meeting/', second);
    },
    rate_limited: async () => {
      const registration = { instance_id: 'i', instance_name: 'n', agent_ids: [], webhook_url: WEBHOOK_URL };
      const register = () => limited.post('/api/v1/instances/register/', registration);
      await register();
      return register();
    },
    delivery_not_retryable: async () => {
      const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:1/' });
      await service.join('deleted', instance_id, ['a']);
      const sent = await service.send('deleted', {});
      await service.request('DELETE', `/api/v1/instances/${instance_id}/`);
      const { delivery_id } = await service.settled(sent);
      return service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
    },
    overlaps_in_progress: async () => {
      const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
      const rotate = () => service.post(`/api/v1/instances/${instance_id}/rotate-secret/`, {});
      for (let i = 0; i < EARLIER_MAX; i++) assert.equal((await rotate()).status, 200);
      return rotate();
    },
    encryption_key_given: () => service.post('/api/v1/encryption/reencrypt/'),
    backup_does_not_exist: () => on_a_file.get('/api/v1/backups/none/'),
    demo_not_possible: () => narrow.post('/api/v1/demo/'),
    backup_under_way: async () => {
      await on_a_file.post('/api/v1/backups/');
      return on_a_file.post('/api/v1/backups/');
    },
    method_not_allowed: () => service.request('PUT', '/api/v1/instances/', { body: {} }),
    request_timeout: () =>
      service.request('POST', messagesPath('m'), { body: '{"message":', headers: { 'content-length': '14' } }),
    headers_too_large: () => service.request('GET', '/healthz', { headers: { x: 'y'.repeat(16_384) } }),
    body_too_large: () => send({ message: { s: 'x'.repeat(2000) } }),
    unsupported_media_type: () => send('message=hello', { 'content-type': 'application/x-www-form-urlencoded' }),
    invalid_fields: () => send({}),
    webhook_url_not_allowed: () =>
      service.post('/api/v1/instances/register/', {
        instance_id: 'i',
        instance_name: 'n',
        agent_ids: [],
        webhook_url: 'http://169.254.169.254/',
      }),
  };
  for (const [code, bringAbout] of Object.entries(cases)) {
    const { status, title } = PROBLEMS[code as ProblemCode];
    test(`${status} ${code}`, async () => {
      const problem = assertProblem(await bringAbout(), status, code);
      assert.equal(problem.title, title);
      assert.equal(problem.type, `urn:convoke:problem:${code}`);
      assert.equal(problem.errors !== undefined, status === 422, 'errors stand in what is invalid, and only there');
    });
  }

  /** Codes that only a service on PostgreSQL gives. */
  const codes_of_postgres = ['backup_not_made_here', 'encryption_key_not_shared'];

  test('those of the service itself are the only ones that are left', () => {
    const elsewhere = [
      ...codes_of_keys,
      ...codes_of_invites,
      ...codes_of_replies,
      ...codes_of_subscriptions,
      ...codes_of_key_file,
      ...codes_of_postgres,
    ];
    const left = Object.keys(PROBLEMS).filter((code) => !(code in cases) && !elsewhere.includes(code));
    assert.deepEqual(left, ['internal_error', 'storage_unavailable', 'overloaded', 'backup_no_room', 'shutting_down']);
  });
});

describe('every code about keys:', { concurrency: true }, () => {
  const open = useService();
  const clock = new SetClock();
  const service = useService({}, clock);
  before(() => service.endOpenMode());
  const as = (token: string, method = 'GET', path = '/api/v1/instances/', body?: object) =>
    service.request(method, path, {
      headers: { authorization: `Bearer ${token}` },
      ...(body === undefined ? {} : { body }),
    });
  /** Signs in, and returns the cookie and the CSRF token: requests with a cookie carry no key. */
  const signIn = async () => {
    const { headers, body } = await as(
      (await service.createKey({ scopes: ['read'] })).token,
      'POST',
      '/api/v1/session/',
    );
    const { csrf_token } = body as Session;
    return { cookie: String(headers['set-cookie']?.[0]).split(';')[0] as string, csrf_token: csrf_token ?? '' };
  };
  const register = { instance_id: 'taken', instance_name: 'n', agent_ids: [], webhook_url: WEBHOOK_URL };

  const cases: Partial<Record<ProblemCode, () => Promise<Answer<unknown>>>> = {
    api_key_missing: () => service.request('GET', '/api/v1/instances/', { headers: { authorization: 'Basic eDp5' } }),
    api_key_malformed: () => as('cvk_short'),
    api_key_unknown: () => as(makeToken(makeKeyId(randomBytes(ID_BYTES)), randomBytes(SECRET_BYTES))),
    api_key_revoked: async () => {
      const { key_id, token } = await service.createKey({ scopes: ['read'] });
      await service.request('DELETE', `/api/v1/keys/${key_id}/`);
      return as(token);
    },
    session_ended: async () => {
      const { cookie, csrf_token } = await signIn();
      const headers = { cookie, origin: service.url, 'convoke-csrf': csrf_token };
      await service.request('DELETE', '/api/v1/session/', { headers });
      return service.request('GET', '/api/v1/instances/', { headers });
    },
    sign_in_link_not_valid: () => as('', 'POST', '/api/v1/session/link/', { token: 'x'.repeat(43) }),
    csrf_token_wrong: async () => {
      const { cookie } = await signIn();
      return service.request('DELETE', '/api/v1/session/', { headers: { cookie, origin: service.url } });
    },
    api_key_expired: async () => {
      const expires_at = new Date(clock.wall() + HOUR).toISOString();
      const { token } = await service.createKey({ scopes: ['read'], expires_at });
      clock.step(HOUR);
      return as(token);
    },
    not_permitted: async () => as((await service.createKey({ scopes: ['send'] })).token),
    session_does_not_exist: () => service.request('DELETE', '/api/v1/sessions/nothing/'),
    key_does_not_exist: () => service.get('/api/v1/keys/nothing/'),
    instance_id_taken: async () => {
      await service.register(register);
      const { token } = await service.createKey({ scopes: ['instance'] });
      return as(token, 'POST', '/api/v1/instances/register/', register);
    },
    first_key_not_admin: () => open.post('/api/v1/keys/', { scopes: ['read'] }),
    last_admin_key: () => service.request('DELETE', `/api/v1/keys/${String(service.token).slice(4, 16)}/`),
    key_not_active: async () => {
      const { key_id } = await service.createKey({ scopes: ['read'] });
      await service.request('DELETE', `/api/v1/keys/${key_id}/`);
      return service.post(`/api/v1/keys/${key_id}/rotate/`);
    },
  };
  for (const [code, bringAbout] of Object.entries(cases)) {
    const { status, title } = PROBLEMS[code as ProblemCode];
    test(`${status} ${code}`, async () => {
      const answer = await bringAbout();
      assert.equal(assertProblem(answer, status, code).title, title);
      assert.equal(/^Bearer\b/.test(String(answer.headers['www-authenticate'])), status === 401);
    });
  }

  test('these are all of them', () => assert.deepEqual(Object.keys(cases), codes_of_keys));
});

describe('invalid input is named:', { concurrency: true }, () => {
  const service = useService();
  const register = (more: object) =>
    service.post<RegisteredInstance>('/api/v1/instances/register/', {
      instance_id: service.name('i'),
      instance_name: 'n',
      agent_ids: ['a'],
      webhook_url: WEBHOOK_URL,
      ...more,
    });

  test('all that is wrong at once, by path and with what is expected', async () => {
    const answer = await register({ instance_name: '', agent_ids: ['a', 1, 'c', ''], success_statuses: '3xx' });
    const problem = assertProblem(answer, 422, 'invalid_fields');
    const errors = problem.errors?.toSorted((a, b) => (a.path < b.path ? -1 : 1)) ?? [];
    assert.deepEqual(
      errors.map(({ path }) => path),
      ['agent_ids.1', 'agent_ids.3', 'instance_name', 'success_statuses'],
    );
    for (const { path, message } of errors) {
      assert.match(message, /^must be /);
      assert.ok(problem.detail.includes(path));
    }
  });

  for (const [path, body, unknown, meant] of [
    ['/api/v1/meetings/m/messages/', { message: {}, target_agent: ['a'] }, 'target_agent', 'target_agents'],
    ['/api/v1/meetings/m/messages/', { message: {}, targets: ['a'] }, 'targets', 'target_agents'],
    ['/api/v1/meetings/m/messages/', { message: {}, targetAgents: ['a'] }, 'targetAgents', 'target_agents'],
    [
      '/api/v1/instances/join-meeting/',
      { instance_id: 'i', meeting_id: 'm', agents_ids: [] },
      'agents_ids',
      'agent_ids',
    ],
    ['/api/v1/instances/leave-meeting/', { instance_id: 'i', meeting_id: 'm', meeting: 1 }, 'meeting', 'meeting_id'],
    ['/api/v1/instances/webhook-test/', { instance_id: 'i', instanceid: 'i' }, 'instanceid', 'instance_id'],
  ] as const) {
    test(`an unknown field is refused with the nearest known name: ${unknown}`, async () => {
      const problem = assertProblem(await service.post(path, body), 422, 'invalid_fields');
      const error = problem.errors?.find((each) => each.path === unknown);
      assert.ok(error !== undefined, JSON.stringify(problem));
      assert.match(error.message, new RegExp(`^unknown field ${unknown}\\b`));
      assert.ok(error.message.includes(meant), error.message);
    });
  }

  test('a mistyped target list says so in these words', async () => {
    const answer = await service.post('/api/v1/meetings/m/messages/', { message: {}, target_agent: ['a'] });
    assert.match(answer.text, /unknown field target_agent; did you mean target_agents\?/);
  });

  test('fields that JavaScript knows of its own are unknown too', async () => {
    for (const name of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
      const answer = await service.post(messagesPath('m'), `{"message":{},"${name}":{}}`);
      const problem = assertProblem(answer, 422, 'invalid_fields');
      assert.deepEqual(
        problem.errors?.map(({ path }) => path),
        [name],
      );
    }
  });
});

describe('a client that errs or attacks gets a 4xx:', { concurrency: true }, () => {
  const service = useService();
  const post = (body: string | Buffer, headers: Record<string, string> = {}) =>
    service.request('POST', messagesPath('m'), { body, headers });

  test('a body that is not JSON', async () => {
    for (const body of [
      '{',
      '{"message":{}',
      '{"message":{}}}',
      '{"message":{},}',
      "{'message':{}}",
      '{"message":{"a":01}}',
      '{"message":{"a":NaN}}',
      '{"message":{"a":"\n"}}',
      '{"message":{"a":"\\x"}}',
      '{message:{}}',
      '\ufeff{"message":{}}',
      '{"message":{}} // comment',
      'hello',
      ' ',
      Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
      Buffer.from('{"message":{"a":"é"}}', 'latin1'),
      Buffer.from('{"message":{}}', 'utf16le'),
      Buffer.from([0xed, 0xa0, 0x80]),
    ]) {
      assertProblem(await post(body), 400, 'malformed_json');
    }
  });

  test('a body that is JSON, but no object', async () => {
    for (const body of ['[]', '"x"', '1', 'true', 'null']) assertProblem(await post(body), 422, 'invalid_fields');
  });

  test('no body where there must be one', async () => {
    for (const path of [messagesPath('m'), '/api/v1/instances/register/', '/api/v1/instances/join-meeting/']) {
      const answer = await service.post(path);
      assert.ok(answer.status === 400 || answer.status === 422 || answer.status === 415, answer.text);
      assert.match(String(answer.headers['content-type']), /^application\/problem\+json/);
      assertProblem(await service.post(path, ''), 422, 'invalid_fields');
    }
  });

  test('a field of the body twice: one of the two would be dropped in silence', async () => {
    for (const body of [
      '{"message":{},"message":{}}',
      '{"message":{},"target_agents":["a"],"target_agents":[]}',
      '{"message":{},"target_agents":["a"],"target_agent\\u0073":[]}',
    ]) {
      assertProblem(await post(body), 400, 'malformed_json');
    }
  });

  test('deep JSON', async () => {
    for (const levels of [101, 5_000, 100_000]) {
      assertProblem(await post(`{"message":{"a":${'['.repeat(levels)}${']'.repeat(levels)}}}`), 400, 'malformed_json');
      assertProblem(await post('['.repeat(levels)), 400, 'malformed_json');
    }
  });

  test('another content type or encoding', async () => {
    for (const content_type of ['text/plain', 'application/xml', 'multipart/form-data', 'x', '']) {
      const answer = await post('{"message":{}}', { 'content-type': content_type });
      assertProblem(answer, 415, 'unsupported_media_type');
    }
    for (const encoding of ['gzip', 'br', 'deflate', 'nonsense']) {
      assertProblem(await post('{"message":{}}', { 'content-encoding': encoding }), 415, 'unsupported_media_type');
    }
    for (const content_type of ['application/json; charset=utf-8', 'Application/JSON']) {
      assert.equal((await post('{"message":{}}', { 'content-type': content_type })).status, 201, content_type);
    }
  });

  test('a Host that is not loopback', async () => {
    for (const host of [
      'evil.example',
      '127.0.0.1.evil.example',
      'localhost.evil.example',
      '192.168.1.1',
      'convoke.localhost',
      'a b',
    ]) {
      const answer = await service.request('GET', '/api/v1/instances/', { headers: { host } });
      assert.ok(answer.status === 403 || answer.status === 400, `${host}: ${answer.status}`);
      assert.match(String(answer.headers['content-type']), /^application\/problem\+json/);
    }
    for (const host of ['127.0.0.1', 'localhost:80', 'LOCALHOST', '[::1]:8080', '127.1.2.3']) {
      assert.equal((await service.request('GET', '/api/v1/instances/', { headers: { host } })).status, 200, host);
    }
  });

  test('a parameter in the path that is too long', async () => {
    for (const path of [
      `/api/v1/instances/${'x'.repeat(5_000)}/`,
      `/api/v1/meetings/${'%41'.repeat(3_000)}/messages/`,
    ]) {
      const answer = await service.get(path);
      assert.ok(answer.status >= 400 && answer.status < 500, `${answer.status}`);
      assert.match(String(answer.headers['content-type']), /^application\/problem\+json/);
    }
  });

  /** Sends bytes that no client makes, and reads until the service closes the connection. */
  function raw(bytes: string): Promise<string> {
    const { hostname, port } = new URL(service.url);
    return new Promise((resolve, reject) => {
      const socket = connect(Number(port), hostname);
      let text = '';
      socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      socket.on('end', () => resolve(text)).on('error', reject);
      socket.write(bytes);
    });
  }

  test('what is not HTTP, or malformed HTTP', async () => {
    for (const bytes of [
      'SSH-2.0-OpenSSH_9.6\r\n\r\n',
      'GET / HTTP/1.1\r\nbad header\r\n\r\n',
      'POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: x\r\n\r\n',
      'POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n',
      'GET /\u0000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n',
    ]) {
      const answer = await raw(bytes);
      assert.match(answer, /^HTTP\/1\.1 4\d\d /, JSON.stringify(bytes));
      assert.match(answer, /application\/problem\+json/);
      assert.match(answer, /"code":"malformed_request"/);
    }
  });

  test('two Host headers, an empty one, and none; a target that is no path', async () => {
    for (const [target, hosts] of [
      ['/api/v1/instances/', 'host: 127.0.0.1\r\nHOST: evil.example\r\n'],
      ['/api/v1/instances/', 'host: 127.0.0.1\r\nhost: 127.0.0.1\r\n'],
      ['/api/v1/instances/', 'host: \r\n'],
      ['/api/v1/instances/', ''],
      ['http://evil.example/api/v1/instances/', 'host: 127.0.0.1\r\n'],
      ['*', 'host: 127.0.0.1\r\n'],
    ]) {
      const answer = await raw(`GET ${target} HTTP/1.1\r\n${hosts}connection: close\r\n\r\n`);
      assert.match(answer, /^HTTP\/1\.1 4\d\d /, hosts);
      assert.match(answer, /application\/problem\+json/, hosts);
    }
  });

  test('and the service continues', async () => {
    await post('{');
    assert.equal((await service.get('/healthz')).status, 200);
    assert.ok(service.log.every(({ level }) => Number(level) < 50));
  });
});

describe('while the service is stopping:', () => {
  const HEAD = 'POST /api/v1/meetings/m/messages/ HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n';
  const BODY = '{"message":{}}';

  /** A connection on which the test decides what is written, and when. */
  function connected(t: TestContext, service: Service): { socket: Socket; received: () => string } {
    const { hostname, port } = new URL(service.url);
    const socket = connect(Number(port), hostname);
    t.after(() => socket.destroy());
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    socket.on('error', () => {});
    return { socket, received: () => text };
  }

  test('a send that has begun is accepted, and its response says that the connection closes', async (t) => {
    const service = await startService(t);
    const gate = Promise.withResolvers<void>();
    const receiver = await startReceiver(t, { after: gate.promise });
    const { instance_id } = await service.register({ webhook_url: receiver.url });
    await service.join('m', instance_id, ['a']);
    await service.send('m', {});
    await receiver.next();
    const { socket, received } = connected(t, service);
    // The request begins before the service stops, and ends afterwards.
    socket.write(`${HEAD}expect: 100-continue\r\ncontent-length: ${BODY.length}\r\n\r\n`);
    const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n';
    await until('the request to be read', received, (answer) => answer === CONTINUE);
    const closed = service.close();
    socket.write(BODY);
    await until('an answer', received, (answer) => answer.length > CONTINUE.length || socket.destroyed);
    gate.resolve();
    await closed;
    const text = received().slice(CONTINUE.length);
    assert.match(text, /^HTTP\/1\.1 201 /);
    assert.match(text, /connection: close/i);
  });

  test('it is not ready from the first moment, and says so as shutting_down, to be tried again', async (t) => {
    const service = await startService(t);
    const { socket, received } = connected(t, service);
    const request = 'GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n';
    socket.write(request);
    await until('the first answer', received, (answer) => answer.includes('"ready"'));
    const closed = service.close(60_000);
    socket.write(request);
    await closed;
    const text = received();
    assert.match(text, /HTTP\/1\.1 503 /);
    assert.match(text, /application\/problem\+json/);
    assert.match(text, /"code":"shutting_down"/);
    assert.match(text, /retry-after: 1\r/i);
    assert.match(text, /connection: close/i);
  });

  test('no new connection is accepted, and open ones still get their responses', async (t) => {
    const service = await startService(t);
    const { hostname, port } = new URL(service.url);
    const { socket, received } = connected(t, service);
    socket.write('GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    await until('the first answer', received, (answer) => answer.includes('"ok"'));
    const closed = service.close(60_000);
    const refused = await until(
      'a connection that is refused',
      () =>
        new Promise((resolve) => {
          const late = connect(Number(port), hostname, () => late.destroy());
          late.on('error', ({ code }: NodeJS.ErrnoException) => resolve(code));
          late.on('close', () => resolve(null));
        }),
      (code) => code !== null,
    );
    assert.equal(refused, 'ECONNREFUSED');
    assert.equal(socket.destroyed, false);
    socket.write(`${HEAD}content-length: ${BODY.length}\r\n\r\n${BODY}`);
    await closed;
    assert.match(received(), /HTTP\/1\.1 201 /);
  });

  /**
   * How many of 20 connections get a response when the service stops before it has accepted them. The service accepts
   * one connection in each turn of its event loop.
   */
  async function answersToQueued(t: TestContext, drain_ms: number): Promise<number> {
    const CONNECTIONS = 20;
    const service = await startService(t);
    const clients = Array.from({ length: CONNECTIONS }, () => connected(t, service));
    for (const { socket } of clients) socket.write(`${HEAD}content-length: ${BODY.length}\r\n\r\n${BODY}`);
    const ended = Promise.all(
      clients.map(({ socket }) => new Promise<void>((resolve) => void socket.on('close', () => resolve()))),
    );
    await once(clients.at(-1)!.socket, 'connect');
    await service.close(drain_ms);
    await ended;
    return clients.filter(({ received }) => received().startsWith('HTTP/1.1 201 ')).length;
  }

  test('a connection that waits to be accepted gets its response', async (t) => {
    assert.equal(await answersToQueued(t, 60_000), 20);
  });

  test('control: without a drain some of them are cut off', async (t) => {
    assert.ok((await answersToQueued(t, 0)) < 20);
  });

  /** The response to a request that is sent when the service stops, on a connection with an earlier response. */
  async function answerToTheNext(t: TestContext, drain_ms: number): Promise<string> {
    const service = await startService(t);
    const { socket, received } = connected(t, service);
    const request = `${HEAD}content-length: ${BODY.length}\r\n\r\n${BODY}`;
    socket.write(request);
    await until('the first answer', received, (answer) => answer.includes('deliveries_queued'));
    const first_chars = received().length;
    const closed = service.close(drain_ms);
    // In this turn the service closes an idle connection.
    await new Promise((resolve) => setImmediate(resolve));
    socket.write(request);
    await once(socket, 'close');
    await closed;
    return received().slice(first_chars);
  }

  test('the next request on an open connection gets its response, which says that the connection closes', async (t) => {
    // The stop ends earlier than this limit: the service is closed when no connection is left.
    const text = await answerToTheNext(t, 60_000);
    assert.match(text, /^HTTP\/1\.1 201 /);
    assert.match(text, /connection: close/i);
  });

  test('control: without a drain it is cut off without an answer', async (t) => {
    assert.equal(await answerToTheNext(t, 0), '');
  });
});
