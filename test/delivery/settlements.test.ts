/** Results of attempts are written soon when there are few, and together when there are many. No wait is useless. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Settlements } from '../../src/delivery/attempts/settlements.ts';
import { Partitions } from '../../src/delivery/cluster/partitions.ts';
import { Recipient } from '../../src/delivery/lanes/recipient.ts';
import { type Instance, NO_HEALTH } from '../../src/domain/instance.ts';
import { type Linger, NO_LINGER } from '../../src/store/linger.ts';
import type { DeliverySettlement, HealthSettlement, LockedRows } from '../../src/store/contract/deliveries.ts';
import type { Store } from '../../src/store/store.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const DISTANCE: Linger = { ms: 150, batch_size: 2_000 };
const WRITE_MS = 20;
const SECRET = `whsec_${Buffer.alloc(32).toString('base64')}`;

/** Makes settlements, and records when each batch was written and how many results it had. A batch takes 20 ms. */
function settlements(settle?: Linger) {
  const clock = new VirtualClock();
  const written: { at: number; count: number }[] = [];
  const healths: string[][] = [];
  /** The delivery ids of each batch, with the counts of their attempts. */
  const batches: string[][] = [];
  const failures: unknown[] = [];
  /** The rows that somebody else has locked. */
  const locked: LockedRows = { deliveries: [], instance_ids: [] };
  const store = {
    lingers: settle && { ...NO_LINGER, settle },
    deliveries: {
      async settle(deliveries: DeliverySettlement[], of_instances: HealthSettlement[]) {
        written.push({ at: clock.now(), count: deliveries.length });
        healths.push(of_instances.map(({ instance_id }) => instance_id));
        batches.push(deliveries.map(({ delivery_id, attempt_count }) => `${delivery_id} ${attempt_count}`));
        await new Promise<void>((resolve) => clock.after(WRITE_MS, resolve));
        const is_any = locked.deliveries.length + locked.instance_ids.length > 0;
        return is_any ? structuredClone(locked) : null;
      },
    },
  } as unknown as Store;
  const it = new Settlements(clock, store, { storageFailed: (error) => failures.push(error) }, () => {});
  let number = 0;
  const add = (count: number, changes: Partial<DeliverySettlement> = {}): void => {
    for (let i = 0; i < count; i++) {
      it.add({
        delivery_id: `dlv_${number++}`,
        expires_at: 1,
        state: 'delivered',
        reason: null,
        attempt_count: 1,
        answered_badly: 0,
        attempts: '[]',
        next_attempt_at: null,
        aside: false,
        settled_at: 0,
        epoch: 0,
        ...changes,
      });
    }
  };
  /** Adds this many results in each millisecond. */
  const come = async (each_ms: number, ms: number): Promise<void> => {
    for (let i = 0; i < ms; i++) {
      add(each_ms);
      await clock.advance(1);
    }
  };
  return { it, clock, written, healths, batches, failures, locked, add, come };
}

test('while many arrive, batches linger as the store wants; control: without lingering there are many more', async () => {
  const apart = settlements(DISTANCE);
  await apart.come(10, 1_500);
  const starts = apart.written.slice(1).map(({ at }) => at);
  for (const [i, at] of starts.slice(1).entries()) assert.ok(at - starts[i]! >= DISTANCE.ms, starts.join(' '));
  assert.ok(starts.length >= 9, `${starts.length} batches`);
  // Results that arrive during a batch are in the next batch, which does not linger again.
  assert.ok(
    apart.it.unsettled <= 10 * (DISTANCE.ms + WRITE_MS) && apart.written.at(-1)!.count <= 10 * DISTANCE.ms,
    `${apart.it.unsettled} wait`,
  );

  const close = settlements();
  await close.come(10, 1_500);
  assert.ok(close.written.length > 4 * apart.written.length, `${close.written.length} batches`);
});

test('a batch that is full does not linger', async () => {
  const { written, come } = settlements(DISTANCE);
  await come(20, 1_000);
  const full = written.slice(2);
  assert.ok(full.length >= 6, JSON.stringify(written));
  for (const [i, { at, count }] of full.entries()) {
    const former_at = full[i - 1]?.at ?? at;
    assert.ok(count === 2_000 && at - former_at <= 2_000 / 20, JSON.stringify(written));
  }
});

test('few are written after 3 ms, however long the store wants to linger', async () => {
  const { written, add, clock } = settlements(DISTANCE);
  const started_at = clock.now();
  for (let i = 0; i < 5; i++) {
    add(1);
    await clock.advance(30);
  }
  assert.deepEqual(
    written.map(({ at, count }) => [at - started_at, count]),
    [3, 33, 63, 93, 123].map((at) => [at, 1]),
  );
});

