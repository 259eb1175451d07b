/** Sessions of pages: what the cookie is, what a request needs besides it, and when a session ends. */
import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { before, describe, test, type TestContext } from 'node:test';
import { type AuditEntry, ConvokeClient, type Page, type ProblemDetails, type Session } from '@convoke/sdk';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Problem } from '../../src/domain/problem.ts';
import { makeSessionToken, tagOf } from '../../src/domain/session_token.ts';
import { type SessionParts, Sessions } from '../../src/http/auth/sessions.ts';
import { DerivedSecrets } from '../../src/store/secrets/derived_secrets.ts';
import type { Standing } from '../../src/http/auth/standing.ts';
import { openStream } from '../support/event_stream.ts';
import { type Answer, assertProblem, type Service, startService, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const PATH = '/api/v1/session/';

interface Browser {
  cookie: string;
  csrf_token: string;
  /** The headers that a page of the service sends with a read. */
  reads: Record<string, string>;
  /** The headers that a page of the service sends with a change. */
  headers: Record<string, string>;
}

function cookieOf(answer: Answer<unknown>): string {
  return String(answer.headers['set-cookie']?.[0]);
}

async function signIn(service: Service, token: string): Promise<Browser> {
  const answer = await service.request<Session>('POST', PATH, { headers: { authorization: `Bearer ${token}` } });
  assert.equal(answer.status, 201, answer.text);
  return browserOf(service, answer);
}

function browserOf(service: Service, answer: Answer<Session>): Browser {
  const cookie = cookieOf(answer).split(';')[0] as string;
  const csrf_token = answer.body.csrf_token ?? '';
  const reads = { cookie, 'convoke-csrf': csrf_token };
  return { cookie, csrf_token, reads, headers: { ...reads, origin: service.url } };
}

const heartbeat = (service: Service, headers: Record<string, string>) =>
  service.request('POST', '/api/v1/instances/nobody/heartbeat/', { headers });

describe('a session', () => {
  const service = useService();
  before(() => service.endOpenMode());

  test('is a cookie that no script reads, no other site is sent, and no store holds', async () => {
    const { token, key_id } = await service.createKey({ scopes: ['read', 'instance'], name: 'Anna' });
    const answer = await service.request<Session>('POST', PATH, { headers: { authorization: `Bearer ${token}` } });
    assert.match(
      cookieOf(answer),
      /^convoke_session_[\da-f]{16}=[A-Za-z0-9_-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/,
    );
    const { state, key_name, scopes, expires_at } = answer.body;
    assert.deepEqual(
      [state, answer.body.key_id, key_name, scopes],
      ['signed_in', key_id, 'Anna', ['read', 'instance']],
    );
    assert.ok(Math.abs(Date.parse(expires_at!) - Date.now() - 43_200_000) < 60_000);
    const { cookie, reads } = browserOf(service, answer);
    const secret = cookie.split('=')[1] as string;
    assert.ok(!answer.text.includes(secret));
    const who = await service.request<Session>('GET', PATH, { headers: reads });
    assert.deepEqual(who.body, answer.body);
    assert.equal(who.headers['cache-control'], 'no-store');
    assert.equal((await service.request('GET', '/api/v1/instances/', { headers: reads })).status, 200);
    assertProblem(await service.request('GET', '/api/v1/keys/', { headers: reads }), 403, 'not_permitted');
  });

  test('is nothing by the cookie alone, which over http every port of the host is sent', async () => {
    const { token } = await service.createKey({ scopes: ['admin'] });
    const { cookie, csrf_token, reads } = await signIn(service, token);
    const secret = cookie.split('=')[1] as string;
    const computed = ['', secret, hash('sha256', `csrf ${secret}`, 'base64url'), hash('sha256', secret)];
    for (const path of ['/api/v1/keys/', '/api/v1/events/', '/metrics', '/api/v1/meetings/m/messages/']) {
      assertProblem(await service.request('GET', path, { headers: { cookie } }), 403, 'csrf_token_wrong');
      for (const value of computed) {
        const headers = { cookie, 'convoke-csrf': value };
        assertProblem(await service.request('GET', path, { headers }), 403, 'csrf_token_wrong');
      }
    }
    const who = await service.request<Session>('GET', PATH, { headers: { cookie } });
    assert.deepEqual([who.status, who.body.state, who.body.scopes], [200, 'signed_out', []]);
    assert.ok(!who.text.includes(csrf_token));
    // A request without the CSRF token of the page does not sign the page out.
    assert.equal(who.headers['set-cookie'], undefined);
    assert.equal((await service.request('GET', '/api/v1/keys/', { headers: reads })).status, 200);
  });

  test('makes no change without the token that only a page of this service can read', async () => {
    const { token } = await service.createKey({ scopes: ['instance'] });
    const { headers } = await signIn(service, token);
    assertProblem(await heartbeat(service, headers), 404, 'instance_does_not_exist');
    const { 'convoke-csrf': _, ...without } = headers;
    assertProblem(await heartbeat(service, without), 403, 'csrf_token_wrong');
    const other = await signIn(service, token);
    assertProblem(await heartbeat(service, { ...headers, 'convoke-csrf': other.csrf_token }), 403, 'csrf_token_wrong');
    assertProblem(await heartbeat(service, { ...headers, 'convoke-csrf': '' }), 403, 'csrf_token_wrong');
  });

  test('makes no change, and shows nothing, for a page of another origin', async () => {
    const { token } = await service.createKey({ scopes: ['admin'] });
    const { headers, reads } = await signIn(service, token);
    const { origin: _, ...rest } = headers;
    const refused: Record<string, string>[] = [
      { ...rest },
      { ...rest, origin: 'null' },
      { ...rest, origin: 'https://evil.example' },
      { ...rest, origin: `${service.url}0` },
      { ...headers, 'sec-fetch-site': 'cross-site' },
      { ...headers, 'sec-fetch-site': 'same-site' },
      { ...headers, 'sec-fetch-site': 'none' },
    ];
    for (const each of refused) {
      assertProblem(await heartbeat(service, each), 403, 'origin_not_allowed');
    }
    for (const each of [headers, { ...rest, 'sec-fetch-site': 'same-origin' }]) {
      assertProblem(await heartbeat(service, each), 404, 'instance_does_not_exist');
    }
    const read = (site: string) =>
      service.request('GET', '/api/v1/instances/', { headers: { ...reads, 'sec-fetch-site': site } });
    for (const site of ['cross-site', 'same-site']) assertProblem(await read(site), 403, 'origin_not_allowed');
    for (const site of ['same-origin', 'none']) assert.equal((await read(site)).status, 200);
  });

  test('ends when its owner signs out: for requests, and for feeds', async (t) => {
    const { token, key_id } = await service.createKey({ scopes: ['read'] });
    const { headers, cookie, reads } = await signIn(service, token);
    const stream = await openStream(`${service.url}/api/v1/events/`, reads);
    t.after(() => stream.close());
    const out = await service.request('DELETE', PATH, { headers });
    assert.equal(out.status, 204);
    assert.match(cookieOf(out), /^convoke_session_[\da-f]{16}=; Path=\/; Max-Age=0; HttpOnly; SameSite=Strict$/);
    assert.deepEqual((await stream.some(1))[0]!.data, { code: 'session_ended' });
    await until(
      'the end of the feed',
      () => stream.ended,
      (ended) => ended,
    );
    assertProblem(await service.request('GET', '/api/v1/instances/', { headers: reads }), 401, 'session_ended');
    const who = await service.request<Session>('GET', PATH, { headers: reads });
    assert.deepEqual([who.status, who.body.state, who.body.scopes], [200, 'signed_out', []]);
    assert.match(cookieOf(who), /Max-Age=0/);
    const { data } = (await service.get<Page<AuditEntry>>(`/api/v1/audit/?key_id=${key_id}`)).body;
    assert.deepEqual(
      data.map(({ action, outcome }) => [action, outcome]),
      [
        ['session.end', 'done'],
        ['session.begin', 'done'],
      ],
    );
    assert.ok(!JSON.stringify(data).includes(cookie.split('=')[1] as string));
  });

  test('dies with its key, and so does what it listens to; no session outlives its key', async (t) => {
    const expires_at = new Date(Date.now() + 3_600_000).toISOString();
    const { token, key_id } = await service.createKey({ scopes: ['admin'], expires_at });
    const { reads } = await signIn(service, token);
    const who = await service.request<Session>('GET', PATH, { headers: reads });
    assert.equal(who.body.expires_at, expires_at);
    const stream = await openStream(`${service.url}/api/v1/events/`, reads);
    t.after(() => stream.close());
    await service.request('DELETE', `/api/v1/keys/${key_id}/`);
    assertProblem(await service.request('GET', '/api/v1/instances/', { headers: reads }), 401, 'session_ended');
    assert.deepEqual((await stream.some(1, ({ name }) => name === 'end'))[0]!.data, { code: 'api_key_revoked' });
  });

  test('is not begun with a wrong key, and not made to last longer by itself', async () => {
    assertProblem(
      await service.request('POST', PATH, { headers: { authorization: 'Bearer cvk_no' } }),
      401,
      'api_key_malformed',
    );
    assertProblem(await service.request('POST', PATH, { headers: { cookie: '' } }), 401, 'api_key_missing');
    const { token } = await service.createKey({ scopes: ['read'] });
    const { headers, cookie, csrf_token } = await signIn(service, token);
    const again = await service.request<Session>('POST', PATH, { headers });
    assert.deepEqual([again.status, again.headers['set-cookie']], [200, undefined]);
    const forged = { cookie: `${cookie.split('=')[0]}=${'x'.repeat(43)}`, 'convoke-csrf': csrf_token };
    assertProblem(await service.request('GET', '/api/v1/instances/', { headers: forged }), 401, 'session_ended');
    // When a request has a key and a cookie, only the key counts. So a wrong key is an error.
    const both = { cookie, authorization: 'Bearer cvk_no' };
    assertProblem(await service.request('GET', '/api/v1/instances/', { headers: both }), 401, 'api_key_malformed');
  });

  test('is begun once by a link that the service printed, as an admin', async () => {
    const link = new URL(service.signInLink());
    assert.equal(link.origin, service.url);
    const [, token] = /^#sign-in=([A-Za-z0-9_-]{43})$/.exec(link.hash) ?? [];
    const use = () => service.request<Session>('POST', `${PATH}link/`, { body: { token }, headers: { cookie: '' } });
    const answer = await use();
    assert.equal(answer.status, 201, answer.text);
    assert.deepEqual([answer.body.state, answer.body.key_id, answer.body.scopes], ['signed_in', null, ['admin']]);
    assertProblem(await use(), 401, 'sign_in_link_not_valid');
    const { reads, headers } = browserOf(service, answer);
    assert.equal((await service.request('GET', '/api/v1/keys/', { headers: reads })).status, 200);
    // No key is behind this session. Even so, the service does not take the new key for the first key, which would have
    // to be an admin key.
    const made = await service.request('POST', '/api/v1/keys/', { headers, body: { scopes: ['read'] } });
    assert.equal(made.status, 201, made.text);
    const { data } = (await service.get<Page<AuditEntry>>('/api/v1/audit/?key_id=sign-in%20link')).body;
    const entries = data.map(({ action, outcome }) => [action, outcome]);
    assert.deepEqual(entries, [
      ['key.create', 'done'],
      ['session.begin', 'done'],
    ]);
  });

  test('is still there after a restart', async (t) => {
    const other = await startService(t);
    const { token } = await other.endOpenMode();
    const { reads } = await signIn(other, token);
    await other.restart({});
    assert.equal((await other.request('GET', '/api/v1/instances/', { headers: reads })).status, 200);
  });
});

test('two services on one host, as a browser sees its ports, leave the sessions of each other alone', async (t) => {
  // A browser keeps one cookie of each name for all ports of a host.
  const jar = new Map<string, string>();
  const pageOf = async (service: Service) => {
    const { token } = await service.endOpenMode();
    const ask = async (method: string, path: string, own: Record<string, string>): Promise<Answer<Session>> => {
      const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
      const answer = await service.request<Session>(method, path, { headers: { cookie, origin: service.url, ...own } });
      for (const set of answer.headers['set-cookie'] ?? []) {
        const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(set) ?? [];
        if (value === '') jar.delete(name);
        else jar.set(name, value);
      }
      return answer;
    };
    const begun = await ask('POST', PATH, { authorization: `Bearer ${token}` });
    assert.equal(begun.status, 201, begun.text);
    const own = { 'convoke-csrf': begun.body.csrf_token ?? '' };
    return { state: async () => (await ask('GET', PATH, own)).body.state, out: () => ask('DELETE', PATH, own) };
  };
  const first = await pageOf(await startService(t));
  const second = await pageOf(await startService(t));
  assert.deepEqual([await first.state(), await second.state()], ['signed_in', 'signed_in']);
  assert.equal((await first.out()).status, 204);
  assert.deepEqual([await first.state(), await second.state()], ['signed_out', 'signed_in']);
});

test('behind a trusted proxy that speaks https, only this host over https can have set the cookie', async (t) => {
  const service = await startService(t, { trust_proxy: '127.0.0.0/8' });
  const { token } = await service.endOpenMode();
  const headers = { authorization: `Bearer ${token}`, 'x-forwarded-proto': 'https' };
  const answer = await service.request<Session>('POST', PATH, { headers });
  assert.match(
    cookieOf(answer),
    /^__Host-convoke_session_[\da-f]{16}=[\w-]{43}; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Strict; Secure$/,
  );
  const secure = cookieOf(answer).split(';')[0] as string;
  const plain = secure.replace('__Host-', '');
  const read = (cookie: string, proto: string) =>
    service.request('GET', '/api/v1/instances/', {
      headers: { cookie, 'convoke-csrf': answer.body.csrf_token ?? '', 'x-forwarded-proto': proto },
    });
  assert.equal((await read(secure, 'https')).status, 200);
  assertProblem(await read(plain, 'https'), 401, 'api_key_missing');
  assertProblem(await read(secure, 'http'), 401, 'api_key_missing');
});

test('control: a peer that is no trusted proxy does not decide how a request arrived', async (t) => {
  const service = await startService(t);
  const { token } = await service.endOpenMode();
  const headers = { authorization: `Bearer ${token}`, 'x-forwarded-proto': 'https' };
  assert.match(cookieOf(await service.request('POST', PATH, { headers })), /^convoke_session_/);
});

test('while the API is open, the pages ask nobody to sign in, and make no session', async (t) => {
  const service = await startService(t);
  for (const method of ['GET', 'POST']) {
    const { status, body, headers } = await service.request<Session>(method, PATH);
    assert.deepEqual([status, body.state, body.scopes, body.csrf_token], [200, 'open', ['admin'], null]);
    assert.equal(headers['set-cookie'], undefined);
  }
  await service.endOpenMode();
  service.token = null;
  assert.equal((await service.get<Session>(PATH)).body.state, 'signed_out');
});

test('too many links that are none are refused, as wrong keys are', async (t) => {
  const service = await startService(t, { auth_failure_rate: '1/h:3' });
  await service.endOpenMode();
  const use = (token: string) => service.request('POST', `${PATH}link/`, { body: { token }, headers: { cookie: '' } });
  for (let i = 0; i < 3; i++) assertProblem(await use('x'.repeat(43)), 401, 'sign_in_link_not_valid');
  assertProblem(await use('x'.repeat(43)), 429, 'rate_limited');
});

test('the SDK signs in, sends what protects the session, and signs out', async (t) => {
  const service = await startService(t);
  const { token } = await service.endOpenMode();
  // Stores and sends cookies as a browser does.
  let cookie = '';
  const browser: typeof fetch = async (input, init) => {
    const headers = new Headers(init?.headers);
    headers.set('cookie', cookie);
    headers.set('origin', service.url);
    const answer = await fetch(input, { ...init, headers });
    cookie = answer.headers.getSetCookie()[0]?.split(';')[0] ?? cookie;
    return answer;
  };
  const client = new ConvokeClient({ base_url: service.url, fetch: browser });
  assert.equal((await client.session()).state, 'signed_out');
  const begun = await client.signIn(token);
  assert.equal(begun.state, 'signed_in');
  await client.sendMessage('m', { text: 'a' });
  const outsider = new ConvokeClient({ base_url: service.url, fetch: browser });
  assert.equal((await outsider.session()).state, 'signed_out');
  const { csrf_token } = begun;
  assert.ok(csrf_token !== null);
  const reloaded = new ConvokeClient({ base_url: service.url, fetch: browser, csrf_token });
  assert.equal((await reloaded.session()).state, 'signed_in');
  const [listed] = (await reloaded.listSessions()).data;
  assert.deepEqual([listed?.key_id, listed?.is_current], [begun.key_id, true]);
  await reloaded.signOut();
  assert.equal((await client.session()).state, 'signed_out');
  const by_link = await client.signInByLink(new URL(service.signInLink()).hash.slice('#sign-in='.length));
  assert.deepEqual(by_link.scopes, ['admin']);
});

/** The same requests, of which the service sees a changed copy. Each change removes one protection. */
describe('control: a service that', () => {
  type Identify = (this: Sessions, request: FastifyRequest, reply: FastifyReply) => Promise<Standing | null>;

  /** The responses to a change that a page of another site requests, and to a change without the CSRF token. */
  async function codesOf(t: TestContext, change: (browser: Browser) => Record<string, string>): Promise<string[]> {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    const browser = await signIn(service, token);
    const identify: Identify = Reflect.get(Sessions.prototype, 'identify');
    t.mock.method(
      Sessions.prototype,
      'identify',
      async function (this: Sessions, ...[request, reply]: Parameters<Identify>) {
        const headers = { ...request.headers, ...change(browser) };
        return identify.call(this, Object.create(request, { headers: { value: headers } }), reply);
      },
    );
    service.token = null;
    const { cookie, csrf_token } = browser;
    const elsewhere = { cookie, origin: 'https://evil.example', 'convoke-csrf': csrf_token };
    const tokenless = { cookie, origin: service.url };
    const answers = [await heartbeat(service, elsewhere), await heartbeat(service, tokenless)];
    return answers.map(({ body }) => (body as ProblemDetails).code);
  }

  test('does not look at the origin lets a page of another site make changes', async (t) => {
    const codes = await codesOf(t, () => ({ 'sec-fetch-site': 'same-origin' }));
    assert.deepEqual(codes, ['instance_does_not_exist', 'csrf_token_wrong']);
  });

  test('does not look at the token makes changes without it', async (t) => {
    const codes = await codesOf(t, ({ csrf_token }) => ({ 'convoke-csrf': csrf_token }));
    assert.deepEqual(codes, ['origin_not_allowed', 'instance_does_not_exist']);
  });
});

test('a made-up cookie costs no look into the store; only one that a node signed is looked for', async () => {
  const secrets = new DerivedSecrets({ derivedKeys: async () => [randomBytes(32).toString('base64')] }, 'sessions');
  await secrets.refresh();
  const looked_for: string[] = [];
  const find = async (digest: string): Promise<null> => {
    looked_for.push(digest);
    return null;
  };
  const parts = { store: { sessions: { find } }, secrets, limits: { isHttps: () => false }, clock: { wall: () => 0 } };
  const sessions = new Sessions(parts as unknown as SessionParts);
  const come = async (token: string): Promise<void> => {
    const headers = {
      cookie: `convoke_session_${tagOf(secrets.newest!)}=${token}`,
      'convoke-csrf': 'x',
      'sec-fetch-site': 'same-origin',
    };
    const request = { method: 'GET', headers } as unknown as FastifyRequest;
    await assert.rejects(
      sessions.identify(request, {} as FastifyReply),
      ({ code }: Problem) => code === 'session_ended',
    );
  };
  for (let i = 0; i < 100; i++) await come(randomBytes(32).toString('base64url'));
  assert.equal(looked_for.length, 0);
  await come(makeSessionToken(secrets.newest!));
  assert.equal(looked_for.length, 1);
});
