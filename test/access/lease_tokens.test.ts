/**
 * The lease of a subscription ends with the token that made it, with SQLite and PostgreSQL: no registration that is in
 * progress while its key ends writes a lease that lasts.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { NewApiKey } from '../../src/store/contract/api_keys.ts';
import type { Store } from '../../src/store/store.ts';
import { ENGINES } from '../support/engines.ts';
import { REGISTRATION } from '../support/node.ts';
import { NEVER, WALL } from '../support/store_contents.ts';

function subscribe(
  store: Store,
  instance_id: string,
  { token, key_id = 'key', wall_ms = WALL }: { token: string | null; key_id?: string | null; wall_ms?: number },
) {
  const registration = {
    ...REGISTRATION,
    instance_id,
    lease_until: WALL + 10_000,
    token_digest: token,
    owner_key_id: key_id,
  };
  return store.instances.register(registration, wall_ms);
}

async function createKey(store: Store, key_id: string, more: Partial<NewApiKey> = {}) {
  const [name, meeting_ids, instance_id] = [null, null, null];
  const key = { key_id, name, scopes: ['admin' as const], meeting_ids, instance_id, digest: `first of ${key_id}` };
  await store.api_keys.create({ ...key, created_at: WALL, expires_at: null, ...more });
}

for (const engine of ENGINES) {
  describe(engine.name, () => {
    const leaseOf = async (store: Store, instance_id: string) => {
      const lease_until = (await store.instances.get(instance_id))?.lease_until;
      return lease_until ? lease_until - WALL : lease_until;
    };

    test('a token that has ended makes and renews no lease', async (t) => {
      const store = await engine.open(t);
      await createKey(store, 'admin');
      await createKey(store, 'key');
      await createKey(store, 'short', { expires_at: WALL + 500 });
      await subscribe(store, 'i', { token: 'first of key' });
      await subscribe(store, 's', { token: 'first of short', key_id: 'short' });
      assert.deepEqual([await leaseOf(store, 'i'), await leaseOf(store, 's')], [10_000, 500]);
      const at_end = { token: 'first of short', key_id: 'short', wall_ms: WALL + 500 };
      await assert.rejects(subscribe(store, 's', at_end), { code: 'api_key_expired' });
      await assert.rejects(subscribe(store, 'i', { token: 'wrong' }), { code: 'api_key_unknown' });
      await assert.rejects(subscribe(store, 'i', { token: null }), { code: 'api_key_unknown' });
      await store.api_keys.revoke('key', WALL + 100);
      for (const id of ['i', 'new'])
        await assert.rejects(subscribe(store, id, { token: 'first of key', wall_ms: WALL + 200 }), {
          code: 'api_key_revoked',
        });
      assert.deepEqual([await leaseOf(store, 'i'), await store.instances.get('new')], [0, null]);
      // Another key, which may do everything, renews no subscription of a key that has ended.
      await subscribe(store, 'i', { token: 'first of admin', key_id: 'admin', wall_ms: WALL + 200 });
      assert.equal(await leaseOf(store, 'i'), 200);
      // Without keys, there is no token.
      await subscribe(store, 'open', { token: null, key_id: null });
      assert.equal(await leaseOf(store, 'open'), 10_000);
    });

    test('no lease lasts that is written while its key is revoked', async (t) => {
      const store = await engine.openThread(t);
      await createKey(store, 'admin');
      let made = 0;
      for (let round = 0; round < 6; round++) {
        const key_id = `key${round}`;
        await createKey(store, key_id);
        const begin = (i: number) => subscribe(store, `${key_id}-${i}`, { token: `first of ${key_id}`, key_id });
        const before = Array.from({ length: 6 }, (_, i) => begin(i));
        const revoked = store.api_keys.revoke(key_id, WALL + 1);
        const after = Array.from({ length: 6 }, (_, i) => begin(i + 4));
        const results = await Promise.allSettled([...before, ...after]);
        await revoked;
        made += results.filter(({ status }) => status === 'fulfilled').length;
      }
      const { data } = await store.instances.list({ limit: 500 });
      assert.equal((await store.instances.endedLeases(WALL + 1, 500)).length, data.length);
      assert.ok(made > 0, 'control: some registrations were in time');
    });

    test('a change of an instance changes nothing that a subscription asked for', async (t) => {
      const store = await engine.open(t);
      await subscribe(store, 'i', { token: null, key_id: null });
      const before = await store.instances.get('i');
      for (const patch of [
        { webhook_url: 'http://127.0.0.1:10/' },
        { agent_ids: ['b'] },
        { replies: true },
        { owner_key_id: 'key' },
        { webhook_headers: {} },
      ])
        await assert.rejects(store.instances.patch('i', patch, WALL + 1), { code: 'invalid_fields' });
      assert.deepEqual(await store.instances.get('i'), before);
      const stranger = { key_id: 'stranger', instance_id: null };
      assert.equal(await store.instances.patch('i', { replies: true }, WALL + 1, stranger), null);
      const switched = await store.instances.patch('i', { instance_name: 'x', is_active: false }, WALL + 1);
      assert.deepEqual([switched?.instance_name, switched?.is_active], ['x', false]);
    });

    test('a rotation ends each lease with the token that made or renewed it', async (t) => {
      const store = await engine.open(t);
      await createKey(store, 'admin');
      await createKey(store, 'key');
      for (const id of ['a', 'b']) await subscribe(store, id, { token: 'first of key' });
      await subscribe(store, 'other', { token: 'first of admin', key_id: 'admin' });
      await store.instances.register({ ...REGISTRATION, instance_id: 'agent', owner_key_id: 'key' }, WALL);
      const leases = () => Promise.all(['a', 'b', 'c', 'other', 'agent'].map((id) => leaseOf(store, id)));
      await store.api_keys.rotate('key', 'second', 1_000, WALL + 100);
      assert.deepEqual(await leases(), [1_100, 1_100, undefined, 10_000, null]);
      await subscribe(store, 'b', { token: 'second', wall_ms: WALL + 200 });
      await subscribe(store, 'c', { token: 'first of key', wall_ms: WALL + 200 });
      assert.deepEqual(await leases(), [1_100, 10_000, 1_100, 10_000, null]);
      await store.api_keys.rotate('key', 'third', 3_000, WALL + 300);
      assert.deepEqual(await leases(), [1_100, 3_300, 1_100, 10_000, null]);
      await subscribe(store, 'b', { token: 'third', wall_ms: WALL + 400 });
      await store.api_keys.rotate('key', 'fourth', 0, WALL + 500);
      assert.deepEqual(await leases(), [0, 0, 0, 10_000, null]);
      await assert.rejects(subscribe(store, 'b', { token: 'third', wall_ms: WALL + 600 }), { code: 'api_key_unknown' });
      await store.api_keys.rotate('admin', 'x', 1e9, NEVER / 2 + 1);
      assert.equal((await leases())[3], 10_000, 'a rotation makes no lease longer');
    });
  });
}
