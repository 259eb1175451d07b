/** Backpressure looks at all instances in memory to find out how many deliveries can move. That must not fill the thread. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Backpressure, type BackpressureParts } from '../../src/delivery/accept/backpressure.ts';

test('a look at all instances that takes long is repeated only after ten times as long', () => {
  const LOOK_MS = 50;
  let now = 0;
  const looks: number[] = [];
  const parts = {
    clock: { now: () => now },
    timers: { schedule() {} },
    partitions: { node_count: 1 },
    cluster_backlog: null,
    memory: { waiting: 1_000_000 },
    recipients: {
      all() {
        looks.push(now);
        now += LOOK_MS;
        return [];
      },
    },
    in_flight: { count: 0 },
    dispatcher: { is_draining: false, isHeld: false },
    saturation: { measure: () => true },
    onRelief() {},
  };
  const backpressure = new Backpressure(parts as unknown as BackpressureParts);
  for (; now < 1_000; now++) backpressure.isBehind();
  assert.deepEqual(looks, [0, LOOK_MS + 10 * LOOK_MS]);
});
