/** How a message to hundreds or thousands of instances affects other instances. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { SECOND, SETTINGS, startNode, type TestNode } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';

/** The least number of deliveries of a wide message. */
const WIDE = 501;
const PUSH_MS = 10;

/** A node whose receivers respond after `PUSH_MS`, with a meeting of `width` instances and a meeting of one other. */
async function nodeWith(t: TestContext, width: number): Promise<TestNode> {
  const node = await startNode(t, { settings: { ...SETTINGS, max_in_flight: 50 } });
  await node.meeting('wide', ...Array.from({ length: width }, (_, i) => `i${i}`));
  await node.meeting('other', 'other');
  node.transport.script = () => ({ says: 200, after_ms: PUSH_MS });
  return node;
}

/** How many instances had a push of the wide message when the other instance had its own, sent right after it. */
async function pushesBeforeOther(node: TestNode): Promise<number> {
  await node.send('wide');
  await node.send('other');
  const began = node.clock.now();
  await node.clock.advanceUntil('the push of the other', () => node.transport.to('other').length > 0, 60 * SECOND);
  const before = node.transport.pushes.findIndex(({ instance_id }) => instance_id === 'other');
  assert.ok(before >= 0);
  await node.clock.advanceUntil('all pushes', () => node.engine.isQuiet, 60 * SECOND);
  assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  assert.ok(node.clock.now() - began < 30 * SECOND);
  return before;
}

test('the push of another meeting does not wait for the pushes of a wide message', async (t) => {
  const node = await nodeWith(t, WIDE);
  const before = await pushesBeforeOther(node);
  assert.ok(before < WIDE / 5, `${before} of ${WIDE} were pushed before it`);
});

test('control: behind a message that is not wide it waits for nearly all of its pushes', async (t) => {
  const node = await nodeWith(t, WIDE - 1);
  const before = await pushesBeforeOther(node);
  assert.ok(before > WIDE / 2, `${before} of ${WIDE - 1} were pushed before it`);
});

test('an instance that is busy gets a wide message in its turn, and its messages in their order', async (t) => {
  const node = await nodeWith(t, WIDE);
  await node.meeting('own', 'i7');
  await node.sendMany('own', 3);
  await node.sendMany('wide', 3);
  await node.sendMany('own', 3);
  await node.clock.advanceUntil('all pushes', () => node.engine.isQuiet, 60 * SECOND);
  assert.deepEqual(node.transport.seqsTo('i7', 'own'), [1, 2, 3, 4, 5, 6]);
  for (const instance_id of ['i0', 'i7', `i${WIDE - 1}`]) {
    assert.deepEqual(node.transport.seqsTo(instance_id, 'wide'), [1, 2, 3]);
  }
  assert.equal(node.transport.pushes.length, 3 * WIDE + 6);
});

test('acceptance does not wait for a wide message', async (t) => {
  // The message has more deliveries than may wait before acceptance pauses.
  const node = await nodeWith(t, 4_500);
  await node.send('wide');
  let is_accepted = false;
  const sent = node.send('other').then(() => (is_accepted = true));
  await node.clock.settle();
  assert.ok(is_accepted);
  assert.ok(node.engine.stats.queued_in_memory > 4_000);
  await sent;
});

test('acceptance does not wait while a wide message is being stored', async (t) => {
  const node = await nodeWith(t, 4_500);
  // From now on the node expects wide messages in this meeting.
  await node.send('wide');
  await node.clock.advanceUntil('all pushes', () => node.engine.isQuiet, 60 * SECOND);
  const stored = Promise.withResolvers<void>();
  node.meddle = (name, [batch]) => {
    const is_wide = name === 'messages.accept' && (batch as { meeting_id: string }[])[0]!.meeting_id === 'wide';
    return is_wide ? { answered: stored.promise } : undefined;
  };
  const wide = node.send('wide');
  await node.clock.settle();
  let is_accepted = false;
  const sent = node.send('other').then(() => (is_accepted = true));
  await node.clock.settle();
  assert.ok(is_accepted);
  stored.resolve();
  await Promise.all([wide, sent]);
});

test('other work of the thread has its turn between the steps of the dispatcher', async (t) => {
  const node = await startNode(t);
  await node.meeting('m', ...Array.from({ length: 100 }, (_, i) => `i${i}`));
  const { transport, clock } = node;
  await node.send('m');
  await clock.advanceUntil('the pushes that read the registrations', () => node.engine.isQuiet, SECOND);
  // The start of a push takes a millisecond, as when it opens a connection on a busy machine.
  const now = clock.now.bind(clock);
  t.mock.method(clock, 'now', () => now() + transport.pushes.length);
  let pushes_before: number | null = null;
  transport.onPush = () => {
    transport.onPush = null;
    clock.soon(() => (pushes_before = transport.pushes.length - 100));
  };
  await node.send('m');
  await clock.advanceUntil('all pushes', () => node.engine.isQuiet, SECOND);
  assert.equal(transport.pushes.length, 200);
  assert.ok(pushes_before !== null && pushes_before <= 12, `${pushes_before} pushes started in a row`);
});

