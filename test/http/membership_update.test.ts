/** PATCH of a membership changes what an instance gets in a meeting. Unlike a join it does not undo a leave. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Membership } from '@convoke/sdk';
import { assertProblem, useService } from '../support/service.ts';

describe('a change of a membership', { concurrency: true }, () => {
  const service = useService();
  const patch = (meeting_id: string, instance_id: string, body: object) =>
    service.request<Membership>('PATCH', `/api/v1/meetings/${meeting_id}/instances/${instance_id}/`, { body });

  test('keeps what it does not name, and drops duplicates of agents', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id, { agent_ids: ['a'] });
    const ruled = await patch(meeting_id, instance_id, { wake: 'people', max_age_s: 60 });
    assert.deepEqual([ruled.status, ruled.body.agent_ids, ruled.body.wake], [200, ['a'], 'people']);
    const { body } = await patch(meeting_id, instance_id, { agent_ids: ['b', 'b'], catch_up: 'latest' });
    const { agent_ids, wake, catch_up, max_age_s } = body;
    assert.deepEqual([agent_ids, wake, catch_up, max_age_s], [['b'], 'people', 'latest', 60]);
  });

  test('applies to the next message', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id, { agent_ids: ['a'] });
    assert.equal((await service.send(meeting_id, {})).deliveries_queued, 1);
    await patch(meeting_id, instance_id, { wake: 'targeted' });
    assert.equal((await service.send(meeting_id, {})).deliveries_queued, 0);
  });

  test('of an instance that is not in the meeting, or has left it, is refused and lets nobody join', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id);
    await service.post('/api/v1/instances/leave-meeting/', { instance_id, meeting_id });
    for (const [where, who] of [
      [meeting_id, instance_id],
      [meeting_id, 'nobody'],
      ['nowhere', instance_id],
    ] as const) {
      assertProblem(await patch(where, who, { wake: 'all' }), 404, 'membership_does_not_exist');
    }
    const { body } = await service.get<{ data: object[] }>(`/api/v1/meetings/${meeting_id}/instances/`);
    assert.deepEqual(body.data, []);
  });

  test('names the field that it refuses, and needs at least one', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id);
    for (const [field, value] of Object.entries({
      wake: 'never',
      catch_up: 'some',
      max_age_s: -1,
      agent_ids: 'a',
      left_at: null,
    })) {
      const { errors } = assertProblem(await patch(meeting_id, instance_id, { [field]: value }), 422, 'invalid_fields');
      assert.deepEqual(
        errors?.map(({ path }) => path),
        [field],
      );
    }
    assertProblem(await patch(meeting_id, instance_id, {}), 422, 'invalid_fields');
  });
});
