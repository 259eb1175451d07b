/** Sending a message, and repeating the send. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { MessagePage, SentMessage } from '@convoke/sdk';
import { pushOf } from '../support/receiver.ts';
import { assertProblem, messagesPath, useService } from '../support/service.ts';

describe('a send with an Idempotency-Key:', { concurrency: true }, () => {
  const service = useService();
  const send = (meeting_id: string, key: string, body: object | string) =>
    service.post<SentMessage>(messagesPath(meeting_id), body, { 'idempotency-key': key });
  const history = async (meeting_id: string): Promise<number> =>
    (await service.get<MessagePage>(messagesPath(meeting_id))).body.data.length;

  test('repeated with the same body gets the first result, and is stored and pushed once', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    const first = await send(meeting_id, 'key', { message: { n: 1 }, target_agents: ['a'] });
    assert.equal(first.status, 201);
    assert.equal(first.headers['idempotency-replayed'], undefined);
    for (let i = 0; i < 3; i++) {
      const again = await send(meeting_id, 'key', { message: { n: 1 }, target_agents: ['a'] });
      assert.deepEqual([again.status, again.body], [201, first.body]);
      assert.equal(again.headers['idempotency-replayed'], 'true');
    }
    await service.settled(await service.send(meeting_id, { n: 2 }));
    assert.deepEqual(
      receiver.requests.map((request) => pushOf(request).message),
      [{ n: 1 }, { n: 2 }],
    );
    assert.equal(await history(meeting_id), 2);
  });

  test('repeated at the same time, too', async (t) => {
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id);
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => send(meeting_id, 'at-once', { message: { n: 1 } })),
    );
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([201]));
    assert.equal(new Set(answers.map(({ body }) => body.message_id)).size, 1);
    assert.equal(answers.filter(({ headers }) => headers['idempotency-replayed'] === undefined).length, 1);
    assert.equal(await history(meeting_id), 1);
  });

  test('repeated after the meeting has changed gets the same response as before', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id);
    const first = await send(meeting_id, 'key', { message: {} });
    await service.leave(meeting_id, instance_id);
    assert.deepEqual((await send(meeting_id, 'key', { message: {} })).body, first.body);
  });

  test('with another body is refused', async () => {
    const meeting_id = service.name('meeting');
    await send(meeting_id, 'key', { message: { n: 1 } });
    for (const other of [
      { message: { n: 2 } },
      { message: { n: 1 }, target_agents: ['a'] },
      '{"message":{"n":1.0}}',
      '{"message":{"n":1,"n":1}}',
    ]) {
      assertProblem(await send(meeting_id, 'key', other), 409, 'idempotency_key_reused');
    }
    assert.equal(await history(meeting_id), 1);
    assert.equal((await send(meeting_id, 'key', { message: { n: 1 } })).status, 201);
  });

  test('in another meeting, it is another key', async () => {
    const [one, two] = [service.name('meeting'), service.name('meeting')];
    const first = await send(one, 'key', { message: { n: 1 } });
    const second = await send(two, 'key', { message: { n: 2 } });
    assert.equal(second.status, 201);
    assert.notEqual(second.body.message_id, first.body.message_id);
  });

  test('a send that was refused leaves the key free', async () => {
    const meeting_id = service.name('meeting');
    assert.equal((await send(meeting_id, 'key', { message: [] })).status, 422);
    assert.equal((await send(meeting_id, 'key', { message: {} })).status, 201);
  });

  test('a key has 1 to 255 printable ASCII characters', async () => {
    const meeting_id = service.name('meeting');
    for (const key of ['x', 'a b~!"', 'x'.repeat(255)]) {
      assert.equal((await send(meeting_id, key, { message: {} })).status, 201, key);
    }
    for (const key of ['x'.repeat(256), 'ä', '', ' ']) {
      const problem = assertProblem(await send(meeting_id, key, { message: {} }), 422, 'invalid_fields');
      assert.equal(problem.errors?.[0]?.path, 'idempotency-key');
    }
  });

  test('without a key, the same body is another message', async () => {
    const meeting_id = service.name('meeting');
    const [first, second] = [await service.send(meeting_id, { n: 1 }), await service.send(meeting_id, { n: 1 })];
    assert.notEqual(first.message_id, second.message_id);
    assert.deepEqual([first.seq, second.seq], [1, 2]);
  });
});
