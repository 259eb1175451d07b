/**
 * Invites: a link gives one machine a key for one instance and its meetings. The link works once, on any node, and
 * nobody else sees the secret of the link.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import {
  ConvokeClient,
  type CreateInviteInput,
  type Invite,
  type InviteWithLink,
  type Pulled,
  type RedeemedInvite,
} from '@convoke/sdk';
import { buildIfStale } from '../../scripts/web.ts';
import { makeDatabase } from '../support/postgres.ts';
import {
  type Answer,
  assertProblem,
  instancePath,
  messagesPath,
  ON_A_FILE,
  type Service,
  Service as Node,
  startService,
} from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { untilKnown } from '../support/two_nodes.ts';
import { until } from '../support/wait.ts';

const INPUT: CreateInviteInput = { meeting_ids: ['standup', 'retro'], agent_ids: ['anna', 'ben'] };
const HOUR_MS = 3_600_000;
const BROWSER = { accept: 'text/html,application/xhtml+xml' };

async function invite(service: Service, more: Partial<CreateInviteInput> = {}): Promise<InviteWithLink> {
  const answer = await service.post<InviteWithLink>('/api/v1/invites/', { ...INPUT, ...more });
  assert.equal(answer.status, 201, answer.text);
  return answer.body;
}

/** Makes a request as a machine does that has only the link. */
function ask<T>(service: Service, method: string, { link }: { link: string }, headers = {}): Promise<Answer<T>> {
  return service.request<T>(method, new URL(link).pathname, { headers: { cookie: '', ...headers } });
}

const redeem = (service: Service, { link }: { link: string }) =>
  service.request<RedeemedInvite>('POST', '/api/v1/invites/redeem/', {
    body: { secret: link.split('/').at(-1) },
    headers: { cookie: '' },
  });

const bearer = (api_key: string | null) => ({ authorization: `Bearer ${api_key}` });

