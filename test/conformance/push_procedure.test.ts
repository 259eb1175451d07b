/** Spec section 4, webhook push procedure: which instances are selected, and with which agents. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { SentMessage } from '@convoke/sdk';
import { headerOf, pushOf } from '../support/receiver.ts';
import { messagesPath, type Service, useService } from '../support/service.ts';

/** The agents that each selected instance had to notify, by instance. */
async function selectedBy(service: Service, sent: SentMessage): Promise<Record<string, string[]>> {
  const deliveries = await service.deliveriesOf(sent);
  assert.equal(deliveries.length, sent.deliveries_queued);
  return Object.fromEntries(deliveries.map(({ instance_id, target_agents }) => [instance_id, target_agents]));
}

describe('spec 4, step 1: the mappings that are selected', { concurrency: true }, () => {
  const service = useService();

  test('those whose meeting_id equals the meeting', async (t) => {
    const [meeting_id, other] = [service.name('meeting'), service.name('meeting')];
    const here = await service.member(t, meeting_id);
    await service.member(t, other);
    assert.deepEqual(await selectedBy(service, await service.send(meeting_id, {})), { [here.instance_id]: ['a'] });
  });

  test('those whose left_at is null: an instance that left gets nothing, one that returns gets what follows', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    await service.leave(meeting_id, instance_id);
    assert.deepEqual(await selectedBy(service, await service.send(meeting_id, { while: 'away' })), {});
    await service.join(meeting_id, instance_id, ['a']);
    await service.settled(await service.send(meeting_id, { while: 'here' }));
    assert.deepEqual(
      receiver.requests.map((request) => pushOf(request).message),
      [{ while: 'here' }],
    );
  });

  for (const flag of ['is_active', 'webhook_enabled']) {
    test(`those whose instance has ${flag}=true`, async (t) => {
      const meeting_id = service.name('meeting');
      const off = await service.member(t, meeting_id);
      const on = await service.member(t, meeting_id);
      await service.patch(off.instance_id, { [flag]: false });
      assert.deepEqual(await selectedBy(service, await service.send(meeting_id, { number: 1 })), {
        [on.instance_id]: ['a'],
      });
      await service.patch(off.instance_id, { [flag]: true });
      assert.deepEqual(await selectedBy(service, await service.send(meeting_id, { number: 2 })), {
        [off.instance_id]: ['a'],
        [on.instance_id]: ['a'],
      });
      assert.deepEqual(pushOf(await off.receiver.next()).message, { number: 2 });
    });
  }

  test('not those of an instance that was deleted', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    const { status } = await service.request('DELETE', `/api/v1/instances/${instance_id}/`);
    assert.equal(status, 204);
    assert.deepEqual(await selectedBy(service, await service.send(meeting_id, {})), {});
    // After the new registration it is a new instance, and in no meeting.
    await service.register({ instance_id, webhook_url: receiver.url });
    assert.deepEqual(await selectedBy(service, await service.send(meeting_id, {})), {});
    assert.equal(receiver.requests.length, 0);
  });

  test('none in a meeting without members: the message is accepted all the same', async () => {
    const sent = await service.send(service.name('meeting'), {});
    assert.equal(sent.deliveries_queued, 0);
    assert.deepEqual(await service.deliveriesOf(sent), []);
  });

  test('the selection is that of the moment of sending: an instance that leaves afterwards still gets the message', async (t) => {
    const meeting_id = service.name('meeting');
    const gate = Promise.withResolvers<void>();
    const { instance_id, receiver } = await service.member(t, meeting_id, {
      behaviour: { after: gate.promise },
      // A slow machine may need longer than five seconds until it opens the gate.
      registration: { timeout_s: 600 },
    });
    await service.send(meeting_id, { number: 1 });
    await receiver.next();
    const second = await service.send(meeting_id, { number: 2 });
    await service.leave(meeting_id, instance_id);
    gate.resolve();
    assert.equal((await service.settled(second)).state, 'delivered');
    assert.deepEqual(pushOf(await receiver.next()).message, { number: 2 });
  });
});

