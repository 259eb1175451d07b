/** How often the counts ask the store. The stores are real; the test decides how long their calls take. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Counts, type CountsParts } from '../../src/delivery/counts.ts';
import type { Visibility } from '../../src/domain/access.ts';
import type { Store } from '../../src/store/store.ts';
import { ENGINES } from '../support/engines.ts';
import { meeting, messages, register, WALL } from '../support/store_contents.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

/** Makes counts on `store`. To count instances takes `ms` of virtual time. */
function counting(store: Store, ms: number) {
  const clock = new VirtualClock();
  const asked: (string | null)[] = [];
  const { deliveries } = store;
  const slow: CountsParts['store'] = {
    deliveries,
    instances: {
      async count(after, limit, visibility) {
        asked.push(after);
        const counted = await store.instances.count(after, limit, visibility);
        await clock.advance(ms);
        return counted;
      },
    },
  };
  return { clock, asked, counts: new Counts({ clock, store: slow }) };
}

const owner = (key_id: string): Visibility => ({ owner_scope: { key_id, instance_id: null }, meeting_ids: [] });

for (const engine of ENGINES) {
  describe(engine.name, () => {
    test('callers at one time share a count, and a count that took long is kept for 19 times as long', async (t) => {
      const store = await engine.open(t);
      await meeting(store, 'm', 'i');
      await store.messages.accept(messages('m', 3));
      const { clock, asked, counts } = counting(store, 100);
      const [first, second] = await Promise.all([counts.of(null), counts.of(null)]);
      assert.equal(asked.length, 1);
      assert.deepEqual(first, second);
      assert.deepEqual([first.instances.unknown, first.pending, first.oldest_pending_at], [1, 3, WALL]);
      await register(store, 'j');
      await clock.advance(1_899);
      const kept = await counts.of(null);
      assert.deepEqual([kept.instances.unknown, kept.counted_at], [1, first.counted_at]);
      assert.equal(asked.length, 1);
      await clock.advance(1);
      const again = await counts.of(null);
      assert.deepEqual([again.instances.unknown, again.counted_at], [2, first.counted_at + 2_000]);
      assert.equal(asked.length, 2);
    });

    test('a count that took no time is not kept: a client that changes something sees the change', async (t) => {
      const store = await engine.open(t);
      const { counts } = counting(store, 0);
      assert.equal((await counts.of(null)).instances.unknown, 0);
      await register(store, 'i');
      assert.equal((await counts.of(null)).instances.unknown, 1);
    });

    test('callers with other rights get counts of their own', async (t) => {
      const store = await engine.open(t);
      await register(store, 'i');
      const { counts } = counting(store, 100);
      assert.equal((await counts.of(owner('k'))).instances.unknown, 0);
      assert.equal((await counts.of(null)).instances.unknown, 1);
    });

    test('a count that failed is not kept', async (t) => {
      const store = await engine.open(t);
      let fails = true;
      const instances: CountsParts['store']['instances'] = {
        count: (...args) => (fails ? Promise.reject(new Error('no')) : store.instances.count(...args)),
      };
      const counts = new Counts({ clock: new VirtualClock(), store: { instances, deliveries: store.deliveries } });
      await assert.rejects(counts.of(null), /no/);
      fails = false;
      assert.equal((await counts.of(null)).pending, 0);
    });

    test('a part of a count reads no more instances than its limit, and the parts add up', async (t) => {
      const store = await engine.open(t);
      for (const id of ['a', 'b', 'Z', 'é', '😀', 'aa']) await register(store, id);
      let after: string | null = null;
      const parts: number[] = [];
      do {
        const { counts, next }: Awaited<ReturnType<Store['instances']['count']>> = await store.instances.count(
          after,
          4,
        );
        parts.push(counts.unknown);
        after = next;
      } while (after !== null);
      assert.deepEqual(parts, [4, 2]);
    });
  });
}
