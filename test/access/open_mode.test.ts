/**
 * While the API is open, a page of another site can read nothing and change nothing. Also tests the headers for
 * browsers.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import type { AuditEntry, Page } from '@convoke/sdk';
import { RawClient, describeAnswers } from '../support/raw_client.ts';
import { assertProblem, instancePath, startService, useService } from '../support/service.ts';

/** A webhook address to which no test sends a push. */
const DOES_NOT_LISTEN = 'http://127.0.0.1:9/';

describe('an open API', () => {
  const service = useService();
  const LIST = '/api/v1/instances/';
  const from = (site: string, mode: string, dest: string, more: Record<string, string> = {}) => ({
    'sec-fetch-site': site,
    'sec-fetch-mode': mode,
    'sec-fetch-dest': dest,
    ...more,
  });

  for (const [what, path, headers, status] of [
    ['a script of another site', LIST, from('cross-site', 'no-cors', 'script'), 403],
    ['an image of another site', '/healthz', from('cross-site', 'no-cors', 'image'), 403],
    ['a frame of another site', '/api/v1/events/', from('cross-site', 'navigate', 'iframe'), 403],
    ['a page of another port', LIST, from('same-site', 'no-cors', 'script'), 403],
    ['a link of another site into the API', LIST, from('cross-site', 'navigate', 'document'), 403],
    ['a link of another site to a page', '/', from('cross-site', 'navigate', 'document', { accept: 'text/html' }), 200],
    ['a page of its own', LIST, from('same-origin', 'cors', 'empty'), 200],
    ['somebody who typed the address', LIST, from('none', 'navigate', 'document'), 200],
    [
      'a page of this machine that says so',
      LIST,
      from('same-site', 'cors', 'empty', { origin: 'http://localhost:3000' }),
      200,
    ],
    [
      'a page elsewhere that says so',
      LIST,
      from('cross-site', 'cors', 'empty', { origin: 'http://evil.example' }),
      403,
    ],
    ['a program', LIST, {}, 200],
    ['a name below localhost', LIST, { host: 'h1.localhost' }, 403],
    ['localhost itself', LIST, { host: 'localhost:8080' }, 200],
    ['a page below localhost', LIST, { origin: 'http://h1.localhost' }, 403],
  ] as [string, string, Record<string, string>, number][]) {
    test(`answers ${what} with ${status}`, async () => {
      const answer = await service.request('GET', path, { headers });
      // Without built pages `/` responds with 503.
      const answered = answer.status === 503 && path === '/' ? 200 : answer.status;
      assert.equal(answered, status, answer.text);
    });
  }

  test('shows a page of another site nothing that exists', async () => {
    const headers = from('cross-site', 'no-cors', 'script');
    await service.register({ instance_id: 'known', webhook_url: DOES_NOT_LISTEN });
    const [known, unknown] = await Promise.all(
      ['known', 'unknown'].map((id) => service.request('GET', instancePath(id), { headers })),
    );
    assert.deepEqual([known?.status, known?.text], [unknown?.status, unknown?.text]);
  });
});

test('an API with keys takes a page of another site like every client: without a key it gets nothing', async (t) => {
  const service = await startService(t);
  await service.endOpenMode();
  const headers = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'cors', 'sec-fetch-dest': 'empty' };
  assert.equal((await service.request('GET', '/api/v1/instances/', { headers })).status, 200);
  service.token = null;
  assert.equal((await service.request('GET', '/api/v1/instances/', { headers })).status, 401);
});

describe('answers', () => {
  const service = useService();

  test('are of the type that they say, and those of the API are kept nowhere: tokens are in some', async () => {
    for (const [method, path] of [
      ['GET', '/healthz'],
      ['GET', '/openapi.json'],
      ['GET', '/docs/'],
      ['GET', '/nowhere'],
      ['GET', '/api/v1/keys/'],
      ['POST', '/api/v1/keys/'],
      ['GET', '/api/v1/instances/unknown/'],
    ] as const) {
      const { headers } = await service.request(method, path);
      assert.equal(headers['x-content-type-options'], 'nosniff', path);
      if (path.startsWith('/api/')) assert.equal(headers['cache-control'], 'no-store', path);
    }
    const client = new RawClient(service.url);
    client.write('garbage\r\n\r\n');
    await client.end();
    assert.equal(client.answers[0]?.headers['x-content-type-options'], 'nosniff', describeAnswers(client.answers));
  });

  test('to a key or a copy whose id holds control characters name the field', async () => {
    for (const path of ['/api/v1/keys/%00/', '/api/v1/backups/%00/', '/api/v1/keys/%C2%80/']) {
      const { errors } = assertProblem(await service.get(path), 422, 'invalid_fields');
      assert.equal(errors?.length, 1);
    }
  });

  test('refuse the ids . and .., which no client can put into a path', async () => {
    const registration = { instance_name: 'n', agent_ids: [], webhook_url: DOES_NOT_LISTEN };
    await service.post('/api/v1/instances/register/', { ...registration, instance_id: 'i' });
    for (const id of ['.', '..']) {
      assertProblem(
        await service.post('/api/v1/instances/register/', { ...registration, instance_id: id }),
        422,
        'invalid_fields',
      );
      assertProblem(
        await service.post('/api/v1/instances/join-meeting/', { instance_id: 'i', meeting_id: id, agent_ids: [] }),
        422,
        'invalid_fields',
      );
      assertProblem(
        await service.post(`/api/v1/meetings/${id.replaceAll('.', '%2e')}/messages/`, { message: {} }),
        422,
        'invalid_fields',
      );
    }
    const accepted = await service.post('/api/v1/instances/register/', { ...registration, instance_id: '...' });
    assert.equal(accepted.status, 201);
  });
});

test('the audit log grows no faster than CONVOKE_CHANGE_RATE allows, whatever a key does that is no admin key', async (t) => {
  const service = await startService(t, { change_rate: '1/h:5' });
  await service.endOpenMode();
  const admin = service.token;
  const { token, key_id } = await service.createKey({ scopes: ['instance'] });
  service.token = token;
  await service.register({ instance_id: 'i', webhook_url: DOES_NOT_LISTEN });
  await service.join('m', 'i', ['a']);
  await service.leave('m', 'i');
  await service.patch('i', { instance_name: 'another' });
  await service.join('m', 'i', ['a']);
  for (const [method, path, body] of [
    ['PATCH', instancePath('i'), { instance_name: 'n' }],
    ['POST', '/api/v1/session/', undefined],
    ['POST', '/api/v1/instances/leave-meeting/', { instance_id: 'i', meeting_id: 'm' }],
    ['DELETE', instancePath('i'), undefined],
  ] as const) {
    assertProblem(await service.request(method, path, body === undefined ? {} : { body }), 429, 'rate_limited');
  }
  // The limit does not apply to a route that writes no audit entry, and does not apply to an admin.
  await service.heartbeat('i');
  service.token = admin;
  for (let i = 0; i < 8; i++) await service.patch('i', { instance_name: `n${i}` });
  const { body } = await service.get<Page<AuditEntry>>(`/api/v1/audit/?key_id=${key_id}&limit=100`);
  assert.equal(body.data.filter(({ outcome }) => outcome === 'done').length, 5);
});
