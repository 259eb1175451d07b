/** A new data key for the nodes of a cluster, one node after the other, while they register instances. */
import assert from 'node:assert/strict';
import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { openPostgresStore } from '../../src/store/postgres/open.ts';
import type { Store } from '../../src/store/store.ts';
import { makeDatabase } from '../support/postgres.ts';
import { register, WALL } from '../support/store_contents.ts';

const [OLD, NEW] = [createSecretKey(randomBytes(32)), createSecretKey(randomBytes(32))];

async function start(t: TestContext, url: string, current: KeyObject, previous: KeyObject | null): Promise<Store> {
  const { store, opened } = openPostgresStore(url, '', { current, previous });
  await opened;
  t.after(() => store.close());
  return store;
}

async function secretsSeenBy(store: Store, ...instance_ids: string[]): Promise<boolean[]> {
  const found = await Promise.all(instance_ids.map((instance_id) => store.instances.get(instance_id)));
  return found.map((instance) => instance?.webhook_secret.startsWith('whsec_') === true);
}

test('every node reads what every other node registers, and no secret is lost, when all nodes first know both keys', async (t) => {
  const url = await makeDatabase();
  const first = await start(t, url, OLD, null);
  await register(first, 'before');
  await first.close();
  // The new key is the previous one at first, so that every node can read what a node with the new key writes.
  const [a, b] = [await start(t, url, OLD, NEW), await start(t, url, OLD, NEW)];
  await register(a, 'by a');
  assert.deepEqual(await secretsSeenBy(b, 'before', 'by a'), [true, true]);
  await b.close();
  const b2 = await start(t, url, NEW, OLD);
  await register(b2, 'by b with the new key');
  await register(a, 'by a with the old key');
  const all = ['before', 'by a', 'by b with the new key', 'by a with the old key'];
  for (const node of [a, b2]) assert.deepEqual(await secretsSeenBy(node, ...all), [true, true, true, true]);
  await a.close();
  const a2 = await start(t, url, NEW, OLD);
  await a2.encryption.changeKey(WALL);
  assert.deepEqual((await a2.encryption.reencrypt(null, 100)).unreadable, []);
  await a2.encryption.endChange();
  await Promise.all([a2.close(), b2.close()]);
  const last = await start(t, url, NEW, null);
  assert.deepEqual(await secretsSeenBy(last, ...all), [true, true, true, true]);
});
