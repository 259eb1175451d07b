/** Instances whose lease has ended are removed, each for itself. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Leases, type LeasesParts } from '../../src/changes/leases.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

test('an instance that cannot be read is removed too, and holds up no other', async (t) => {
  const ended = ['damaged', 'b', 'c'];
  const errors: unknown[] = [];
  const parts = {
    store: {
      instances: {
        endedLeases: async () => [...ended],
        get: async (instance_id: string) => {
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
    onRevoked: async () => {},
    onError: (error: unknown) => errors.push(error),
  };
  const leases = new Leases(parts as unknown as LeasesParts);
  t.after(() => leases.close());
  leases.look();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(ended, []);
  assert.equal(errors.length, 1);
});
