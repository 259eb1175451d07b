/**
 * Replies that arrive after the response, with the token of a push: who may send them, how many, and what ends the
 * right to reply. The same ends the right to reply in the response.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test, type TestContext } from 'node:test';
import type { InviteWithLink, MessagePage, Pulled, SentMessage } from '@convoke/sdk';
import type { Clock } from '../../src/delivery/clock.ts';
import { systemClock } from '../../src/delivery/clock.ts';
import { REPLIES_MAX } from '../../src/domain/reply.ts';
import { startNode } from '../support/node.ts';
import { makeDatabase } from '../support/postgres.ts';
import { pullPath } from '../support/pulling.ts';
import type { Behaviour, Received } from '../support/receiver.ts';
import {
  type Answer,
  assertProblem,
  type Member,
  messagesPath,
  ON_A_FILE,
  Service,
  startService,
  useService,
} from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const HOUR = 3_600_000;

/** Makes a member that may reply, and a push to it. */
async function pushed(t: TestContext, service: Service, agent_ids = ['anna'], behaviour: Behaviour = {}) {
  const meeting_id = service.name('meeting');
  const member = await service.member(t, meeting_id, { agent_ids, behaviour, registration: { replies: true } });
  const sent = await service.send(meeting_id, { content: 'a question' });
  const push = await member.receiver.next();
  return { meeting_id, member, sent, push, token: String(push.headers['convoke-reply-token']) };
}

function reply(service: Service, token: string, body: object = { reply: 'an answer' }, key?: string) {
  const headers = { 'convoke-reply-token': token, ...(key !== undefined && { 'idempotency-key': key }) };
  return service.request<SentMessage>('POST', '/api/v1/replies/', { body, headers });
}

async function history(service: Service, meeting_id: string): Promise<MessagePage['data']> {
  return (await service.get<MessagePage>(`${messagesPath(meeting_id)}?limit=100`)).body.data;
}

