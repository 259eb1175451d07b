/** Spec section 3: states and transitions, row by row. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { LeftMeeting, MeetingInstance, Membership, Page, RegisteredInstance } from '@convoke/sdk';
import { pushOf, startReceiver } from '../support/receiver.ts';
import { assertProblem, instancePath, membersPath, useService } from '../support/service.ts';

const URL_A = 'http://127.0.0.1:9000/a';
const URL_B = 'http://127.0.0.1:9000/b';

describe('spec 3, transitions:', { concurrency: true }, () => {
  const service = useService();
  const join = (body: object) => service.post<Membership>('/api/v1/instances/join-meeting/', body);
  const leave = (body: object) => service.post<LeftMeeting>('/api/v1/instances/leave-meeting/', body);
  const memberOf = async (meeting_id: string, instance_id: string): Promise<MeetingInstance | undefined> => {
    const { body } = await service.get<Page<MeetingInstance>>(`${membersPath(meeting_id)}?include_left=true`);
    return body.data.find((member) => member.instance_id === instance_id);
  };

  test('absent → register → exists, active and enabled, with the given name, agents and webhook URL', async () => {
    const instance_id = service.name('instance');
    assertProblem(await service.get(instancePath(instance_id)), 404, 'instance_does_not_exist');
    const answer = await service.post<RegisteredInstance>('/api/v1/instances/register/', {
      instance_id,
      instance_name: 'Given name',
      agent_ids: ['given', 'agents'],
      webhook_url: URL_A,
    });
    assert.equal(answer.status, 201);
    const { instance_name, agent_ids, webhook_url, is_active, webhook_enabled } = await service.instance(instance_id);
    assert.deepEqual(
      { instance_name, agent_ids, webhook_url, is_active, webhook_enabled },
      {
        instance_name: 'Given name',
        agent_ids: ['given', 'agents'],
        webhook_url: URL_A,
        is_active: true,
        webhook_enabled: true,
      },
    );
  });

  test('exists → register → active and enabled, with name, agent_ids and webhook_url overwritten', async () => {
    const instance_id = service.name('instance');
    await service.register({ instance_id, instance_name: 'Before', agent_ids: ['before'], webhook_url: URL_A });
    await service.patch(instance_id, { is_active: false, webhook_enabled: false });
    const answer = await service.post<RegisteredInstance>('/api/v1/instances/register/', {
      instance_id,
      instance_name: 'After',
      agent_ids: ['after', 'more'],
      webhook_url: URL_B,
    });
    assert.equal(answer.status, 200);
    const { instance_name, agent_ids, webhook_url, is_active, webhook_enabled } = await service.instance(instance_id);
    assert.deepEqual(
      { instance_name, agent_ids, webhook_url, is_active, webhook_enabled },
      {
        instance_name: 'After',
        agent_ids: ['after', 'more'],
        webhook_url: URL_B,
        is_active: true,
        webhook_enabled: true,
      },
    );
  });

  test('a registration that exists leaves the meetings of the instance as they are', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, { agent_ids: ['a', 'b'] });
    await service.register({ instance_id, agent_ids: ['other'], webhook_url: receiver.url });
    await service.send(meeting_id, {});
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['a', 'b']);
  });

  test('what is sent after a registration goes to the new webhook URL', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    await service.settled(await service.send(meeting_id, { number: 1 }));
    const moved = await startReceiver(t);
    await service.register({ instance_id, webhook_url: moved.url });
    await service.send(meeting_id, { number: 2 });
    assert.deepEqual(pushOf(await moved.next()).message, { number: 2 });
    assert.equal(receiver.requests.length, 1);
  });

  test('mapping absent → join → in the meeting, created with the given agent_ids', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    const answer = await join({ instance_id, meeting_id, agent_ids: ['a', 'b'] });
    assert.equal(answer.status, 201);
    const { joined_at, ...rest } = answer.body;
    assert.deepEqual(rest, { instance_id, meeting_id, agent_ids: ['a', 'b'], left_at: null });
    assert.ok(Number.isFinite(Date.parse(joined_at)));
    assert.deepEqual((await memberOf(meeting_id, instance_id))?.agent_ids, ['a', 'b']);
  });

  test('in the meeting → join → in the meeting, agent_ids replaced by the given list', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    const { joined_at } = await service.join(meeting_id, instance_id, ['a', 'b']);
    const answer = await join({ instance_id, meeting_id, agent_ids: ['c', 'a'] });
    assert.equal(answer.status, 200);
    assert.deepEqual(answer.body, { instance_id, meeting_id, agent_ids: ['c', 'a'], joined_at, left_at: null });
    assert.deepEqual((await memberOf(meeting_id, instance_id))?.agent_ids, ['c', 'a']);
  });

  test('left → join → in the meeting, agent_ids replaced and left_at cleared', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    await service.join(meeting_id, instance_id, ['a', 'b']);
    await service.leave(meeting_id, instance_id);
    const answer = await join({ instance_id, meeting_id, agent_ids: ['c'] });
    assert.equal(answer.status, 200);
    assert.equal(answer.body.left_at, null);
    const member = await memberOf(meeting_id, instance_id);
    assert.deepEqual([member?.agent_ids, member?.left_at], [['c'], null]);
  });

  test('join takes its condition seriously: with an instance that is not registered nothing is made', async () => {
    const meeting_id = service.name('meeting');
    const answer = await join({ instance_id: service.name('nobody'), meeting_id, agent_ids: ['a'] });
    assertProblem(answer, 404, 'instance_does_not_exist');
    assertProblem(await service.get(membersPath(meeting_id)), 404, 'meeting_does_not_exist');
  });

  test('an instance that is switched off can join: its existence is the only condition', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    await service.patch(instance_id, { is_active: false, webhook_enabled: false });
    assert.equal((await join({ instance_id, meeting_id, agent_ids: ['a'] })).status, 201);
    assert.equal((await service.instance(instance_id)).is_active, false);
  });

  test('in the meeting → leave → left, left_at is the current time', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    await service.join(meeting_id, instance_id, ['a']);
    const from_ms = Date.now();
    const answer = await leave({ instance_id, meeting_id });
    const to_ms = Date.now();
    assert.equal(answer.status, 200);
    const { left_at, ...rest } = answer.body;
    assert.deepEqual(rest, { instance_id, meeting_id });
    const left_ms = Date.parse(String(left_at));
    assert.ok(left_ms >= from_ms && left_ms <= to_ms, `${String(left_at)} is not now`);
    assert.equal((await memberOf(meeting_id, instance_id))?.left_at, left_at);
  });

  test('leave has no other effects: agents, instance and other meetings stay as they are', async () => {
    const [meeting_id, other] = [service.name('meeting'), service.name('meeting')];
    const { instance_id } = await service.register({ webhook_url: URL_A });
    await service.join(meeting_id, instance_id, ['a', 'b']);
    await service.join(other, instance_id, ['c']);
    const [instance, membership] = [await service.instance(instance_id), await memberOf(other, instance_id)];
    await service.leave(meeting_id, instance_id);
    assert.deepEqual((await memberOf(meeting_id, instance_id))?.agent_ids, ['a', 'b']);
    assert.deepEqual(await service.instance(instance_id), instance);
    assert.deepEqual(await memberOf(other, instance_id), membership);
  });

  test('leaving again keeps the time of leaving', async () => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.register({ webhook_url: URL_A });
    await service.join(meeting_id, instance_id, ['a']);
    const first = await leave({ instance_id, meeting_id });
    const second = await leave({ instance_id, meeting_id });
    assert.deepEqual(second.body, first.body);
  });

  test('any number of joins and leaves end as the last one says', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    for (let round = 1; round <= 5; round++) {
      await service.leave(meeting_id, instance_id);
      assert.equal((await service.send(meeting_id, { round, received: false })).deliveries_queued, 0);
      await service.join(meeting_id, instance_id, [`agent-${round}`]);
      assert.equal((await service.send(meeting_id, { round, received: true })).deliveries_queued, 1);
    }
    const pushes = (await receiver.count(5)).map(pushOf);
    assert.deepEqual(
      pushes.map(({ message, target_agents }) => [message, target_agents]),
      [1, 2, 3, 4, 5].map((round) => [{ round, received: true }, [`agent-${round}`]]),
    );
  });
});
