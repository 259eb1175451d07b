/**
 * Spec section 1, what the service does: one test for everything together. The files of the other sections test each
 * part.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import { ConvokeClient, createReceiver, type Push } from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';
import { pushOf } from '../support/receiver.ts';
import { useService } from '../support/service.ts';
import { inTime } from '../support/wait.ts';

describe('spec 1, what the service does:', { concurrency: true }, () => {
  const service = useService();

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
