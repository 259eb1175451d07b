/** MCP Events: webhook subscriptions, from the challenge to their end. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { before, describe, test, type TestContext } from 'node:test';
import { type ApiKeyWithToken, type ConvokeClient, ConvokeError, type Instance, type Page } from '@convoke/sdk';
import { Caller } from '../../src/mcp/caller.ts';
import { subscribe } from '../../src/mcp/events/subscriptions.ts';
import { rpc, RPC_HEADERS } from '../support/mcp.ts';
import { type Received, Receiver } from '../support/receiver.ts';
import { assertProblem, Service, useService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const NAME = 'meeting.message';
const SECRETS = ['A', 'B'].map((letter) => `whsec_${Buffer.from(letter.repeat(32)).toString('base64')}`) as [
  string,
  string,
];

interface Subscribed {
  id: string;
  refreshBefore: string;
  cursor: string | null;
  truncated: boolean;
  deliveryStatus?: { active: boolean; lastError: string | null };
}
interface Answer<Result> {
  result?: Result;
  error?: { code: number; message: string; data?: { reason?: string; kind?: string } };
}
interface Body {
  type?: string;
  challenge?: string;
  error?: { code: number };
  eventId: string;
  name: string;
  timestamp: string;
  cursor: null;
  data: { seq: number; message: { content: string } };
}

const bodyOf = ({ text }: Received) => JSON.parse(text) as Body;

/** Finds out which secrets signed a request, as a receiver of Standard Webhooks does. */
function signersOf({ headers, body }: Received): string[] {
  const given = String(headers['webhook-signature']).split(' ');
  return SECRETS.filter((secret) => {
    const hmac = createHmac('sha256', Buffer.from(secret.slice(6), 'base64'));
    hmac.update(`${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.`).update(body);
    return given.includes(`v1,${hmac.digest('base64')}`);
  });
}

/** Answers the challenge, and responds to events with a status. */
const echo = (status: () => number) => (request: Received) => {
  const { type, challenge } = bodyOf(request);
  return type === 'verification' ? { body: JSON.stringify({ challenge }) } : { status: status() };
};

async function receiverOf(t: TestContext, status: () => number = () => 204): Promise<Receiver> {
  const receiver = new Receiver(echo(status));
  await receiver.up();
  t.after(() => receiver.down());
  return receiver;
}

const events = ({ requests }: Receiver) => requests.filter((each) => bodyOf(each).type === undefined);
const challenges = ({ requests }: Receiver) => requests.length - events({ requests } as Receiver).length;
const arrived = (receiver: Receiver, count: number) =>
  until(
    `${count} events`,
    async () => events(receiver),
    (all) => all.length === count,
  );

