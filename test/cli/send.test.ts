/** `convoke send`: which of the recipients get the message later, and a text that is sent again. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConvokeClient } from '@convoke/sdk';
import { whoIsLater } from '../../src/cli/program/commands/messages.ts';
import { convoke } from '../support/command_line.ts';
import { startService } from '../support/service.ts';

test('who gets a message later is named, with the reason, and no more than five of them', async (t) => {
  const service = await startService(t);
  const client = new ConvokeClient({ base_url: service.url });
  const join = async (instance_id: string): Promise<void> => {
    const agent_ids = [`agent of ${instance_id}`];
    await client.register({ instance_id, instance_name: 'n', agent_ids, transport: 'pull' });
    await client.joinMeeting({ instance_id, meeting_id: 'm', agent_ids });
  };
  await join('away-1');
  assert.deepEqual(await whoIsLater(client, 'm', {}), ['away-1 gets it later: when its machine connects']);
  // Control: the message is for nobody else.
  assert.deepEqual(await whoIsLater(client, 'm', { target_agents: ['agent of another'] }), []);
  for (const n of [2, 3, 4, 5, 6, 7]) await join(`away-${n}`);
  const lines = await whoIsLater(client, 'm', {});
  assert.equal(lines.length, 6);
  assert.match(lines[5]!, /^2 more get it later: `.*convoke explain m` lists them$/);
});

test('a text that is sent again with the same idempotency key is stored once', async (t) => {
  const service = await startService(t);
  const send = async (...more: string[]): Promise<string> => {
    const { code, stdout, stderr } = await convoke(['send', 'm', 'Good morning', '--url', service.url, ...more]);
    assert.equal(code, 0, stderr);
    return stdout;
  };
  const again = ['--idempotency-key', 'k'];
  assert.equal(await send(...again), await send(...again));
  // Control: without a key each of them is stored, with its time.
  await send();
  const client = new ConvokeClient({ base_url: service.url });
  const { data } = await client.listMessages('m');
  assert.deepEqual(
    data.map(({ message }) => [message['content'], typeof message['created_at']]),
    [
      ['Good morning', 'undefined'],
      ['Good morning', 'string'],
    ],
  );
});
