/** Changes that take many transactions, one after the other. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Author } from '../../src/changes/author.ts';
import { DeliveryChanges, type DeliveryChangesParts } from '../../src/changes/deliveries.ts';
import { Problem } from '../../src/domain/problem.ts';
import { SetClock } from '../support/set_clock.ts';

/** A store in which there is always more to do. */
function endless() {
  const done = { steps: 0 };
  const deliveries = {
    recover: async (_of, limit) => (done.steps++, { recovered: limit }),
    drop: async (_of, limit) => (done.steps++, [{ instance_id: 'i', meeting_id: 'm', count: limit }]),
    countWaiting: async () => Infinity,
    get: async () => null,
  } satisfies DeliveryChangesParts['store']['deliveries'];
  const store = { deliveries, messages: { last: async () => 'msg_1' } };
  const changes = new DeliveryChanges({
    store,
    engine: { deliveryRetried() {}, dropped: async () => {} },
    feed: { publish() {} },
    clock: new SetClock(),
    expire_after_ms: 1,
  });
  /** The key is revoked after so many steps. */
  const authorFor = (steps: number): Author => ({
    key_id: 'k',
    owner_scope: null,
    storeFor: () => store as unknown as ReturnType<Author['storeFor']>,
    assertStanding() {
      if (done.steps >= steps) throw new Problem('api_key_revoked');
    },
    record: async () => {},
  });
  return { changes, done, authorFor };
}

const CHANGES: Record<string, (changes: DeliveryChanges, author: Author) => Promise<unknown>> = {
  'a recovery': (changes, author) => changes.recover(author, { instance_id: 'i', delivery_ids: [] }),
  'a drop': (changes, author) => changes.drop(author, { instance_id: 'i' }),
};

for (const [name, change] of Object.entries(CHANGES)) {
  test(`${name} ends between two transactions when the key of its author is revoked`, async () => {
    const { changes, done, authorFor } = endless();
    await assert.rejects(change(changes, authorFor(3)), { code: 'api_key_revoked' });
    assert.equal(done.steps, 3);
  });
}
