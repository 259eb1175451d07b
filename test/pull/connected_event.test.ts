/** The live feed reports that a machine connected only when a reader of the API can see it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConvokeClient } from '@convoke/sdk';
import { startService } from '../support/service.ts';

test('a reader who asks at the event instance.connected finds the machine connected', async (t) => {
  const service = await startService(t);
  const client = new ConvokeClient({ base_url: service.url });
  const machine = { instance_id: 'laptop', instance_name: 'Laptop', agent_ids: ['anna'], transport: 'pull' as const };
  await client.register(machine);
  assert.equal((await client.getInstance('laptop')).connected, null);
  const pulled: Promise<unknown>[] = [];
  const onConnection = (): void => void pulled.push(service.post('/api/v1/instances/laptop/pull/', { wait_s: 1 }));
  for await (const { name } of client.events({}, { onConnection })) {
    if (name !== 'instance.connected') continue;
    assert.notEqual((await client.getInstance('laptop')).connected, null);
    break;
  }
  await Promise.all(pulled);
});