describe('a later reply', () => {
  test('is sent in the meeting, as the answer of the agent, without a key', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const { meeting_id, sent, push, token } = await pushed(t, service);
    assert.equal(push.headers['convoke-reply-url'], `${service.url}/api/v1/replies/`);
    const key = service.token;
    service.token = null;
    const answer = await reply(service, token);
    service.token = key;
    assert.equal(answer.status, 201, answer.text);
    const [, said] = await history(service, meeting_id);
    const { message_id, from_agent, in_reply_to, message } = said!;
    assert.equal(message_id, answer.body.message_id);
    assert.deepEqual(
      { from_agent, in_reply_to, message },
      {
        from_agent: 'anna',
        in_reply_to: sent.message_id,
        message: { content: 'an answer' },
      },
    );
  });

  test('may be a message with its sender and its targets', async (t) => {
    const service = await startService(t);
    const { meeting_id, token } = await pushed(t, service, ['anna', 'bert']);
    const body = { reply: { message: { content: 'x' }, from_agent: 'bert', target_agents: ['anna'] } };
    const answer = await reply(service, token, body);
    assert.equal(answer.body.deliveries_queued, 1, answer.text);
    assert.equal((await history(service, meeting_id))[1]?.from_agent, 'bert');
    assertProblem(await reply(service, token), 422, 'invalid_fields');
    assertProblem(await reply(service, token, { reply: { message: {}, from_agent: 'carl' } }), 422, 'invalid_fields');
    assertProblem(await reply(service, token, { reply: 7 }), 422, 'invalid_fields');
    assertProblem(await reply(service, token, { replies: ['x'] }), 422, 'invalid_fields');
  });

  test('that is wrong is refused in the words of its own fields, and no item of a list that is too long is looked at', async (t) => {
    const service = await startService(t);
    const { token } = await pushed(t, service);
    const errorsOf = async (value: object) =>
      (await reply(service, token, { reply: value })).body as unknown as {
        errors: { path: string; message: string }[];
      };
    const long = await errorsOf({ message: {}, target_agents: Array.from({ length: 1_001 }, () => 1) });
    const [list, ...items] = long.errors;
    assert.deepEqual([list?.path, items], ['reply.target_agents', []]);
    const { errors } = await errorsOf({ message: [], recipients: ['bert'] });
    assert.deepEqual(errors.slice(1), [
      { path: 'reply.recipients', message: 'unknown field recipients; known are message, from_agent, target_agents' },
      { path: 'reply.message', message: 'must be a JSON object' },
    ]);
  });

  test('has its message stored as it was written, with repeated fields too', async (t) => {
    const service = await startService(t);
    const { meeting_id, token } = await pushed(t, service);
    const message = '{"a":1,"a":[{"b":1, "b":2.50}]}';
    const send = (body: string) =>
      service.request('POST', '/api/v1/replies/', { body, headers: { 'convoke-reply-token': token } });
    const answer = await send(`{"reply":{"message":${message}}}`);
    assert.equal(answer.status, 201, answer.text);
    const { text } = await service.get(messagesPath(meeting_id));
    assert.ok(text.includes(`"message":${message}`), text);
    assertProblem(await send('{"reply":{"message":{},"message":{}}}'), 400, 'malformed_json');
  });

  test(`can be given ${REPLIES_MAX} times, also when all of them arrive together, and a repeat counts once`, async (t) => {
    const service = await startService(t);
    const { meeting_id, token } = await pushed(t, service);
    const [first, again] = [
      await reply(service, token, undefined, 'key'),
      await reply(service, token, { reply: 'other words' }, 'key'),
    ];
    assert.equal(again.body.message_id, first.body.message_id);
    assert.equal(again.headers['idempotency-replayed'], 'true');
    const answers = await Promise.all(
      Array.from({ length: REPLIES_MAX + 5 }, (_, i) => reply(service, token, { reply: `${i}` })),
    );
    const accepted = answers.filter(({ status }) => status === 201);
    assert.equal(accepted.length, REPLIES_MAX - 1);
    for (const answer of answers) if (answer.status !== 201) assertProblem(answer, 409, 'reply_limit_reached');
    assertProblem(await reply(service, token), 409, 'reply_limit_reached');
    assert.equal((await reply(service, token, undefined, 'key')).status, 201);
    assert.equal((await history(service, meeting_id)).length, 1 + REPLIES_MAX);
  });

  test('an instance that did not opt in gets no token, and a token in its headers is refused', async (t) => {
    const service = await startService(t);
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    await service.send(meeting_id, {});
    const { headers } = await receiver.next();
    assert.deepEqual(
      Object.keys(headers).filter((name) => name.includes('reply')),
      [],
    );
    const webhook_headers = { 'convoke-reply-token': 'x' };
    const body = { instance_id: 'i', instance_name: 'i', agent_ids: [], webhook_url: receiver.url, webhook_headers };
    assertProblem(await service.post('/api/v1/instances/register/', body), 422, 'invalid_fields');
  });
});

/** What ends the right to reply, on a service that has a key. */
const ENDS: Record<string, (service: Service, meeting_id: string, member: Member) => Promise<unknown>> = {
  'the instance may not reply any more': (service, _, { instance_id }) =>
    service.patch(instance_id, { replies: false }),
  'the instance is switched off': (service, _, { instance_id }) => service.patch(instance_id, { is_active: false }),
  'the instance has left the meeting': (service, meeting_id, { instance_id }) => service.leave(meeting_id, instance_id),
  'the agent has left the meeting': (service, meeting_id, { instance_id }) =>
    service.join(meeting_id, instance_id, ['z']),
  'the instance was deleted': (service, _, { instance_id }) =>
    service.request('DELETE', `/api/v1/instances/${instance_id}/`),
  'the instance was deleted and registered again': async (service, meeting_id, { instance_id, receiver }) => {
    await service.request('DELETE', `/api/v1/instances/${instance_id}/`);
    await service.register({ instance_id, agent_ids: ['anna'], webhook_url: receiver.url, replies: true });
    await service.join(meeting_id, instance_id, ['anna']);
  },
  'the instance was handed over to another key': async (service, _, { instance_id }) => {
    const { key_id } = await service.createKey({ scopes: ['instance'] });
    const { owner_key_id } = await service.patch(instance_id, { owner_key_id: key_id });
    assert.equal(owner_key_id, key_id);
  },
  'an invite for the instance was redeemed': async (service, meeting_id, { instance_id }) => {
    const input = { meeting_ids: [meeting_id], agent_ids: ['anna'], instance_id };
    const { body } = await service.post<InviteWithLink>('/api/v1/invites/', input);
    const redeemed = await service.post('/api/v1/invites/redeem/', { secret: body.link.split('/').at(-1) });
    assert.equal(redeemed.status, 200, redeemed.text);
  },
  'its webhook moved to another server': async (service, _, { instance_id }) =>
    service.register({ instance_id, agent_ids: ['anna'], webhook_url: 'http://127.0.0.1:1/', replies: true }),
  'its machine pulls now': async (service, _, { instance_id }) =>
    service.post('/api/v1/instances/register/', {
      instance_id,
      instance_name: 'x',
      agent_ids: ['anna'],
      transport: 'pull',
      replies: true,
    }),
};

