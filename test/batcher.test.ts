/** What arrives together goes together; and nothing is held back that others wait for. */
import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { test } from 'node:test';
import { Batcher, type BatcherOptions } from '../src/delivery/batcher.ts';
import { systemClock } from '../src/delivery/clock.ts';

const WEIGHT = 10;

/** A batcher of numbers, the batches that it handed on, and how to end the first of them. */
function batcher(options: Partial<BatcherOptions>) {
  const batches: number[][] = [];
  const ends: (() => void)[] = [];
  const it = new Batcher<number, number>(
    systemClock(),
    { items_max: () => 4, weight_max: 100, flights_max: 2, ...options },
    (items) => {
      batches.push(items);
      return new Promise((resolve) => ends.push(() => resolve(items)));
    },
  );
  /** Each list in a turn of its own. */
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

test('a batch is what arrives in one turn; while enough are under way, the next one grows up to its most', async () => {
  const { batches, add, endFirst } = batcher({});
  await add([1, 2], [3], [4], [5, 6], [7, 8]);
  assert.deepEqual(batches, [[1, 2], [3]]);
  await endFirst();
  assert.deepEqual(batches.slice(2), [[4, 5, 6, 7]]);
});

test('what is gathered by whoever takes it goes at once, however many small batches are under way', async () => {
  // Without is_gathered_there, only [1] and [2] go: who waits for four to come together waits for the others in vain.
  const { batches, add } = batcher({ is_gathered_there: true });
  await add([1], [2], [3], [4], [5]);
  assert.deepEqual(batches, [[1], [2], [3], [4], [5]]);
});

test('no more of it is under way than in full batches, by number and by weight', async () => {
  const by_number = batcher({ is_gathered_there: true });
  await by_number.add([1, 2, 3], [4, 5, 6], [7, 8, 9, 10, 11], [12]);
  // There is room as long as it is not full: the last batch is whole.
  assert.deepEqual(by_number.batches, [
    [1, 2, 3],
    [4, 5, 6],
    [7, 8, 9, 10],
  ]);
  await by_number.endFirst();
  assert.deepEqual(by_number.batches.slice(3), [[11, 12]]);

  const by_weight = batcher({ is_gathered_there: true, weight_max: 2 * WEIGHT });
  await by_weight.add([1, 2, 3, 4, 5, 6]);
  assert.deepEqual(by_weight.batches, [
    [1, 2],
    [3, 4],
  ]);
  assert.equal(by_weight.it.waiting_weight, 2 * WEIGHT);
});

test('a batch that is more than fits into one turn goes on in the next, without waiting for an answer', async () => {
  const { batches, add } = batcher({});
  await add([1, 2, 3, 4, 5, 6]);
  assert.deepEqual(batches, [
    [1, 2, 3, 4],
    [5, 6],
  ]);
});
