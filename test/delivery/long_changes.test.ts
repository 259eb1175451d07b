/** Changes that take many transactions, one after the other. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { TIMEOUT_MS } from '../../sdk/typescript/src/requests.ts';
import type { Author } from '../../src/changes/author.ts';
import { DeliveryChanges, type DeliveryChangesParts } from '../../src/changes/deliveries.ts';
import { WAITING_COUNTED_MAX } from '../../src/domain/delivery.ts';
import { Problem } from '../../src/domain/problem.ts';
import { SetClock } from '../support/set_clock.ts';

const STEP_MS = 100;

/** A store in which there is always more to do. */
function endless() {
  const done = { steps: 0, counted: [] as number[] };
  const clock = new SetClock();
  const dropped_up_to = new Set<string | null>();
  let sent = 1;
  const step = (): void => {
    done.steps++;
    clock.jump(STEP_MS);
  };
  const deliveries = {
    recover: async (_of, limit) => (step(), { recovered: limit }),
    drop: async ({ up_to }, limit) => {
      step();
      dropped_up_to.add(up_to);
      return [{ instance_id: 'i', meeting_id: 'm', count: limit }];
    },
    countWaiting: async (_of, most) => (done.counted.push(most), most),
    get: async () => null,
  } satisfies DeliveryChangesParts['store']['deliveries'];
  const store = { deliveries, messages: { last: async () => `msg_${sent}` } };
  const changes = new DeliveryChanges({
    store,
    engine: { deliveryRetried() {}, dropped: async () => {} },
    feed: { publish() {} },
    clock,
    expiry: { endOfNew: () => 1 },
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
  return { changes, done, authorFor, dropped_up_to, send: () => void sent++ };
}

const CHANGES: Record<string, (changes: DeliveryChanges, author: Author) => Promise<{ done: boolean } | null>> = {
  'a recovery': (changes, author) => changes.recover(author, { instance_id: 'i', since_ms: 0, until_ms: 9 }),
  'a drop': (changes, author) => changes.drop(author, { instance_id: 'i' }),
};

for (const [name, change] of Object.entries(CHANGES)) {
  test(`${name} ends between two transactions when the key of its author is revoked`, async () => {
    const { changes, done, authorFor } = endless();
    await assert.rejects(change(changes, authorFor(3)), { code: 'api_key_revoked' });
    assert.equal(done.steps, 3);
  });

  test(`${name} responds with a part long before the client of its author gives up`, async () => {
    const { changes, done, authorFor } = endless();
    assert.equal((await change(changes, authorFor(Infinity)))?.done, false);
    assert.ok(done.steps > 1 && done.steps * STEP_MS <= TIMEOUT_MS / 2, String(done.steps));
  });
}

test('the next part of a drop leaves the messages alone that were sent after the first part', async () => {
  const { changes, authorFor, dropped_up_to, send } = endless();
  const of = { instance_id: 'i' };
  const first = await changes.drop(authorFor(Infinity), of);
  send();
  await changes.drop(authorFor(Infinity), of, first.up_to ?? undefined);
  assert.deepEqual(dropped_up_to, new Set(['msg_1']));
  assert.equal((await changes.drop(authorFor(Infinity), of)).up_to, 'msg_2', 'control');
});

test('only the first part of a drop counts what waits, for its audit entry, and the count has an end', async () => {
  const { changes, authorFor, done } = endless();
  const of = { instance_id: 'i' };
  const details: unknown[] = [];
  const author = authorFor(Infinity);
  const noting: Author = { ...author, storeFor: (more) => (details.push(more?.details), author.storeFor()) };
  const { up_to } = await changes.drop(noting, of);
  await changes.drop(noting, of, up_to!);
  assert.deepEqual(done.counted, [WAITING_COUNTED_MAX + 1]);
  assert.deepEqual(details, [{ ...of, deliveries: WAITING_COUNTED_MAX, at_least: true }, of]);
});

test('a dry run of a drop says when it has not counted all', async () => {
  const { changes, authorFor, done } = endless();
  const counted = await changes.countWaiting(authorFor(Infinity), { instance_id: 'i' });
  assert.deepEqual(counted, { deliveries: WAITING_COUNTED_MAX, at_least: true, up_to: 'msg_1' });
  assert.deepEqual(done.counted, [WAITING_COUNTED_MAX + 1]);
});

test('the clients in TypeScript and in Python wait equally long', () => {
  const text = readFileSync(new URL('../../sdk/python/src/convoke_agents/requests.py', import.meta.url), 'utf8');
  assert.equal(Number(/^TIMEOUT_S = ([\d.]+)$/m.exec(text)?.[1]) * 1000, TIMEOUT_MS);
});
