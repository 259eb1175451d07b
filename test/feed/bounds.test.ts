/** What the live feed costs at most: places, memory, reads of the store, and bytes between nodes. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { systemClock } from '../../src/delivery/clock.ts';
import type { Visibility } from '../../src/domain/access.ts';
import { FeedPosition } from '../../src/domain/feed_position.ts';
import type { FeedEvent } from '../../src/domain/feed_event.ts';
import type { ProblemCode } from '../../src/domain/problem.ts';
import { acceptedEvent } from '../../src/feed/events.ts';
import { Feed, type FeedParts } from '../../src/feed/feed.ts';
import { FeedRelay } from '../../src/feed/relay.ts';
import { replayOf } from '../../src/feed/replay.ts';
import { FeedView, type FeedViewer } from '../../src/feed/view.ts';
import type { InstanceStore } from '../../src/store/contract/instances.ts';
import type { MessageHead } from '../../src/store/contract/messages.ts';
import { BROADCAST_BYTES_MAX } from '../../src/store/contract/cluster.ts';
import { openStoreHere } from '../support/node.ts';
import { messages, newMessage, register, WALL } from '../support/store_contents.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const EVERYTHING: FeedViewer = { visibility: null, instance_id: undefined, meeting_id: undefined };

const head = (seq: number, more: Partial<MessageHead> = {}): MessageHead => ({
  message_id: `msg_${seq}`,
  meeting_id: 'm',
  seq,
  accepted_at: seq,
  target_agents: null,
  origin: null,
  deliveries_queued: 0,
  ...more,
});

/** A feed with four places, whose replays wait for the gate. */
function feedWithGate(t: TestContext): { feed: Feed; gate: PromiseWithResolvers<void> } {
  const gate = Promise.withResolvers<void>();
  const parts = {
    clock: systemClock(),
    store: {
      messages: { last: async () => null, since: async () => ({ data: [], has_more: false }) },
      deliveries: { list: async () => ({ data: [], next_cursor: null }) },
    },
    listeners_max: 4,
    written: () => gate.promise,
    onError: assert.ifError,
  };
  const feed = new Feed(parts as unknown as FeedParts);
  t.after(() => feed.stop());
  return { feed, gate };
}

for (const ends of [true, false]) {
  test(
    ends ? 'a key that ends while its feed is opened gets 401' : 'control: a key that holds gets its feed',
    async (t) => {
      const { feed, gate } = feedWithGate(t);
      let code: ProblemCode | null = null;
      const standing = { principal: { key_id: 'k' }, revocationReason: () => code };
      const opened = feed.open({ viewer: EVERYTHING, last_event_id: '0.0..1.', standing });
      const refused = assert.rejects(opened, { code: 'api_key_revoked', status: 401 });
      await new Promise((resolve) => setImmediate(resolve));
      if (ends) code = 'api_key_revoked';
      feed.endRevoked();
      gate.resolve();
      if (ends) await refused;
      else await assert.rejects(refused, /Missing expected rejection/);
      assert.equal(feed.listeners, ends ? 0 : 1);
    },
  );
}

test('a listener that is being opened takes one place, not two', async (t) => {
  const { feed, gate } = feedWithGate(t);
  const standing = { principal: { key_id: 'k' }, revocationReason: () => null };
  const opened = [1, 2, 3].map(() => feed.open({ viewer: EVERYTHING, last_event_id: '0.0..1.', standing }));
  for (const each of opened) each.catch(() => {});
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(feed.listeners, 3);
  const fourth = await feed.open({ viewer: EVERYTHING, last_event_id: null, standing });
  await assert.rejects(feed.open({ viewer: EVERYTHING, last_event_id: null, standing }), { code: 'overloaded' });
  fourth.giveUp();
  (await feed.open({ viewer: EVERYTHING, last_event_id: null, standing })).giveUp();
  gate.resolve();
});

describe('a replay', () => {
  /** Replays messages with this many characters of agents each. */
  async function replayed(messages: number, chars: number): Promise<number | null> {
    const target_agents = Array.from({ length: chars / 100 }, () => 'x'.repeat(97));
    const data = Array.from({ length: messages }, (_, i) => head(i + 1, { target_agents }));
    const store = {
      messages: { since: async () => ({ data, has_more: false }) },
      deliveries: { list: async () => ({ data: [], next_cursor: null }) },
    };
    const replay = await replayOf(store as never, new FeedPosition(null, 1), EVERYTHING, 0);
    return replay === null ? null : replay.events.reduce((sum, { text }) => sum + text.length, 0);
  }

  test('has at most 2 MiB of events: with more, the listener reads again what it shows', async () => {
    assert.equal(await replayed(2_000, 5_000), null);
    assert.ok(((await replayed(400, 5_000)) ?? 0) > 1_900_000, 'control');
  });

  test('looks through at most 20,000 messages: behind more of them, a quiet meeting gets a gap', async (t) => {
    const store = openStoreHere();
    t.after(() => store.close());
    const [before] = await store.messages.accept([newMessage('loud')]);
    assert.ok(before?.kind === 'accepted');
    const replay = () =>
      replayOf(store, new FeedPosition(before.message.message_id, 1), { ...EVERYTHING, meeting_id: 'quiet' }, WALL);
    await store.messages.accept([...messages('loud', 19_999), newMessage('quiet')]);
    assert.equal((await replay())?.events.length, 1, 'control');
    await store.messages.accept([newMessage('loud')]);
    assert.equal(await replay(), null);
  });
});

