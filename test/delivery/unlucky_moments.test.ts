/** What happens at an unlucky moment: between two turns of the event loop, or while something is read or stored. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Author } from '../../src/changes/author.ts';
import { InstanceChanges } from '../../src/changes/instances.ts';
import { MeetingChanges } from '../../src/changes/meetings.ts';
import { LongAttempts } from '../../src/delivery/runtimes/long_attempts.ts';
import { mayTakeLong, type Target } from '../../src/delivery/transport/target.ts';
import type { Push, Way } from '../../src/delivery/transport/transport.ts';
import { HOUR, MINUTE, SECOND, SECRET, startNode, temporaryFile, type TestNode } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';

type Batch = { idempotency?: { sender: string } | null }[];
const storesReply = (name: string, args: unknown[]): boolean =>
  name === 'messages.accept' && (args[0] as Batch).some(({ idempotency }) => idempotency?.sender === 'reply');

test('a meeting that is paused while another pause is just read is paused all the same', async (t) => {
  const node = await startNode(t);
  await node.meeting('a', 'i');
  await node.meeting('b', 'i');
  await node.clock.settle();
  const author = { storeFor: () => node.store } as unknown as Parameters<MeetingChanges['update']>[0];
  const parts = { engine: node.engine, feed: { publish() {} }, clock: node.clock };
  const changes = new MeetingChanges(parts);
  const pause = (meeting_id: string) => changes.update(author, meeting_id, { paused: true });
  const pauses: Promise<unknown>[] = [];
  node.meddle = (name, args) => {
    if (name === 'meetings.settings' && args[0] === 'a' && pauses.length === 0)
      queueMicrotask(() => pauses.push(pause('b')));
    return undefined;
  };
  await pause('a');
  await node.clock.settle();
  await Promise.all(pauses);
  assert.equal(pauses.length, 1);
  await node.send('a');
  await node.send('b');
  await node.clock.advance(MINUTE);
  assert.deepEqual([node.transport.seqsTo('i', 'a'), node.transport.seqsTo('i', 'b')], [[], []]);
});

/** Lets one long attempt at a time start, as the transport for runtimes does. */
function allowOneLongAttempt({ transport, engine, clock }: TestNode): void {
  const long = new LongAttempts(clock, 1, (instance_id) => engine.isReady(instance_id));
  const push = transport.push.bind(transport);
  Object.assign(transport, {
    canPush: (instance_id: string, way: Way) => !mayTakeLong(way as Target) || long.hasRoom(instance_id),
    async push(made: Push, way: Way) {
      if (!mayTakeLong(way as Target)) return push(made);
      long.start(made.instance_id);
      try {
        return await push(made);
      } finally {
        long.end(made.instance_id);
      }
    },
  });
}

for (const busy_s of [5, 30]) {
  test(`an agent that is busy for ${busy_s} s is not away: it gets every message`, async (t) => {
    const node = await startNode(t);
    allowOneLongAttempt(node);
    await node.register('i');
    await node.patch('i', { timeout_s: 600 });
    await node.store.meetings.join('m', 'i', ['a'], node.clock.wall(), null, { catch_up: 'latest' });
    await node.join('i', 'n');
    node.engine.memberRulesChanged('i');
    node.transport.answer('i', ({ meeting_id }) => (meeting_id === 'n' ? HANGS : 200));
    await node.clock.advance(30 * SECOND);
    await node.send('n');
    await node.clock.advance(SECOND);
    for (let k = 0; k < 4; k++) await node.send('m');
    await node.clock.advance(busy_s * SECOND);
    node.transport.release(200);
    await node.clock.advance(10 * SECOND);
    assert.deepEqual(node.transport.seqsTo('i', 'm'), [1, 2, 3, 4]);
  });
}

