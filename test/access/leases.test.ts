/** Instances whose lease has ended are removed, each for itself. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SubscriptionLeases, type SubscriptionLeasesParts } from '../../src/changes/subscription_leases.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

test('an instance that cannot be read is removed too, and holds up no other', async (t) => {
  const ended = ['damaged', 'b', 'c'];
  const errors: unknown[] = [];
  const parts = {
    store: {
      instances: {
        endedLeases: async () => [...ended],
        find: async (instance_id: string) => {
          if (instance_id === 'damaged') throw new Error('its secret cannot be read');
          return null;
        },
      },
    },
    instances: {
      remove: async (_author: unknown, instance_id: string) => {
        ended.splice(ended.indexOf(instance_id), 1);
        return true;
      },
    },
    clock: new VirtualClock(),
    expiry: { heldAt: () => 0 },
    onRevoked: async () => {},
    onError: (error: unknown) => errors.push(error),
  };
  const leases = new SubscriptionLeases(parts as unknown as SubscriptionLeasesParts);
  t.after(() => leases.stop());
  leases.look();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(ended, []);
  assert.equal(errors.length, 1);
});

test('an instance is removed within a second of the end of its lease, also when nothing else happens then', async (t) => {
  const clock = new VirtualClock();
  const lease_ms = 61_000;
  const lease_until = clock.wall() + lease_ms;
  const removed: string[] = [];
  const parts = {
    store: {
      instances: {
        endedLeases: async (wall_ms: number) => (wall_ms >= lease_until && removed.length === 0 ? ['a'] : []),
        find: async () => null,
      },
    },
    instances: { remove: async (_author: unknown, instance_id: string) => removed.push(instance_id) },
    clock,
    expiry: { heldAt: () => 0 },
    onRevoked: async () => {},
    onError: assert.ifError,
  };
  const leases = new SubscriptionLeases(parts as unknown as SubscriptionLeasesParts);
  t.after(() => leases.stop());
  leases.start();
  await clock.advance(lease_ms - 1);
  assert.deepEqual(removed, []);
  await clock.advance(1_001);
  await clock.settle();
  assert.deepEqual(removed, ['a']);
});

test('a jump of the clock that is held at a start ends no lease; a revocation ends it all the same', async (t) => {
  const clock = new VirtualClock();
  const looked_until: number[] = [];
  const parts = {
    store: {
      instances: {
        endedLeases: async (wall_ms: number) => {
          looked_until.push(wall_ms);
          return [];
        },
      },
    },
    clock,
    expiry: { heldAt: () => 4 * 86_400_000 },
    onError: assert.ifError,
  };
  const leases = new SubscriptionLeases(parts as unknown as SubscriptionLeasesParts);
  t.after(() => leases.stop());
  leases.look();
  assert.deepEqual(looked_until, [clock.wall() - 4 * 86_400_000]);
  assert.ok(looked_until[0]! >= 0, 'a revoked lease ends at 0');
});
