/** Portal links: on a page of another product, the owner of a key sees their own instances, and nothing else. */
import assert from 'node:assert/strict';
import { before, describe, test, type TestContext } from 'node:test';
import type {
  ApiKeyWithToken,
  Diagnosis,
  Instance,
  Page,
  PortalLink,
  PortalLinkInput,
  UpdateInstanceInput,
} from '@convoke/sdk';
import { buildIfStale } from '../../scripts/web.ts';
import { PatchInstanceBody } from '../../src/http/schemas/instances.ts';
import { openStream } from '../support/event_stream.ts';
import { startReceiver } from '../support/receiver.ts';
import { routesOnly } from '../support/routes.ts';
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
const OVERLAP_S = 1_800;
const OPEN_ROUTES = [
  'GET /api/v1/instances/',
  'GET /api/v1/instances/:instance_id/',
  'PATCH /api/v1/instances/:instance_id/',
  'POST /api/v1/instances/:instance_id/heartbeat/',
  'POST /api/v1/instances/webhook-test/',
  'POST /api/v1/instances/:instance_id/recover/',
  'GET /api/v1/deliveries/',
  'GET /api/v1/deliveries/:delivery_id/',
  'POST /api/v1/deliveries/:delivery_id/retry/',
  'GET /api/v1/deliveries/:delivery_id/push/',
  'GET /api/v1/events/',
  'GET /api/v1/counts/',
  'GET /api/v1/instances/:instance_id/history/',
];
/** A new value for each field that an instance has. */
const FIELDS: Record<keyof UpdateInstanceInput, unknown> = {
  instance_name: 'a new name',
  agent_ids: ['another'],
  webhook_url: 'http://127.0.0.1:10/',
  is_active: false,
  webhook_enabled: false,
  webhook_headers: { 'x-tenant': 'another' },
  success_statuses: '2xx',
  ack_timeout_s: 50,
  timeout_s: 50,
  replies: true,
  owner_key_id: null,
};
const OPEN_FIELDS = ['instance_name', 'is_active', 'webhook_enabled', 'success_statuses', 'ack_timeout_s', 'timeout_s'];
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

/** The transport that a field needs: only a machine that pulls has an `ack_timeout_s`, the time for its results. */
const transportOf = (field: string) => (field === 'ack_timeout_s' ? { transport: 'pull' } : WEBHOOK);

async function seen(house: House, token: string): Promise<string[]> {
  const { status, text, body } = await list(house, token);
  assert.equal(status, 200, text);
  return body.data.map(({ instance_id }) => instance_id).toSorted();
}