describe('a subscription', () => {
  const service = useService();
  let key: ApiKeyWithToken;
  before(async () => {
    await service.endOpenMode();
    key = await service.createKey({ scopes: ['read', 'instance'] });
  });

  async function ask<Result = Subscribed>(method: string, params: object, token = key.token): Promise<Answer<Result>> {
    const { text } = await service.post('/mcp', rpc(method, params), {
      ...RPC_HEADERS,
      authorization: `Bearer ${token}`,
    });
    return JSON.parse(text.slice(text.indexOf('{'))) as Answer<Result>;
  }
  const paramsOf = (receiver: Receiver, meeting_id: string, secret = SECRETS[0], more: object = {}) => ({
    name: NAME,
    arguments: { meeting_id, ...more },
    delivery: { mode: 'webhook', url: receiver.url, secret },
  });
  async function subscribed(params: object, token?: string): Promise<Subscribed> {
    const { result, error } = await ask('events/subscribe', params, token);
    assert.equal(error, undefined, JSON.stringify(error));
    return result as Subscribed;
  }
  async function meetingOf(content = 'before'): Promise<string> {
    const meeting_id = service.name('meeting');
    await service.send(meeting_id, { content });
    return meeting_id;
  }
  const exists = async (id: string) => (await service.get(`/api/v1/instances/${id}/`)).status === 200;
  const gone = (id: string) =>
    until(
      'the end of the subscription',
      () => exists(id),
      (there) => !there,
    );

  test('begins with a challenge, and each event comes in order, signed, under the id of its message', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const { id, cursor, truncated, refreshBefore } = await subscribed(paramsOf(receiver, meeting_id));
    assert.deepEqual([cursor, truncated], ['1', false]);
    const behind = { ...paramsOf(receiver, meeting_id, SECRETS[0], { agent: 'anna' }), cursor: '0' };
    const later = await subscribed(behind);
    assert.deepEqual([later.cursor, later.truncated], ['1', true], 'what was said before is not sent');
    assert.equal((await ask('events/unsubscribe', behind)).error, undefined);
    assert.ok(Date.parse(refreshBefore) > Date.now(), refreshBefore);
    const [challenge] = receiver.requests as [Received];
    assert.deepEqual([bodyOf(challenge).type, challenge.headers['x-mcp-subscription-id']], ['verification', id]);
    assert.deepEqual(signersOf(challenge), [SECRETS[0]]);
    const sent = [];
    for (const content of ['one', 'two', 'three']) sent.push(await service.send(meeting_id, { content }));
    const pushed = await arrived(receiver, 3);
    assert.deepEqual(
      pushed.map((each) => [bodyOf(each).data.message.content, bodyOf(each).eventId, each.headers['webhook-id']]),
      sent.map(({ message_id }, i) => [['one', 'two', 'three'][i], message_id, message_id]),
    );
    for (const each of pushed) {
      assert.deepEqual([signersOf(each), each.headers['x-mcp-subscription-id']], [[SECRETS[0]], id]);
      assert.deepEqual([bodyOf(each).name, bodyOf(each).cursor], [NAME, null]);
    }
    const { body } = await service.get<Instance>(`/api/v1/instances/${id}/`);
    assert.deepEqual([body.runtime, body.lease_until, body.owner_key_id], ['mcp_events', refreshBefore, key.key_id]);
  });

  test('is renewed by the same call without a challenge, and another secret signs beside the old one', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const first = await subscribed(paramsOf(receiver, meeting_id));
    const second = await subscribed({ ...paramsOf(receiver, meeting_id, SECRETS[1]), cursor: '1', ttlMs: null });
    assert.deepEqual([second.id, second.truncated, second.deliveryStatus?.active], [first.id, false, true]);
    assert.ok(second.refreshBefore > first.refreshBefore, `${first.refreshBefore} and ${second.refreshBefore}`);
    assert.equal(challenges(receiver), 1);
    await service.send(meeting_id, { content: 'one' });
    const [event] = await arrived(receiver, 1);
    assert.deepEqual(signersOf(event as Received), SECRETS);
  });

  test('a renewal gives the cursor of the client back while an event is on its way, and says how the last one failed', async (t) => {
    let answer = 500;
    const [receiver, meeting_id] = [await receiverOf(t, () => answer), await meetingOf()];
    const params = { ...paramsOf(receiver, meeting_id), cursor: '1' };
    const { id } = await subscribed(params);
    const renewed = async (holds: (renewal: Subscribed) => boolean) =>
      until('the renewal', () => subscribed(params), holds);
    const { message_id } = await service.send(meeting_id, { content: 'one' });
    const failing = await renewed(({ deliveryStatus }) => deliveryStatus?.lastError !== null);
    assert.deepEqual([failing.cursor, failing.deliveryStatus?.lastError], ['1', 'http_5xx']);
    const { body } = await service.get<Page<{ delivery_id: string }>>(
      `/api/v1/deliveries/?message_id=${message_id}&instance_id=${id}`,
    );
    const retry = () => service.post(`/api/v1/deliveries/${body.data[0]?.delivery_id}/retry/`, {});
    // A redirect is an error of no client: it is the answer of a server that expects no events.
    answer = 302;
    await retry();
    await renewed(({ deliveryStatus }) => deliveryStatus?.lastError === 'challenge_failed');
    answer = 204;
    await retry();
    const settled = await renewed(({ cursor }) => cursor === '2');
    assert.equal(settled.deliveryStatus?.lastError, null);
  });

  test('a renewal gives the cursor of the client back after an event that failed, so that a poll finds it', async (t) => {
    let answer = 413;
    const [receiver, meeting_id] = [await receiverOf(t, () => answer), await meetingOf()];
    const params = { ...paramsOf(receiver, meeting_id), cursor: '1' };
    await subscribed(params);
    await service.settled(await service.send(meeting_id, { content: 'one' }));
    answer = 204;
    await service.settled(await service.send(meeting_id, { content: 'two' }));
    assert.equal((await subscribed(params)).cursor, '1');
    assert.equal((await subscribed({ ...params, cursor: '2' })).cursor, '3', 'the client has seen it by now');
  });

  test('a renewal gives the cursor of the client back when the instance was switched off, or out of the meeting, meanwhile', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const renewed = async (cursor: string) => (await subscribed({ ...paramsOf(receiver, meeting_id), cursor })).cursor;
    const { id } = await subscribed(paramsOf(receiver, meeting_id));
    const patch = (webhook_enabled: boolean) =>
      service.request('PATCH', `/api/v1/instances/${id}/`, { body: { webhook_enabled } });
    await patch(false);
    const { accepted_at } = await service.send(meeting_id, { content: 'while it was off' });
    await patch(true);
    // Two messages of one millisecond would count as one moment.
    await until('a later millisecond', Date.now, (now) => now > Date.parse(accepted_at));
    await service.settled(await service.send(meeting_id, { content: 'while it was on' }));
    assert.deepEqual([await renewed('1'), await renewed('2')], ['1', '3']);
    await service.post('/api/v1/instances/leave-meeting/', { instance_id: id, meeting_id });
    await service.send(meeting_id, { content: 'while it was out' });
    assert.deepEqual([await renewed('3'), await renewed('4')], ['3', '4']);
    assert.equal(events(receiver).length, 1);
  });

  test('has an id of its own for each key, URL and argument', async (t) => {
    const [receiver, other, meeting_id] = [await receiverOf(t), await receiverOf(t), await meetingOf()];
    const friend = await service.createKey({ scopes: ['read', 'instance'] });
    const ids = [
      await subscribed(paramsOf(receiver, meeting_id)),
      await subscribed(paramsOf(other, meeting_id)),
      await subscribed(paramsOf(receiver, meeting_id, SECRETS[0], { agent: 'anna' })),
      await subscribed(paramsOf(receiver, meeting_id), friend.token),
    ].map(({ id }) => id);
    assert.equal(new Set(ids).size, 4);
    assert.equal(challenges(receiver), 3);
  });

  test('ends with events/unsubscribe, for the key that began it only', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const { id } = await subscribed(paramsOf(receiver, meeting_id));
    const friend = await service.createKey({ scopes: ['read', 'instance'] });
    const refused = await ask('events/unsubscribe', paramsOf(receiver, meeting_id), friend.token);
    assert.deepEqual([refused.error?.code, refused.error?.data?.kind], [-32_023, 'subscription']);
    assert.ok(await exists(id));
    assert.equal((await ask('events/unsubscribe', paramsOf(receiver, meeting_id))).error, undefined);
    assert.ok(!(await exists(id)));
    assert.equal((await service.send(meeting_id, { content: 'late' })).deliveries_queued, 0);
  });

  test('ends with its key, and an instance that registered itself stays', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const own = await service.createKey({ scopes: ['read', 'instance'] });
    const { id } = await subscribed(paramsOf(receiver, meeting_id), own.token);
    const instance_id = service.name('instance');
    const registered = await service.post(
      '/api/v1/instances/register/',
      { instance_id, instance_name: 'x', agent_ids: ['a'], webhook_url: receiver.url },
      { authorization: `Bearer ${own.token}` },
    );
    assert.equal(registered.status, 201);
    assert.equal((await service.request('DELETE', `/api/v1/keys/${own.key_id}/`)).status, 204);
    await gone(id);
    assert.ok(await exists(instance_id));
    const [, ended] = (await receiver.count(2)) as [Received, Received];
    const { type, error } = bodyOf(ended);
    assert.deepEqual([type, error?.code], ['terminated', -32_024]);
    assert.deepEqual([signersOf(ended), ended.headers['x-mcp-subscription-id']], [[SECRETS[0]], id]);
    assert.match(String(ended.headers['webhook-id']), /^msg_terminated_/);
    const { data } = (
      await service.get<Page<{ target_id: string; principal: string; action: string }>>('/api/v1/audit/')
    ).body;
    assert.ok(
      data.some((each) => each.target_id === id && each.principal === 'service' && each.action === 'instance.delete'),
    );
  });

  for (const status of [410, 413]) {
    test(`${status} ends an event, which does not come again; the next ones come`, async (t) => {
      let answer = status;
      const [receiver, meeting_id] = [await receiverOf(t, () => answer), await meetingOf()];
      await subscribed(paramsOf(receiver, meeting_id));
      await service.send(meeting_id, { content: 'one' });
      await arrived(receiver, 1);
      answer = 204;
      await service.send(meeting_id, { content: 'two' });
      const pushed = await arrived(receiver, 2);
      assert.deepEqual(
        pushed.map((each) => bodyOf(each).data.message.content),
        ['one', 'two'],
      );
    });
  }

  test('does not begin where nobody answers the challenge, and says which way it failed', async (t) => {
    const meeting_id = await meetingOf();
    const receiver = new Receiver({ body: '{"challenge":"another"}' });
    await receiver.up();
    t.after(() => receiver.down());
    const reasonOf = async () => {
      const { error } = await ask('events/subscribe', paramsOf(receiver, meeting_id));
      assert.equal(error?.code, -32_027);
      return error.data?.reason;
    };
    assert.equal(await reasonOf(), 'challenge_failed');
    receiver.behaviour = { status: 404 };
    assert.equal(await reasonOf(), 'http_4xx');
    receiver.behaviour = { status: 500 };
    assert.equal(await reasonOf(), 'http_5xx');
    receiver.behaviour = { status: 302, headers: { location: receiver.url } };
    assert.equal(await reasonOf(), 'challenge_failed');
    await receiver.down();
    assert.equal(await reasonOf(), 'connection_refused');
    assert.equal((await service.send(meeting_id, { content: 'one' })).deliveries_queued, 0);
  });

  test('ends when its key is rotated without overlap; with one, it ends with the token that renewed it last', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const own = await service.createKey({ scopes: ['read', 'instance'] });
    const rotate = async (overlap_seconds: number) => {
      const path = `/api/v1/keys/${own.key_id}/rotate/`;
      return (await service.post<ApiKeyWithToken>(path, { overlap_seconds })).body.token;
    };
    const params = { ...paramsOf(receiver, meeting_id), ttlMs: null };
    const inHours = ({ refreshBefore }: Subscribed) => Math.round((Date.parse(refreshBefore) - Date.now()) / 3_600_000);
    const begun = await subscribed(params, own.token);
    assert.equal(inHours(begun), 24);
    const second = await rotate(7_200);
    const { body } = await service.get<Instance>(`/api/v1/instances/${begun.id}/`);
    assert.equal(inHours({ ...begun, refreshBefore: body.lease_until! }), 2);
    assert.equal(inHours(await subscribed(params, own.token)), 2, 'renewed with the earlier token');
    assert.equal(inHours(await subscribed(params, second)), 24, 'renewed with the new token');
    const third = await rotate(0);
    await gone(begun.id);
    const [, ended] = (await receiver.count(2)) as [Received, Received];
    assert.equal(bodyOf(ended).type, 'terminated');
    assert.equal((await service.send(meeting_id, { content: 'late' })).deliveries_queued, 0);
    assert.equal(inHours(await subscribed(params, third)), 24);
  });

  test('does not begin when its key is revoked while the program holds its answer to the challenge back', async (t) => {
    for (const is_revoked of [true, false]) {
      const own = await service.createKey({ scopes: ['read', 'instance'] });
      const { promise: decided, resolve: decide } = Promise.withResolvers<void>();
      const receiver = await receiverOf(t);
      receiver.behaviour = (request) => ({
        body: JSON.stringify({ challenge: bodyOf(request).challenge }),
        after: decided,
      });
      const instance_id = service.name('subscription');
      const registered = service.post(
        '/api/v1/instances/register/',
        {
          instance_id,
          instance_name: 'x',
          agent_ids: ['a'],
          runtime: 'mcp_events',
          runtime_options: { id: 'x' },
          webhook_url: receiver.url,
          webhook_secret: SECRETS[0],
        },
        { authorization: `Bearer ${own.token}` },
      );
      await receiver.count(1);
      if (is_revoked) assert.equal((await service.request('DELETE', `/api/v1/keys/${own.key_id}/`)).status, 204);
      decide();
      if (is_revoked) assertProblem(await registered, 401, 'api_key_revoked');
      else assert.equal((await registered).status, 201, 'control');
      assert.equal(await exists(instance_id), !is_revoked);
    }
  });

  test('is challenged again at another URL, and when another key takes it', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const { id } = await subscribed(paramsOf(receiver, meeting_id));
    const stranger = new Receiver({ status: 204 });
    await stranger.up();
    t.after(() => stranger.down());
    const register = (webhook_url: string, token: string | null) =>
      service.post(
        '/api/v1/instances/register/',
        {
          instance_id: id,
          instance_name: 'x',
          agent_ids: [id],
          runtime: 'mcp_events',
          runtime_options: { id },
          webhook_url,
          webhook_secret: SECRETS[0],
        },
        token === null ? {} : { authorization: `Bearer ${token}` },
      );
    assert.equal((await register(receiver.url, key.token)).status, 200, 'control');
    assert.equal(challenges(receiver), 1);
    assertProblem(await register(stranger.url, key.token), 409, 'callback_not_verified');
    receiver.behaviour = { status: 204 };
    assertProblem(await register(receiver.url, null), 409, 'callback_not_verified');
  });

  test('changes only by another subscription: its URL, its agents and its owner stay, and it can be switched off', async (t) => {
    const [receiver, stranger, meeting_id] = [await receiverOf(t), await receiverOf(t), await meetingOf()];
    const { id } = await subscribed(paramsOf(receiver, meeting_id));
    const patch = (body: object, token: string | null = key.token) =>
      service.request<Instance>('PATCH', `/api/v1/instances/${id}/`, {
        body,
        headers: token === null ? {} : { authorization: `Bearer ${token}` },
      });
    for (const body of [
      { webhook_url: stranger.url },
      { agent_ids: ['other'] },
      { replies: true },
      { webhook_headers: { 'x-key': 'y' } },
      { success_statuses: '200' },
      { timeout_s: 60 },
    ]) {
      const { errors } = assertProblem(await patch({ instance_name: 'x', ...body }), 422, 'invalid_fields');
      assert.deepEqual(
        errors?.map(({ path }) => path),
        Object.keys(body),
      );
    }
    assertProblem(await patch({ owner_key_id: null }, null), 422, 'invalid_fields');
    const switched = await patch({ instance_name: 'named', webhook_enabled: false });
    assert.deepEqual([switched.body.instance_name, switched.body.webhook_enabled], ['named', false], 'control');
    assert.equal((await patch({ webhook_enabled: true })).status, 200);
    await service.send(meeting_id, { content: 'one' });
    await arrived(receiver, 1);
    assert.equal(stranger.requests.length, 0);
  });

  test('lasts no longer than its key', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const expires_at = new Date(Date.now() + 600_000).toISOString();
    const short = await service.createKey({ scopes: ['read', 'instance'], expires_at });
    const { refreshBefore } = await subscribed({ ...paramsOf(receiver, meeting_id), ttlMs: null }, short.token);
    assert.equal(refreshBefore, expires_at);
  });

  test('refuses what is wrong with the code of the extension', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const good = paramsOf(receiver, meeting_id);
    const codeOf = async (params: object, token?: string) => (await ask('events/subscribe', params, token)).error?.code;
    assert.equal(await codeOf({ ...good, delivery: { ...good.delivery, secret: 'whsec_short' } }), -32_602);
    assert.equal(await codeOf({ ...good, delivery: { ...good.delivery, url: 'http://example.com/x' } }), -32_602);
    assert.equal(await codeOf({ ...good, delivery: { ...good.delivery, mode: 'push' } }), -32_026);
    const reader = await service.createKey({ scopes: ['read'] });
    assert.equal(await codeOf(good, reader.token), -32_024);
    const sender = await service.createKey({ scopes: ['instance'] });
    assert.equal(await codeOf(good, sender.token), -32_024, 'it must be allowed to read');
    const elsewhere = await service.createKey({ scopes: ['read', 'instance'], meeting_ids: ['elsewhere'] });
    assert.equal(await codeOf(good, elsewhere.token), -32_024);
    assert.equal(receiver.requests.length, 0);
  });

  test('names the fields that the program has, and not those of an instance', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const { delivery, ...good } = paramsOf(receiver, meeting_id);
    const words = async (changed: object) => {
      const { error } = await ask('events/subscribe', { ...good, delivery: { ...delivery, ...changed } });
      assert.equal(error?.code, -32_602);
      return error.message;
    };
    const advice = 'Correct the fields that are named, and ask again.';
    assert.equal(
      await words({ secret: `whsec_${'A'.repeat(33)}` }),
      `invalid_fields: delivery.secret must be whsec_ followed by the base64 of 24 to 64 bytes. ${advice}`,
    );
    assert.match(await words({ url: 'ftp://127.0.0.1/' }), /^invalid_fields: delivery\.url must start with /);
    assert.match(
      await words({ url: 'http://example.com/' }),
      /^invalid_fields: delivery\.url must be https for MCP Events;/,
    );
  });

  test('whose id another key has taken is refused, in words about subscriptions', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const params = paramsOf(receiver, meeting_id);
    const { id } = await subscribed(params);
    await ask('events/unsubscribe', params);
    const taken = { instance_id: id, instance_name: 'x', agent_ids: ['a'], webhook_url: receiver.url };
    assert.equal((await service.post('/api/v1/instances/register/', taken)).status, 201);
    const { error } = await ask('events/subscribe', params);
    assert.equal(error?.code, -32_024);
    assert.match(
      error.message,
      /^instance_id_taken: .*The id of this subscription belongs to another key or to an instance\. /,
    );
    assert.doesNotMatch(error.message, /join_meeting|agent_id/);
  });

  test('and an instance cannot take the place of each other', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const { id } = await subscribed(paramsOf(receiver, meeting_id));
    const headers = { authorization: `Bearer ${key.token}` };
    const plain = { instance_id: id, instance_name: 'x', agent_ids: ['a'], webhook_url: receiver.url };
    assertProblem(await service.post('/api/v1/instances/register/', plain, headers), 409, 'instance_id_taken');
    const own = { ...plain, instance_id: service.name('instance') };
    assert.equal((await service.post('/api/v1/instances/register/', own, headers)).status, 201);
    const over = { runtime: 'mcp_events', runtime_options: { id: 'x' }, webhook_secret: SECRETS[0] };
    const answer = await service.post('/api/v1/instances/register/', { ...own, ...over }, headers);
    assertProblem(answer, 409, 'instance_id_taken');
  });

  test('gets no invite for its id while it runs, because nobody could redeem it', async (t) => {
    const params = paramsOf(await receiverOf(t), await meetingOf());
    const { id } = await subscribed(params);
    const invite = () =>
      service.post('/api/v1/invites/', { instance_id: id, meeting_ids: ['standup'], agent_ids: ['anna'] });
    const { detail } = assertProblem(await invite(), 422, 'invalid_fields');
    assert.match(detail, /^instance_id is the id of a subscription of MCP Events, which keeps its key: choose another/);
    assert.equal((await ask('events/unsubscribe', params)).error, undefined);
    assert.equal((await invite()).status, 201);
  });

  test('outlives a restart of the service, and ends with its lease', async (t) => {
    const clock = new SetClock();
    const service = new Service({}, clock);
    await service.start();
    t.after(() => service.close());
    await service.endOpenMode();
    const { token } = await service.createKey({ scopes: ['read', 'instance'] });
    await service.send('m', { content: 'before' });
    const receiver = await receiverOf(t);
    const headers = { ...RPC_HEADERS, authorization: `Bearer ${token}` };
    const { text } = await service.post(
      '/mcp',
      rpc('events/subscribe', { ...paramsOf(receiver, 'm'), ttlMs: 1 }),
      headers,
    );
    const { id, refreshBefore } = (JSON.parse(text.slice(text.indexOf('{'))) as Answer<Subscribed>)
      .result as Subscribed;
    const left_ms = Date.parse(refreshBefore) - Date.now();
    assert.ok(left_ms > 0 && left_ms <= 60_000, 'a shorter lease than a minute is a minute');
    await service.restart({});
    await service.send('m', { content: 'one' });
    const [event] = await arrived(receiver, 1);
    assert.deepEqual(signersOf(event as Received), [SECRETS[0]]);
    // The service looks for ended leases from time to time, and when a key changes. So the test makes a key.
    const path = `/api/v1/instances/${id}/`;
    await service.createKey({ scopes: ['read'] });
    assert.equal((await service.get(path)).status, 200, 'control');
    clock.step(61_000);
    await service.createKey({ scopes: ['read'] });
    await until(
      'the end of the lease',
      () => service.get(path),
      ({ status }) => status === 404,
    );
    assert.equal((await service.send('m', { content: 'late' })).deliveries_queued, 0);
    assert.deepEqual(
      receiver.requests.map((each) => bodyOf(each).type),
      ['verification', undefined],
      'the program knew when it ends',
    );
  });

  test('whose lease has ended is challenged again, and one that lasts is not', async (t) => {
    const clock = new SetClock();
    const service = new Service({}, clock);
    await service.start();
    t.after(() => service.close());
    await service.endOpenMode();
    const { token } = await service.createKey({ scopes: ['read', 'instance'] });
    await service.send('m', { content: 'before' });
    const receiver = await receiverOf(t);
    const headers = { ...RPC_HEADERS, authorization: `Bearer ${token}` };
    const codeOf = async () => {
      const params = { ...paramsOf(receiver, 'm'), ttlMs: 1 };
      const { text } = await service.post('/mcp', rpc('events/subscribe', params), headers);
      return (JSON.parse(text.slice(text.indexOf('{'))) as Answer<Subscribed>).error?.code;
    };
    assert.equal(await codeOf(), undefined);
    receiver.behaviour = { status: 204 };
    assert.equal(await codeOf(), undefined, 'control');
    clock.step(61_000);
    assert.equal(await codeOf(), -32_027);
    assert.equal(receiver.requests.length, 2);
  });

  test('that cannot join its meeting leaves no instance behind', async (t) => {
    const service = new Service({ max_instances_per_meeting: '1' });
    await service.start();
    t.after(() => service.close());
    await service.endOpenMode();
    const { token } = await service.createKey({ scopes: ['read', 'instance'] });
    await service.send('m', { content: 'before' });
    const receiver = await receiverOf(t);
    const headers = { ...RPC_HEADERS, authorization: `Bearer ${token}` };
    const subscribe = async (agent: string) => {
      const { text } = await service.post(
        '/mcp',
        rpc('events/subscribe', paramsOf(receiver, 'm', SECRETS[0], { agent })),
        headers,
      );
      return JSON.parse(text.slice(text.indexOf('{'))) as Answer<Subscribed>;
    };
    const { result } = await subscribe('anna');
    assert.equal((await subscribe('bert')).error?.code, -32_025);
    const { body } = await service.get<Page<Instance>>('/api/v1/instances/');
    assert.deepEqual(
      body.data.map(({ instance_id }) => instance_id),
      [result?.id],
    );
  });

  test('a key has a hundred of them at most', async (t) => {
    const [receiver, meeting_id] = [await receiverOf(t), await meetingOf()];
    const many = await service.createKey({ scopes: ['read', 'instance'] });
    const of = (i: number) => paramsOf(receiver, meeting_id, SECRETS[0], { agent: `a${i}` });
    for (let i = 0; i < 100; i++) await subscribed(of(i), many.token);
    assert.equal((await ask('events/subscribe', of(100), many.token)).error?.code, -32_025);
    assert.equal((await subscribed(of(99), many.token)).truncated, false, 'one that exists is renewed');
  });
});