describe('a token is no longer good when', () => {
  const shared = useService();
  before(() => shared.endOpenMode());

  for (const [what, end] of Object.entries(ENDS)) {
    test(what, async (t) => {
      const { meeting_id, member, token } = await pushed(t, shared);
      await end(shared, meeting_id, member);
      assertProblem(await reply(shared, token), 403, 'replies_not_allowed');
      assert.equal((await history(shared, meeting_id)).length, 1);
    });
  }

  test('control: it is good when the instance is registered again at the same server', async (t) => {
    const service = await startService(t);
    const { meeting_id, member, token } = await pushed(t, service);
    const { instance_id, receiver } = member;
    const webhook_url = new URL('/elsewhere', receiver.url).href;
    await service.register({ instance_id, agent_ids: ['anna', 'ben'], webhook_url, replies: true });
    assert.equal((await reply(service, token)).status, 201);
    assert.equal((await history(service, meeting_id)).length, 2);
  });

  test('the key with which the machine pulled it was revoked', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const { key_id, token: api_key } = await service.createKey({ scopes: ['instance'] });
    const pulling = { authorization: `Bearer ${api_key}` };
    const meeting_id = service.name('meeting');
    const instance_id = service.name('puller');
    const input = { instance_id, instance_name: 'i', agent_ids: ['anna'], transport: 'pull', replies: true };
    await service.post('/api/v1/instances/register/', input, pulling);
    await service.join(meeting_id, instance_id, ['anna']);
    await service.send(meeting_id, { content: 'a question' });
    const pulled = await service.post<Pulled>(pullPath(instance_id), {}, pulling);
    const token = pulled.body.pushes[0]!.headers['convoke-reply-token']!;
    assert.equal((await reply(service, token)).status, 201);
    await service.request('DELETE', `/api/v1/keys/${key_id}/`);
    assertProblem(await reply(service, token), 403, 'replies_not_allowed');
    assert.equal((await history(service, meeting_id)).length, 2);
  });

  test('24 hours have passed; it is until then, after a start of the service too', async (t) => {
    let ahead_ms = 0;
    const real = systemClock();
    const clock: Clock = { ...real, wall: () => real.wall() + ahead_ms };
    const service = new Service({}, clock);
    await service.start();
    t.after(() => service.close());
    const { token } = await pushed(t, service);
    await service.restart({});
    ahead_ms = 24 * HOUR - 60_000;
    assert.equal((await reply(service, token)).status, 201);
    ahead_ms = 24 * HOUR + 60_000;
    assertProblem(await reply(service, token), 401, 'reply_token_not_valid');
  });

  test('the instance was deleted and registered again, and the clock was set back in between', async (t) => {
    const { service, clock } = await startWithClock(t);
    const { meeting_id, member, token } = await pushed(t, service);
    const { instance_id, receiver } = member;
    await service.request('DELETE', `/api/v1/instances/${instance_id}/`);
    clock.step(-HOUR);
    await service.register({ instance_id, agent_ids: ['anna'], webhook_url: receiver.url, replies: true });
    await service.join(meeting_id, instance_id, ['anna']);
    assertProblem(await reply(service, token), 403, 'replies_not_allowed');
  });

  test('the data key was changed', async (t) => {
    // The key is a setting, because on PostgreSQL the service makes no new key by itself.
    const [key, next] = [0, 1].map(() => randomBytes(32).toString('base64')) as [string, string];
    const service = await startService(t, { encryption_key: key });
    const { token } = await pushed(t, service);
    await service.restart({ encryption_key: next, encryption_key_previous: key });
    assert.equal((await reply(service, token)).status, 201, 'control');
    assert.equal((await service.post('/api/v1/encryption/reencrypt/')).status, 200);
    await service.restart({ encryption_key_previous: '' });
    assertProblem(await reply(service, token), 401, 'reply_token_not_valid');
  });
});

