/** Tens of thousands of machines may wait for their turn. There is a limit for the memory that each of them takes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { LaneCursors } from '../../src/delivery/cluster/lane_cursors.ts';
import { Partitions } from '../../src/delivery/cluster/partitions.ts';
import { InvalidationClock } from '../../src/delivery/lanes/invalidation_clock.ts';
import { Lane } from '../../src/delivery/lanes/lane.ts';
import { Recipient } from '../../src/delivery/lanes/recipient.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const COUNT = 10_000;
/**
 * The limit. An instance takes 810 bytes on Node 24. It took 1,470 when its lane for
 * deliveries aside, its cursors and its queues were made together with it, and not when they are first needed.
 */
const BYTES_MAX = 1_000;

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

/** The bytes of the heap for each object. */
function bytesOf(make: (i: number) => object): number {
  const made = [make(-1)];
  gc();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < COUNT; i++) made.push(make(i));
  gc();
  const bytes = (process.memoryUsage().heapUsed - before) / COUNT;
  assert.equal(made.length, COUNT + 1);
  return bytes;
}

const partitions = Partitions.alone(new VirtualClock());
const cursors = new LaneCursors(new InvalidationClock());

/** A recipient as after a start: its lane has a backlog on disk, of which nothing is read. */
function waiting(i: number): Recipient {
  const recipient = new Recipient(`i${i}`, partitions.of(`i${i}`)!);
  const lane = new Lane('m', 0);
  lane.spill().is_unsettled = true;
  recipient.lanes.set('m', lane);
  recipient.ready.push(lane);
  return recipient;
}

test('a machine that waits for its turn takes less than a kilobyte', () => {
  const bytes = bytesOf(waiting);
  assert.ok(bytes < BYTES_MAX, `${bytes} bytes`);
});

test('control: with what it may need later it takes more', () => {
  const bytes = bytesOf((i) => {
    const recipient = waiting(i);
    recipient.aside.queue.push({} as never);
    cursors.add(recipient, new Lane('m', 1));
    return recipient;
  });
  assert.ok(bytes > BYTES_MAX, `${bytes} bytes`);
});
