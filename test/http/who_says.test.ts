/**
 * from_agent, in_reply_to and expires_in_s of a send: where they appear, who may use them, and that sends without them
 * work as before.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { MessagePage, SentMessage } from '@convoke/sdk';
import { openStream } from '../support/event_stream.ts';
import { headerOf, pushOf } from '../support/receiver.ts';
import { assertProblem, messagesPath, startService, useService } from '../support/service.ts';

const HEADERS = ['convoke-from-agent', 'convoke-in-reply-to', 'convoke-hops'];
const BODY = ['event', 'meeting_id', 'message', 'target_agents', 'timestamp'];

describe('the sender of a message, and the message that it answers', { concurrency: true }, () => {
  const service = useService();

  const send = async (meeting_id: string, fields: object): Promise<SentMessage> => {
    const answer = await service.post<SentMessage>(messagesPath(meeting_id), { message: {}, ...fields });
    assert.equal(answer.status, 201, answer.text);
    return answer.body;
  };

  const listed = async (meeting_id: string) =>
    (await service.get<MessagePage>(messagesPath(meeting_id))).body.data.map(
      ({ message_id: _message_id, accepted_at: _accepted_at, ...rest }) => rest,
    );

  test('travel in headers, stand in the history and in the feed, and never in the body', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, { agent_ids: ['b', 'anna é'] });
    const stream = await openStream(`${service.url}/api/v1/events/?meeting_id=${meeting_id}`);
    t.after(() => stream.close());
    const asked = await send(meeting_id, {});
    await send(meeting_id, { from_agent: 'anna é', in_reply_to: asked.message_id });
    await send(meeting_id, { from_agent: 'b' });
    const [first, second, third] = (await receiver.count(3)).map((request) => {
      assert.deepEqual(Object.keys(pushOf(request)), BODY);
      return [pushOf(request).target_agents, ...HEADERS.map((name) => request.headers[name])];
    });
    assert.deepEqual(first, [['b', 'anna é'], undefined, undefined, undefined]);
    assert.deepEqual(second, [['b'], 'anna%20%C3%A9', asked.message_id, '1']);
    assert.deepEqual(third, [['anna é'], 'b', undefined, '2']);
    const answer = { from_agent: 'anna é', in_reply_to: asked.message_id, hops: 1 };
    assert.deepEqual(await listed(meeting_id), [
      { seq: 1, deliveries_queued: 1, target_agents: null, message: {} },
      { seq: 2, deliveries_queued: 1, target_agents: null, ...answer, message: {} },
      { seq: 3, deliveries_queued: 1, target_agents: null, from_agent: 'b', hops: 2, message: {} },
    ]);
    const events = await stream.some(3, ({ name }) => name === 'message.accepted');
    assert.deepEqual(
      events.map(({ data }) => [data['from_agent'], data['in_reply_to'], data['hops']]),
      [
        [undefined, undefined, undefined],
        ['anna é', asked.message_id, 1],
        ['b', undefined, 2],
      ],
    );
  });

  test('are checked: the problem names the field', async () => {
    const meeting_id = service.name('meeting');
    const elsewhere = await send(service.name('meeting'), {});
    for (const [field, value] of [
      ['from_agent', ''],
      ['from_agent', 7],
      ['from_agent', 'a\n'],
      ['in_reply_to', 'dlv_1'],
      ['in_reply_to', 'msg_00000000000000000000'],
      ['in_reply_to', elsewhere.message_id],
      ['expires_in_s', 0],
      ['expires_in_s', 1.5],
      ['expires_in_s', 1e9],
    ] as const) {
      const answer = await service.post(messagesPath(meeting_id), { message: {}, [field]: value });
      assert.deepEqual(
        assertProblem(answer, 422, 'invalid_fields').errors?.map(({ path }) => path),
        [field],
      );
    }
    assertProblem(await service.get(messagesPath(meeting_id)), 404, 'meeting_does_not_exist');
  });

  test('belong to what an Idempotency-Key stands for', async () => {
    const meeting_id = service.name('meeting');
    const { message_id } = await send(meeting_id, {});
    const said = { message: {}, from_agent: 'a', in_reply_to: message_id, expires_in_s: 60 };
    const post = (body: object) => service.post(messagesPath(meeting_id), body, { 'idempotency-key': 'k' });
    assert.equal((await post(said)).status, 201);
    assert.equal((await post(said)).headers['idempotency-replayed'], 'true');
    for (const other of [{ from_agent: 'b' }, { in_reply_to: undefined }, { expires_in_s: 61 }])
      assertProblem(await post({ ...said, ...other }), 409, 'idempotency_key_reused');
  });
});

test('a key of an instance speaks for the agents of its own instances alone; one that only sends, for all', async (t) => {
  const service = await startService(t);
  const { token: admin } = await service.endOpenMode();
  const { token } = await service.createKey({ scopes: ['instance', 'send'] });
  const { token: sender } = await service.createKey({ scopes: ['send'] });
  const { receiver } = await service.member(t, 'm', { agent_ids: ['bob'] });
  service.token = token;
  const { instance_id } = await service.register({ agent_ids: ['anna'], webhook_url: receiver.url });
  await service.join('m', instance_id, ['anna']);
  const asAgent = (from_agent: string, meeting_id = 'm') =>
    service.post(messagesPath(meeting_id), { message: {}, from_agent });
  assert.equal((await asAgent('anna')).status, 201);
  assert.equal(headerOf(await receiver.next(), 'convoke-from-agent'), 'anna');
  const refused = [await asAgent('bob'), await asAgent('nobody'), await asAgent('anna', 'elsewhere')];
  for (const answer of refused) {
    const { errors } = assertProblem(answer, 403, 'not_permitted');
    assert.deepEqual(
      errors?.map(({ path }) => path),
      ['from_agent'],
    );
  }
  assert.equal(new Set(refused.map(({ text }) => text)).size, 1, 'it learns of no agent of others');
  for (const other of [admin, sender]) {
    service.token = other;
    assert.equal((await asAgent('bob')).status, 201);
  }
  service.token = token;
  await service.leave('m', instance_id);
  assertProblem(await asAgent('anna'), 403, 'not_permitted');
});