/** A caller whose service does what the methods of this client do. */
function callerOf(client: object): Caller {
  return new Caller({
    client: client as ConvokeClient,
    signal: new AbortController().signal,
    hasRoom: async () => {},
    onAnswered: () => {},
    onUnsettled: () => assert.fail(),
  });
}

for (const fails of ['the first', 'the second']) {
  test(`of two first calls at once, ${fails} cannot join the meeting, and the subscription of the other one stays`, async () => {
    const missing = new ConvokeError('instance_does_not_exist', 'missing');
    let exists = false;
    const subscribed = (name: string) => {
      const client = {
        session: async () => ({ key_id: 'k' }),
        getMeeting: async () => ({ last_seq: 9 }),
        getInstance: async () =>
          exists ? { pending_deliveries: 0, consecutive_failures: 0 } : Promise.reject(missing),
        register: async () => {
          exists = true;
          return { lease_until: 'later' };
        },
        joinMeeting: async () => (name === fails ? Promise.reject(new Error(name)) : {}),
        deleteInstance: async () => void (exists = false),
      };
      const caller = callerOf(client);
      const delivery = { mode: 'webhook', url: 'http://127.0.0.1:1/', secret: SECRETS[0] };
      return subscribe(caller, { name: NAME, arguments: { meeting_id: 'm' }, delivery } as const);
    };
    const results = await Promise.allSettled([subscribed('the first'), subscribed('the second')]);
    const of_first = fails === 'the first' ? 'rejected' : 'fulfilled';
    assert.deepEqual(
      results.map(({ status }) => status === of_first),
      [true, false],
    );
    assert.ok(exists);
  });
}

test('a renewal gives the cursor of the client back when the search for events that failed came to no end', async () => {
  const cursorAfter = async (next_cursor: string | null) => {
    const client = {
      session: async () => ({ key_id: 'k' }),
      getMeeting: async () => ({ last_seq: 9 }),
      getInstance: async () => ({ pending_deliveries: 0, consecutive_failures: 0, last_failure: null }),
      register: async () => ({ lease_until: 'later' }),
      joinMeeting: async () => ({ instance_id: 'i', meeting_id: 'm', joined_at: '2026-03-01T09:30:00.000Z' }),
      listMessages: async () => ({ data: [{ accepted_at: '2026-03-01T09:30:01.000Z' }] }),
      recover: async () => ({ missed: { messages: 0, at_least: false } }),
      listDeliveries: async () => ({ data: [], next_cursor }),
    };
    const caller = callerOf(client);
    const delivery = { mode: 'webhook', url: 'http://127.0.0.1:1/', secret: SECRETS[0] };
    const params = { name: NAME, arguments: { meeting_id: 'm' }, delivery, cursor: '3' } as const;
    return (await subscribe(caller, params)).cursor;
  };
  assert.equal(await cursorAfter('further'), '3');
  assert.equal(await cursorAfter(null), '9', 'control');
});