for (const engine of ['SQLite', 'two nodes on PostgreSQL']) {
  describe(`an invite, on ${engine}`, () => {
    const clock = new SetClock();
    let here: Service;
    let there: Service;
    /** Made while there was no key. */
    let open: InviteWithLink;

    before(async () => {
      const on_sqlite = engine === 'SQLite';
      const settings = on_sqlite
        ? { ...ON_A_FILE, auth_failure_rate: '0' }
        : {
            auth_failure_rate: '0',
            database_url: await makeDatabase(),
            encryption_key: randomBytes(32).toString('base64'),
          };
      here = new Node(settings, clock);
      await here.start();
      there = on_sqlite ? here : new Node(settings, clock);
      if (there !== here) await there.start();
      open = await invite(here, { expires_in_s: 86_400 });
      there.token = (await here.endOpenMode()).token;
      await untilKnown(there, there.token);
    });
    after(() => Promise.all([here.close(), there.close()]));

    test('is redeemed once, also when several machines do it at once on all nodes; the others get nothing', async () => {
      const made = await invite(here);
      assert.deepEqual([made.state, made.instance_id.replace(/-\w{6}$/, '')], ['pending', 'anna']);
      const answers = await Promise.all([here, there, here, there, here].map((node) => redeem(node, made)));
      const [redeemed, ...more] = answers.filter(({ status }) => status === 200);
      assert.deepEqual(more, []);
      const { invite_id, instance_id } = made;
      const { api_key, ...rest } = redeemed!.body;
      assert.deepEqual(rest, { invite_id, instance_id, ...INPUT });
      assert.equal(redeemed!.headers['cache-control'], 'no-store');
      for (const answer of answers) if (answer !== redeemed) assertProblem(answer, 410, 'invite_ended');
      const { data } = (await there.get<{ data: Invite[] }>('/api/v1/invites/')).body;
      // By its id: invites of the same millisecond are in no order.
      const listed = data.find((each) => each.invite_id === invite_id);
      const { link: _, is_public_url, ...fields } = made;
      assert.equal(is_public_url, false);
      assert.deepEqual(listed, {
        ...fields,
        state: 'redeemed',
        redeemed_at: listed?.redeemed_at,
        key_id: api_key?.slice(4, 16),
      });
      for (const node of [here, there]) {
        await until(
          'the key to be known',
          () => node.request('GET', '/api/v1/instances/', { headers: bearer(api_key) }),
          ({ status }) => status === 200,
        );
      }
    });

    test('gives a key for its instance and its meetings, and for nothing else', async () => {
      const made = await invite(here);
      const { api_key, instance_id } = (await redeem(here, made)).body;
      const as = <T>(method: string, path: string, body?: object) =>
        here.request<T>(method, path, { headers: bearer(api_key), ...(body && { body }) });
      const registration = { instance_name: 'n', agent_ids: ['anna'], transport: 'pull' };
      const register = (id: string) => as('POST', '/api/v1/instances/register/', { ...registration, instance_id: id });
      const join = (meeting_id: string) =>
        as('POST', '/api/v1/instances/join-meeting/', { instance_id, meeting_id, agent_ids: ['anna'] });
      assert.equal((await register(instance_id)).status, 201);
      for (const meeting_id of INPUT.meeting_ids) assert.equal((await join(meeting_id)).status, 201);
      const say = (meeting_id: string, from_agent?: string) =>
        as('POST', messagesPath(meeting_id), { message: {}, ...(from_agent !== undefined && { from_agent }) });
      assert.equal((await say('standup', 'anna')).status, 201);
      assertProblem(await say('standup', 'ben'), 403, 'not_permitted');
      assertProblem(await say('standup'), 403, 'not_permitted');
      assertProblem(await say('elsewhere', 'anna'), 403, 'not_permitted');
      await here.send('standup', { content: 'hello' });
      // The other node may have the instance. Then it must know the key, and have taken over the delivery.
      const pulled = await until(
        'a pull to succeed',
        () => as<Pulled>('POST', `${instancePath(instance_id)}pull/`, { wait_s: 50 }),
        ({ status }) => status === 200,
      );
      assert.equal(pulled.body.pushes.length, 1, pulled.text);
      assertProblem(await register('another'), 403, 'not_permitted');
      assertProblem(await join('elsewhere'), 403, 'not_permitted');
      for (const [method, path, body] of [
        ['GET', '/api/v1/keys/'],
        ['GET', '/api/v1/invites/'],
        ['POST', '/api/v1/invites/', INPUT],
        ['GET', '/api/v1/audit/'],
        ['GET', '/api/v1/meetings/standup/messages/'],
        ['GET', '/metrics'],
      ] as const) {
        assertProblem(await as(method, path, body), 403, 'not_permitted');
      }
    });

    test('hands over an existing instance: its previous key may no longer change it', async () => {
      const first = (await redeem(here, await invite(here, { instance_id: `laptop of ${engine}` }))).body;
      const register = (api_key: string | null) =>
        here.request('POST', '/api/v1/instances/register/', {
          headers: bearer(api_key),
          body: {
            instance_id: first.instance_id,
            instance_name: 'n',
            agent_ids: [],
            webhook_url: 'http://127.0.0.1:1/',
          },
        });
      assert.equal((await register(first.api_key)).status, 201);
      const second = (await redeem(here, await invite(here, { instance_id: first.instance_id }))).body;
      assertProblem(await register(first.api_key), 409, 'instance_id_taken');
      assert.equal((await register(second.api_key)).status, 200);
    });

    test('ends when it expires or is revoked, on every node, and says why; one that was redeemed cannot be revoked', async () => {
      const expiring = await invite(here);
      assert.equal(Date.parse(expiring.expires_at) - Date.parse(expiring.created_at), HOUR_MS);
      const lasting = await invite(here, { expires_in_s: 7_200 });
      const revoked = await invite(here, { expires_in_s: 7_200 });
      const revoke = ({ invite_id }: InviteWithLink) => here.request('DELETE', `/api/v1/invites/${invite_id}/`);
      assert.equal((await revoke(revoked)).status, 204);
      assert.match(assertProblem(await redeem(there, revoked), 410, 'invite_ended').detail, /^It was revoked at /);
      clock.step(HOUR_MS);
      assert.match(assertProblem(await redeem(there, expiring), 410, 'invite_ended').detail, /^It expired at /);
      // Control: the invite that is valid for longer can still be redeemed.
      assert.equal((await redeem(there, lasting)).status, 200);
      assert.match(assertProblem(await redeem(here, lasting), 410, 'invite_ended').detail, /^It was redeemed at /);
      assertProblem(await revoke(lasting), 409, 'invite_redeemed');
      assertProblem(await here.request('DELETE', '/api/v1/invites/inv_none/'), 404, 'invite_does_not_exist');
      const { data } = (await there.get<{ data: Invite[] }>('/api/v1/invites/')).body;
      // By their ids: invites of the same millisecond are in no order.
      const states = new Map(data.map(({ invite_id, state }) => [invite_id, state]));
      assert.deepEqual(
        [revoked, lasting, expiring].map(({ invite_id }) => states.get(invite_id)),
        ['revoked', 'redeemed', 'expired'],
      );
    });

    test('ends with the first key when anybody could make it, and with no later key', async () => {
      assert.match(assertProblem(await redeem(there, open), 410, 'invite_ended').detail, /^It was revoked/);
      const made = await invite(here);
      await here.createKey({ scopes: ['admin'] });
      assert.equal((await redeem(there, made)).status, 200);
    });

    test('ends with the key that made it', async () => {
      const admin = await here.createKey({ scopes: ['admin'] });
      const answer = await here.post<InviteWithLink>('/api/v1/invites/', INPUT, bearer(admin.token));
      assert.equal(answer.body.created_by, admin.key_id);
      await here.request('DELETE', `/api/v1/keys/${admin.key_id}/`);
      assertProblem(await redeem(there, answer.body), 410, 'invite_ended');
    });
  });
}

