import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SPANS, type Span, SpansOfTime, Tally } from '../../src/domain/history.ts';

test('a quantile is off by at most an eighth, for any duration', () => {
  for (const ms of [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 99, 1_000, 4_999, 65_535, 3_600_000, 604_800_000, 2 ** 31 - 1]) {
    const tally = new Tally();
    tally.countDelivered(ms);
    const found = tally.quantileMs(0.5)!;
    assert.ok(Math.abs(found - ms) <= ms / 8, `${ms} ms is told as ${found}`);
  }
});

test('a clock that was set back, and a duration beyond all bounds, are counted at the ends', () => {
  const tally = new Tally();
  tally.countDelivered(-5_000);
  assert.equal(tally.quantileMs(0.5), 0);
  tally.countDelivered(1e15);
  assert.ok(tally.quantileMs(0.95)! > 1_800_000_000);
  assert.equal(tally.of('delivered'), 2);
});

test('p50 and p95 are those of all durations of a step', () => {
  const tally = new Tally();
  assert.equal(tally.quantileMs(0.5), null);
  for (let ms = 1; ms <= 1_000; ms++) tally.countDelivered(ms);
  assert.ok(Math.abs(tally.quantileMs(0.5)! - 500) <= 500 / 8);
  assert.ok(Math.abs(tally.quantileMs(0.95)! - 950) <= 950 / 8);
});

test('a tally travels as text, and any other text is no tally', () => {
  const tally = new Tally();
  tally.count('accepted', 7);
  tally.count('failed');
  for (const ms of [3, 30, 300]) tally.countDelivered(ms);
  const copy = Tally.parse(tally.text)!;
  assert.equal(copy.text, tally.text);
  assert.deepEqual([copy.of('accepted'), copy.of('failed'), copy.of('delivered')], [7, 1, 3]);
  assert.equal(copy.quantileMs(0.5), tally.quantileMs(0.5));
  for (const text of [
    '',
    '{',
    '{}',
    '7',
    '[1]',
    '[1,-1]',
    '[1,0.5]',
    '[124,1]',
    '[-1,1]',
    '[1,"1"]',
    '[1,1e99]',
    'null',
  ])
    assert.equal(Tally.parse(text), null, text);
});

test('the text of a full tally fits into a broadcast', () => {
  const tally = new Tally();
  for (const what of ['accepted', 'failed_attempts', 'failed'] as const) tally.count(what, 2 ** 31);
  for (let power = 0; power < 31; power++) {
    for (const quarter of [0, 0.25, 0.5, 0.75]) {
      for (let times = 0; times < 1_000; times++) tally.countDelivered(Math.floor(2 ** power * (1 + quarter)));
    }
  }
  assert.ok(tally.text.length < 5_000, String(tally.text.length));
});

test('each span has what happened in it, step by step, and forgets what is older', () => {
  const spans = new SpansOfTime();
  const one = new Tally();
  one.count('accepted');
  const day_s = 86_400;
  // One message a minute for two days.
  for (let second = 0; second < 2 * day_s; second += 60) spans.add(second, one);
  for (const [span, { step_s, steps }] of Object.entries(SPANS) as [Span, { step_s: number; steps: number }][]) {
    const read = spans.read(span, 0, 2 * day_s);
    assert.equal(read.accepted.length, steps);
    assert.equal(read.end_s - read.first_s, steps * step_s);
    assert.equal(
      read.accepted.reduce((sum, each) => sum + each, 0),
      (steps * step_s) / 60,
    );
    for (const column of [read.delivered, read.failed_attempts, read.failed, read.p50_ms, read.p95_ms])
      assert.equal(column.length, steps);
  }
});

test('a step that has not ended is left out, and so are those before the requested time', () => {
  const spans = new SpansOfTime();
  const one = new Tally();
  one.count('failed');
  for (let second = 100; second < 125; second++) spans.add(second, one);
  assert.deepEqual(spans.read('1h', 100, 125).failed, [10, 10]);
  assert.deepEqual(spans.read('5m', 120, 125).failed, [1, 1, 1, 1, 1]);
  assert.deepEqual(spans.read('1h', 101, 125).failed, [10]);
  const none = spans.read('1h', 1e12, 125);
  assert.deepEqual([none.first_s, none.end_s, none.failed], [120, 120, []]);
});
