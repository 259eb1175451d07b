import { randomBytes } from 'node:crypto';
import type { TestContext } from 'node:test';
import type { ServiceNode } from '@convoke/sdk';
import { makeDatabase } from './postgres.ts';
import { type Service, startService } from './service.ts';
import { until } from './wait.ts';

/** Starts two nodes on one PostgreSQL, and waits until each has half of the partitions. */
export async function startTwoNodes(t: TestContext): Promise<[first: Service, second: Service, database_url: string]> {
  const database_url = await makeDatabase();
  const settings = { database_url, encryption_key: randomBytes(32).toString('base64') };
  const first = await startService(t, settings);
  const second = await startService(t, settings);
  await untilShared(first);
  return [first, second, database_url];
}

/** Waits until each of two nodes has half of the partitions. */
export async function untilShared(node: Service): Promise<void> {
  await until(
    'an even share',
    async () => (await node.get<{ data: ServiceNode[] }>('/api/v1/nodes/')).body.data,
    (nodes) => nodes.length === 2 && nodes.every(({ partitions }) => partitions === 32),
  );
}

/** Waits until a node knows a key that another node made, and that requests need a key. */
export async function untilKnown(node: Service, token: string): Promise<void> {
  const statusBy = async (headers: Record<string, string>): Promise<number> =>
    // With a cookie, even an empty one, the test client does not add the token of the service.
    (await node.request('GET', '/api/v1/instances/', { headers: { cookie: '', ...headers } })).status;
  await until(
    'the key to be known to the node',
    async () => [await statusBy({}), await statusBy({ authorization: `Bearer ${token}` })],
    ([without, by_key]) => without === 401 && by_key !== 401,
  );
}