test('a page, a preview or a prefetch of the link redeems nothing, and no cache or log of others gets it', async (t) => {
  // Builds the pages: without them a browser gets plain text.
  await buildIfStale();
  const service = await startService(t);
  await service.endOpenMode();
  const made = await invite(service, { agent_ids: ['<b>anna</b>'] });
  for (const [method, headers] of [
    ['GET', {}],
    ['GET', BROWSER],
    ['GET', { ...BROWSER, 'sec-purpose': 'prefetch' }],
    ['HEAD', BROWSER],
  ] as const) {
    const shown = await ask(service, method, made, headers);
    assert.equal(shown.status, 200, shown.text);
    assert.equal(shown.headers['cache-control'], 'no-store');
    assert.equal(shown.headers['referrer-policy'], 'no-referrer');
    assert.match(String(shown.headers['content-security-policy']), /^default-src 'none'; script-src 'self'; /);
    if (method === 'HEAD') continue;
    assert.ok(shown.text.includes(`npx convoke connect ${made.link}`), shown.text);
    assert.ok(!(headers === BROWSER && shown.text.includes('<b>')), 'text is no markup');
  }
  assert.equal((await redeem(service, made)).status, 200);
  const used = await ask(service, 'GET', made, BROWSER);
  assert.deepEqual([used.status, used.text.includes('npx convoke connect http')], [410, false]);
});

test('the page of an invite shows the address that its visitor used: behind a proxy with TLS it is https', async (t) => {
  const service = await startService(t, { trust_proxy: '127.0.0.1/32' });
  await service.endOpenMode();
  const made = await invite(service);
  const proxied = { host: 'convoke.example', 'x-forwarded-proto': 'https', 'x-forwarded-for': '192.0.2.1' };
  const shown = await ask(service, 'GET', made, proxied);
  assert.ok(shown.text.includes(`npx convoke connect https://convoke.example${new URL(made.link).pathname} --to `));
});

test('before the first key an invite gives no key, because none is needed, and makes none', async (t) => {
  const service = await startService(t);
  const made = await invite(service);
  assert.equal(made.created_by, null);
  const { status, body } = await redeem(service, made);
  assert.deepEqual([status, body.api_key, body.instance_id], [200, null, made.instance_id]);
  assertProblem(await redeem(service, made), 410, 'invite_ended');
  assert.deepEqual((await service.get<{ data: [] }>('/api/v1/keys/')).body.data, []);
});

test('links that are none are refused before anything is looked up, and their number is limited', async (t) => {
  const service = await startService(t, { auth_failure_rate: '1/h:3' });
  await service.endOpenMode();
  const made = await invite(service);
  const wrong = { link: `${made.link.slice(0, -43)}${'x'.repeat(43)}` };
  assert.equal((await ask(service, 'GET', wrong)).status, 404);
  for (let i = 0; i < 2; i++) assert.equal((await redeem(service, wrong)).status, 404);
  assertProblem(await redeem(service, wrong), 429, 'rate_limited');
  assertProblem(await redeem(service, made), 429, 'rate_limited');
});

