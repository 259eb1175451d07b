import assert from 'node:assert/strict';
import { test } from 'node:test';
import { guardReason, limitsInForce, mayBeOver } from '../../src/domain/guard_rule.ts';

const LIMITS = { hop_limit: 3, pair_limit: 2, pair_window_s: 60 };
const judge = (hops: number, accepted_at: number, pairs: number[][], limits = LIMITS) =>
  guardReason({ hops, accepted_at }, pairs, limits);

test('as many hops as the limit go, and none more; 0 is no limit', () => {
  assert.equal(judge(3, 0, []), null);
  assert.equal(judge(4, 0, []), 'hop_limit');
  assert.equal(judge(1_000, 0, [], { ...LIMITS, hop_limit: 0 }), null);
});

test('a pair that used up its limit within a window is silent for a window after the last message that went', () => {
  assert.equal(judge(1, 59_000, [[1_000]]), null);
  assert.equal(judge(1, 59_000, [[1_000, 58_000]]), 'pair_limit');
  assert.equal(judge(1, 117_999, [[1_000, 58_000]]), 'pair_limit');
  assert.equal(judge(1, 118_000, [[1_000, 58_000]]), null);
  // The two messages are not within one window.
  assert.equal(judge(1, 62_000, [[1_000, 61_000]]), null);
  for (const off of [{ pair_limit: 0 }, { pair_window_s: 0 }])
    assert.equal(judge(1, 59_000, [[1_000, 58_000]], { ...LIMITS, ...off }), null);
});

test('one pair over its limit stops the delivery for all its agents', () => {
  assert.equal(judge(1, 59_000, [[], [1_000, 58_000]]), 'pair_limit');
});

test('a pair may be over its limit if some choice of the messages that may be left out makes it so', () => {
  const in_20_s = { hop_limit: 0, pair_limit: 3, pair_window_s: 20 };
  const may = (at_s: number, counted: number[], left_out: number[] = []): boolean => {
    const sent = [...counted, ...left_out].map((each_s) => ({
      accepted_at: each_s * 1_000,
      may_be_left_out: left_out.includes(each_s),
    }));
    return mayBeOver(sent, at_s * 1_000, in_20_s);
  };
  assert.equal(may(33, [5, 10]), false);
  assert.equal(may(33, [5], [10, 15]), true);
  // The last three messages are not within a window. Without the last message, the other messages are.
  assert.equal(may(33, [5, 10, 15], [30]), true);
  assert.equal(may(33, [5, 10, 15, 30]), false);
});

test('a clock that is set back makes nobody silent for long', () => {
  assert.equal(judge(1, 58_000, [[3_600_000, 3_601_000]]), null);
});

test('a meeting has the limits of the service where it has none of its own; 0 is one of its own', () => {
  const own = { hop_limit: null, pair_limit: 0, pair_window_s: 5 };
  assert.deepEqual(limitsInForce(own, LIMITS), { hop_limit: 3, pair_limit: 0, pair_window_s: 5 });
});
