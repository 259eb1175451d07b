/** The limit of attempts in turns follows the load of the thread. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AttemptLimit } from '../../src/delivery/attempts/attempt_limit.ts';
import { Saturation } from '../../src/delivery/attempts/saturation.ts';

const MAX_IN_FLIGHT = 4_000;
const BUSY = 1;
const IDLE = 0.1;

const limitAt = (load: () => number): AttemptLimit => new AttemptLimit(new Saturation(load), MAX_IN_FLIGHT);

test('the limit begins small and rises with the time, however rarely it is measured', () => {
  const often = limitAt(() => IDLE);
  const rarely = limitAt(() => IDLE);
  assert.equal(often.young_max, 8);
  often.measure(0);
  rarely.measure(0);
  assert.equal(often.young_max, 12);
  for (let now = 100; now <= 1_000; now += 100) often.measure(now);
  rarely.measure(1_000);
  // The limit is a whole number after each measurement, so the one that is measured often rises a little faster.
  assert.ok(often.young_max > 600 && often.young_max < 900, `${often.young_max}`);
  assert.ok(rarely.young_max > 600 && rarely.young_max <= often.young_max, `${rarely.young_max}`);
  rarely.measure(86_400_000);
  assert.equal(rarely.young_max, MAX_IN_FLIGHT * 0.75);
});

test('the limit falls to 32 when the thread is saturated, and rises again when it is not', () => {
  let load = IDLE;
  const limit = limitAt(() => load);
  limit.measure(0);
  limit.measure(60_000);
  load = BUSY;
  limit.measure(60_050);
  assert.equal(limit.young_max, MAX_IN_FLIGHT * 0.75, 'the load is measured every 100 ms');
  limit.measure(60_100);
  assert.equal(limit.young_max, 32);
  limit.measure(120_000);
  assert.equal(limit.young_max, 32);
  load = IDLE;
  limit.measure(120_100);
  assert.equal(limit.young_max, 48);
});

test('the load is measured every 100 ms, whoever asks', () => {
  let load = IDLE;
  const saturation = new Saturation(() => load);
  assert.equal(saturation.measure(0), false);
  load = BUSY;
  assert.equal(saturation.measure(50), false);
  assert.equal(saturation.measure(100), true);
});
