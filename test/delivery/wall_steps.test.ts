/** How old a stored time of the wall clock is, although somebody has set the wall clock since. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WallSteps } from '../../src/delivery/wall_steps.ts';
import { HOUR, MINUTE, SECOND } from '../support/node.ts';

const START = Date.parse('2026-01-01T00:00:00.000Z');

test('until somebody sets the wall clock, its times are exact', () => {
  const steps = new WallSteps(START, START + MINUTE);
  for (const ms of [0, 1, HOUR]) assert.equal(steps.steadyOf(steps.read(START + ms, START + MINUTE + ms)), START + ms);
});

test('set ahead, it makes no earlier time older, and later times are exact', () => {
  const steps = new WallSteps(START, START);
  const before = steps.read(START + MINUTE, START + MINUTE);
  const after = steps.read(START + 2 * MINUTE, START + 2 * MINUTE + HOUR);
  assert.equal(steps.steadyOf(before), START + MINUTE);
  assert.equal(steps.steadyOf(after), START + 2 * MINUTE);
  // The wall clock never showed this time: another node has it.
  assert.equal(steps.steadyOf(after - MINUTE), START + 2 * MINUTE);
});

test('set back, it makes no time older: an earlier one may count as younger, later times are exact', () => {
  const steps = new WallSteps(START, START);
  const before = steps.read(START + 2 * HOUR, START + 2 * HOUR);
  const after = steps.read(START + 3 * HOUR, START + 2 * HOUR);
  assert.equal(steps.steadyOf(after), START + 3 * HOUR);
  assert.equal(steps.steadyOf(before), START + 3 * HOUR);
  assert.equal(steps.steadyOf(START), START + HOUR);
});

test('set ahead and then right again, it makes no time older', () => {
  const steps = new WallSteps(START, START);
  const first = steps.read(START + MINUTE, START + MINUTE);
  const ahead = steps.read(START + 2 * MINUTE, START + 2 * MINUTE + HOUR);
  const right = steps.read(START + 3 * MINUTE, START + 3 * MINUTE);
  assert.equal(steps.steadyOf(first), START + MINUTE);
  assert.ok(steps.steadyOf(ahead) >= START + 2 * MINUTE);
  assert.equal(steps.steadyOf(right), START + 3 * MINUTE);
});

test('a clock that drifts is wrong by a second at most', () => {
  const steps = new WallSteps(START, START);
  for (let k = 1; k <= 100; k++) {
    const now = START + k * MINUTE;
    const wall = steps.read(now, now - k * 100);
    assert.ok(Math.abs(steps.steadyOf(wall) - now) <= SECOND);
  }
});

test('however often it is set, the latest times are exact, and earlier ones are kept for some steps', () => {
  const steps = new WallSteps(START, START);
  const read = [];
  for (let k = 1; k <= 1_000; k++) read.push(steps.read(START + k * MINUTE, START + k * (MINUTE + HOUR)));
  for (const k of [1_000, 999, 990]) assert.equal(steps.steadyOf(read[k - 1]!), START + k * MINUTE);
});