describe('spec 4, step 2: the agents to notify', { concurrency: true }, () => {
  const service = useService();

  test('targeted push: the agents of the mapping whose id is in the target list', async (t) => {
    const meeting_id = service.name('meeting');
    const one = await service.member(t, meeting_id, { agent_ids: ['a', 'b', 'c'] });
    const two = await service.member(t, meeting_id, { agent_ids: ['c', 'd'] });
    const sent = await service.send(meeting_id, {}, ['c', 'a', 'unknown']);
    assert.deepEqual(await selectedBy(service, sent), { [one.instance_id]: ['a', 'c'], [two.instance_id]: ['c'] });
    assert.deepEqual(pushOf(await one.receiver.next()).target_agents, ['a', 'c']);
    assert.deepEqual(pushOf(await two.receiver.next()).target_agents, ['c']);
  });

  test('targeted push: in the order of the membership, each agent once', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, { agent_ids: ['z', 'm', 'a', 'k'] });
    await service.send(meeting_id, {}, ['a', 'k', 'a', 'z', 'k']);
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['z', 'a', 'k']);
  });

  test('targeted push: ids are compared exactly', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, { agent_ids: ['Agent', 'agent', 'agent ', 'ag\u00e9nt'] });
    await service.send(meeting_id, {}, ['agent', 'AGENT', 'age\u0301nt']);
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['agent']);
  });

  test('broadcast, no target list: all agent_ids of the mapping', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, { agent_ids: ['z', 'a', 'm'] });
    await service.send(meeting_id, {});
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['z', 'a', 'm']);
  });

  test('a target list that is empty is a broadcast', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, { agent_ids: ['z', 'a'] });
    await service.send(meeting_id, {}, []);
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['z', 'a']);
  });

  test('a target list that is null, or not a list, is refused: it must not become a broadcast', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    for (const wrong of ['null', '"a"', '{}', '[1]', '[null]', '0', '[""]']) {
      const answer = await service.post(messagesPath(meeting_id), `{"message":{},"target_agents":${wrong}}`);
      assert.equal(answer.status, 422, `${wrong}: ${answer.text}`);
    }
    await service.settled(await service.send(meeting_id, {}));
    assert.equal(receiver.requests.length, 1);
  });

  test('the agents are those of the mapping, not those of the registration', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, {
      agent_ids: ['guest', 'member'],
      registration: { agent_ids: ['member', 'at-home'] },
    });
    await service.send(meeting_id, {});
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['guest', 'member']);
    await service.send(meeting_id, {}, ['at-home', 'guest']);
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['guest']);
  });

  test('after a join with other agents, those are notified', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, { agent_ids: ['old', 'both'] });
    await service.join(meeting_id, instance_id, ['new', 'both']);
    await service.send(meeting_id, {});
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['new', 'both']);
    assert.equal((await service.send(meeting_id, {}, ['old'])).deliveries_queued, 0);
  });

  test('the same agent id on two instances is notified on both', async (t) => {
    const meeting_id = service.name('meeting');
    const one = await service.member(t, meeting_id, { agent_ids: ['twin'] });
    const two = await service.member(t, meeting_id, { agent_ids: ['twin'] });
    const sent = await service.send(meeting_id, {}, ['twin']);
    assert.deepEqual(await selectedBy(service, sent), { [one.instance_id]: ['twin'], [two.instance_id]: ['twin'] });
  });
});

describe('spec 4, steps 3 and 4: what is sent', { concurrency: true }, () => {
  const service = useService();

  test('an instance with no agent in the target list is skipped and nothing is sent to it', async (t) => {
    const meeting_id = service.name('meeting');
    const skipped = await service.member(t, meeting_id, { agent_ids: ['a'] });
    const other = await service.member(t, meeting_id, { agent_ids: ['b'] });
    const sent = await service.send(meeting_id, { number: 1 }, ['b']);
    assert.deepEqual(await selectedBy(service, sent), { [other.instance_id]: ['b'] });
    // A lane keeps its order. So when the first push has this later message, the earlier message was not for this
    // instance.
    await service.send(meeting_id, { number: 2 }, ['a']);
    assert.deepEqual(pushOf(await skipped.receiver.next()).message, { number: 2 });
  });

  test('an instance that takes part with no agents is skipped in a broadcast too', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, { agent_ids: [] });
    assert.deepEqual(await selectedBy(service, await service.send(meeting_id, { number: 1 })), {});
    await service.join(meeting_id, instance_id, ['a']);
    await service.send(meeting_id, { number: 2 });
    assert.deepEqual(pushOf(await receiver.next()).message, { number: 2 });
  });

  test('when nobody matches, the message is accepted and goes nowhere', async (t) => {
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id);
    assert.equal((await service.send(meeting_id, {}, ['nobody'])).deliveries_queued, 0);
  });

  test('otherwise one HTTP POST is sent to its webhook_url with Content-Type: application/json', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    const sent = await service.send(meeting_id, { content: 'once' });
    const delivery = await service.settled(sent);
    const request = await receiver.next();
    assert.equal(request.method, 'POST');
    assert.equal(request.path, '/webhook');
    assert.equal(headerOf(request, 'content-type'), 'application/json');
    assert.equal(delivery.attempt_count, 1);
    assert.equal(receiver.requests.length, 1);
  });

  test('one POST for an instance, however many of its agents are notified', async (t) => {
    const meeting_id = service.name('meeting');
    const agent_ids = Array.from({ length: 100 }, (_, i) => `agent-${i}`);
    const { receiver } = await service.member(t, meeting_id, { agent_ids });
    await service.settled(await service.send(meeting_id, {}));
    assert.deepEqual(
      receiver.requests.map((request) => pushOf(request).target_agents),
      [agent_ids],
    );
  });
});
