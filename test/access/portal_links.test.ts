/** Portal links: the owner of a key sees their instances inside another product's page, and nobody sees anything else. */
import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import type { ApiKeyWithToken, Instance, Page, PortalLink, PortalLinkInput } from '@convoke/sdk';
import { buildIfStale } from '../../scripts/web.ts';
import { openStream } from '../support/event_stream.ts';
import {
  type Answer,
  assertProblem,
  instancePath,
  type Service,
  startService,
  useService,
} from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const WEBHOOK = { webhook_url: 'http://127.0.0.1:9/' };
const HOUR_MS = 3_600_000;
const BROWSER = { accept: 'text/html,application/xhtml+xml' };

interface House {
  service: Service;
  admin: ApiKeyWithToken;
  owner: ApiKeyWithToken;
}

async function houseOf(service: Service): Promise<House> {
  const admin = await service.endOpenMode();
  const owner = await service.createKey({ scopes: ['instance', 'send', 'read'] });
  for (const instance_id of ['one', 'two'])
    await service.request('POST', '/api/v1/instances/register/', {
      body: { instance_id, instance_name: instance_id, agent_ids: [instance_id], ...WEBHOOK },
      headers: bearer(owner.token),
    });
  await service.register({ instance_id: 'of the admin', ...WEBHOOK });
  for (const instance_id of ['one', 'two', 'of the admin']) await service.join('standup', instance_id, ['a']);
  return { service, admin, owner };
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

async function linkFor({ service, owner }: House, input: PortalLinkInput = {}): Promise<string> {
  const answer = await service.post<PortalLink>(`/api/v1/keys/${owner.key_id}/portal-link/`, input);
  assert.equal(answer.status, 201, answer.text);
  return new URL(answer.body.link).hash.replace('#link=', '');
}

const list = ({ service }: House, token: string): Promise<Answer<Page<Instance>>> =>
  service.request('GET', '/api/v1/instances/', { headers: bearer(token) });

async function seen(house: House, token: string): Promise<string[]> {
  const { status, text, body } = await list(house, token);
  assert.equal(status, 200, text);
  return body.data.map(({ instance_id }) => instance_id).toSorted();
}

describe('a portal link', () => {
  const service = useService();
  let house: House;
  before(async () => {
    house = await houseOf(service);
  });

  test('shows the instances of its key, and nothing of others', async () => {
    const token = await linkFor(house);
    assert.deepEqual(await seen(house, token), ['one', 'two']);
    const headers = bearer(token);
    const other = await service.request('GET', instancePath('of the admin'), { headers });
    assertProblem(other, 404, 'instance_does_not_exist');
    await service.send('standup', { content: 'hello' });
    const { body } = await service.request<Page<{ instance_id: string }>>('GET', '/api/v1/deliveries/', { headers });
    assert.deepEqual(new Set(body.data.map(({ instance_id }) => instance_id)), new Set(['one', 'two']));
  });

  test('changes what the key may change of them, under the name of the key in the audit log', async () => {
    const headers = bearer(await linkFor(house));
    const paused = await service.request('PATCH', instancePath('one'), { headers, body: { is_active: false } });
    assert.equal(paused.status, 200, paused.text);
    const { body } = await service.get<Page<{ principal: string; target_id: string }>>('/api/v1/audit/?limit=1');
    assert.deepEqual([body.data[0]!.principal, body.data[0]!.target_id], [house.owner.key_id, 'one']);
  });

  test('may do nothing else that the key may: neither send nor read meetings, nor make keys, links or sessions', async () => {
    const headers = bearer(await linkFor(house));
    const own = { message: { content: 'x' }, meeting_id: 'standup' };
    const refused = [
      await service.request('POST', '/api/v1/meetings/standup/messages/', { headers, body: { message: {} } }),
      await service.request('GET', '/api/v1/meetings/standup/messages/', { headers }),
      await service.request('GET', '/api/v1/keys/', { headers }),
      await service.request('POST', `/api/v1/keys/${house.owner.key_id}/portal-link/`, { headers }),
      await service.request('POST', '/api/v1/messages/', { headers, body: { messages: [own] } }),
    ];
    for (const answer of refused.slice(1, 4)) assertProblem(answer, 403, 'not_permitted');
    assertProblem(refused[0]!, 403, 'not_permitted');
    assert.match(refused[4]!.text, /not_permitted/);
    // Control: the key itself may read the meeting.
    const by_key = await service.request('GET', '/api/v1/meetings/standup/messages/', {
      headers: bearer(house.owner.token),
    });
    assert.equal(by_key.status, 200);
  });

  test('does not take part: it neither says anything as an agent of its instances nor pulls', async () => {
    const { body: own } = await service.post<Instance>(
      '/api/v1/instances/register/',
      { instance_id: 'pulls', instance_name: 'pulls', agent_ids: ['p'], transport: 'pull' },
      bearer(house.owner.token),
    );
    await service.post(
      '/api/v1/instances/join-meeting/',
      { instance_id: own.instance_id, meeting_id: 'standup', agent_ids: ['p'] },
      bearer(house.owner.token),
    );
    const said = { message: { content: 'x' }, from_agent: 'p' };
    const ask = async (token: string) => ({
      sent: await service.post('/api/v1/meetings/standup/messages/', said, bearer(token)),
      many: await service.post('/api/v1/messages/', { messages: [{ ...said, meeting_id: 'standup' }] }, bearer(token)),
      pulled: await service.post('/api/v1/instances/pulls/pull/', { wait_s: 0 }, bearer(token)),
    });
    const by_link = await ask(await linkFor(house));
    assertProblem(by_link.sent, 403, 'not_permitted');
    assert.match(by_link.many.text, /"code":"not_permitted"/);
    assertProblem(by_link.pulled, 403, 'not_permitted');
    // Control: the key itself may.
    const by_key = await ask(house.owner.token);
    assert.equal(by_key.sent.status, 201, by_key.sent.text);
    assert.match(by_key.many.text, /"status":201/);
    assert.equal(by_key.pulled.status, 200, by_key.pulled.text);
    await service.request('DELETE', instancePath('pulls'));
  });

  test('moves no instance to another address, registers none, and lets none reply', async () => {
    const moved = { webhook_url: 'http://127.0.0.1:10/' };
    const again = { instance_id: 'one', instance_name: 'one', agent_ids: ['one'], ...moved };
    const ask = async (token: string) => {
      const headers = bearer(token);
      return {
        moved: await service.request('PATCH', instancePath('one'), { headers, body: moved }),
        replies: await service.request('PATCH', instancePath('one'), { headers, body: { replies: true } }),
        registered: await service.request('POST', '/api/v1/instances/register/', { headers, body: again }),
      };
    };
    for (const answer of Object.values(await ask(await linkFor(house)))) assertProblem(answer, 403, 'not_permitted');
    const { body } = await service.get<Instance>(instancePath('one'));
    assert.deepEqual([body.webhook_url, body.replies], [WEBHOOK.webhook_url, undefined]);
    // Control: the key itself may.
    for (const { status, text } of Object.values(await ask(house.owner.token))) assert.equal(status, 200, text);
    const back = { ...WEBHOOK, replies: false };
    await service.request('PATCH', instancePath('one'), { headers: bearer(house.owner.token), body: back });
  });

  test('can be limited to one instance', async () => {
    assert.deepEqual(await seen(house, await linkFor(house, { instance_id: 'two' })), ['two']);
  });

  test('that was changed in any part is refused', async () => {
    const token = await linkFor(house, { instance_id: 'two' });
    const [key_id, maker, expires, , mac] = token.slice(4).split('.') as [string, string, string, string, string];
    const limit = (instance_id: string): string => Buffer.from(instance_id).toString('base64url');
    for (const parts of [
      [key_id, maker, expires, limit('one'), mac],
      [key_id, maker, expires, '', mac],
      [key_id, maker, String(Number(expires) + 1), limit('two'), mac],
      [house.admin.key_id, maker, expires, limit('two'), mac],
      [key_id, key_id, expires, limit('two'), mac],
      [key_id, maker, expires, limit('two'), mac.replace(/^./, (first) => (first === 'A' ? 'B' : 'A'))],
    ]) {
      assertProblem(await list(house, `cvp_${parts.join('.')}`), 401, 'api_key_unknown');
    }
    assertProblem(await list(house, `${token}.x`), 401, 'api_key_malformed');
  });

  test('is made only for a key that owns instances, and only with a key', async () => {
    for (const scopes of [['admin'], ['read']] as const) {
      const { key_id } = await service.createKey({ scopes: [...scopes] });
      assertProblem(await service.post(`/api/v1/keys/${key_id}/portal-link/`), 403, 'not_permitted');
    }
    assertProblem(await service.post('/api/v1/keys/nosuchkey000/portal-link/'), 404, 'key_does_not_exist');
  });
});

describe('a portal link ends', () => {
  const clock = new SetClock();

  async function house(t: TestContext): Promise<House> {
    return houseOf(await startService(t, {}, clock));
  }

  const ENDS: Record<string, (house: House) => Promise<unknown>> = {
    'when its key is revoked': ({ service, owner }) => service.request('DELETE', `/api/v1/keys/${owner.key_id}/`),
    'when its key is rotated': ({ service, owner }) =>
      service.post(`/api/v1/keys/${owner.key_id}/rotate/`, { overlap_seconds: 0 }),
    'when the key that made it is revoked': ({ service, admin }) =>
      service.request('DELETE', `/api/v1/keys/${admin.key_id}/`),
    'when the key that made it is rotated': ({ service, admin }) =>
      service.post(`/api/v1/keys/${admin.key_id}/rotate/`, { overlap_seconds: 0 }),
    'after its hour': async () => clock.step(HOUR_MS),
  };
  for (const [when, end] of Object.entries(ENDS)) {
    test(`${when}, and the feed that it opened too`, async (t) => {
      const all = await house(t);
      // The service does not revoke the last admin key, so a second one has to exist.
      await all.service.createKey({ scopes: ['admin'] });
      const token = await linkFor(all);
      const stream = await openStream(`${all.service.url}/api/v1/events/`, bearer(token));
      assert.deepEqual(await seen(all, token), ['one', 'two']);
      await end(all);
      const { status, text } = await list(all, token);
      assert.equal(status, 401, text);
      await until(
        'the end of the feed',
        () => stream.ended,
        (ended) => ended,
      );
    });
  }
});

test('only the portal can be framed, and only by the origins of the setting', async (t) => {
  await buildIfStale();
  const ancestors = async (service: Service, path: string): Promise<string> => {
    const { headers } = await service.request('GET', path, { headers: BROWSER });
    return /frame-ancestors ([^;]+)/.exec(String(headers['content-security-policy']))?.[1] ?? '';
  };
  const named = await startService(t, { portal_origins: 'https://app.example.com,https://staging.example.com' });
  assert.equal(await ancestors(named, '/portal/'), 'https://app.example.com https://staging.example.com');
  assert.equal(await ancestors(named, '/portal/instances/one'), 'https://app.example.com https://staging.example.com');
  for (const path of ['/', '/now', '/instances', '/docs/']) assert.equal(await ancestors(named, path), "'none'", path);
  const unnamed = await startService(t);
  assert.equal(await ancestors(unnamed, '/portal/'), "'none'");
});