test('an instance whose deliveries aside are just read stays known, however many others come', async (t) => {
  const node = await startNode(t);
  await node.meeting('m', 'i');
  node.transport.answer('i', [500, 500, 500]);
  await node.send('m');
  await node.clock.advance(MINUTE);
  const read = Promise.withResolvers<void>();
  node.meddle = (name) => (name === 'deliveries.loadAside' ? { answered: read.promise } : undefined);
  await node.clock.advance(3 * MINUTE);
  node.meddle = null;
  for (let k = 0; k < 20_100; k++)
    node.engine.deliveryRetried({ instance_id: `x${k}`, meeting_id: 'none', aside: false });
  await node.clock.settle();
  await node.patch('i', { webhook_url: 'http://elsewhere.test/hook' });
  await node.clock.settle();
  read.resolve();
  await node.clock.advance(5 * SECOND);
  const urls = node.transport.to('i').map(({ url }) => url);
  assert.equal(urls.length, 4);
  assert.equal(urls.at(-1), 'http://elsewhere.test/hook');
});

test('the replies of one response are stored in their order, although the store fails in between', async (t) => {
  const node = await startNode(t);
  await node.register('i', { replies: true });
  await node.join('i', 'm');
  // After messages to many instances, a transaction takes few messages.
  await node.meeting('wide', ...Array.from({ length: 1_200 }, (_, k) => `w${k}`));
  for (let k = 0; k < 25; k++) {
    await node.send('wide');
    await node.clock.advance(5 * SECOND);
  }
  const said = (text: string) => ({ message: { text }, from_agent: 'a', target_agents: ['nobody'] });
  const replies = ['one', 'two', 'three', 'four'].map(said);
  node.transport.answer('i', [{ says: 200, body: JSON.stringify({ replies }) }]);
  let fails = 1;
  node.meddle = (name, args) => (storesReply(name, args) && fails-- > 0 ? 'fails' : undefined);
  await node.send('m', { text: '{"text":"said"}' });
  await node.clock.advance(5 * SECOND);
  const page = await node.store.messages.list('m', { limit: 100, chars_max: 1e6 });
  const texts = (page?.data ?? []).toSorted((a, b) => a.seq - b.seq).map(({ message }) => message);
  assert.deepEqual(
    texts.map((text) => (JSON.parse(text) as { text: string }).text),
    ['said', 'one', 'two', 'three', 'four'],
  );
});

test('a stop ends although the reply of the last attempt cannot be stored', async (t) => {
  const node = await startNode(t);
  await node.register('i', { replies: true });
  await node.join('i', 'm');
  node.transport.answer('i', [HANGS]);
  node.meddle = (name, args) => (storesReply(name, args) ? 'fails' : undefined);
  await node.send('m', { text: '{"text":"said"}' });
  await node.clock.advance(SECOND);
  let has_ended = false;
  const stopped = node.engine.stop().then(() => (has_ended = true));
  node.transport.release({ says: 200, body: JSON.stringify({ reply: { message: { text: 'x' }, from_agent: 'a' } }) });
  await node.clock.advance(MINUTE);
  assert.ok(has_ended);
  await stopped;
});

test('a push that was in flight when its delivery expired is delivered, and is not pushed again', async (t) => {
  const node = await startNode(t);
  await node.meeting('m', 'i');
  await node.patch('i', { timeout_s: 600 });
  node.transport.answer('i', [HANGS]);
  await node.send('m', { expires_in_ms: MINUTE });
  await node.clock.advance(2 * MINUTE);
  await node.maintenance().run();
  assert.deepEqual(await node.states(), ['failed expired']);
  node.transport.release(200);
  await node.clock.advance(MINUTE);
  assert.deepEqual(await node.states(), ['delivered']);
  await node.send('m');
  await node.clock.advance(MINUTE);
  assert.deepEqual(node.transport.seqsTo('i', 'm'), [1, 2]);
});

test('a delivery that expires in the table, and that the engine holds for its next attempt, expires once', async (t) => {
  const node = await startNode(t);
  await node.meeting('m', 'i');
  node.transport.answer('i', [500]);
  await node.send('m', { expires_in_ms: 100 });
  await node.clock.advance(200);
  await node.maintenance().run();
  await node.clock.advance(HOUR);
  assert.deepEqual(await node.states(), ['failed expired']);
  assert.deepEqual(node.settled_without_attempt, new Map([['failed expired', 1]]));
});

const ASKS_FOR_AN_HOUR = { says: 503, retry_after: '3600' } as const;

