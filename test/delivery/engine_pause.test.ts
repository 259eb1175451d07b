/** The engine pushes no message of a paused meeting, loses none, and delays no other meeting. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { HOUR, MINUTE, SECOND, startNode, temporaryFile, type TestNode } from '../support/node.ts';

const upTo = (count: number) => Array.from({ length: count }, (_, k) => k + 1);
const PAUSED = { paused: true };
const RESUMED = { paused: false };

describe('a paused meeting', () => {
  test('is pushed nowhere and spends nothing; resumed, it is delivered in its order', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'j');
    await node.sendMany('m', 2);
    await node.clock.advance(SECOND);
    await node.setMeeting('m', PAUSED);
    await node.sendMany('m', 3);
    await node.clock.advance(HOUR);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 2]);
    const waiting = await node.deliveries({ state: 'pending' });
    assert.equal(waiting.length, 6);
    assert.ok(waiting.every((row) => row.waiting_for === 'paused' && row.attempt_count === 0));
    await node.setMeeting('m', RESUMED);
    await node.clock.advance(SECOND);
    for (const instance_id of ['i', 'j']) assert.deepEqual(node.transport.seqsTo(instance_id), upTo(5));
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  });

  test('lets a push in flight end, and tries nothing after it', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [{ says: 500, after_ms: 50 }]);
    await node.sendMany('m', 2);
    await node.clock.advance(10);
    await node.setMeeting('m', PAUSED);
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.length, 1);
    const [first] = await node.deliveries();
    assert.deepEqual([first?.attempt_count, first?.waiting_for], [1, 'paused']);
    await node.setMeeting('m', RESUMED);
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['delivered', 'delivered']);
  });

  test('holds up no other meeting of the same instance, and takes no memory', async (t) => {
    const node = await startNode(t);
    await node.meeting('held', 'i');
    await node.meeting('open', 'i');
    await node.setMeeting('held', PAUSED);
    for (let k = 0; k < 5; k++) {
      await node.sendMany('held', 40);
      await node.sendMany('open', 10);
      await node.clock.advance(20);
    }
    await node.clock.advance(SECOND);
    assert.equal((await node.states({ meeting_id: 'open' })).filter((state) => state === 'delivered').length, 50);
    assert.equal(node.engine.stats.queued_in_memory, 0);
    await node.setMeeting('held', RESUMED);
    await node.clock.advance(MINUTE);
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  });

  test('stays paused after a restart', async (t) => {
    const node = await startNode(t, { file: temporaryFile(t) });
    await node.meeting('m', 'i');
    await node.setMeeting('m', PAUSED);
    await node.sendMany('m', 3);
    await node.crash();
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.length, 0);
    await node.setMeeting('m', RESUMED);
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(3));
  });

  test('also keeps deliveries aside waiting, and those of other meetings continue', async (t) => {
    const node = await startNode(t);
    await node.meeting('held', 'i');
    await node.meeting('open', 'i');
    node.transport.answer('i', ({ attempt }) => (attempt < 5 ? 500 : 200));
    await node.send('held');
    await node.send('open');
    await node.clock.advance(MINUTE);
    await node.setMeeting('held', PAUSED);
    const pushed = node.transport.pushes.filter(({ meeting_id }) => meeting_id === 'held').length;
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.filter(({ meeting_id }) => meeting_id === 'held').length, pushed);
    assert.deepEqual(await node.states({ meeting_id: 'open' }), ['delivered']);
    await node.setMeeting('held', RESUMED);
    await node.clock.advance(HOUR);
    assert.deepEqual(await node.states({ meeting_id: 'held' }), ['delivered']);
  });

  test('keeps a delivery waiting that is retried by hand', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [202]);
    const message = await node.send('m');
    await node.clock.advance(SECOND);
    await node.setMeeting('m', PAUSED);
    const [delivery] = await node.deliveries({ message_id: message.message_id });
    await node.retry(delivery!.delivery_id);
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.length, 1);
    await node.setMeeting('m', RESUMED);
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('expires what waits for too long, as everything else', async (t) => {
    const node = await startNode(t, { settings: { expire_after_ms: HOUR } });
    await node.meeting('m', 'i');
    await node.setMeeting('m', PAUSED);
    await node.send('m');
    await node.clock.advance(2 * HOUR);
    await node.maintenance().run();
    assert.deepEqual(await node.states(), ['failed expired']);
  });

  test('expires in one round all that waited for too long, however many they are', async (t) => {
    const node = await startNode(t, { settings: { expire_after_ms: HOUR } });
    await node.meeting('m', 'i');
    await node.setMeeting('m', PAUSED);
    await node.sendMany('m', 3_000);
    await node.clock.advance(2 * HOUR);
    await node.maintenance().run();
    assert.equal(await node.store.deliveries.countPending(), 0);
    assert.deepEqual(node.settled_without_attempt, new Map([['failed expired', 3_000]]));
  });

  test('does not keep what waits aside in other meetings, however much of its own is aside and due', async (t) => {
    const node = await startNode(t, { settings: { expire_after_ms: HOUR } });
    for (const meeting_id of ['held', 'm']) await node.meeting(meeting_id, 'i');
    await node.setMeeting('held', PAUSED);
    await node.sendMany('held', 5_000);
    await node.clock.advance(2 * HOUR);
    await node.maintenance().run();
    while ((await node.recover('i', 0)) > 0);
    node.transport.answer('i', [500, 500, 500, 200]);
    await node.send('m');
    await node.clock.advance(30 * MINUTE);
    assert.deepEqual(await node.states({ meeting_id: 'm' }), ['delivered']);
    assert.deepEqual(new Set(await node.states({ meeting_id: 'held' })), new Set(['pending']));
    await node.setMeeting('held', RESUMED);
    await node.clock.advance(10 * MINUTE);
    assert.deepEqual(new Set(await node.states({ meeting_id: 'held' })), new Set(['delivered']));
  });

  test('is paused here as soon as another node says that it was changed', async (t) => {
    const node = await startNode(t, { others: true });
    await node.meeting('m', 'i');
    await node.store.meetings.patch('m', PAUSED, node.clock.wall());
    node.engine.onChange({ kind: 'meeting', meeting_id: 'm' });
    await node.clock.settle();
    await node.send('m');
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.length, 0);
    await node.store.meetings.patch('m', RESUMED, node.clock.wall());
    // The control: no broadcast says that the meeting continues.
    await node.clock.advance(MINUTE);
    assert.equal(node.transport.pushes.length, 0);
    // The node notices that it may have missed a change.
    node.engine.onChange({ kind: 'resync' });
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('is not overlooked while the settings cannot be read: nothing is pushed before', async (t) => {
    const node = await startNode(t, { file: temporaryFile(t) });
    await node.meeting('held', 'i');
    await node.meeting('open', 'i');
    await node.setMeeting('held', PAUSED);
    await node.send('held');
    node.meddle = (name) => (name === 'meetings.allSettings' ? 'fails' : undefined);
    await node.crash();
    await node.send('open');
    await node.clock.advance(MINUTE);
    assert.equal(node.transport.pushes.length, 0);
    node.meddle = null;
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states({ meeting_id: 'open' }), ['delivered']);
    assert.deepEqual(await node.states({ meeting_id: 'held' }), ['pending']);
  });
});

describe('what waits', () => {
  test('is dropped in a meeting, in steps: cancelled, on record, and later messages continue', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'j');
    await node.meeting('other', 'i');
    await node.setMeeting('m', PAUSED);
    await node.setMeeting('other', PAUSED);
    await node.sendMany('m', 7);
    await node.send('other');
    assert.equal(await node.drop({ meeting_id: 'm' }, 3), 14);
    assert.deepEqual(node.settled_without_attempt, new Map([['cancelled dropped', 14]]));
    await node.setMeeting('m', RESUMED);
    await node.setMeeting('other', RESUMED);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('j'), [8]);
    const states = (await node.states({ meeting_id: 'm' })).toSorted();
    assert.deepEqual(states, [...Array<string>(14).fill('cancelled dropped'), 'delivered', 'delivered']);
    assert.deepEqual(await node.states({ meeting_id: 'other' }), ['delivered']);
  });

  test('is dropped for an instance that is away, from memory and aside too', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'j');
    node.transport.answer('i', ({ seq }) => (seq === 1 ? 500 : 'connect_refused'));
    await node.send('m');
    await node.clock.advance(MINUTE);
    await node.sendMany('m', 5);
    await node.clock.advance(SECOND);
    assert.equal(await node.drop({ instance_id: 'i' }), 6);
    node.transport.answer('i', 200);
    await node.heartbeat('i');
    await node.send('m');
    await node.clock.advance(HOUR);
    assert.deepEqual(node.transport.to('i').at(-1)?.seq, 7);
    assert.deepEqual(await node.states({ instance_id: 'i' }), [
      ...Array<string>(6).fill('cancelled dropped'),
      'delivered',
    ]);
    assert.deepEqual(new Set(await node.states({ instance_id: 'j' })), new Set(['delivered']));
  });

  for (const lanes of [{ instance_id: 'i' }, { meeting_id: 'm' }, { instance_id: 'i', meeting_id: 'm' }]) {
    test(`is dropped with its Retry-After, by ${Object.keys(lanes).join(' and ')}: later messages do not wait for it`, async (t) => {
      const node = await startNode(t);
      await node.meeting('m', 'i');
      node.transport.answer('i', [{ says: 503, retry_after: '3600' }]);
      await node.send('m');
      await node.clock.advance(SECOND);
      assert.equal(await node.drop(lanes), 1);
      await node.send('m');
      await node.clock.advance(SECOND);
      assert.deepEqual(await node.states(), ['cancelled dropped', 'delivered']);
    });
  }

  test('is read again when an instance changes, and still waits for its Retry-After', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [{ says: 503, retry_after: '3600' }]);
    await node.sendMany('m', 2);
    await node.clock.advance(SECOND);
    node.engine.invalidateInstance('i');
    await node.clock.advance(HOUR - 2 * SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    await node.clock.advance(2 * SECOND);
    assert.deepEqual(await node.states(), ['delivered', 'delivered']);
  });

  test('in a paused meeting stays there when its instance changes', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    await node.setMeeting('m', PAUSED);
    await node.sendMany('m', 3);
    node.engine.invalidateInstance('i');
    await node.clock.advance(MINUTE);
    assert.deepEqual([node.transport.pushes.length, node.engine.stats.queued_in_memory], [0, 0]);
    await node.setMeeting('m', RESUMED);
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 2, 3]);
  });
});

test('settings that are read again and are the same cost no scan; all that differ cost one', async (t) => {
  const node = await startNode(t, { others: true });
  for (let k = 0; k < 50; k++) {
    await node.meeting(`m${k}`, 'i');
    await node.setMeeting(`m${k}`, { hop_limit: 3 });
  }
  await node.clock.settle();
  const scans = countScans(node);
  const scansOfResync = async (): Promise<number> => {
    const before = scans();
    node.engine.onChange({ kind: 'resync' });
    await node.clock.advance(SECOND);
    return scans() - before;
  };
  // Every resync makes one scan of its own.
  assert.equal(await scansOfResync(), 1);
  for (let k = 0; k < 50; k++) await node.store.meetings.patch(`m${k}`, PAUSED, node.clock.wall());
  assert.equal(await scansOfResync(), 1);
  for (let k = 0; k < 50; k++) await node.store.meetings.patch(`m${k}`, RESUMED, node.clock.wall());
  assert.equal(await scansOfResync(), 2);
});

/** Counts the scans of all deliveries aside. */
function countScans(node: TestNode): () => number {
  let scans = 0;
  node.meddle = (name) => {
    if (name === 'deliveries.pendingAside') scans++;
    return undefined;
  };
  return () => scans;
}

