/** Spec section 7: errors. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { LeftMeeting } from '@convoke/sdk';
import { assertProblem, messagesPath, useService } from '../support/service.ts';

describe('spec 7, errors:', { concurrency: true }, () => {
  const service = useService();
  const leave = (body: object) => service.post<LeftMeeting>('/api/v1/instances/leave-meeting/', body);

  test('join meeting with an instance_id that is not registered fails: instance does not exist', async () => {
    const instance_id = service.name('nobody');
    const body = { instance_id, meeting_id: service.name('meeting'), agent_ids: ['a'] };
    const problem = assertProblem(
      await service.post('/api/v1/instances/join-meeting/', body),
      404,
      'instance_does_not_exist',
    );
    assert.match(problem.detail, new RegExp(instance_id));
  });

  test('join meeting fails so for an instance that was deleted, and works again once it is registered', async () => {
    const { instance_id, webhook_url } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
    await service.request('DELETE', `/api/v1/instances/${instance_id}/`);
    const body = { instance_id, meeting_id: service.name('meeting'), agent_ids: ['a'] };
    assertProblem(await service.post('/api/v1/instances/join-meeting/', body), 404, 'instance_does_not_exist');
    await service.register({ instance_id, webhook_url });
    assert.equal((await service.post('/api/v1/instances/join-meeting/', body)).status, 201);
  });

  test('leave meeting with an unknown instance is logged and not raised to the caller', async () => {
    const [instance_id, meeting_id] = [service.name('nobody'), service.name('meeting')];
    const answer = await leave({ instance_id, meeting_id });
    assert.equal(answer.status, 200);
    assert.deepEqual(answer.body, { instance_id, meeting_id, left_at: null });
    const lines = service.log.filter((line) => line['instance_id'] === instance_id);
    assert.deepEqual(
      lines.map(({ level, msg, meeting_id: meeting }) => [level, msg, meeting]),
      [[40, 'leave meeting: no such instance or membership', meeting_id]],
    );
  });

  test('leave meeting with an unknown mapping is logged and not raised to the caller', async () => {
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
    const [joined, meeting_id] = [service.name('meeting'), service.name('meeting')];
    await service.join(joined, instance_id, ['a']);
    const answer = await leave({ instance_id, meeting_id });
    assert.deepEqual([answer.status, answer.body.left_at], [200, null]);
    assert.equal(service.log.filter((line) => line['instance_id'] === instance_id && line['level'] === 40).length, 1);
    assert.equal((await service.send(joined, {})).deliveries_queued, 1);
  });

  test('a leave that finds nothing makes no meeting', async () => {
    const meeting_id = service.name('meeting');
    await leave({ instance_id: 'nobody', meeting_id });
    assertProblem(await service.get(messagesPath(meeting_id)), 404, 'meeting_does_not_exist');
  });

  test('webhook failures are not raised to the sender of the message: the response is the usual one', async (t) => {
    const meeting_id = service.name('meeting');
    const down = await service.member(t, meeting_id);
    await down.receiver.down();
    for (const behaviour of ['reset', 'hang', { status: 500 }, { status: 404 }] as const) {
      await service.member(t, meeting_id, { behaviour });
    }
    for (let seq = 1; seq <= 3; seq++) {
      const answer = await service.post<Record<string, unknown>>(messagesPath(meeting_id), { message: { seq } });
      assert.equal(answer.status, 201, answer.text);
      const { message_id, accepted_at, ...rest } = answer.body;
      assert.deepEqual(rest, { meeting_id, seq, deliveries_queued: 5 });
      assert.match(String(message_id), /^msg_[0-9a-v]{19}$/);
      assert.match(String(accepted_at), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    }
  });

  test('the sender does not wait for the recipients', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, { behaviour: 'hang' });
    const sent = await service.send(meeting_id, {});
    await receiver.next();
    assert.equal((await service.deliveriesOf(sent))[0]?.state, 'pending');
  });

  test('no log line about a failure holds the message, a secret, or the value of a header', async (t) => {
    const meeting_id = service.name('meeting');
    const { webhook_secret } = await service.member(t, meeting_id, {
      behaviour: { status: 500, body: 'the-answer-of-the-runtime' },
      registration: { webhook_headers: { authorization: 'Bearer the-credential' } },
    });
    const delivery = await service.attempted(await service.send(meeting_id, { content: 'the-words-of-the-message' }));
    assert.equal(service.logOf(delivery).length, 1);
    const log = service.log.map((line) => JSON.stringify(line)).join('\n');
    for (const word of ['the-words-of-the-message', 'the-credential', webhook_secret, 'the-answer-of-the-runtime']) {
      assert.ok(!log.includes(word), `${word} is in the log`);
    }
  });
});