for (const by of ['its node', 'another node that does the maintenance'] as const) {
  test(`a delivery that waits for its Retry-After, and is failed as expired by ${by}, holds up no other`, async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [ASKS_FOR_AN_HOUR, 200]);
    await node.send('m', { expires_in_ms: MINUTE });
    await node.send('m');
    if (by === 'its node') await node.clock.advance(2 * MINUTE);
    else {
      await node.clock.advance(MINUTE - 1);
      // The clock of that node is ahead, and it tells nobody.
      const { next } = await node.store.deliveries.expireLanes(null, 100, node.clock.now() + 1, node.clock.wall());
      assert.equal(next, null);
      assert.deepEqual(await node.states(), ['failed expired', 'pending']);
      await node.clock.advance(SECOND);
    }
    await node.maintenance().run();
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['failed expired', 'delivered']);
    assert.deepEqual(node.settled_without_attempt, new Map([['failed expired', 1]]));
  });
}

test('a delivery that waits for its Retry-After keeps its time while the clock is not believed, and then holds up no other', async (t) => {
  const node = await startNode(t, { file: temporaryFile(t) });
  await node.meeting('m', 'i');
  node.transport.answer('i', [ASKS_FOR_AN_HOUR, ASKS_FOR_AN_HOUR]);
  await node.send('m', { expires_in_ms: 30 * MINUTE });
  await node.send('m');
  await node.clock.advance(SECOND);
  await node.store.deliveries.noteTime(node.expiry.note(node.clock.now()));
  await node.restart(96 * HOUR);
  await node.clock.advance(29 * MINUTE);
  assert.equal(node.transport.to('i').length, 2);
  assert.deepEqual(await node.states(), ['pending', 'pending']);
  await node.clock.advance(MINUTE);
  assert.deepEqual(await node.states(), ['failed expired', 'delivered']);
});

for (const end of ['is dropped', 'expires'] as const) {
  test(`a push that is answered with Retry-After after its delivery ${end} holds up no other`, async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [HANGS, 200]);
    await node.send('m', { expires_in_ms: MINUTE });
    await node.clock.advance(SECOND);
    if (end === 'is dropped') assert.equal(await node.drop({ instance_id: 'i' }), 1);
    else {
      await node.clock.advance(MINUTE);
      await node.maintenance().run();
    }
    await node.send('m');
    assert.equal(node.transport.release(ASKS_FOR_AN_HOUR), 1);
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), [end === 'expires' ? 'failed expired' : 'cancelled dropped', 'delivered']);
  });
}

test('a lease that is renewed between two steps of its removal keeps its instance, and what is left is delivered', async (t) => {
  const node = await startNode(t);
  const published: string[] = [];
  const feed = { publish: ({ name }: { name: string }) => void published.push(name) };
  const changes = new InstanceChanges({ store: node.store, engine: node.engine, clock: node.clock, feed });
  const author = { key_id: null, owner_scope: null, storeFor: () => node.store } as unknown as Author;
  const renew = (for_ms: number) =>
    changes.register(author, {
      instance_id: 'i',
      instance_name: 'i',
      agent_ids: ['a'],
      webhook_url: 'http://i.test/hook',
      webhook_headers: undefined,
      webhook_secret: undefined,
      new_secret: SECRET,
      success_statuses: undefined,
      lease_until: node.clock.wall() + for_ms,
    });
  await renew(MINUTE);
  await node.join('i', 'm');
  node.transport.answer('i', 'connect_refused');
  for (let k = 0; k < 5; k++) await node.sendMany('m', 500);
  await node.clock.advance(2 * MINUTE);
  let steps = 0;
  node.meddle = (name) => {
    if (name !== 'instances.remove' || ++steps !== 2) return undefined;
    node.transport.answer('i', 200);
    return renew(HOUR).then(() => {});
  };
  assert.equal(await changes.remove(author, 'i', node.clock.wall()), false);
  assert.equal(steps, 2);
  assert.ok(!published.includes('instance.removed'));
  await node.send('m');
  await node.clock.advance(HOUR);
  const states = await node.states();
  assert.equal(states.filter((state) => state === 'delivered').length, 501);
  assert.deepEqual(node.transport.seqsTo('i', 'm').slice(-2), [2_500, 2_501]);
});
