/** The batcher sends items that arrive together in one batch, and no item waits while all callers wait for results. */
import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { test } from 'node:test';
import { Batcher, type BatcherOptions } from '../../src/delivery/batcher.ts';
import { systemClock } from '../../src/delivery/clock.ts';
import { type Linger, perNode } from '../../src/store/linger.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const WEIGHT = 10;

/** A batcher of numbers, the batches that it sent, and functions that end these batches. */
function batcher(options: Partial<BatcherOptions<number>>) {
  const batches: number[][] = [];
  const ends: (() => void)[] = [];
  const it = new Batcher<number, number>(
    systemClock(),
    { items_max: () => 4, weight_max: 100, in_flight_max: 2, ...options },
    (items) => {
      batches.push(items);
      return new Promise((resolve) => ends.push(() => resolve(items)));
    },
  );
  /** Adds each list in its own turn of the event loop. */
  const add = async (...turns: number[][]): Promise<void> => {
    for (const items of turns) {
      for (const item of items) void it.add(item, WEIGHT);
      await turn();
      await turn();
    }
  };
  const endFirst = async (): Promise<void> => {
    ends.shift()?.();
    await turn();
    await turn();
  };
  return { it, batches, add, endFirst };
}

test('a batch is what arrives in one turn; while enough are in flight, the next one grows up to its maximum', async () => {
  const { batches, add, endFirst } = batcher({});
  await add([1, 2], [3], [4], [5, 6], [7, 8]);
  assert.deepEqual(batches, [[1, 2], [3]]);
  await endFirst();
  assert.deepEqual(batches.slice(2), [[4, 5, 6, 7]]);
});

test('what the consumer coalesces goes at once, however many small batches are in flight', async () => {
  // Without consumer_coalesces the batcher sends only [1] and [2].
  const { batches, add } = batcher({ consumer_coalesces: true });
  await add([1], [2], [3], [4], [5]);
  assert.deepEqual(batches, [[1], [2], [3], [4], [5]]);
});

test('no more of it is in flight than in full batches, by number and by weight', async () => {
  const by_number = batcher({ consumer_coalesces: true });
  await by_number.add([1, 2, 3], [4, 5, 6], [7, 8, 9, 10, 11], [12]);
  // Two full batches have eight items. While fewer items are in flight, another batch starts and takes all that fit.
  assert.deepEqual(by_number.batches, [
    [1, 2, 3],
    [4, 5, 6],
    [7, 8, 9, 10],
  ]);
  await by_number.endFirst();
  assert.deepEqual(by_number.batches.slice(3), [[11, 12]]);

  const by_weight = batcher({ consumer_coalesces: true, weight_max: 2 * WEIGHT });
  await by_weight.add([1, 2, 3, 4, 5, 6]);
  assert.deepEqual(by_weight.batches, [
    [1, 2],
    [3, 4],
  ]);
  assert.equal(by_weight.it.waiting_weight, 2 * WEIGHT);
});

test('a batch that does not fit into one turn continues in the next, without waiting for a result', async () => {
  const { batches, add } = batcher({});
  await add([1, 2, 3, 4, 5, 6]);
  assert.deepEqual(batches, [
    [1, 2, 3, 4],
    [5, 6],
  ]);
});

const STORE_MS = 5;

/** A batcher whose batches take 5 ms. It notes when each batch began and how many items it had. */
function lingering(linger?: Linger) {
  const clock = new VirtualClock();
  const batches: { at: number; count: number }[] = [];
  const options = { items_max: () => 500, weight_max: Infinity, in_flight_max: 2, consumer_coalesces: true };
  const it = new Batcher<number, number>(
    clock,
    linger === undefined ? options : { ...options, linger: () => linger },
    async (items) => {
      batches.push({ at: clock.now(), count: items.length });
      await new Promise<void>((resolve) => clock.after(STORE_MS, resolve));
      return items;
    },
  );
  /** Adds this many items in each millisecond, and does not wait for their results. */
  const come = async (each_ms: number, ms: number): Promise<void> => {
    for (let i = 0; i < ms; i++) {
      for (let n = 0; n < each_ms; n++) void it.add(n, WEIGHT);
      await clock.advance(1);
    }
  };
  /** Runs this many senders. Each adds an item, waits for its result, thinks for a while, and adds the next item. */
  const senders = async (count: number, think_ms: (sender: number) => number, ms: number): Promise<number> => {
    let answered = 0;
    const until = clock.now() + ms;
    const send = async (sender: number): Promise<void> => {
      while (clock.now() < until) {
        await it.add(sender, WEIGHT);
        answered++;
        await new Promise<void>((resolve) => clock.after(think_ms(sender), resolve));
      }
    };
    for (let sender = 0; sender < count; sender++) void send(sender);
    await clock.advance(ms);
    return answered;
  };
  return { batches, come, senders, clock };
}

