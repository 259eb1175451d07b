/** What an id may be, in bodies and in paths. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Instance, LeftMeeting, MeetingInstance, Membership, Page, SentMessage } from '@convoke/sdk';
import { pushOf } from '../support/receiver.ts';
import { assertProblem, instancePath, membersPath, messagesPath, useService } from '../support/service.ts';

describe('ids:', { concurrency: true }, () => {
  const service = useService();

  const ids = [
    'a/b',
    '/',
    '//',
    '/leading/and/trailing/',
    '%',
    '%2F',
    '100%25',
    '%zz',
    '...',
    'a.b.',
    'a b',
    ' ',
    'a+b',
    'a?b=c&d#e',
    'a;b=c',
    ':id',
    '*',
    '\\',
    '"quoted"',
    "o'clock",
    '{}[]<>|^`~!@$()=,',
    'é',
    'e\u0301',
    '日本語の会議',
    'שלום',
    '\u202eright to left',
    '👩‍👩‍👧‍👦',
    '😀'.repeat(200),
    '__proto__',
    'constructor',
    'null',
    'undefined',
    '0',
    '-1',
    '1e3',
    'register',
    'join-meeting',
    'leave-meeting',
    'webhook-test',
    'heartbeat',
  ];
  test('"." and ".." are refused with a sentence: clients resolve them in a path before they send it', async () => {
    for (const id of ['.', '..']) {
      const registration = { instance_name: 'n', agent_ids: [], webhook_url: 'http://127.0.0.1:9/', instance_id: id };
      assertProblem(await service.post('/api/v1/instances/register/', registration), 422, 'invalid_fields');
    }
  });

  for (const id of ids) {
    test(`${JSON.stringify(id.slice(0, 20))} can be the id of an instance, a meeting and an agent`, async (t) => {
      const { receiver } = await service.member(t, id, { agent_ids: [id], registration: { instance_id: id } });
      assert.equal((await service.get<Instance>(instancePath(id))).body.instance_id, id);
      assert.equal((await service.heartbeat(id)).instance_id, id);
      assert.equal((await service.patch(id, { instance_name: 'x' })).instance_id, id);
      const sent = await service.post<SentMessage>(messagesPath(id), { message: {}, target_agents: [id] });
      assert.deepEqual([sent.status, sent.body.meeting_id], [201, id]);
      const push = pushOf(await receiver.next());
      assert.deepEqual([push.meeting_id, push.target_agents], [id, [id]]);

      const members = await service.get<Page<MeetingInstance>>(membersPath(id));
      assert.deepEqual(
        members.body.data.map(({ instance_id, meeting_id, agent_ids }) => [instance_id, meeting_id, agent_ids]),
        [[id, id, [id]]],
      );
      const query = new URLSearchParams({ agent_id: id, meeting_id: id, q: id.slice(0, 100) }).toString();
      const found = await service.get<Page<Instance>>(`/api/v1/instances/?${query}`);
      assert.deepEqual(
        found.body.data.map(({ instance_id }) => instance_id),
        [id],
        found.text,
      );
      const delivery = await service.settled(sent.body);
      assert.deepEqual([delivery.instance_id, delivery.meeting_id, delivery.target_agents], [id, id, [id]]);

      const left = await service.post<LeftMeeting>('/api/v1/instances/leave-meeting/', {
        instance_id: id,
        meeting_id: id,
      });
      assert.notEqual(left.body.left_at, null);
      assert.equal((await service.request('DELETE', instancePath(id))).status, 204);
    });
  }

  test('with control characters or lone surrogates are refused wherever they stand', async () => {
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
    for (const id of [
      '\u0000',
      'a\u0000',
      '\n',
      'a\tb',
      '\r',
      '\u001f',
      '\u007f',
      '\u0085',
      '\u009f',
      '\ud800',
      'a\udfff',
      '\udc00\ud800',
    ]) {
      const registration = { instance_id: 'x', instance_name: 'n', agent_ids: ['a'], webhook_url: 'http://127.0.0.1/' };
      for (const [path, body, field] of [
        ['/api/v1/instances/register/', { ...registration, instance_id: id }, 'instance_id'],
        ['/api/v1/instances/register/', { ...registration, instance_name: id }, 'instance_name'],
        ['/api/v1/instances/register/', { ...registration, agent_ids: ['a', id] }, 'agent_ids.1'],
        ['/api/v1/instances/join-meeting/', { instance_id, meeting_id: id, agent_ids: [] }, 'meeting_id'],
        ['/api/v1/instances/join-meeting/', { instance_id, meeting_id: 'm', agent_ids: [id] }, 'agent_ids.0'],
        ['/api/v1/instances/leave-meeting/', { instance_id: id, meeting_id: 'm' }, 'instance_id'],
        [messagesPath('m'), { message: {}, target_agents: [id] }, 'target_agents.0'],
      ] as const) {
        // JSON.stringify writes lone surrogates as escapes, so they reach the service.
        const answer = await service.post(path, body);
        const problem = assertProblem(answer, 422, 'invalid_fields');
        assert.deepEqual(
          problem.errors?.map((error) => error.path),
          [field],
          `${JSON.stringify(id)} ${answer.text}`,
        );
      }
    }
  });

  test('with control characters or lone surrogates are refused in the path', async () => {
    for (const escape of ['%00', 'a%0Ab', '%7F', '%C2%85']) {
      for (const path of [`/api/v1/instances/${escape}/`, `/api/v1/meetings/${escape}/messages/`]) {
        assertProblem(await service.get(path), 422, 'invalid_fields');
      }
      const sent = await service.post(`/api/v1/meetings/${escape}/messages/`, { message: {} });
      assertProblem(sent, 422, 'invalid_fields');
    }
    for (const escape of ['%ED%A0%80', '%FF', '%', '%zz', 'a%2']) {
      assertProblem(await service.get(`/api/v1/instances/${escape}/`), 400, 'malformed_request');
    }
  });
});

describe('a meeting_id that is an integer is taken as its decimal string:', { concurrency: true }, () => {
  const service = useService();

  for (const digits of ['0', '7', '-7', '1234567890', '9007199254740993', '12345678901234567890', '9'.repeat(200)]) {
    test(digits.slice(0, 30), async (t) => {
      const { instance_id, receiver } = await service.member(t, service.name('meeting'));
      const body = `{"instance_id":"${instance_id}","meeting_id":${digits},"agent_ids":["a"]}`;
      const joined = await service.post<Membership>('/api/v1/instances/join-meeting/', body);
      assert.deepEqual([joined.status, joined.body.meeting_id], [201, digits], joined.text);
      await service.send(digits, {});
      assert.equal(pushOf(await receiver.next()).meeting_id, digits);
      const left = await service.post<LeftMeeting>(
        '/api/v1/instances/leave-meeting/',
        `{"meeting_id" : ${digits} , "instance_id":"${instance_id}"}`,
      );
      assert.equal(left.body.meeting_id, digits);
      assert.notEqual(left.body.left_at, null);
    });
  }

  test('numbers that are written otherwise are refused: 1.0 and 1e3 have no one string', async () => {
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
    for (const number of ['1.0', '1e3', '1.5', '1E400', '-0.0', '9'.repeat(201)]) {
      const body = `{"instance_id":"${instance_id}","meeting_id":${number},"agent_ids":["a"]}`;
      const problem = assertProblem(await service.post('/api/v1/instances/join-meeting/', body), 422, 'invalid_fields');
      assert.deepEqual(
        problem.errors?.map(({ path }) => path),
        ['meeting_id'],
        number,
      );
    }
  });
});
