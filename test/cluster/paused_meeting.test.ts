/** When a meeting is paused on one of two nodes, the other node learns of the pause and does not deliver its messages. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import type { DroppedDeliveries, ServiceNode } from '@convoke/sdk';
import { openStream } from '../support/event_stream.ts';
import { makeDatabase } from '../support/postgres.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const MEMBERS = 6;

test('a pause also holds on the other node, and so do a drop and the end of the pause', async (t) => {
  const database_url = await makeDatabase();
  const settings = { database_url, encryption_key: randomBytes(32).toString('base64') };
  const [first, second] = [await startService(t, settings), await startService(t, settings)];
  await until(
    'an even share',
    async () => (await first.get<{ data: ServiceNode[] }>('/api/v1/nodes/')).body.data,
    (nodes) => nodes.length === 2 && nodes.every(({ partitions }) => partitions === 32),
  );
  const members = await Promise.all(Array.from({ length: MEMBERS }, () => first.member(t, 'loud')));
  const change = (body: object) => first.request('PATCH', '/api/v1/meetings/loud/', { body });
  const set = (paused: boolean) => change({ paused });
  const pending = (service: typeof first) =>
    service.get<{ data: unknown[] }>('/api/v1/deliveries/?meeting_id=loud&state=pending&limit=100');
  const stream = await openStream(`${second.url}/api/v1/events/`);
  t.after(() => stream.close());
  const heard = (paused: boolean): boolean =>
    stream.events.some(({ name, data }) => name === 'meeting.changed' && data['paused'] === paused);
  await until(
    'the second node to get the events of the first',
    async () => {
      await change({ hop_limit: 16 });
      return heard(false);
    },
    (is_heard) => is_heard,
  );
  await second.send('quiet', {});
  assert.equal((await set(true)).status, 200);
  // The second node hears of the pause a moment later, and then gets its event, which takes the same way.
  await until('the pause', () => heard(true), Boolean);
  // It reads settings one after the other, and responds to this change when it has read all of which it has heard.
  assert.equal((await second.request('PATCH', '/api/v1/meetings/quiet/', { body: { hop_limit: 16 } })).status, 200);
  await second.send('loud', { dropped: true });
  const dropped = await second.request<DroppedDeliveries>('POST', '/api/v1/deliveries/drop/', {
    body: { meeting_id: 'loud' },
  });
  assert.equal(dropped.body.deliveries, MEMBERS);
  await second.send('loud', { n: 1 });
  assert.equal((await pending(second)).body.data.length, MEMBERS);
  await set(false);
  for (const { receiver } of members) {
    assert.match(String((await receiver.next()).body), /"n":1/);
    assert.equal(receiver.requests.length, 1);
  }
});