test('a listener reads the instances that join its meetings one at a time, each once however often it joins', async () => {
  const gates: PromiseWithResolvers<null>[] = [];
  const read: string[] = [];
  const find = (instance_id: string): Promise<null> => {
    read.push(instance_id);
    const gate = Promise.withResolvers<null>();
    gates.push(gate);
    return gate.promise;
  };
  const viewer = { ...EVERYTHING, visibility: { owner_scope: null, meeting_ids: ['m'] } };
  const view = new FeedView(viewer, {
    store: { instances: { find } } as never,
    clock: { wall: () => 0 },
    onError: assert.ifError,
  });
  const joins = (instance_id: string): boolean =>
    view.sees({
      name: 'instance.joined',
      number: 1,
      about: { kind: 'instance', meeting_id: 'm', instance_ids: [instance_id] },
    });
  for (let round = 0; round < 3; round++) for (let k = 0; k < 100; k++) assert.ok(joins(`i${k}`));
  assert.deepEqual(read, ['i0']);
  for (let k = 0; k < gates.length; k++) {
    gates[k]?.resolve(null);
    await new Promise((resolve) => setImmediate(resolve));
  }
  // The first one joined again while it was read, so it is read again.
  assert.deepEqual(read, [...Array.from({ length: 100 }, (_, k) => `i${k}`), 'i0']);
  assert.ok(joins('i7'));
  assert.equal(read.at(-1), 'i7');
});

test('a listener that opens reads only ids of the instances in its meetings, a thousand at a time', async (t) => {
  const store = openStoreHere();
  t.after(() => store.close());
  const ids = Array.from({ length: 2_001 }, (_, k) => `i${String(k).padStart(4, '0')}`);
  await Promise.all(ids.map((instance_id) => register(store, instance_id)));
  await Promise.all(ids.slice(1).map((instance_id) => store.meetings.join('m', instance_id, ['a'], WALL)));
  const pages: number[] = [];
  const listIds: InstanceStore['listIds'] = async (...args) => {
    const page = await store.instances.listIds(...args);
    pages.push(page.length);
    for (const row of page) assert.deepEqual(Object.keys(row), ['instance_id', 'created_at']);
    return page;
  };
  const viewer = { ...EVERYTHING, visibility: { owner_scope: null, meeting_ids: ['m'] } };
  const view = new FeedView(viewer, {
    store: { instances: { listIds } } as never,
    clock: { wall: () => WALL },
    onError: assert.ifError,
  });
  await view.load({ last: 0, removalOf: () => 0 });
  const seen = ids.filter((id) =>
    view.sees({
      name: 'instance.up',
      number: 1,
      about: { kind: 'instance', meeting_id: null, instance_ids: [id], since: WALL },
    }),
  );
  assert.deepEqual(seen, ids.slice(1));
  assert.deepEqual(pages, [1_000, 1_000, 0]);
});

describe('a message to thousands of instances, on another node', () => {
  const recipients = Array.from({ length: 10_000 }, (_, k) => `instance-${k}`);

  /** The names of the events that a listener of the other node sees. */
  async function seenBy(filter: Partial<FeedViewer>, instance_ids: readonly string[]): Promise<string[]> {
    const clock = new VirtualClock();
    const got: FeedEvent[] = [];
    const parts = {
      listening_since: () => clock.now(),
      onEvent: (event: FeedEvent) => void got.push(event),
      onLost: () => assert.fail('nothing is lost'),
      onAsked() {},
    };
    const there = new FeedRelay(clock, async () => {}, parts);
    const here = new FeedRelay(
      clock,
      async (topic, text) => {
        assert.ok(Buffer.byteLength(text) <= BROADCAST_BYTES_MAX);
        there.onBroadcast(topic, text);
      },
      parts,
    );
    here.onBroadcast('feed.ask', '');
    here.pass(acceptedEvent(head(1), instance_ids));
    await clock.advance(1_000);
    const view = new FeedView({ ...EVERYTHING, ...filter }, { store: {} as never, clock, onError: assert.ifError });
    return got.filter(({ name, about }, number) => view.sees({ name, about, number })).map(({ name }) => name);
  }

  test('is an event for listeners of everything and of its meeting', async () => {
    assert.deepEqual(await seenBy({}, recipients), ['message.accepted']);
    assert.deepEqual(await seenBy({ meeting_id: 'm' }, recipients), ['message.accepted']);
    assert.deepEqual(await seenBy({ meeting_id: 'other' }, recipients), []);
  });

  test('is a gap for a listener of one instance, because the event does not say to whom it goes', async () => {
    assert.deepEqual(await seenBy({ instance_id: 'instance-7' }, recipients), ['gap']);
    assert.deepEqual(await seenBy({ instance_id: 'instance-7', meeting_id: 'other' }, recipients), []);
    assert.deepEqual(await seenBy({ instance_id: 'instance-7' }, recipients.slice(0, 9)), ['message.accepted'], 'few');
  });

  test('is nothing for a listener of one instance that may not see the meeting', async () => {
    const seen = (visibility: Visibility) => seenBy({ instance_id: 'instance-7', visibility }, recipients);
    const owner_scope = { key_id: 'key', instance_id: null };
    assert.deepEqual(await seen({ owner_scope, meeting_ids: [] }), []);
    assert.deepEqual(await seen({ owner_scope: null, meeting_ids: ['other'] }), []);
    assert.deepEqual(await seen({ owner_scope: null, meeting_ids: ['m'] }), ['gap'], 'control');
  });
});
