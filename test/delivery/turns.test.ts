/** Turns of instances with a backlog, and lanes that are held. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HeldLanes } from '../../src/delivery/attempts/held_lanes.ts';
import type { TurnLimits } from '../../src/delivery/attempts/turn_limits.ts';
import { Partition } from '../../src/delivery/cluster/partitions.ts';
import { Expiry } from '../../src/delivery/expiry.ts';
import { Lane } from '../../src/delivery/lanes/lane.ts';
import type { LaneDelivery } from '../../src/delivery/lanes/lane_delivery.ts';
import { Recipient } from '../../src/delivery/lanes/recipient.ts';
import { Turns } from '../../src/delivery/lanes/turns.ts';
import { TimerQueue } from '../../src/delivery/timer_queue.ts';
import { HOUR, SECOND, SETTINGS, startNode } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const recipientOf = (instance_id: string): Recipient => new Recipient(instance_id, new Partition(0, 1));

test('an instance whose turn ended while it was listed waits behind those that wait already', () => {
  const one_turn = { mayStep: () => true, mayBegin: (_: unknown, in_turn: number) => in_turn === 0 };
  const limits = one_turn as unknown as TurnLimits;
  const turns = new Turns();
  const [hanging, waiting] = [recipientOf('hanging'), recipientOf('waiting')];
  hanging.is_behind = waiting.is_behind = true;
  turns.list(hanging);
  turns.list(waiting);
  assert.equal(turns.next(limits), hanging);
  turns.list(hanging);
  turns.end(hanging);
  assert.equal(turns.next(limits), waiting);
  assert.equal(turns.next(limits), undefined, 'one turn at a time');
  turns.end(waiting);
  assert.equal(turns.next(limits), hanging);
});

test('instances whose attempts hang outside of turns take no turns from others', async (t) => {
  const node = await startNode(t, { settings: { ...SETTINGS, max_in_flight: 4_000, instance_concurrency: 1 } });
  const hanging = Array.from({ length: 400 }, (_, k) => `hangs${k}`);
  const others = Array.from({ length: 200 }, (_, k) => `other${k}`);
  await node.meeting('wide', ...hanging, ...others);
  await node.meeting('narrow', ...hanging);
  node.transport.script = ({ instance_id }) => (instance_id.startsWith('hangs') ? HANGS : 200);
  await node.send('wide');
  // These attempts begin before the turns of the instances.
  await node.send('narrow');
  await node.clock.advance(10 * SECOND);
  const reached = node.transport.pushes.filter(({ instance_id }) => instance_id.startsWith('other'));
  assert.equal(reached.length, others.length);
});

test('a lane has one timer, however often it is held until the same time', async () => {
  const clock = new VirtualClock();
  const timers = new TimerQueue(clock);
  const expiry = new Expiry(clock, 72 * HOUR, { corrected() {}, doubted() {} });
  let scheduled = 0;
  const counting = Object.assign(Object.create(timers) as TimerQueue, {
    schedule: (at: number, wake: () => void) => {
      scheduled++;
      timers.schedule(at, wake);
    },
  });
  const due: number[] = [];
  const held = new HeldLanes(clock, counting, expiry, () => due.push(clock.now()));
  const [recipient, lane] = [recipientOf('i'), new Lane('m', 0)];
  const head = { message_id: 'x', expires_at: clock.wall() + 72 * HOUR } as unknown as LaneDelivery;
  const at = clock.now() + HOUR;
  for (let k = 0; k < 1_000; k++) {
    held.hold(recipient, lane, head, at);
    // The meeting changed: the lane is read again, and held again.
    lane.held_until = 0;
  }
  held.hold(recipient, lane, head, at);
  assert.equal(scheduled, 1);
  await clock.advance(HOUR);
  assert.deepEqual(due, [at]);
});
