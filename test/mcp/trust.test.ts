/** Who may use MCP, from which pages, how many requests at a time, and when the right to use it ends. */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { ApiKeyWithToken, Session } from '@convoke/sdk';
import { rpc, RPC_HEADERS } from '../support/mcp.ts';
import { pullsWaiting } from '../support/pulling.ts';
import { assertProblem, startService, useService } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

const INITIALIZE = rpc('initialize', {
  protocolVersion: '2025-06-18',
  capabilities: {},
  clientInfo: { name: 'a test', version: '1' },
});
const tool = (name: string, args: object = {}) => rpc('tools/call', { name, arguments: args });

describe('/mcp', () => {
  const service = useService();
  let key: ApiKeyWithToken;
  before(async () => {
    await service.endOpenMode();
    key = await service.createKey({ scopes: ['instance', 'send', 'read'] });
  });
  const ask = (body: object | string, headers: Record<string, string> = {}) =>
    service.post('/mcp', body, { ...RPC_HEADERS, authorization: `Bearer ${key.token}`, ...headers });

  test('needs a key before it reads a body', async () => {
    const answer = await service.request('POST', '/mcp', {
      body: '{',
      headers: { ...RPC_HEADERS, cookie: '', 'content-type': 'application/json' },
    });
    assertProblem(answer, 401, 'api_key_missing');
    assert.match(String(answer.headers['www-authenticate']), /^Bearer /);
    assert.equal((await ask(INITIALIZE)).status, 200, 'control');
  });

  test('takes no session of a page, which a browser would send by itself', async () => {
    const begun = await service.request<Session>('POST', '/api/v1/session/', {
      headers: { cookie: '', authorization: `Bearer ${key.token}` },
    });
    const headers = {
      cookie: String(begun.headers['set-cookie']?.[0]).split(';')[0] as string,
      origin: service.url,
      'convoke-csrf': begun.body.csrf_token ?? '',
    };
    assert.equal((await service.request('GET', '/api/v1/meetings/', { headers })).status, 200, 'control');
    const answer = await service.request('POST', '/mcp', { body: INITIALIZE, headers: { ...RPC_HEADERS, ...headers } });
    assertProblem(answer, 401, 'api_key_missing');
  });

  for (const version of ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']) {
    test(`speaks ${version}`, async () => {
      const answer = await ask({ ...INITIALIZE, params: { ...INITIALIZE.params, protocolVersion: version } });
      assert.equal(answer.status, 200, answer.text);
      assert.match(answer.text, new RegExp(`"protocolVersion":"${version}"`));
    });
  }

  test('refuses a page of another origin, also with a key, and a page of the service itself is welcome', async () => {
    for (const origin of ['https://evil.example', 'null', 'http://127.0.0.1:1'])
      assertProblem(await ask(INITIALIZE, { origin }), 403, 'origin_not_allowed');
    assert.equal((await ask(INITIALIZE, { origin: service.url })).status, 200);
  });

  test('takes one message at a time, as JSON, of the size of a message', async () => {
    assertProblem(await ask('{'), 400, 'malformed_json');
    assertProblem(await ask([INITIALIZE, INITIALIZE]), 422, 'invalid_fields');
    assertProblem(await ask(INITIALIZE, { 'content-type': 'text/plain' }), 415, 'unsupported_media_type');
    assertProblem(await ask(tool('send_message', { content: 'x'.repeat(3_000_000) })), 413, 'body_too_large');
    for (const method of ['GET', 'DELETE', 'PUT'])
      assertProblem(await service.request(method, '/mcp', { headers: RPC_HEADERS }), 405, 'method_not_allowed');
  });

  for (const sized of [true, false]) {
    test(`takes a large body ${sized ? '' : 'without content-length '}only to send a message: a call that waits keeps no other body out`, async () => {
      const send = async (message: ReturnType<typeof rpc>): Promise<string> => {
        const params = { ...message.params, _meta: { padding: 'x'.repeat(50_000) } };
        const text = JSON.stringify({ ...message, params });
        const response = await fetch(`${service.url}/mcp`, {
          method: 'POST',
          headers: { ...RPC_HEADERS, 'content-type': 'application/json', authorization: `Bearer ${key.token}` },
          body: sized ? text : new Blob([text]).stream(),
          duplex: 'half',
        });
        const said = await response.text();
        return `${response.status} ${response.ok ? said : (JSON.parse(said) as { code: string }).code}`;
      };
      const waits = tool('wait_for_message', { agent_id: 'a', wait_s: 0 });
      for (const message of [waits, INITIALIZE]) assert.equal(await send(message), '413 body_too_large');
      assert.match(await send(tool('send_message', { meeting_id: 'm', content: 'x' })), /^200 /);
    });
  }

  test('keeps no stream open: there is nothing that a client could listen to', async () => {
    const meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'a test', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const answer = await inTime(
      'the end of the answer',
      ask(rpc('subscriptions/listen', { notifications: { toolsListChanged: true }, _meta: meta }), {
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'subscriptions/listen',
      }),
    );
    assert.equal(answer.status, 200, answer.text);
  });

  test('256 requests of one key may wait at a time; those of other keys continue', async () => {
    const agents = Array.from({ length: 16 }, () => service.name('agent'));
    for (const agent_id of agents) await ask(tool('join_meeting', { meeting_id: 'm', agent_id }));
    // Each wait is a request on its own connection.
    const wait = async (agent_id: string): Promise<string> => {
      const response = await fetch(`${service.url}/mcp`, {
        method: 'POST',
        headers: { ...RPC_HEADERS, authorization: `Bearer ${key.token}`, 'content-type': 'application/json' },
        body: JSON.stringify(tool('wait_for_message', { agent_id, wait_s: 50 })),
      });
      const { code } = (await response.json()) as { code?: string };
      return `${response.status} ${code}`;
    };
    const waits = agents.flatMap((agent_id) => Array.from({ length: 16 }, () => wait(agent_id)));
    await until(
      'all of them to wait',
      () => pullsWaiting(service),
      (count) => count === 256,
    );
    const answer = await ask(INITIALIZE);
    assertProblem(answer, 503, 'overloaded');
    assert.equal(answer.headers['retry-after'], '1');
    assert.equal((await ask(INITIALIZE, { authorization: `Bearer ${service.token}` })).status, 200);

    assert.equal((await service.request('DELETE', `/api/v1/keys/${key.key_id}/`)).status, 204);
    const ends = await inTime('the end of all waits', Promise.all(waits));
    assert.deepEqual([...new Set(ends)], ['401 api_key_revoked']);
    assertProblem(await ask(INITIALIZE), 401, 'api_key_revoked');
  });
});

test('while there is no key, /mcp answers to this machine alone: neither to another name nor to another page', async (t) => {
  const service = await startService(t);
  assert.equal((await service.post('/mcp', INITIALIZE, RPC_HEADERS)).status, 200);
  assertProblem(
    await service.post('/mcp', INITIALIZE, { ...RPC_HEADERS, host: 'evil.example' }),
    403,
    'host_not_allowed',
  );
  assertProblem(
    await service.post('/mcp', INITIALIZE, { ...RPC_HEADERS, origin: 'http://evil.example' }),
    403,
    'origin_not_allowed',
  );
});