for (const [what, auth_failure_rate, looked_up_max] of [
  ['of guesses that come at once no more are looked up than may fail', '1/m:20', 20],
  ['control: without the limit all of them are', '0', 200],
] as const) {
  test(what, async (t) => {
    const service = await startService(t, { auth_failure_rate });
    await service.endOpenMode();
    const made = await invite(service);
    const wrong = { link: `${made.link.slice(0, -43)}${'x'.repeat(43)}` };
    const guesses = await Promise.all(
      Array.from({ length: 200 }, (_, i) => (i % 2 === 0 ? redeem(service, wrong) : ask(service, 'GET', wrong))),
    );
    const looked_up = guesses.filter(({ status }) => status === 404).length;
    assert.equal(looked_up, looked_up_max);
    assert.equal(guesses.filter(({ status }) => status === 429).length, guesses.length - looked_up);
  });
}

test('a link that is right takes nothing from what an address may guess', async (t) => {
  const service = await startService(t, { auth_failure_rate: '1/m:2' });
  await service.endOpenMode();
  for (let i = 0; i < 5; i++) assert.equal((await redeem(service, await invite(service))).status, 200);
});

test('every invite that is made, redeemed, refused and revoked is in the audit log, and the log of the service has no secret', async (t) => {
  const service = await startService(t);
  const admin = await service.endOpenMode();
  const client = new ConvokeClient({ base_url: service.url, api_key: admin.token });
  const made = await client.createInvite(INPUT);
  const { api_key, ...redeemed } = await new ConvokeClient({ base_url: service.url }).redeemInvite(made.link);
  assert.deepEqual(redeemed.agent_ids, INPUT.agent_ids);
  await assert.rejects(client.redeemInvite(made.link), { code: 'invite_ended' });
  await assert.rejects(client.redeemInvite('http://elsewhere.example/invite/x'), TypeError);
  const other = await client.createInvite(INPUT);
  await client.revokeInvite(other.invite_id);
  const { data } = await client.listAudit({ limit: 5 });
  const { instance_id, invite_id } = made;
  const about = { instance_id, meeting_ids: INPUT.meeting_ids };
  assert.deepEqual(
    data.toReversed().map(({ principal, action, target_id, outcome, code, details }) => ({
      principal,
      action,
      target_id,
      said: code ?? outcome,
      details,
    })),
    [
      {
        principal: admin.key_id,
        action: 'invite.create',
        target_id: invite_id,
        said: 'done',
        details: { fields: ['agent_ids', 'meeting_ids'], ...about },
      },
      {
        principal: 'invite link',
        action: 'invite.redeem',
        target_id: invite_id,
        said: 'done',
        details: { fields: ['secret'], key_id: api_key?.slice(4, 16), ...about },
      },
      {
        principal: 'unknown',
        action: 'invite.redeem',
        target_id: null,
        said: 'invite_ended',
        details: { fields: ['secret'] },
      },
      {
        principal: admin.key_id,
        action: 'invite.create',
        target_id: other.invite_id,
        said: 'done',
        details: {
          fields: ['agent_ids', 'meeting_ids'],
          instance_id: other.instance_id,
          meeting_ids: INPUT.meeting_ids,
        },
      },
      {
        principal: admin.key_id,
        action: 'invite.revoke',
        target_id: other.invite_id,
        said: 'done',
        details: {},
      },
    ],
  );
  const secret = made.link.split('/').at(-1)!;
  assert.equal((await service.request('PUT', `/invite/${secret}`)).text.includes(secret), false);
  assert.ok(!JSON.stringify(service.log).includes(secret) && !JSON.stringify(data).includes(secret));
  assert.ok(JSON.stringify(service.log).includes(invite_id), 'control: the log tells of it');
});

test('a link to which a program has added a query still shows its page', async (t) => {
  const service = await startService(t);
  await service.endOpenMode();
  const { link } = await invite(service);
  const { pathname } = new URL(link);
  const answer = await service.request('GET', `${pathname}?fbclid=1&utm_source=chat`, { headers: { cookie: '' } });
  assert.equal(answer.status, 200, answer.text);
  assert.ok(answer.text.includes(link), 'the command has the link as it was made');
});

test('the link leads to public_url, on the page too', async (t) => {
  const service = await startService(t, { public_url: 'https://convoke.example/base' });
  await service.endOpenMode();
  const { link, is_public_url } = await invite(service);
  assert.equal(is_public_url, true);
  assert.match(link, /^https:\/\/convoke\.example\/base\/invite\/[\w-]+$/);
  const { text } = await service.request('GET', link.slice('https://convoke.example/base'.length), {
    headers: { cookie: '' },
  });
  assert.ok(text.includes(link));
});
