/** The limit of attempts in turns follows the load of the thread. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Saturation } from '../../src/delivery/attempts/saturation.ts';

const MAX_IN_FLIGHT = 4_000;
const BUSY = 1;
const IDLE = 0.1;

test('the limit begins small and rises with the time, however rarely it is measured', () => {
  const often = new Saturation(() => IDLE, MAX_IN_FLIGHT);
  const rarely = new Saturation(() => IDLE, MAX_IN_FLIGHT);
  assert.equal(often.attempts_max, 8);
  often.measure(0);
  rarely.measure(0);
  assert.equal(often.attempts_max, 12);
  for (let now = 100; now <= 1_000; now += 100) often.measure(now);
  rarely.measure(1_000);
  // The limit is a whole number after each measurement, so the one that is measured often rises a little faster.
  assert.ok(often.attempts_max > 600 && often.attempts_max < 900, `${often.attempts_max}`);
  assert.ok(rarely.attempts_max > 600 && rarely.attempts_max <= often.attempts_max, `${rarely.attempts_max}`);
  rarely.measure(86_400_000);
  assert.equal(rarely.attempts_max, MAX_IN_FLIGHT * 0.75);
});

test('the limit falls to 32 when the thread is saturated, and rises again when it is not', () => {
  let load = IDLE;
  const saturation = new Saturation(() => load, MAX_IN_FLIGHT);
  saturation.measure(0);
  saturation.measure(60_000);
  load = BUSY;
  assert.equal(saturation.measure(60_050), false, 'the load is measured every 100 ms');
  assert.equal(saturation.measure(60_100), true);
  assert.equal(saturation.attempts_max, 32);
  saturation.measure(120_000);
  assert.equal(saturation.attempts_max, 32);
  load = IDLE;
  assert.equal(saturation.measure(120_100), false);
  assert.equal(saturation.attempts_max, 48);
});