const LINGER: Linger = { ms: 30, batch_size: 200 };

test('batches linger while many items arrive, even when a caller waits; control: without lingering there are many more', async () => {
  const apart = lingering(LINGER);
  // The batcher needs some items before it knows how many arrive.
  await apart.come(2, 100);
  const few = apart.batches.length;
  await apart.come(2, 1_000);
  const starts = apart.batches.slice(few).map(({ at }) => at);
  for (const [i, at] of starts.slice(1).entries()) assert.ok(at - starts[i]! >= LINGER.ms, starts.join(' '));
  assert.ok(starts.length >= 25, `${starts.length} batches`);

  const close = lingering();
  await close.come(2, 1_000);
  assert.ok(close.batches.length > 10 * starts.length, `${close.batches.length} batches`);
});

test('as many as go at once do not linger, and no more than fit into a batch', async () => {
  const { batches, come } = lingering(LINGER);
  await come(20, 500);
  const later = batches.slice(5);
  for (const { count } of later)
    assert.ok(count >= LINGER.batch_size && count <= LINGER.batch_size + 20, String(count));
  const full = lingering({ ms: 60_000, batch_size: Infinity });
  await full.come(50, 100);
  assert.ok(full.batches.slice(2).every(({ count }) => count === 500) && full.batches.length >= 8);
});

test('when all senders wait for their responses, no batch lingers', async () => {
  const { batches, come, senders } = lingering({ ms: 60_000, batch_size: Infinity });
  await come(20, 20);
  const before = batches.length;
  const answered = await senders(64, () => 1, 600);
  assert.ok(answered >= (64 * 600) / (STORE_MS + 1) - 2 * 64, `${answered} answers`);
  assert.ok(batches.slice(before + 2).every(({ count }) => count === 64));
});

test('nor when some senders are slow: what waits goes when no more arrived for a while', async () => {
  // Every fourth sender thinks for longer than a batch takes, so there is no time at which all senders wait.
  const { batches, senders } = lingering({ ms: 60_000, batch_size: Infinity });
  await senders(64, (sender) => (sender % 4 === 0 ? 40 : 1), 2_000);
  const gaps = batches.slice(1).map(({ at }, i) => at - batches[i]!.at);
  assert.ok(Math.max(...gaps) <= 40, gaps.join(' '));
});

test('an item that arrives while a batch is in flight shows that others send: the next batch lingers', async () => {
  const { batches, come, clock } = lingering(LINGER);
  await come(10, 100);
  await clock.advance(100);
  const before = batches.length;
  // Some items do not fit into the first batch. If they did, the next batch would start at once.
  await come(60, 1);
  await come(1, 40);
  const starts = batches.slice(before).map(({ at }) => at - batches[before]!.at);
  assert.ok(starts[1]! >= LINGER.ms, starts.join(' '));
});

test('nodes share a linger: each lingers for longer, and sends smaller batches; of more than four nothing changes', () => {
  assert.deepEqual(
    [1, 2, 4, 8].map((nodes) => perNode(LINGER, nodes)),
    [
      { ms: 30, batch_size: 200 },
      { ms: 60, batch_size: 100 },
      { ms: 120, batch_size: 50 },
      { ms: 120, batch_size: 50 },
    ],
  );
});

test('joined items are in one batch, however full it is', async () => {
  const { it, batches, add } = batcher({});
  // Without `is_joined` the batches are [1, 2, 3, 4] and [5, 6, 7].
  for (const item of [1, 2, 3]) void it.add(item, WEIGHT);
  for (const item of [4, 5, 6]) void it.add(item, WEIGHT, item > 4);
  await add([7]);
  assert.deepEqual(batches, [[1, 2, 3, 4, 5, 6], [7]]);
});
