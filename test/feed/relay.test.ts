/** The feeds of several nodes that broadcast to each other: no event of another node is missing without a gap. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { acceptedEvent } from '../../src/feed/events.ts';
import { Feed, type FeedParts } from '../../src/feed/feed.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const SECOND = 1_000;

class Node {
  readonly feed: Feed;
  /** Whether the broadcasts of other nodes do not reach this node. Its own broadcasts still reach the others. */
  is_deaf = false;
  #written = '';

  constructor(feed: Feed) {
    this.feed = feed;
  }

  /** Publishes a message with this number, as the engine does. */
  say(seq: number, recipients: readonly string[] = []): void {
    const head = { message_id: `msg_${seq}`, meeting_id: 'm', seq, accepted_at: 0, target_agents: null, origin: null };
    if (this.feed.is_active)
      this.feed.publish(acceptedEvent({ ...head, deliveries_queued: recipients.length }, recipients));
  }

  async listen(instance_id?: string): Promise<void> {
    const opened = await this.feed.open({
      viewer: { visibility: null, instance_id, meeting_id: undefined },
      last_event_id: null,
      standing: { principal: { key_id: null }, revocationReason: () => null },
    });
    const write = (bytes: Buffer | string): boolean => {
      this.#written += bytes.toString();
      return true;
    };
    opened.begin({ write, end() {}, destroy() {}, onDrain() {}, onClose() {} });
  }

  /** The numbers of the messages that the listener of this node got, and the gaps between them. */
  get heard(): string {
    return [...this.#written.matchAll(/"seq":(\d+)|event: (gap)/g)].map(([, seq, gap]) => seq ?? gap).join(' ');
  }
}

function cluster(t: TestContext): { clock: VirtualClock; start: () => Node } {
  const clock = new VirtualClock();
  const nodes: Node[] = [];
  const start = (): Node => {
    const parts = {
      clock,
      store: { messages: { last: async () => null } },
      listeners_max: 10,
      written: async () => {},
      onError: assert.ifError,
    };
    const node = new Node(new Feed(parts as unknown as FeedParts));
    node.feed.joinNodes(async (topic, text) => {
      for (const other of nodes) if (other !== node && !other.is_deaf) other.feed.onBroadcast(topic, text);
    });
    nodes.push(node);
    node.feed.seekListeners();
    t.after(() => node.feed.stop());
    return node;
  };
  return { clock, start };
}

test('a listener gets everything that another node publishes, however long it listens, and no gap', async (t) => {
  const { clock, start } = cluster(t);
  const [here, there] = [start(), start()];
  await here.listen();
  for (let seq = 1; seq <= 60; seq++) {
    there.say(seq);
    await clock.advance(SECOND);
  }
  assert.equal(here.heard, Array.from({ length: 60 }, (_, i) => i + 1).join(' '));
});

test('a node that starts passes its events on at once, and listeners learn that earlier ones are missing', async (t) => {
  const { clock, start } = cluster(t);
  const here = start();
  await here.listen();
  await clock.advance(7 * SECOND);
  const there = start();
  await clock.settle();
  there.say(1);
  await clock.advance(SECOND / 10);
  assert.equal(here.heard, 'gap 1');
});

test('a node that was deaf while it stopped passing events on says so when it hears again', async (t) => {
  const { clock, start } = cluster(t);
  const [here, there] = [start(), start()];
  await here.listen();
  await clock.advance(7 * SECOND);
  there.is_deaf = true;
  for (let seq = 1; seq <= 20; seq++) {
    there.say(seq);
    await clock.advance(SECOND);
  }
  there.is_deaf = false;
  there.feed.onResync();
  await clock.settle();
  there.say(21);
  await clock.advance(SECOND / 10);
  const before = Array.from({ length: 13 }, (_, i) => i + 1);
  assert.equal(here.heard, [...before, 'gap', 21].join(' '));
});

test('a new listener makes no gap for itself, but one for those whose requests did not reach a node', async (t) => {
  const { clock, start } = cluster(t);
  const [here, there, third] = [start(), start(), start()];
  there.is_deaf = true;
  await here.listen();
  await clock.advance(7 * SECOND);
  there.is_deaf = false;
  await third.listen();
  there.say(1);
  await clock.advance(SECOND / 10);
  assert.deepEqual([here.heard, third.heard], ['gap 1', '1']);
});

test('a message to very many instances of another node is a gap only for who listens to one instance', async (t) => {
  const { clock, start } = cluster(t);
  const [here, third, there] = [start(), start(), start()];
  await here.listen();
  await third.listen('instance-number-1');
  await clock.advance(7 * SECOND);
  there.say(
    1,
    Array.from({ length: 600 }, (_, i) => `instance-number-${i}`),
  );
  await clock.advance(SECOND);
  assert.deepEqual([here.heard, third.heard], ['1', 'gap']);
});
