/** An instance that is evicted from memory leaves nothing there. A file of its own: no other test has instances in memory. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { queryObjects } from 'node:v8';
import { Recipient } from '../../src/delivery/lanes/recipient.ts';
import { SECOND, startNode } from '../support/node.ts';

test('an instance that is evicted from memory is kept there by nothing, also when agents wrote to it', async (t) => {
  const node = await startNode(t);
  for (let k = 0; k < 3; k++) {
    await node.meeting(`m${k}`, `i${k}`);
    await node.send(`m${k}`, { from_agent: 'somebody' });
  }
  await node.clock.advance(SECOND);
  assert.equal(node.transport.pushes.length, 3);
  for (let k = 0; k < 20_100; k++)
    node.engine.deliveryRetried({ instance_id: `x${k}`, meeting_id: 'none', aside: false });
  await node.clock.advance(SECOND);
  const known = new Set([...node.engine.healths()].map(([instance_id]) => instance_id));
  assert.ok(!known.has('i0') && !known.has('i1') && !known.has('i2'), 'the oldest are evicted');
  assert.equal(queryObjects(Recipient, { format: 'count' }), known.size);
});