describe('a portal link', () => {
  // The service allows no listeners, because the response of a feed would not end.
  const service = useService({ max_feed_listeners: '0' });
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

  test('calls the routes that are open to links, and no other one', async () => {
    const headers = bearer(await linkFor(house));
    const app = await routesOnly();
    await app.ready();
    const routes = app.route_table.flatMap(({ methods, url, access }) =>
      access === 'public' ? [] : methods.filter((method) => method !== 'HEAD').map((method) => `${method} ${url}`),
    );
    await app.close();
    const open: string[] = [];
    for (const route of routes) {
      const [method = '', url = ''] = route.split(' ');
      // No object has this id, so a request to an open route changes nothing.
      const path = url.replaceAll(/:\w+/g, 'missing');
      const answer = await service.request<{ detail?: string }>(method, path, { headers });
      if (answer.status !== 403) {
        open.push(route);
        continue;
      }
      assertProblem(answer, 403, 'not_permitted');
      assert.match(answer.body.detail ?? '', /^A portal link .+\. Use the key itself\.$/, route);
    }
    assert.deepEqual(open, OPEN_ROUTES);
    assert.ok(routes.length > 2 * open.length, 'control: there are other routes');
  });

  test('changes the fields of an instance that are open to links, and no other one', async () => {
    assert.deepEqual(Object.keys(FIELDS), Object.keys(PatchInstanceBody.properties));
    const headers = bearer(await linkFor(house));
    for (const [field, value] of Object.entries(FIELDS)) {
      const instance_id = service.name('instance');
      const input = { instance_id, instance_name: 'n', agent_ids: ['a'], ...transportOf(field) };
      await service.post('/api/v1/instances/register/', input, bearer(house.owner.token));
      const { body: before } = await service.get<Instance>(instancePath(instance_id));
      const ask = { body: { [field]: value } };
      const changed = await service.request<Instance>('PATCH', instancePath(instance_id), { headers, ...ask });
      if (OPEN_FIELDS.includes(field)) {
        assert.equal(changed.status, 200, `${field}: ${changed.text}`);
        assert.deepEqual(changed.body[field as keyof Instance], value);
      } else {
        assertProblem(changed, 403, 'not_permitted');
        const detail = new RegExp(`^A portal link does not change ${field}.*\\. Use the key itself\\.$`);
        assert.match((changed.body as { detail?: string }).detail ?? '', detail);
        assert.deepEqual((await service.get<Instance>(instancePath(instance_id))).body, before);
        // Control: the key itself may change the field. Only an admin may give an instance another owner.
        const { token } = field === 'owner_key_id' ? house.admin : house.owner;
        const by_key = await service.request('PATCH', instancePath(instance_id), { headers: bearer(token), ...ask });
        assert.equal(by_key.status, 200, by_key.text);
      }
      await service.request('DELETE', instancePath(instance_id));
    }
  });

  test('refuses a change whose fields are open in part, as a whole', async () => {
    const body = { instance_name: 'half', webhook_headers: {} };
    const answer = await service.request('PATCH', instancePath('one'), {
      headers: bearer(await linkFor(house)),
      body,
    });
    assertProblem(answer, 403, 'not_permitted');
    assert.equal((await service.get<Instance>(instancePath('one'))).body.instance_name, 'one');
  });

  test('tests the webhook, sends at once what waits, and again what failed', async (t) => {
    const receiver = await startReceiver(t, { status: 410 });
    const input = { instance_id: 'broken', instance_name: 'n', agent_ids: ['a'], webhook_url: receiver.url };
    await service.post('/api/v1/instances/register/', input, bearer(house.owner.token));
    await service.join('again', 'broken', ['a']);
    const headers = bearer(await linkFor(house));
    const sent = await service.send('again', { content: 'hello' });
    const { delivery_id, state } = await service.settled(sent);
    assert.equal(state, 'failed');
    receiver.behaviour = {};
    const to = (path: string, body?: object) => service.post<Diagnosis>(`/api/v1/${path}/`, body, headers);
    const resumed = { headers, body: { webhook_enabled: true } };
    assert.equal((await service.request('PATCH', instancePath('broken'), resumed)).status, 200);
    const tested = await to('instances/webhook-test', { instance_id: 'broken' });
    assert.deepEqual([tested.status, tested.body.success], [200, true], tested.text);
    assert.equal((await to('instances/broken/heartbeat')).status, 200);
    const recovered = await to('instances/broken/recover', { delivery_ids: [delivery_id] });
    assert.equal((recovered.body as { recovered?: number }).recovered, 1, recovered.text);
    assert.equal((await service.settled(sent)).state, 'delivered');
    await service.request('DELETE', instancePath('broken'));
  });

  test('can be limited to one instance', async () => {
    assert.deepEqual(await seen(house, await linkFor(house, { instance_id: 'two' })), ['two']);
  });

  test('is not made for an instance that its key may not use, and the refusal says why', async () => {
    const limited = await service.createKey({ scopes: ['instance'], instance_id: 'one' });
    const refusal = async ({ key_id }: ApiKeyWithToken, instance_id: string): Promise<unknown> => {
      const answer = await service.post(`/api/v1/keys/${key_id}/portal-link/`, { instance_id });
      return assertProblem(answer, 422, 'invalid_fields').errors;
    };
    const errors = (message: string) => [{ path: 'instance_id', message }];
    const not_owned = errors('must be an instance that the key owns, or absent');
    assert.deepEqual(await refusal(house.owner, 'nobody has it'), not_owned);
    assert.deepEqual(await refusal(house.owner, 'of the admin'), not_owned);
    assert.deepEqual(await refusal(limited, 'one'), not_owned, 'the owner is another key');
    const outside = errors('must be the instance to which the key is limited, or absent');
    assert.deepEqual(await refusal(limited, 'two'), outside);
    assert.deepEqual(await refusal(limited, 'nobody has it'), outside);
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
    const { key_id } = await service.createKey({ scopes: ['instance'] });
    await service.request('DELETE', `/api/v1/keys/${key_id}/`);
    const { detail } = assertProblem(await service.post(`/api/v1/keys/${key_id}/portal-link/`), 409, 'key_not_active');
    assert.match(detail, /portal link/);
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
      // The service does not revoke the last admin key, so the test makes a second admin key.
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

for (const who of ['owner', 'admin'] as const) {
  const whose = who === 'owner' ? 'its key' : 'the key that made it';
  test(`a portal link and its feed go on while ${whose} is in the overlap of a rotation, and end with it`, async (t) => {
    const clock = new SetClock();
    const all = await houseOf(await startService(t, {}, clock));
    const token = await linkFor(all);
    const stream = await openStream(`${all.service.url}/api/v1/events/`, bearer(token));
    const rotated = await all.service.post(`/api/v1/keys/${all[who].key_id}/rotate/`, { overlap_seconds: OVERLAP_S });
    assert.equal(rotated.status, 200, rotated.text);
    assert.deepEqual(await seen(all, token), ['one', 'two']);
    const later = await openStream(`${all.service.url}/api/v1/events/`, bearer(token));
    assert.ok(!stream.ended);
    clock.step(OVERLAP_S * 1000);
    assertProblem(await list(all, token), 401, 'api_key_unknown');
    for (const { name, feed } of [
      { name: 'the feed from before the rotation', feed: stream },
      { name: 'the feed from the overlap', feed: later },
    ])
      await until(
        `the end of ${name}`,
        () => feed.ended,
        (ended) => ended,
      );
  });
}

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
