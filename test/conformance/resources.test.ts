/** Spec section 2: the resources and their fields. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Instance, MeetingInstance, Membership, Page, RegisteredInstance } from '@convoke/sdk';
import { pushOf } from '../support/receiver.ts';
import { assertProblem, membersPath, messagesPath, useService } from '../support/service.ts';

const URL_A = 'http://127.0.0.1:9000/a';
const URL_B = 'http://127.0.0.1:9000/b';

describe('spec 2, instance:', { concurrency: true }, () => {
  const service = useService();
  const register = (body: object) => service.post<RegisteredInstance>('/api/v1/instances/register/', body);

  test('instance_id is the unique key: registration with an existing value updates that instance', async () => {
    const instance_id = service.name('instance');
    const input = { instance_id, instance_name: 'Before', agent_ids: ['a'], webhook_url: URL_A };
    assert.equal((await register(input)).status, 201);
    assert.equal((await register({ ...input, instance_name: 'After' })).status, 200);
    const { body } = await service.get<Page<Instance>>('/api/v1/instances/?limit=500');
    const found = body.data.filter((instance) => instance.instance_id === instance_id);
    assert.deepEqual(
      found.map(({ instance_name }) => instance_name),
      ['After'],
    );
  });

  test('instance_id is compared exactly: case, accents and spaces make another instance', async () => {
    // The last two ids look the same: one has a single code point for é, the other a letter with a combining accent.
    const ids = ['Same', 'same', 'same ', ' same', 'sam\u00e9', 'same\u0301'];
    for (const instance_id of ids) {
      const { status } = await register({ instance_id, instance_name: instance_id, agent_ids: [], webhook_url: URL_A });
      assert.equal(status, 201, `${JSON.stringify(instance_id)} was taken for another`);
    }
    for (const instance_id of ids) assert.equal((await service.instance(instance_id)).instance_name, instance_id);
  });

  test('registrations of one instance_id at the same time make one instance', async () => {
    const input = { instance_id: service.name('instance'), instance_name: 'One', agent_ids: [], webhook_url: URL_A };
    const answers = await Promise.all(Array.from({ length: 10 }, () => register(input)));
    assert.equal(answers.filter(({ status }) => status === 201).length, 1);
    assert.equal(answers.filter(({ status }) => status === 200).length, 9);
    assert.equal(answers.filter(({ body }) => body.webhook_secret !== undefined).length, 1);
  });

  test('instance_name is a display name: any text, shared by as many instances as like', async () => {
    for (let i = 0; i < 2; i++) {
      const { body } = await register({
        instance_id: service.name('instance'),
        instance_name: 'Ännas "Läptop" 💻 <b>',
        agent_ids: [],
        webhook_url: URL_A,
      });
      assert.equal(body.instance_name, 'Ännas "Läptop" 💻 <b>');
    }
  });

  test('agent_ids is a list of strings: order kept, duplicates dropped, empty allowed', async () => {
    const { agent_ids } = await service.register({ agent_ids: ['z', 'a', 'z', 'm', 'a'], webhook_url: URL_A });
    assert.deepEqual(agent_ids, ['z', 'a', 'm']);
    assert.deepEqual((await service.register({ agent_ids: [], webhook_url: URL_A })).agent_ids, []);
    for (const wrong of ['a', null, { 0: 'a' }, [1], [null], [['a']]]) {
      const input = { instance_id: service.name('i'), instance_name: 'n', agent_ids: wrong, webhook_url: URL_A };
      assertProblem(await register(input), 422, 'invalid_fields');
    }
  });

  test('webhook_url is the address that receives the pushes, path and query included', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    const webhook_url = `${receiver.origin}/runtime/%F0%9F%98%80?a=1&b=%20`;
    await service.register({ instance_id, webhook_url });
    await service.send(meeting_id, {});
    assert.equal((await receiver.next()).path, '/runtime/%F0%9F%98%80?a=1&b=%20');
    assert.equal((await service.instance(instance_id)).webhook_url, webhook_url);
  });

  for (const flag of ['webhook_enabled', 'is_active'] as const) {
    test(`${flag} is a boolean, true when new and set to true on every registration`, async () => {
      const made = await service.register({ webhook_url: URL_A });
      assert.equal(made[flag], true);
      assert.equal((await service.patch(made.instance_id, { [flag]: false }))[flag], false);
      assert.equal((await service.instance(made.instance_id))[flag], false);
      const again = await service.register({ instance_id: made.instance_id, webhook_url: URL_A });
      assert.equal(again[flag], true);
      assert.equal((await service.instance(made.instance_id))[flag], true);
    });
  }

  test('a registration cannot bring a flag along: it would be ignored in silence', async () => {
    const input = { instance_id: service.name('i'), instance_name: 'n', agent_ids: [], webhook_url: URL_B };
    assertProblem(await register({ ...input, is_active: false }), 422, 'invalid_fields');
  });
});

describe('spec 2, MeetingInstanceMap:', { concurrency: true }, () => {
  const service = useService();
  const membersOf = async (meeting_id: string, query = ''): Promise<MeetingInstance[]> =>
    (await service.get<Page<MeetingInstance>>(membersPath(meeting_id) + query)).body.data;

  test('one mapping exists per pair (meeting_id, instance)', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    const body = { instance_id, meeting_id, agent_ids: ['a'] };
    const joins = await Promise.all(
      Array.from({ length: 5 }, () => service.post<Membership>('/api/v1/instances/join-meeting/', body)),
    );
    assert.equal(joins.filter(({ status }) => status === 201).length, 1);
    assert.equal(joins.filter(({ status }) => status === 200).length, 4);
    assert.equal((await membersOf(meeting_id)).length, 1);
    const other = await service.register({ webhook_url: URL_A });
    await service.join(meeting_id, other.instance_id, ['a']);
    assert.equal((await membersOf(meeting_id)).length, 2);
  });

  test('agent_ids are the agents that take part: in order, without duplicates, perhaps none', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    assert.deepEqual((await service.join(meeting_id, instance_id, ['z', 'a', 'z'])).agent_ids, ['z', 'a']);
    assert.deepEqual((await membersOf(meeting_id))[0]?.agent_ids, ['z', 'a']);
    assert.deepEqual((await service.join(meeting_id, instance_id, [])).agent_ids, []);
  });

  test('left_at is null while the instance is in the meeting, and a time when it has left', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    assert.equal((await service.join(meeting_id, instance_id, ['a'])).left_at, null);
    assert.equal((await membersOf(meeting_id))[0]?.left_at, null);
    await service.leave(meeting_id, instance_id);
    assert.deepEqual(await membersOf(meeting_id), []);
    const [left] = await membersOf(meeting_id, '?include_left=true');
    assert.match(String(left?.left_at), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  });

  test('meeting_id is compared exactly', async (t) => {
    const [meeting_id, other] = [service.name('meeting'), service.name('Meeting')];
    const { receiver } = await service.member(t, meeting_id);
    for (const near of [meeting_id.toUpperCase(), `${meeting_id} `, other]) {
      assert.equal((await service.send(near, {})).deliveries_queued, 0);
    }
    await service.send(meeting_id, { content: 'exactly' });
    assert.deepEqual(pushOf(await receiver.next()).message, { content: 'exactly' });
  });
});

describe('spec 2, message:', { concurrency: true }, () => {
  const service = useService();

  test('a message is a key-value object, the empty one included', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    await service.send(meeting_id, {});
    assert.deepEqual(pushOf(await receiver.next()).message, {});
    for (const wrong of ['[]', '"text"', '1', 'true', 'null', '[{}]']) {
      const problem = assertProblem(
        await service.post(messagesPath(meeting_id), `{"message":${wrong}}`),
        422,
        'invalid_fields',
      );
      assert.deepEqual(problem.errors, [{ path: 'message', message: 'must be a JSON object' }], wrong);
    }
    assertProblem(await service.post(messagesPath(meeting_id), {}), 422, 'invalid_fields');
  });

  test('its key created_at is read when present, and used as the push timestamp', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    await service.send(meeting_id, { created_at: '2026-03-01T09:30:00+01:00', content: 'x' });
    assert.equal(pushOf(await receiver.next()).timestamp, '2026-03-01T09:30:00+01:00');
  });

  test('its other keys mean nothing to the service', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    const message = {
      event: 'other',
      meeting_id: 'other',
      target_agents: ['nobody'],
      timestamp: 'other',
      message: { created_at: 'inner' },
      Created_At: 'other',
    };
    await service.send(meeting_id, message);
    assert.deepEqual(pushOf(await receiver.next()), {
      event: 'new_message',
      meeting_id,
      message,
      target_agents: ['a'],
      timestamp: '',
    });
  });
});
