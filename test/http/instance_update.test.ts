/**
 * PATCH changes the agents and the address of an instance. Unlike a registration it does not switch the instance on.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Instance } from '@convoke/sdk';
import { assertProblem, instancePath, startService, useService } from '../support/service.ts';
import { startReceiver } from '../support/receiver.ts';
import { until } from '../support/wait.ts';

describe('a change of an instance', { concurrency: true }, () => {
  const service = useService();

  test('sends what waits to the new address, whose health begins again', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    await receiver.down();
    const sent = await service.send(meeting_id, {});
    await until(
      'a failure',
      () => service.instance(instance_id),
      ({ consecutive_failures }) => consecutive_failures > 0,
    );
    const other = await startReceiver(t);
    const changed = await service.patch(instance_id, { webhook_url: other.url });
    assert.deepEqual([changed.webhook_url, changed.last_failure, changed.health], [other.url, null, 'unknown']);
    await service.settled(sent);
    assert.equal(other.requests.length, 1);
  });

  test('leaves an instance that is switched off switched off', async (t) => {
    const { instance_id } = await service.member(t, service.name('meeting'));
    await service.patch(instance_id, { webhook_enabled: false });
    const other = await startReceiver(t);
    const changed = await service.patch(instance_id, { webhook_url: other.url, agent_ids: ['x'] });
    assert.deepEqual([changed.webhook_enabled, changed.agent_ids], [false, ['x']]);
  });

  test('keeps the health and the headers of an address that stays, and drops headers that another server would read', async (t) => {
    const registration = { webhook_headers: { authorization: 'Bearer 3f9c20d1' } };
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, { registration });
    await service.settled(await service.send(meeting_id, {}));
    const same = await service.patch(instance_id, { webhook_url: receiver.url });
    assert.deepEqual([same.webhook_header_names, same.health], [['authorization'], 'up']);
    const path = await service.patch(instance_id, { webhook_url: `${receiver.origin}/other` });
    assert.deepEqual([path.webhook_header_names, path.health], [['authorization'], 'unknown']);
    const other = await startReceiver(t);
    const moved = await service.patch(instance_id, { webhook_url: other.url });
    assert.deepEqual(moved.webhook_header_names, []);
    const given = await service.patch(instance_id, { webhook_url: receiver.url, webhook_headers: { 'x-a': 'b' } });
    assert.deepEqual(given.webhook_header_names, ['x-a']);
  });

  test('of its agents is found by the search for an agent; duplicates are dropped', async (t) => {
    const { instance_id } = await service.member(t, service.name('meeting'));
    const agent = service.name('agent');
    assert.deepEqual((await service.patch(instance_id, { agent_ids: [agent, 'b', agent] })).agent_ids, [agent, 'b']);
    const { body } = await service.get<{ data: Instance[] }>(`/api/v1/instances/?agent_id=${agent}`);
    assert.deepEqual(
      body.data.map((row) => row.instance_id),
      [instance_id],
    );
  });

  test('names a wrong address', async (t) => {
    const { instance_id } = await service.member(t, service.name('meeting'));
    for (const webhook_url of ['', 'ftp://x/', 'http://user:secret@127.0.0.1/', 'nothing']) {
      const answer = await service.request('PATCH', instancePath(instance_id), { body: { webhook_url } });
      const { errors } = assertProblem(answer, 422, 'invalid_fields');
      assert.equal(errors?.[0]?.path, 'webhook_url', webhook_url);
    }
    const body = { webhook_url: 'http://127.0.0.1:9000/' };
    const nobody = await service.request('PATCH', instancePath('nobody'), { body });
    assertProblem(nobody, 404, 'instance_does_not_exist');
  });
});

test('a change of the address obeys the egress policy, as a registration does', async (t) => {
  const service = await startService(t);
  const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
  const body = { webhook_url: 'http://169.254.169.254/' };
  const answer = await service.request('PATCH', instancePath(instance_id), { body });
  assertProblem(answer, 422, 'webhook_url_not_allowed');
});
