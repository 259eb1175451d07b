/** Spec section 1: what the service does. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import { ConvokeClient, createReceiver, type Instance, type MeetingInstance, type Page, type Push } from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';
import { pushOf } from '../support/receiver.ts';
import { membersPath, useService } from '../support/service.ts';
import { inTime } from '../support/wait.ts';

describe('spec 1, what the service does:', { concurrency: true }, () => {
  const service = useService();

  test('it keeps a registry of instances, each with a list of agent ids and a webhook address', async () => {
    const webhook_url = 'http://127.0.0.1:9000/hook';
    const a = await service.register({ instance_id: 'registry-a', agent_ids: ['planner', 'coder'], webhook_url });
    const b = await service.register({ instance_id: 'registry-b', agent_ids: ['critic'], webhook_url });
    const { body } = await service.get<Page<Instance>>('/api/v1/instances/?q=registry-');
    assert.deepEqual(
      body.data.map(({ instance_id, agent_ids, webhook_url: url }) => ({ instance_id, agent_ids, url })),
      [
        { instance_id: a.instance_id, agent_ids: ['planner', 'coder'], url: webhook_url },
        { instance_id: b.instance_id, agent_ids: ['critic'], url: webhook_url },
      ],
    );
  });

  test('it keeps a mapping between meetings and instances, with the agents of an instance that take part', async (t) => {
    const [first, second] = [service.name('meeting'), service.name('meeting')];
    const { instance_id } = await service.member(t, first, { agent_ids: ['a', 'b'] });
    await service.join(second, instance_id, ['b']);
    for (const [meeting_id, agents] of [
      [first, ['a', 'b']],
      [second, ['b']],
    ] as const) {
      const { body } = await service.get<Page<MeetingInstance>>(membersPath(meeting_id));
      assert.deepEqual(
        body.data.map((member) => [member.instance_id, member.agent_ids]),
        [[instance_id, agents]],
      );
    }
  });

  test('sending a message in a meeting pushes it to the instances that take part in it, and to no other', async (t) => {
    const [meeting_id, elsewhere] = [service.name('meeting'), service.name('meeting')];
    const one = await service.member(t, meeting_id);
    const two = await service.member(t, meeting_id);
    const stranger = await service.member(t, elsewhere);
    const sent = await service.send(meeting_id, { content: 'here' });
    assert.equal(sent.deliveries_queued, 2);
    for (const { receiver } of [one, two]) assert.deepEqual(pushOf(await receiver.next()).message, { content: 'here' });
    await service.send(elsewhere, { content: 'elsewhere' });
    assert.deepEqual(pushOf(await stranger.receiver.next()).message, { content: 'elsewhere' });
    assert.deepEqual(
      [one, two, stranger].map(({ receiver }) => receiver.requests.length),
      [1, 1, 1],
    );
  });

  test('a push can be a broadcast to all agents of the meeting', async (t) => {
    const meeting_id = service.name('meeting');
    const one = await service.member(t, meeting_id, { agent_ids: ['a', 'b'] });
    const two = await service.member(t, meeting_id, { agent_ids: ['c'] });
    await service.send(meeting_id, { content: 'to all' });
    assert.deepEqual(pushOf(await one.receiver.next()).target_agents, ['a', 'b']);
    assert.deepEqual(pushOf(await two.receiver.next()).target_agents, ['c']);
  });

  test('a push can be targeted to chosen agents', async (t) => {
    const meeting_id = service.name('meeting');
    const one = await service.member(t, meeting_id, { agent_ids: ['a', 'b'] });
    const two = await service.member(t, meeting_id, { agent_ids: ['c', 'd'] });
    await service.send(meeting_id, { content: 'to two' }, ['b', 'c']);
    assert.deepEqual(pushOf(await one.receiver.next()).target_agents, ['b']);
    assert.deepEqual(pushOf(await two.receiver.next()).target_agents, ['c']);
  });

  test('the intended use: a machine registers, joins, gets what is sent, and its agent responds', async (t) => {
    const client = new ConvokeClient({ base_url: service.url });
    const meeting_id = service.name('meeting');
    const person = await service.member(t, meeting_id, { agent_ids: ['person'] });

    const pushed = Promise.withResolvers<Push>();
    const onPush = async (push: Push): Promise<void> => {
      pushed.resolve(push);
      const options = { target_agents: ['person'] };
      await client.sendMessage(meeting_id, { from: push.target_agents[0], content: 'Good morning to you' }, options);
    };
    let handler: (request: Request) => Promise<Response> = async () => new Response(null, { status: 500 });
    const runtime = createServer(toNodeListener((request) => handler(request)));
    runtime.listen(0, '127.0.0.1');
    await once(runtime, 'listening');
    t.after(() => {
      runtime.close();
      runtime.closeAllConnections();
    });

    const { webhook_secret = '' } = await client
      .register({
        instance_id: service.name('instance'),
        instance_name: 'The runtime',
        agent_ids: ['agent'],
        webhook_url: `http://127.0.0.1:${(runtime.address() as AddressInfo).port}/`,
      })
      .then(async (registered) => {
        await client.joinMeeting({ instance_id: registered.instance_id, meeting_id, agent_ids: ['agent'] });
        return registered;
      });
    handler = createReceiver({ secret: webhook_secret, onPush });

    await client.sendMessage(meeting_id, { content: 'Good morning' }, { target_agents: ['agent'] });
    const push = await inTime('the push', pushed.promise);
    assert.deepEqual(push.message, { content: 'Good morning' });
    assert.deepEqual(push.target_agents, ['agent']);
    const response = pushOf(await person.receiver.next());
    assert.deepEqual(response.message, { from: 'agent', content: 'Good morning to you' });
  });
});
