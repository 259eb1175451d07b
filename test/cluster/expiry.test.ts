/**
 * Of two nodes, one has a steady clock that is two minutes off, as after a suspend, or when the process started before
 * its clock was set. Both nodes accept messages that expire within a minute, and no message expires without an attempt.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import type { SentMessage, ServiceNode } from '@convoke/sdk';
import { PARTITIONS, partitionOf } from '../../src/domain/partition.ts';
import { makeDatabase } from '../support/postgres.ts';
import { messagesPath, startService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const OFF_MS = 120_000;
/** Instances of both halves of the partitions: each node holds one of the halves. */
const IDS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map((name) => `machine-${name}`);

for (const [what, steady_ahead_ms] of [
  ['behind', -OFF_MS],
  ['ahead', OFF_MS],
] as const) {
  test(`nothing expires early at or because of a node whose steady clock is two minutes ${what}`, async (t) => {
    assert.equal(new Set(IDS.map((id) => partitionOf(id) < PARTITIONS / 2)).size, 2);
    const settings = { database_url: await makeDatabase(), encryption_key: randomBytes(32).toString('base64') };
    const clock = new SetClock();
    clock.jump(steady_ahead_ms);
    clock.step(-steady_ahead_ms);
    const nodes = [await startService(t, settings), await startService(t, settings, clock)] as const;
    await until(
      'an even share',
      async () => (await nodes[0].get<{ data: ServiceNode[] }>('/api/v1/nodes/')).body.data,
      (rows) => rows.length === 2 && rows.every(({ partitions }) => partitions === PARTITIONS / 2),
    );
    for (const instance_id of IDS) await nodes[0].member(t, 'm', { registration: { instance_id } });
    for (const node of nodes) {
      const sent = await node.post<SentMessage>(messagesPath('m'), { message: {}, expires_in_s: 60 });
      assert.equal(sent.status, 201, sent.text);
      const deliveries = await until(
        'the end of all deliveries',
        () => node.deliveriesOf(sent.body),
        (found) => found.length === IDS.length && found.every(({ state }) => state !== 'pending'),
      );
      assert.deepEqual(
        deliveries.map(({ instance_id, state }) => `${instance_id} ${state}`),
        IDS.map((instance_id) => `${instance_id} delivered`),
      );
    }
  });
}
