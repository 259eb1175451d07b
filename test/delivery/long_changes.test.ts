/** Changes that take many transactions, one after the other. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { TIMEOUT_MS } from '../../sdk/typescript/src/requests.ts';
import type { Author } from '../../src/changes/author.ts';
import { DeliveryChanges, type DeliveryChangesParts } from '../../src/changes/deliveries.ts';
import { InstanceChanges, type InstanceChangesParts } from '../../src/changes/instances.ts';
import { WAITING_COUNTED_MAX } from '../../src/domain/delivery.ts';
import type { FeedEvent } from '../../src/domain/feed_event.ts';
import { Problem } from '../../src/domain/problem.ts';
import { problemOf } from '../../src/http/problems.ts';
import type { DeliveryStore } from '../../src/store/contract/deliveries.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { SetClock } from '../support/set_clock.ts';

const STEP_MS = 100;

/** A store in which there is always more to do. */
function endless() {
  const done = { steps: 0, counted: [] as number[], in_engine: 0 };
  const published: FeedEvent[] = [];
  const clock = new SetClock();
  const dropped_up_to = new Set<string | null>();
  let sent = 1;
  let fails_at: number | null = null;
  const step = (): void => {
    done.steps++;
    if (done.steps === fails_at) throw new StoreError('SQLITE_FULL', 'scripted: the disk is full');
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
    retry: async () => (step(), { instance_id: 'i', meeting_id: 'm', aside: true }),
    get: async () => (step(), null),
  } satisfies DeliveryChangesParts['store']['deliveries'] & Pick<DeliveryStore, 'retry'>;
  const store = { deliveries, messages: { last: async () => `msg_${sent}` } };
  const feed = { publish: (event: FeedEvent) => void published.push(event) };
  const changes = new DeliveryChanges({
    store,
    engine: { deliveryRetried() {}, dropped: async (_of, deliveries) => void (done.in_engine += deliveries) },
    feed,
    clock,
    expiry: { endOfNew: () => 1 },
  });
  const ofInstances = (instances: InstanceChangesParts['store']['instances']) => ({
    author: { ...authorFor(Infinity), storeFor: () => ({ instances }) as unknown as ReturnType<Author['storeFor']> },
    changes: new InstanceChanges({
      store: { instances },
      engine: {
        instanceChanged() {},
        invalidateInstance() {},
        removalStep: (_instance_id, cancelled) => void (done.in_engine += cancelled),
        instanceRemoved() {},
      },
      feed,
      clock,
    }),
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
  const failAt = (steps: number): void => void (fails_at = steps);
  return { changes, ofInstances, done, step, published, failAt, authorFor, dropped_up_to, send: () => void sent++ };
}

/** How many deliveries the feed has told of. */
function toldOf(published: readonly FeedEvent[]): number {
  return published.reduce((sum, { data }) => sum + ('deliveries' in data ? data.deliveries : 0), 0);
}

/** What the author of a change that fails hears. */
async function saidOf(change: Promise<unknown>): Promise<string> {
  const { code, message } = problemOf(
    await change.then(
      () => assert.fail('it did not fail'),
      (error: Error) => error,
    ),
  );
  assert.equal(code, 'storage_unavailable');
  return message;
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

const NEXT: Record<string, string> = {
  'a recovery': 'repeat the call with "until": "1970-01-01T00:00:00.009Z"',
  'a drop': 'repeat the call with "up_to": "msg_1"',
};
for (const [name, change] of Object.entries(CHANGES)) {
  test(`${name} whose later step fails says that a part was done, and how to go on; the feed has that part`, async () => {
    const { changes, done, published, failAt, authorFor } = endless();
    failAt(3);
    const said = await saidOf(change(changes, authorFor(Infinity)));
    assert.equal(
      said,
      `A part was done, then the storage failed (SQLITE_FULL). After the time in Retry-After, ${NEXT[name]}.`,
    );
    assert.equal(done.steps, 3);
    assert.ok(published.length === 2 && toldOf(published) > 0);
  });

  test(`${name} whose first step fails says that nothing was stored`, async () => {
    const { changes, published, failAt, authorFor } = endless();
    failAt(1);
    assert.match(await saidOf(change(changes, authorFor(Infinity))), /^Nothing was stored \(SQLITE_FULL\)/);
    assert.deepEqual(published, []);
  });
}

test('a retry whose delivery cannot be read for the response is in the feed, and says that it was made', async () => {
  const { changes, published, failAt, authorFor } = endless();
  failAt(2);
  assert.match(await saidOf(changes.retry(authorFor(Infinity), 'dlv_1')), /^A part was done.*it is queued again\.$/);
  assert.deepEqual(
    published.map(({ name }) => name),
    ['delivery.queued'],
  );
});

test('a removal whose later step fails says that a part was done, and what it cancelled is counted and in the feed', async () => {
  const { ofInstances, done, step, published, failAt } = endless();
  const { changes, author } = ofInstances({
    find: async () => null,
    heartbeat: async () => null,
    remove: async (_instance_id, limit) => (step(), { existed: true, done: false, cancelled: limit }),
  });
  failAt(3);
  assert.match(await saidOf(changes.remove(author, 'i')), /^A part was done.* repeat the call\.$/);
  assert.ok(done.in_engine > 0);
  assert.equal(toldOf(published), done.in_engine);
  failAt(done.steps + 1);
  assert.match(await saidOf(changes.remove(author, 'i')), /^Nothing was stored/, 'control');
});

test('a removal that somebody else completes counts what it has cancelled', async () => {
  const { ofInstances, done, published } = endless();
  const results = [
    { existed: true, done: false, cancelled: 5 },
    { existed: false, done: true, cancelled: 0 },
  ];
  const { changes, author } = ofInstances({
    find: async () => null,
    heartbeat: async () => null,
    remove: async () => results.shift()!,
  });
  assert.equal(await changes.remove(author, 'i'), true);
  assert.deepEqual([done.in_engine, toldOf(published)], [5, 5]);
});

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