test('a flush does not linger', async () => {
  const { it, clock, written, add, come } = settlements(DISTANCE);
  await come(10, 200);
  await clock.advance(WRITE_MS);
  const batches = written.length;
  add(1);
  const asked_at = clock.now();
  const all = it.flush();
  await clock.advance(WRITE_MS);
  await all;
  assert.deepEqual(
    written.slice(batches).map(({ at }) => at),
    [asked_at],
  );
  assert.equal(it.unsettled, 0);
  // The linger that ended early writes nothing later.
  await clock.advance(1_000);
  assert.equal(written.length, batches + 1);
});

/** Instances whose rows are in memory. */
function recipients(clock: VirtualClock, count: number): Recipient[] {
  const partitions = Partitions.alone(clock);
  return Array.from({ length: count }, (_, i) => {
    const recipient = new Recipient(`i${i}`, partitions.of(`i${i}`)!);
    recipient.replace(
      {
        ...NO_HEALTH,
        webhook_url: 'http://127.0.0.1:9/',
        webhook_secret: SECRET,
        earlier_secrets: [],
      } as Partial<Instance> as Instance,
      0,
    );
    return recipient;
  });
}

test('the health of ten thousand instances is written in turns of 500, and a result that comes meanwhile goes with the next', async () => {
  const { it, clock, written, healths, add } = settlements();
  const all = recipients(clock, 10_000);
  for (const recipient of all) it.markSucceeded(recipient);
  await clock.advance(1_003);
  assert.deepEqual(
    healths.map((ids) => ids.length),
    [500],
  );
  add(1);
  await clock.advance(WRITE_MS + 3);
  assert.deepEqual(
    written.map(({ count }) => count),
    [0, 1],
  );
  await clock.advance(20 * (WRITE_MS + 3));
  assert.ok(healths.every((ids) => ids.length <= 500));
  assert.deepEqual(
    healths.flat(),
    all.map(({ instance_id }) => instance_id),
  );
  assert.ok(all.every(({ registration }) => !registration.health_dirty));
});

test('a flush writes the health of every instance that changed before it', async () => {
  const { it, clock, healths } = settlements();
  for (const recipient of recipients(clock, 1_200)) it.markSucceeded(recipient);
  const all = it.flushAll();
  await clock.advance(3 * WRITE_MS);
  await all;
  assert.deepEqual(
    healths.map((ids) => ids.length),
    [500, 500, 200],
  );
});

test('a result whose row is locked holds up no other; it is tried with every batch, before later results of its delivery', async () => {
  const { it, clock, batches, failures, locked, add } = settlements();
  const clear = (): void => void locked.deliveries.splice(0);
  locked.deliveries.push({ delivery_id: 'dlv_0', instance_id: 'held' });
  add(2, { state: 'pending' });
  await clock.advance(3 + WRITE_MS);
  assert.deepEqual(batches.splice(0), [['dlv_0 1', 'dlv_1 1']]);
  assert.equal(it.unsettled, 1);

  let flushed = '';
  void it.flush().then(() => (flushed += 'all '));
  void it.flush('held').then(() => (flushed += 'held '));
  void it.flush('another').then(() => (flushed += 'another '));
  await clock.settle();
  assert.equal(flushed, 'another ', 'only who needs this row waits for it');

  add(1, { delivery_id: 'dlv_0', attempt_count: 2 });
  add(1);
  await clock.advance(3 + WRITE_MS);
  assert.deepEqual(batches.splice(0), [['dlv_0 1', 'dlv_0 2', 'dlv_3 1']]);
  assert.equal(it.unsettled, 2);
  assert.equal(failures.length, 1, 'said once');

  clear();
  await clock.advance(600);
  assert.deepEqual(batches.splice(0), [['dlv_0 1', 'dlv_0 2']]);
  assert.equal(flushed, 'another all held ');
  assert.equal(it.unsettled, 0);
  await clock.advance(5_000);
  assert.deepEqual(batches, [], 'nothing is written twice');
});

test('the health of an instance whose row is locked is tried again until it is written', async () => {
  const { it, clock, healths, locked } = settlements();
  const [one, other] = recipients(clock, 2) as [Recipient, Recipient];
  locked.instance_ids.push(one.instance_id);
  it.markDirty(one);
  it.markDirty(other);
  await clock.advance(3 + WRITE_MS);
  assert.deepEqual(
    [one, other].map(({ registration }) => registration.health_dirty),
    [true, false],
  );
  const all = it.flushAll();
  locked.instance_ids.splice(0);
  await clock.advance(600);
  await all;
  assert.deepEqual(healths, [['i0', 'i1'], ['i0']]);
  assert.equal(one.registration.health_dirty, false);
});

test('no timer is left when everything was written: it kept a process that had stopped for a second', async () => {
  const { it, clock } = settlements();
  const before = clock.timers;
  for (const recipient of recipients(clock, 2)) it.markSucceeded(recipient);
  assert.equal(clock.timers, before + 1, 'control: the time of a success waits');
  const all = it.flushAll();
  await clock.advance(WRITE_MS);
  await all;
  assert.equal(clock.timers, before);
});
