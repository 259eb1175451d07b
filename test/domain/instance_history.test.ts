import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tally } from '../../src/domain/history.ts';
import { INSTANCE_STEP_S, INSTANCES_MAX, StepsOfInstances } from '../../src/domain/instance_history.ts';
import { packedTexts } from '../../src/domain/packed_texts.ts';

const DAY_S = 86_400;

function delivered(...durations_ms: number[]): Tally {
  const tally = new Tally();
  for (const ms of durations_ms) tally.countDelivered(ms);
  return tally;
}

test('each step keeps its counts and its quantiles, for a day and no longer', () => {
  const steps = new StepsOfInstances(0);
  for (let second = 0; second < 2 * DAY_S; second += INSTANCE_STEP_S) steps.add('i', second, delivered(second / 600));
  const read = steps.read('i', 0, 2 * DAY_S - 1);
  assert.equal(read.delivered.length, DAY_S / INSTANCE_STEP_S);
  assert.ok(read.delivered.every((count) => count === 1));
  assert.equal(read.first_s, DAY_S);
  for (const [i, p50] of read.p50_ms.entries()) assert.ok(Math.abs(p50! - (144 + i)) <= (144 + i) / 8);
});

test('a step in which nothing happened is empty, also when the same place had one a day ago', () => {
  const steps = new StepsOfInstances(0);
  steps.add('i', 0, delivered(5));
  steps.add('i', INSTANCE_STEP_S, delivered(5));
  steps.add('i', DAY_S + 2 * INSTANCE_STEP_S, delivered(7, 7));
  const { delivered: counts, p50_ms } = steps.read('i', 0, DAY_S + 2 * INSTANCE_STEP_S);
  assert.deepEqual(
    counts.filter((count) => count > 0),
    [2],
  );
  assert.deepEqual([counts.at(-1), p50_ms.at(-1)], [2, 7]);
  assert.equal(p50_ms[0], null);
});

test('what was before an instance was registered is not shown', () => {
  const steps = new StepsOfInstances(0);
  steps.add('i', 100, delivered(1));
  const { delivered: counts, since_s, first_s } = steps.read('i', 2 * INSTANCE_STEP_S, 3 * INSTANCE_STEP_S);
  assert.deepEqual([counts, since_s, first_s], [[0, 0], 2 * INSTANCE_STEP_S, 2 * INSTANCE_STEP_S]);
});

test('no more instances are kept than the most, those that were tried longest ago go first, and say so', () => {
  const steps = new StepsOfInstances(0);
  for (let i = 0; i < INSTANCES_MAX; i++) steps.add(`i${i}`, 10, delivered(1));
  steps.add('i0', INSTANCE_STEP_S, delivered(1));
  steps.add('one more', INSTANCE_STEP_S, delivered(1));
  assert.equal(steps.size, INSTANCES_MAX);
  const now_s = INSTANCE_STEP_S + 1;
  assert.deepEqual(steps.read('i0', 0, now_s).delivered, [1, 1], 'tried lately');
  assert.deepEqual(steps.read('i1', 0, now_s).delivered, [0], 'forgotten');
  assert.equal(steps.read('i1', 0, now_s).since_s, INSTANCE_STEP_S);
  assert.equal(steps.read('i2', 0, now_s).since_s, 0);
});

test('texts are packed into lists that fit, in their order, and none is lost', () => {
  const texts = Array.from({ length: 100 }, (_, i) => JSON.stringify('é'.repeat(i)));
  const lists = packedTexts(texts, 500);
  assert.ok(lists.length > 10 && lists.every((list) => Buffer.byteLength(list) <= 500));
  assert.deepEqual(
    lists.flatMap((list) => (JSON.parse(list) as string[]).map((text) => JSON.stringify(text))),
    texts,
  );
  assert.deepEqual(packedTexts([], 500), []);
});
