/**
 * Every node says since when an instance is down, and when the next attempt is. So does a node that does not deliver to
 * the instance.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import type { ServiceNode } from '@convoke/sdk';
import { makeDatabase } from '../support/postgres.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const DOWN_AFTER = 5;

test('each node says the same of instances of both', async (t) => {
  const settings = { database_url: await makeDatabase(), encryption_key: randomBytes(32).toString('base64') };
  const nodes = [await startService(t, settings), await startService(t, settings)] as const;
  await until(
    'an even share',
    async () => (await nodes[0].get<{ data: ServiceNode[] }>('/api/v1/nodes/')).body.data,
    (rows) => rows.length === 2 && rows.every(({ partitions }) => partitions === 32),
  );
  const started_at = Date.now();
  const ids = Array.from({ length: 6 }, (_, i) => `machine-${i}`);
  for (const instance_id of ids) {
    const member = { registration: { instance_id }, behaviour: { status: 500 } };
    await nodes[0].member(t, `${instance_id} 0`, member);
    for (let k = 1; k < DOWN_AFTER; k++) await nodes[0].join(`${instance_id} ${k}`, instance_id, ['a']);
    for (let k = 0; k < DOWN_AFTER; k++) await nodes[k % 2]!.send(`${instance_id} ${k}`, {});
  }
  /** @param try_at_min the least `next_try_at`: a probe makes this time later, and the other node learns of it later */
  const timesOn = async (node: Service, instance_id: string, try_at_min = '') => {
    const { health, health_since, next_try_at } = await until(
      `${instance_id} to be down`,
      () => node.instance(instance_id),
      (instance) =>
        instance.health === 'down' && instance.next_try_at !== undefined && instance.next_try_at >= try_at_min,
    );
    return { health, health_since, next_try_at };
  };
  for (const instance_id of ids) {
    const here = await timesOn(nodes[0], instance_id);
    const there = await timesOn(nodes[1], instance_id, here.next_try_at);
    assert.equal(there.health_since, here.health_since);
    const since = Date.parse(here.health_since!);
    assert.ok(since >= started_at && since <= Date.now());
    assert.ok(Date.parse(here.next_try_at!) > since);
  }
});