describe('a wide message to hundreds of receivers that hang', () => {
  const HANGING = 600;
  const WELL = 50;

  /** A saturated node with a meeting of all receivers. */
  async function node(t: TestContext): Promise<TestNode> {
    const node = await startNode(t, { settings: { max_in_flight: 4_000 } });
    const well = Array.from({ length: WELL }, (_, k) => `well${k}`);
    await node.meeting('wide', ...Array.from({ length: HANGING }, (_, k) => `hangs${k}`), ...well);
    await node.meeting('well', ...well);
    node.transport.script = ({ instance_id }) => (instance_id.startsWith('well') ? 200 : HANGS);
    return node;
  }

  /** How many receivers that respond have the wide message after these milliseconds. */
  async function heardAfter(node: TestNode, ms: number): Promise<number> {
    await node.send('wide');
    await node.clock.advance(ms);
    return node.transport.pushes.filter(({ instance_id }) => instance_id.startsWith('well')).length;
  }

  test('reaches those that responded before at once', async (t) => {
    const wide = await node(t);
    await wide.send('well');
    await wide.clock.advance(SECOND);
    wide.transport.pushes.length = 0;
    assert.equal(await heardAfter(wide, 1), WELL);
  });

  test('control: those that never responded wait until the attempts hang', async (t) => {
    const wide = await node(t);
    assert.equal(await heardAfter(wide, SECOND), 0);
    await wide.clock.advance(5 * SECOND);
    assert.equal(new Set(wide.transport.pushes.map(({ instance_id }) => instance_id)).size, HANGING + WELL);
  });

  test('takes one attempt of each, until an attempt ends or hangs', async (t) => {
    const wide = await startNode(t, { settings: { max_in_flight: 4_000 } });
    wide.load = 0;
    const members = Array.from({ length: HANGING }, (_, k) => `i${k}`);
    for (const meeting of ['a', 'b', 'c']) await wide.meeting(meeting, ...members);
    for (let k = 0; k < 20; k++) {
      await wide.send('a');
      await wide.clock.advance(SECOND);
    }
    wide.transport.script = () => HANGS;
    wide.transport.peak = 0;
    for (const meeting of ['a', 'b', 'c']) await wide.send(meeting);
    await wide.clock.advance(90);
    assert.equal(wide.transport.peak, HANGING);
    await wide.clock.advance(300);
    assert.equal(wide.transport.peak, 3 * HANGING);
  });
});

describe('a burst into a wide meeting', () => {
  const MEMBERS = 600;

  /** A node that knows only narrow meetings, and the deliveries of each transaction from now on. */
  async function narrowNode(t: TestContext): Promise<{ node: TestNode; deliveries: number[] }> {
    const node = await startNode(t);
    await node.meeting('narrow', 'n');
    for (let k = 0; k < MEMBERS; k++) await node.meeting('wide', `i${k}`);
    for (let k = 0; k < 40; k++) await node.send('narrow');
    await node.clock.advance(SECOND);
    const deliveries: number[] = [];
    node.meddle = (name, [batch]) => {
      if (name !== 'messages.accept') return undefined;
      const wide = (batch as { meeting_id: string }[]).filter(({ meeting_id }) => meeting_id === 'wide');
      deliveries.push(wide.length * MEMBERS);
      return undefined;
    };
    return { node, deliveries };
  }

  const MANY = 2_000;

  test('is stored in small transactions, although the node has stored only narrow messages before', async (t) => {
    const { node, deliveries } = await narrowNode(t);
    const sent = Promise.all(Array.from({ length: 12 }, () => node.send('wide')));
    await node.clock.advance(SECOND);
    assert.deepEqual(
      (await sent).map(({ seq }) => seq).toSorted((a, b) => a - b),
      Array.from({ length: 12 }, (_, k) => k + 1),
    );
    assert.ok(Math.max(...deliveries) < MANY, String(deliveries));
  });

  test('of one list is stored in small transactions, in its order', async (t) => {
    const { node, deliveries } = await narrowNode(t);
    const sent = node.engine.sendAll(Array.from({ length: 12 }, () => node.sendOf('wide')));
    await node.clock.advance(SECOND);
    const seqs = (await sent).map((result) => result.status === 'fulfilled' && result.value.message.seq);
    assert.deepEqual(
      seqs,
      Array.from({ length: 12 }, (_, k) => k + 1),
    );
    assert.ok(Math.max(...deliveries) < MANY, String(deliveries));
  });

  test('control: messages to a narrow meeting share a transaction once it is known', async (t) => {
    const { node } = await narrowNode(t);
    let transactions = 0;
    node.meddle = (name) => {
      if (name === 'messages.accept') transactions++;
      return undefined;
    };
    const sent = Promise.all(Array.from({ length: 12 }, () => node.send('narrow')));
    await node.clock.advance(SECOND);
    await sent;
    assert.equal(transactions, 1);
  });
});