test('what is aside is scanned when a meeting resumes, and not for its limits, its pause, or each step of a drop', async (t) => {
  const node = await startNode(t);
  await node.meeting('m', 'i');
  const scans = countScans(node);
  await node.setMeeting('m', { hop_limit: 3 });
  await node.setMeeting('m', PAUSED);
  await node.sendMany('m', 7);
  await node.setMeeting('m', { pair_limit: 3 });
  assert.equal(await node.drop({ meeting_id: 'm' }, 2), 7);
  await node.setMeeting('m', RESUMED);
  await node.clock.settle();
  assert.equal(scans(), 1);
  await node.sendMany('m', 7);
  assert.equal(await node.drop({ meeting_id: 'm' }, 2), 7);
  await node.clock.settle();
  assert.equal(scans(), 1);
});

for (const others of [false, true]) {
  const by = others ? 'another node' : 'this node';
  test(`what was aside is found when ${by} paused and resumed the meeting between two reads of its settings`, async (t) => {
    const node = await startNode(t, { others });
    await node.meeting('m', 'i');
    node.transport.answer('i', [500, 500, 500, 200]);
    await node.send('m');
    await node.clock.advance(MINUTE);
    const readSettings = Promise.withResolvers<void>();
    node.meddle = (name) => (name === 'meetings.settings' ? readSettings.promise : undefined);
    const set = async (paused: boolean): Promise<void> => {
      await node.store.meetings.patch('m', { paused }, node.clock.wall());
      if (others) node.engine.onChange({ kind: 'meeting', meeting_id: 'm' });
      else void node.engine.meetingChanged('m', !paused);
    };
    await set(true);
    // The table says that the meeting is paused, so the delivery is not read when it is due.
    await node.clock.advance(2 * MINUTE);
    await set(false);
    readSettings.resolve();
    await node.clock.advance(others ? MINUTE : SECOND);
    assert.deepEqual(await node.states(), ['delivered']);
  });
}
