/** Scans of whole tables take only a part of the time, however long a scan takes: pauses follow. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PendingScan } from '../../src/delivery/pending_scan.ts';
import { scanPause } from '../../src/delivery/scan_pause.ts';
import { Partition } from '../../src/delivery/cluster/partitions.ts';
import { TimerQueue } from '../../src/delivery/timer_queue.ts';
import type { Store } from '../../src/store/store.ts';
import { HOUR, MINUTE, SECOND, startNode } from '../support/node.ts';
import type { VirtualClock } from '../support/virtual_clock.ts';

/** Replaces some methods of a store, so that they take long or fail. */
function withDeliveries(store: Store, methods: Partial<Store['deliveries']>): Store {
  const deliveries = new Proxy(store.deliveries, {
    get: (target, name) => Reflect.get(name in methods ? methods : target, name) as unknown,
  });
  return new Proxy(store, { get: (target, name) => (name === 'deliveries' ? deliveries : Reflect.get(target, name)) });
}

const after = (clock: VirtualClock, ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));

test('the scan for expired deliveries starts once a minute, and takes at most 2 % of the time when it is slow', async (t) => {
  const node = await startNode(t);
  const { clock, store } = node;
  let takes_ms = 0;
  const looks: number[] = [];
  const maintenance = node.maintenance(
    withDeliveries(store, {
      async expireLanes(...args) {
        looks.push(clock.now());
        await after(clock, takes_ms);
        return store.deliveries.expireLanes(...args);
      },
    }),
  );
  maintenance.start();
  await clock.advance(10 * MINUTE);
  assert.equal(looks.length, 10);

  takes_ms = 6 * SECOND;
  await clock.advance(MINUTE + takes_ms);
  const slow_from = looks.length;
  await clock.advance(HOUR);
  maintenance.stop();
  const slow = looks.slice(slow_from);
  assert.ok(slow.length >= 11, `${slow.length} looks in an hour`);
  assert.ok(slow.length * takes_ms <= HOUR / 50, `${slow.length} looks in an hour`);
});

test('what was kept long enough is removed in a fifth of the time, and in half of it after half a minute', async (t) => {
  const node = await startNode(t);
  const { clock, store } = node;
  const takes_ms = 20;
  const steps: number[] = [];
  let is_done = false;
  const maintenance = node.maintenance(
    withDeliveries(store, {
      async prune() {
        steps.push(clock.now());
        await after(clock, takes_ms);
        return is_done
          ? { removed: 0, next: null }
          : { removed: 25, next: { delivery_id: null, message_id: null, key_no: null } };
      },
    }),
  );
  const done = maintenance.run();
  await clock.advance(MINUTE);
  is_done = true;
  await clock.advance(SECOND);
  await done;
  const distances = steps.slice(1).map((at, i) => at - steps[i]!);
  const slow = distances.indexOf(2 * takes_ms);
  assert.equal(slow, (30 * SECOND) / (5 * takes_ms));
  assert.deepEqual(new Set(distances.slice(0, slow)), new Set([5 * takes_ms]));
  assert.deepEqual(new Set(distances.slice(slow)), new Set([2 * takes_ms]));
});

test('a start sets all due times that are too late, a few in each step', async (t) => {
  const { clock, store } = await startNode(t);
  let left = 2_500;
  const steps: number[] = [];
  const late = withDeliveries(store, {
    async boundAside(_, limit) {
      const changed = Math.min(left, limit);
      left -= changed;
      steps.push(changed);
      return changed;
    },
  });
  const scan = new PendingScan(clock, new TimerQueue(clock), late, () => {});
  await scan.bound([new Partition(3, 1)], clock.now());
  assert.equal(left, 0);
  assert.ok(Math.max(...steps) <= 1_000, `${steps.join(', ')} in the steps`);
});

test('a node scans as rarely for what no broadcast reported; time in which the storage fails does not count', async (t) => {
  const { clock, store } = await startNode(t);
  let failures = 0;
  const slow = withDeliveries(store, {
    async pendingLanes() {
      await after(clock, 2 * SECOND);
      if (failures++ < 20) throw new Error('the storage fails');
      return [];
    },
  });
  const scan = new PendingScan(clock, new TimerQueue(clock), slow, () => {});
  const found = scan.run([new Partition(3, 1)], { lane: () => {}, aside: () => {}, page: () => {} });
  await clock.advance(MINUTE);
  assert.equal(await found, 2 * SECOND);
  assert.equal(failures, 21);
  assert.equal(scanPause(await found, 30 * SECOND), 100 * SECOND);
  assert.equal(scanPause(0, 30 * SECOND), 30 * SECOND);
});

for (const whole of [true, false]) {
  const what = whole ? 'of everything pending' : 'of what is aside';
  test(`a scan ${what} finds every instance with something aside, page by page, also when a read fails`, async (t) => {
    const { clock, store } = await startNode(t);
    const ids = Array.from({ length: 600 }, (_, i) => `i${1_000 + i}`);
    const sizes: number[] = [];
    let reads = 0;
    const many = withDeliveries(store, {
      async pendingAside(last, limit) {
        if (++reads === 2) throw new Error('the storage fails');
        const from = last === null ? 0 : ids.indexOf(last) + 1;
        const page = ids.slice(from, from + limit).map((instance_id) => ({ instance_id, next_at: 7 }));
        sizes.push(page.length);
        return page;
      },
    });
    const scan = new PendingScan(clock, new TimerQueue(clock), many, () => {});
    const seen: string[] = [];
    const found = { lane: () => {}, aside: (instance_id: string) => void seen.push(instance_id), page: () => {} };
    const partitions = [new Partition(3, 1)];
    const scanned = whole ? scan.run(partitions, found) : scan.aside(partitions, found);
    await clock.advance(SECOND);
    await scanned;
    assert.deepEqual(seen, ids);
    assert.ok(sizes.length > 1 && Math.max(...sizes) <= 250, `${sizes.join(', ')} in the pages`);
  });
}