async function startWithClock(t: TestContext): Promise<{ service: Service; clock: SetClock }> {
  const clock = new SetClock();
  const service = new Service({}, clock);
  await service.start();
  t.after(() => service.close());
  return { service, clock };
}

describe('a clock that is set', () => {
  test('back after the registration loses no reply', async (t) => {
    const { service, clock } = await startWithClock(t);
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, { agent_ids: ['anna'], registration: { replies: true } });
    clock.step(-HOUR);
    await service.send(meeting_id, { content: 'a question' });
    const token = String((await receiver.next()).headers['convoke-reply-token']);
    assert.equal((await reply(service, token)).status, 201);
  });

  test('ahead for a while makes no reply count twice: maintenance forgets none that is known by its key', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    assert.equal((await node.post('m', { key: 'reply' })).repeated, false);
    node.clock.stepWall(25 * HOUR);
    await node.maintenance().run();
    node.clock.stepWall(-25 * HOUR);
    assert.equal((await node.post('m', { key: 'reply' })).repeated, true);
    // The control: after a day the service has forgotten the key.
    await node.clock.advance(25 * HOUR);
    await node.maintenance().run();
    assert.equal((await node.post('m', { key: 'reply' })).repeated, false);
  });
});

/** How many replies in responses had each result so far. */
async function resultsInResponses(service: Service): Promise<Record<string, number>> {
  const { text } = await service.get('/metrics');
  const counts = text.matchAll(/^convoke_replies_total\{way="response",result="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...counts].map(([, result, count]) => [result, Number(count)]));
}

for (const engine of ['SQLite', 'PostgreSQL']) {
  describe(`a reply in the response to a push is not sent when, before the response (${engine}),`, () => {
    let service: Service;
    before(async () => {
      service = new Service(engine === 'SQLite' ? ON_A_FILE : { database_url: await makeDatabase() });
      await service.start();
      await service.endOpenMode();
    });
    after(() => service.close());

    /** Makes a push whose receiver responds with a reply when the test wants it. */
    async function pushedAndAnswered(t: TestContext) {
      const answer = Promise.withResolvers<void>();
      const { meeting_id, member, sent } = await pushed(t, service, ['anna'], {
        body: '{"reply":"late"}',
        after: answer.promise,
      });
      return { meeting_id, member, sent, answer: answer.resolve };
    }

    for (const [what, end] of Object.entries(ENDS)) {
      test(what, async (t) => {
        const earlier = await resultsInResponses(service);
        const { meeting_id, member, answer } = await pushedAndAnswered(t);
        await end(service, meeting_id, member);
        answer();
        const results = await until(
          'the reply',
          () => resultsInResponses(service),
          (latest) => JSON.stringify(latest) !== JSON.stringify(earlier),
        );
        assert.deepEqual(results, { ...earlier, refused: earlier['refused']! + 1 });
        assert.equal((await history(service, meeting_id)).length, 1);
      });
    }

    test('the instance was handed over; the attempt says so, and the delivery is delivered all the same', async (t) => {
      const { meeting_id, member, sent, answer } = await pushedAndAnswered(t);
      await ENDS['the instance was handed over to another key']!(service, meeting_id, member);
      answer();
      const { state, attempts } = await service.settled(sent);
      assert.equal(state, 'delivered');
      assert.match(attempts[0]?.detail ?? '', /^the reply was not sent: the instance has another owner/);
    });

    test('control: it is sent when nothing changed', async (t) => {
      const { meeting_id, sent, answer } = await pushedAndAnswered(t);
      answer();
      const { state, attempts } = await service.settled(sent);
      assert.deepEqual([state, attempts[0]?.detail], ['delivered', '']);
      assert.equal((await history(service, meeting_id)).length, 2);
    });
  });
}

test('a token is the same on each attempt, so that a runtime which has it in its request gets the same bytes', async (t) => {
  const clock = new SetClock();
  const service = new Service({ retry_schedule: '1s,1s,1s' }, clock);
  await service.start();
  t.after(() => service.close());
  const m = service.name('meeting');
  const { receiver } = await service.member(t, m, {
    behaviour: (_, number) => {
      clock.step(HOUR / 2);
      return { status: number === 3 ? 200 : 500 };
    },
    registration: { replies: true },
  });
  await service.settled(await service.send(m, { content: 'a question' }));
  const tokens = receiver.requests.map(({ headers }) => headers['convoke-reply-token']);
  assert.equal(tokens.length, 3);
  assert.deepEqual(new Set(tokens).size, 1);
  assert.equal((await reply(service, String(tokens[0]))).status, 201);
});

describe('a token that nobody made', () => {
  const other = (text: string): string => (text.startsWith('A') ? `B${text.slice(1)}` : `A${text.slice(1)}`);
  const forged = (token: string): string[] => {
    const [head = '', expires = '', standing = '', mac = ''] = token.split('.');
    return [
      '',
      'x',
      token.slice(0, -1),
      `${token}A`,
      `${head}.${expires}.${standing}.${other(mac)}`,
      `${head}.${expires}.${other(standing)}.${mac}`,
      `${head}.${Number(expires) + 1}.${standing}.${mac}`,
      `${head.slice(0, -1)}${head.endsWith('0') ? '1' : '0'}.${expires}.${standing}.${mac}`,
    ];
  };

  test('is refused, and guesses are limited; the right token is taken all the same', async (t) => {
    const service = await startService(t, { auth_failure_rate: '1/m:20' });
    const { token } = await pushed(t, service);
    for (const wrong of forged(token)) assertProblem(await reply(service, wrong), 401, 'reply_token_not_valid');
    const answers: Answer<SentMessage>[] = [];
    for (let i = 0; i < 20; i++) answers.push(await reply(service, 'x'));
    assertProblem(answers.at(-1)!, 429, 'rate_limited');
    assert.equal((await reply(service, token)).status, 201);
  });

  test('is refused before the body is read', async (t) => {
    const service = await startService(t);
    const answer = await service.request('POST', '/api/v1/replies/', { body: '{"reply":', headers: {} });
    assertProblem(answer, 401, 'reply_token_not_valid');
  });
});

test('every reply is counted once, by the way it arrived and its result', async (t) => {
  const service = await startService(t);
  const { meeting_id, member, token } = await pushed(t, service, ['anna', 'ben']);
  const counts = async (): Promise<Record<string, number>> => {
    const { text } = await service.get('/metrics');
    const lines = text.matchAll(/^convoke_replies_total\{way="(\w+)",result="(\w+)"\} (\d+)$/gm);
    return Object.fromEntries([...lines].map(([, way, result, count]) => [`${way} ${result}`, Number(count)]));
  };
  const none = {
    'response stored': 0,
    'response repeated': 0,
    'response refused': 0,
    'later stored': 0,
    'later repeated': 0,
    'later refused': 0,
  };
  assert.deepEqual(await counts(), none);
  // No instance hosts the target, so no push follows.
  const nobody = (text: string, from_agent: string) => ({ message: { text }, from_agent, target_agents: ['nobody'] });
  const one = { reply: nobody('yes', 'anna') };
  await reply(service, token, one, 'once');
  await reply(service, token, one, 'once');
  await reply(service, token, { reply: nobody('who is that', 'carl') });
  const later = { ...none, 'later stored': 1, 'later repeated': 1, 'later refused': 1 };
  assert.deepEqual(await counts(), later);
  const replies = [nobody('yes', 'anna'), nobody('me too', 'anna'), nobody('who is that', 'carl')];
  member.receiver.behaviour = { status: 200, body: JSON.stringify({ replies }) };
  await service.settled(await service.send(meeting_id, {}));
  assert.deepEqual(await counts(), { ...later, 'response stored': 2, 'response refused': 1 });
});

test('public_url is where receivers reply', async (t) => {
  const service = await startService(t, { public_url: 'https://convoke.example/base' });
  const { push } = await pushed(t, service);
  assert.equal(push.headers['convoke-reply-url'], 'https://convoke.example/base/api/v1/replies/');
});

test('an error page that shows the request does not show the token to readers of deliveries', async (t) => {
  const service = await startService(t);
  const meeting_id = service.name('meeting');
  const behaviour = ({ headers }: Received) => ({ body: JSON.stringify(headers) });
  const { receiver } = await service.member(t, meeting_id, { behaviour, registration: { replies: true } });
  const sent = await service.send(meeting_id, {});
  const token = String((await receiver.next()).headers['convoke-reply-token']);
  const { attempts } = await service.settled(sent);
  const excerpt = attempts[0]?.response_excerpt ?? '';
  assert.ok(excerpt.includes('convoke-message-id') && !excerpt.includes(token.slice(0, 40)), excerpt);
});
