/** The history of two nodes on one PostgreSQL: each node returns the history of both nodes. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import type { InstanceHistory, ServiceHistory, ServiceNode } from '@convoke/sdk';
import { makeDatabase } from '../support/postgres.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const MEMBERS = 8;
const sum = (counts: readonly number[]): number => counts.reduce((all, each) => all + each, 0);

test('each node answers for what both accepted, tried and delivered', async (t) => {
  const settings = { database_url: await makeDatabase(), encryption_key: randomBytes(32).toString('base64') };
  const nodes = [await startService(t, settings), await startService(t, settings)] as const;
  await until(
    'an even share',
    async () => (await nodes[0].get<{ data: ServiceNode[] }>('/api/v1/nodes/')).body.data,
    (rows) => rows.length === 2 && rows.every(({ partitions }) => partitions === 32),
  );
  for (let i = 0; i < MEMBERS; i++) await nodes[0].member(t, 'm', { registration: { instance_id: `machine-${i}` } });
  await nodes[0].member(t, 'm', { behaviour: { status: 202 } });
  for (const node of nodes) await node.send('m', {});
  const read = async (node: Service): Promise<ServiceHistory> =>
    (await node.get<ServiceHistory>('/api/v1/history/')).body;
  for (const node of nodes) {
    const { accepted, delivered, failed, failed_attempts } = await until(
      'the seconds of all attempts to end',
      () => read(node),
      (history) => sum(history.delivered) >= 2 * MEMBERS && sum(history.failed) >= 2,
    );
    assert.deepEqual([accepted, delivered, failed, failed_attempts].map(sum), [2, 2 * MEMBERS, 2, 2]);
  }
  // For each machine one of the nodes delivers, and broadcasts its figures to the other node.
  for (const node of nodes) {
    const { delivered } = await until(
      'what was counted to be sent',
      async () => (await node.get<InstanceHistory>('/api/v1/instances/machine-0/history/')).body,
      (history) => sum(history.delivered) >= 2,
    );
    assert.equal(sum(delivered), 2);
  }
});
