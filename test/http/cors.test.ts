/** Pages of other origins: which of them may call the API from a browser; a cookie gives them no rights. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Session } from '@convoke/sdk';
import { ConfigError, readConfig } from '../../src/config/read_config.ts';
import { openStream } from '../support/event_stream.ts';
import { type Answer, assertProblem, type Service, startService, useService } from '../support/service.ts';

const APP = 'https://app.example.com';
const LIST = '/api/v1/instances/';

const preflight = (service: Service, path: string, origin: string, headers: Record<string, string> = {}) => {
  const asks = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization' };
  return service.request('OPTIONS', path, { headers: { origin, ...asks, ...headers } });
};

function headersOfCors({ headers }: Answer<unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')));
}

describe('without a list of origins', () => {
  const service = useService();

  test('no response has a header of CORS, and a preflight is a method that no route has', async () => {
    await service.endOpenMode();
    assertProblem(await preflight(service, LIST, APP), 405, 'method_not_allowed');
    for (const headers of [{ origin: APP }, { origin: service.url }, {}]) {
      const answer = await service.request('GET', LIST, { headers });
      assert.equal(answer.status, 200, answer.text);
      assert.deepEqual(headersOfCors(answer), {});
      assert.equal(answer.headers.vary, undefined);
    }
  });
});

describe('an origin that is listed', () => {
  const service = useService({ cors_origins: `${APP}, http://localhost:5173`, auth_failure_rate: '1/s:1' });

  test('gets its permission before anything else happens: no key, no route and no rate is looked at', async () => {
    await service.endOpenMode();
    service.token = 'cvk_wrong';
    for (let i = 0; i < 5; i++) {
      const answer = await preflight(service, `/api/v1/meetings/${i}/messages/`, APP);
      assert.equal(answer.status, 204, answer.text);
      assert.equal(answer.text, '');
      assert.deepEqual(headersOfCors(answer), {
        'access-control-allow-origin': APP,
        'access-control-allow-methods': 'GET, POST, PATCH, DELETE',
        'access-control-allow-headers':
          'authorization, content-type, convoke-reply-token, idempotency-key, last-event-id, traceparent, tracestate',
        'access-control-expose-headers': 'date, idempotency-replayed, retry-after, www-authenticate',
        'access-control-max-age': '7200',
      });
    }
    // Only the first request that counts gets this refusal for its wrong key, so the earlier requests did not count.
    const refused = await service.request('GET', LIST, { headers: { origin: APP } });
    assertProblem(refused, 401, 'api_key_malformed');
    assert.equal(refused.headers['access-control-allow-origin'], APP, 'the page can read why');
  });

  test('is named by every response of the API, the live feed too, and nobody else is', async (t) => {
    const admin = await startService(t, { cors_origins: APP });
    await admin.endOpenMode();
    const answer = await admin.request('GET', LIST, { headers: { origin: APP } });
    assert.equal(answer.headers['access-control-allow-origin'], APP);
    assert.equal(answer.headers.vary, 'origin');
    assert.equal(answer.headers['access-control-allow-credentials'], undefined);
    const headers = { origin: APP, authorization: `Bearer ${admin.token}` };
    const stream = await openStream(`${admin.url}/api/v1/events/`, headers);
    t.after(() => stream.close());
    assert.equal(stream.headers['access-control-allow-origin'], APP);
    for (const origin of [
      'http://app.example.com',
      'https://app.example.com:8443',
      'https://app.example.com.evil.example',
      'https://evil.app.example.com',
      'https://APP.example.com',
      'null',
    ]) {
      const foreign = await admin.request('GET', LIST, { headers: { origin } });
      assert.deepEqual(headersOfCors(foreign), {}, origin);
      assert.equal((await preflight(admin, LIST, origin)).status, 405, origin);
    }
    for (const path of ['/healthz', '/metrics', '/openapi.json']) {
      assert.deepEqual(headersOfCors(await admin.request('GET', path, { headers: { origin: APP } })), {}, path);
    }
  });

  test('cannot use a session, with the cookie and its second value either', async (t) => {
    const other = await startService(t, { cors_origins: APP });
    const { token } = await other.endOpenMode();
    const begun = await other.request<Session>('POST', '/api/v1/session/', {
      headers: { authorization: `Bearer ${token}` },
    });
    const cookie = String(begun.headers['set-cookie']?.[0]).split(';')[0] as string;
    const session = { cookie, 'convoke-csrf': begun.body.csrf_token ?? '' };
    const own = await other.request('GET', LIST, { headers: { ...session, 'sec-fetch-site': 'same-origin' } });
    assert.equal(own.status, 200, own.text);
    for (const site of [{ 'sec-fetch-site': 'same-site' }, { 'sec-fetch-site': 'cross-site' }, {}]) {
      const headers = { ...session, ...site, origin: APP };
      assertProblem(await other.request('GET', LIST, { headers }), 403, 'origin_not_allowed');
    }
    const asks = { 'access-control-request-headers': 'convoke-csrf' };
    const asked = await preflight(other, LIST, APP, asks);
    assert.doesNotMatch(String(asked.headers['access-control-allow-headers']), /csrf|cookie/);
  });

  test('is refused while there is no key, unless it is on this machine', async (t) => {
    const open = await startService(t, { cors_origins: `${APP},http://localhost:5173` });
    const refused = await open.request('GET', LIST, { headers: { origin: APP } });
    assertProblem(refused, 403, 'origin_not_allowed');
    const own = await open.request('GET', LIST, { headers: { origin: 'http://localhost:5173' } });
    assert.equal(own.status, 200, own.text);
    assert.equal(own.headers['access-control-allow-origin'], 'http://localhost:5173');
  });

  test('cannot hide a body behind a preflight', async () => {
    const answer = await service.request('OPTIONS', LIST, {
      headers: { origin: APP, 'access-control-request-method': 'POST' },
      body: '{}',
    });
    assertProblem(answer, 400, 'malformed_request');
  });
});

test('a list has origins as a browser writes them, and no wildcard', () => {
  const read = (cors_origins: string) => readConfig({ flags: { cors_origins } }).config.cors_origins;
  assert.deepEqual(read(''), []);
  assert.deepEqual(read('https://a.example, http://localhost:5173'), ['https://a.example', 'http://localhost:5173']);
  for (const wrong of [
    '*',
    'null',
    'https://*.example.com',
    'app.example.com',
    'https://a.example/',
    'https://a.example/path',
    'https://A.example',
    'https://a.example:443',
    'https://user@a.example',
    'ftp://a.example',
    'https://a.example,',
  ]) {
    assert.throws(() => read(wrong), ConfigError, wrong);
  }
});
