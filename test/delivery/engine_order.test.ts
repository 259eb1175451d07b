/** A machine gets the messages of a meeting in their order, and never waits for the queue of another machine. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { NewMessage } from '../../src/store/contract/messages.ts';
import type { StoredMessage } from '../../src/store/contract/cluster.ts';
import { TIMEOUT_MS } from '../../sdk/typescript/src/requests.ts';
import { MINUTE, SECOND, startNode, type TestNode } from '../support/node.ts';
import { HANGS, type RecordedPush } from '../support/scripted_transport.ts';

const upTo = (count: number) => Array.from({ length: count }, (_, k) => k + 1);
const namesOf = (letter: string, count: number) => upTo(count).map((k) => `${letter}${k}`);
const firstAttempts = (pushes: RecordedPush[]) => pushes.filter(({ attempt }) => attempt === 1).map(({ seq }) => seq);

/** Stores messages in the meeting `m` as another node does. */
async function storeElsewhere(node: TestNode, texts: string[]): Promise<StoredMessage[]> {
  const sent = texts.map((message): NewMessage => {
    const expires_at = node.clock.now() + MINUTE;
    const wall_ms = node.clock.wall();
    return {
      meeting_id: 'm',
      message,
      timestamp: '',
      target_agents: null,
      origin: null,
      trace: null,
      idempotency: null,
      wall_ms,
      expires_at,
    };
  });
  return (await node.store.messages.accept(sent)).map((accepted, i) => {
    assert.equal(accepted.kind, 'accepted');
    return { ...sent[i]!, ...accepted.message, origin: accepted.origin, deliveries: accepted.deliveries };
  });
}

function broadcast(node: TestNode, messages: StoredMessage[]): void {
  node.engine.onChange({ kind: 'reading' });
  stored(node, messages);
}

/** Reports to the engine that the node has read these messages. */
function stored(node: TestNode, messages: StoredMessage[]): void {
  const ranges = messages.map((message) => {
    const { meeting_id, seq } = message;
    return { meeting_id, first_seq: seq, last_seq: seq, messages: [message] };
  });
  node.engine.onChange({ kind: 'stored', ranges });
}

async function everythingDelivered(node: TestNode): Promise<void> {
  assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  const { queued_in_memory, in_flight, unsettled } = node.engine.stats;
  assert.deepEqual({ queued_in_memory, in_flight, unsettled }, { queued_in_memory: 0, in_flight: 0, unsettled: 0 });
}

describe('a node that may have missed something, and gets a broadcast about a message whose result is not written yet', () => {
  for (const before of [0, 3]) {
    for (const others of [0, 2]) {
      for (const is_late of [false, true]) {
        const when = is_late ? 'after it has read the table' : 'before it has read the table';
        test(`pushes it once: ${before} messages before it, ${others} after it, broadcast ${when}`, async (t) => {
          const node = await startNode(t, { others: true });
          await node.meeting('m', 'i');
          broadcast(
            node,
            await storeElsewhere(
              node,
              upTo(before).map(() => '{}'),
            ),
          );
          await node.clock.advance(SECOND);
          const written = Promise.withResolvers<void>();
          node.meddle = (name) => (name === 'deliveries.settle' ? written.promise : undefined);
          const messages = await storeElsewhere(node, ['{}']);
          broadcast(node, messages);
          await node.clock.advance(SECOND);
          assert.deepEqual(node.transport.seqsTo('i'), upTo(before + 1));
          node.engine.onChange({ kind: 'resync' });
          await node.clock.advance(SECOND);

          node.engine.onChange({ kind: 'reading' });
          messages.push(
            ...(await storeElsewhere(
              node,
              upTo(others).map(() => '{}'),
            )),
          );
          if (!is_late) stored(node, messages);
          written.resolve();
          await node.clock.advance(SECOND);
          if (is_late) stored(node, messages);
          await node.clock.advance(MINUTE);
          assert.deepEqual(node.transport.seqsTo('i'), upTo(before + 1 + others));
          await everythingDelivered(node);
        });
      }
    }
  }

  for (const others of [0, 2]) {
    test(`retries it after its pause, as its second attempt: ${others} messages after it`, async (t) => {
      const node = await startNode(t, { others: true });
      await node.meeting('m', 'i');
      node.transport.answer('i', [500]);
      const written = Promise.withResolvers<void>();
      node.meddle = (name) => (name === 'deliveries.settle' ? written.promise : undefined);
      const messages = await storeElsewhere(node, ['{}']);
      broadcast(node, messages);
      await node.clock.advance(SECOND);
      node.engine.onChange({ kind: 'resync' });
      await node.clock.advance(SECOND);
      messages.push(...(await storeElsewhere(node, Array<string>(others).fill('{}'))));
      broadcast(node, messages);
      written.resolve();
      await node.clock.advance(MINUTE);
      const { pushes } = node.transport;
      assert.deepEqual(
        pushes.map(({ seq, attempt }) => [seq, attempt]),
        [[1, 1], [1, 2], ...upTo(others).map((k) => [1 + k, 1])],
      );
      assert.equal(node.gapsTo('i')[0], 10);
      await everythingDelivered(node);
    });
  }

  for (const early of [0, 1, 2, 3]) {
    for (const is_requested_before of [false, true]) {
      const when = is_requested_before ? 'the first one requested before it missed something' : 'all requested later';
      test(`pushes three of them once: ${early} broadcasts before it has read the table, ${when}`, async (t) => {
        const node = await startNode(t, { others: true });
        await node.meeting('m', 'i');
        const written = Promise.withResolvers<void>();
        node.meddle = (name) => (name === 'deliveries.settle' ? written.promise : undefined);
        const messages = await storeElsewhere(node, ['{}', '{}', '{}']);
        broadcast(node, messages);
        await node.clock.advance(SECOND);
        assert.deepEqual(node.transport.seqsTo('i'), upTo(3));
        if (is_requested_before) node.engine.onChange({ kind: 'reading' });
        node.engine.onChange({ kind: 'resync' });
        await node.clock.advance(SECOND);

        // The broadcasts arrive one by one. The node had read each message from the table before results were written.
        for (const [k, message] of messages.entries()) {
          if (k === early) {
            written.resolve();
            await node.clock.advance(SECOND);
          }
          if (k > 0 || !is_requested_before) node.engine.onChange({ kind: 'reading' });
          stored(node, [message]);
        }
        written.resolve();
        await node.clock.advance(MINUTE);
        assert.deepEqual(node.transport.seqsTo('i'), upTo(3));
        await everythingDelivered(node);
      });
    }
  }

  for (const is_together of [true, false]) {
    const how = is_together ? 'in one broadcast with later messages' : 'one by one';
    test(`pushes three of them once: the scan finds them twice, and their broadcasts arrive last, ${how}`, async (t) => {
      const node = await startNode(t, { others: true });
      await node.meeting('m', 'i');
      const written = Promise.withResolvers<void>();
      node.meddle = (name) => (name === 'deliveries.settle' ? written.promise : undefined);
      // The messages expire after a minute, and the node scans every 30 s.
      await node.clock.advance(25 * SECOND);
      const messages = await storeElsewhere(node, ['{}', '{}', '{}']);
      await node.clock.advance(40 * SECOND);
      assert.deepEqual(node.transport.seqsTo('i'), upTo(3));
      written.resolve();
      await node.clock.advance(SECOND);
      const late = [...messages.slice(1), ...(await storeElsewhere(node, ['{}', '{}']))];
      if (is_together) broadcast(node, late);
      else for (const message of late) broadcast(node, [message]);
      await node.clock.advance(MINUTE);
      assert.deepEqual(node.transport.seqsTo('i'), upTo(5));
      await everythingDelivered(node);
    });
  }
});

describe('a lane', () => {
  test('has one attempt in flight, in the order of seq', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', { says: 200, after_ms: 7 });
    for (let k = 0; k < 20; k++) {
      await node.sendMany('m', 3);
      await node.clock.advance(5);
    }
    await node.clock.advance(MINUTE);
    assert.equal(node.transport.peaks.get('i'), 1);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(60));
    await everythingDelivered(node);
  });

  test('is held by its head through the third attempt, which then steps aside and is retried there', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ({ seq, attempt }) => (seq === 1 && attempt < 6 ? 500 : 200));
    await node.sendMany('m', 5);
    await node.clock.advance(39.9 * SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 1]);
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 1, 1, 2, 3, 4, 5]);
    await node.clock.advance(60 * MINUTE);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 1, 1, 2, 3, 4, 5, 1, 1, 1]);
    await everythingDelivered(node);
  });

  test('continues when its head has failed for good', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ({ seq }) => (seq === 1 ? 202 : 200));
    await node.sendMany('m', 3);
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['failed not_200', 'delivered', 'delivered']);
  });

  test('with nothing but bad messages continues, and each is retried until it is exhausted', async (t) => {
    const node = await startNode(t, { settings: { instance_concurrency: 2 } });
    await node.meeting('m', 'i');
    await node.meeting('fine', 'i');
    node.transport.answer('i', ({ meeting_id }) => (meeting_id === 'm' ? 500 : 200));
    await node.sendMany('m', 4);
    // Some attempts succeed, so the machine is not down: only the messages of this meeting are bad.
    for (let k = 0; k < 300; k++) {
      await node.send('fine');
      await node.clock.advance(MINUTE);
    }
    assert.deepEqual(new Set(await node.states({ meeting_id: 'm' })), new Set(['failed exhausted']));
    for (const delivery of await node.deliveries({ meeting_id: 'm' })) assert.equal(delivery.attempt_count, 6);
    assert.deepEqual(firstAttempts(node.transport.to('i', 'm')), [1, 2, 3, 4]);
    assert.deepEqual(node.transport.seqsTo('i', 'fine'), upTo(300));
  });

  test('keeps what arrives while its head waits behind it', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [500]);
    for (let k = 0; k < 9; k++) {
      await node.send('m');
      await node.clock.advance(SECOND);
    }
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    await node.clock.advance(2 * SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, ...upTo(9)]);
    await everythingDelivered(node);
  });
});

describe('nobody waits for somebody else', () => {
  test('lanes of one instance do not wait for each other', async (t) => {
    const node = await startNode(t);
    await node.meeting('slow', 'i');
    await node.meeting('quick', 'i');
    node.transport.answer('i', ({ meeting_id }) => (meeting_id === 'slow' ? HANGS : 200));
    await node.sendMany('slow', 10);
    await node.sendMany('quick', 10);
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i', 'quick'), upTo(10));
    assert.deepEqual(node.transport.seqsTo('i', 'slow'), [1]);
  });

  test('a lane that a bad response holds delays no other lane, nor do deliveries aside', async (t) => {
    const node = await startNode(t);
    await node.meeting('bad', 'i');
    await node.meeting('fine', 'i');
    node.transport.answer('i', ({ meeting_id, attempt }) => (meeting_id === 'bad' ? (attempt > 3 ? HANGS : 500) : 200));
    await node.sendMany('bad', 2);
    for (let k = 0; k < 200; k++) {
      await node.send('fine');
      await node.clock.advance(SECOND);
    }
    assert.deepEqual(node.transport.seqsTo('i', 'fine'), upTo(200));
  });

  test('at most instance_concurrency attempts to one instance, and its lanes take turns', async (t) => {
    const node = await startNode(t);
    const meetings = namesOf('m', 12);
    for (const meeting of meetings) await node.meeting(meeting, 'i');
    node.transport.answer('i', { says: 200, after_ms: 10 });
    for (const meeting of meetings) await node.sendMany(meeting, 5);
    await node.clock.advance(SECOND);
    assert.equal(node.transport.peaks.get('i'), 4);
    const first_round = node.transport.pushes.slice(0, 12).map(({ meeting_id }) => meeting_id);
    assert.deepEqual(new Set(first_round), new Set(meetings));
    await everythingDelivered(node);
  });

  test('at most max_in_flight attempts over all, and instances take turns', async (t) => {
    const node = await startNode(t, { settings: { max_in_flight: 5 } });
    const instances = namesOf('i', 10);
    await node.meeting('m', ...instances);
    node.transport.script = () => ({ says: 200, after_ms: 10 });
    await node.sendMany('m', 20);
    await node.clock.advance(10 * SECOND);
    assert.equal(node.transport.peak, 5);
    assert.equal(new Set(node.transport.pushes.slice(0, 10).map(({ instance_id }) => instance_id)).size, 10);
    await everythingDelivered(node);
  });

  test('a busy instance with many lanes leaves the others their turn', async (t) => {
    const node = await startNode(t, { settings: { max_in_flight: 4 } });
    for (const meeting of namesOf('m', 20)) await node.meeting(meeting, 'busy');
    await node.meeting('quiet', 'quiet');
    node.transport.script = () => ({ says: 200, after_ms: 10 });
    for (const meeting of namesOf('m', 20)) await node.sendMany(meeting, 20);
    await node.send('quiet');
    await node.clock.advance(100);
    assert.equal(node.transport.to('quiet').length, 1);
  });
});

describe('what does not fit into memory', () => {
  test('is read back from the disk in its order, while more is sent', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'j');
    node.transport.answer('i', { says: 200, after_ms: 1 });
    for (let k = 0; k < 30; k++) {
      await node.sendMany('m', 100);
      await node.clock.advance(20);
    }
    assert.ok(node.engine.stats.queued_in_memory <= 1_100);
    await node.clock.advance(10 * SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(3_000));
    assert.deepEqual(node.transport.seqsTo('j'), upTo(3_000));
    await everythingDelivered(node);
  });

  test('an instance that hangs, backs off or is held keeps little in memory', async (t) => {
    const node = await startNode(t);
    const meetings = namesOf('m', 20);
    for (const meeting of meetings) await node.meeting(meeting, 'hung', 'dead', 'bad', 'fine');
    node.transport.answer('hung', HANGS);
    node.transport.answer('dead', 'connect_refused');
    // Some attempts succeed, so the instance is never down. Deliveries that failed hold their lanes.
    let turn = 0;
    node.transport.answer('bad', () => (turn++ % 4 === 0 ? 200 : 500));
    for (let k = 0; k < 30; k++) {
      for (const meeting of meetings) await node.sendMany(meeting, 10);
      await node.clock.advance(50);
    }
    assert.equal(node.transport.to('fine').length, 6_000);
    assert.ok(node.engine.stats.queued_in_memory < 1_500, `${node.engine.stats.queued_in_memory} in memory`);
    for (const instance of ['hung', 'dead', 'bad']) node.transport.answer(instance, 200);
    node.transport.release(200);
    await node.clock.advance(5 * MINUTE);
    for (const meeting of meetings) {
      for (const instance of ['hung', 'dead']) {
        assert.deepEqual([...new Set(node.transport.seqsTo(instance, meeting))], upTo(300));
      }
      assert.deepEqual(firstAttempts(node.transport.to('bad', meeting)), upTo(300));
    }
    assert.equal(await node.store.deliveries.countPending(), 0);
    assert.equal(node.engine.stats.queued_in_memory, 0);
  });

  test('what a machine that hangs had in memory makes room for the others, and is read back in its order', async (t) => {
    const node = await startNode(t);
    const meetings = namesOf('m', 45);
    for (const meeting of meetings) await node.meeting(meeting, 'hung');
    await node.meeting('other', 'fine');
    node.transport.answer('hung', HANGS);
    const sent = Promise.all(meetings.map((meeting) => node.sendMany(meeting, 100)));
    await node.clock.settle();
    const full = node.engine.stats.queued_in_memory;
    assert.ok(full >= 4_000, `${full} in memory`);
    const other = node.send('other');
    // The send waits until the engine knows that the machine hangs.
    await node.clock.advance(400);
    await other;
    assert.deepEqual(node.transport.seqsTo('fine'), [1]);
    await sent;
    assert.ok(node.engine.stats.queued_in_memory < 100, `${node.engine.stats.queued_in_memory} in memory`);
    for (const meeting of meetings) await node.sendMany(meeting, 3);
    node.transport.answer('hung', 200);
    node.transport.release(200);
    await node.clock.advance(SECOND);
    for (const meeting of meetings) assert.deepEqual(node.transport.seqsTo('hung', meeting), upTo(103));
    await everythingDelivered(node);
  });

  test('an instance that responds badly in busy meetings slows no sender', async (t) => {
    const node = await startNode(t);
    const meetings = namesOf('m', 40);
    for (const meeting of meetings) await node.meeting(meeting, 'bad');
    await node.meeting('other', 'bad', 'fine');
    node.transport.answer('bad', ({ meeting_id }) => (meeting_id === 'other' ? 200 : 500));
    // The instance responds well in one meeting, so it is never down.
    const waited_ms: number[] = [];
    const send = (meeting: string, count: number): void => {
      const sent_at = node.clock.now();
      for (let k = 0; k < count; k++) {
        void node.send(meeting).then(() => waited_ms.push(node.clock.now() - sent_at));
      }
    };
    for (let k = 0; k < 200; k++) {
      send('other', 1);
      await node.clock.advance(1);
      for (const meeting of meetings.slice((k % 10) * 4, (k % 10) * 4 + 4)) send(meeting, 10);
      await node.clock.advance(1);
    }
    await node.clock.advance(SECOND);
    assert.equal(waited_ms.length, 200 * 41);
    assert.equal(Math.max(...waited_ms), 0);
    assert.equal((await node.instance('bad')).backoff_step, 0);
  });
});

describe('a lane that other nodes write into', () => {
  async function readsOf(texts: string[], t: TestContext): Promise<number> {
    const { node, reads } = await shared(t);
    // No broadcast arrives, so only the scan, every 30 s, finds the messages.
    await storeElsewhere(node, texts);
    await node.clock.advance(31 * SECOND);
    await everythingDelivered(node);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(texts.length));
    return reads.length;
  }

  /** A node of a cluster, and the reads of its only lane. */
  async function shared(t: TestContext): Promise<{ node: TestNode; reads: string[] }> {
    const node = await startNode(t, { others: true });
    await node.meeting('m', 'i');
    const reads: string[] = [];
    node.meddle = (name) => void (name === 'deliveries.loadLanes' && reads.push(name));
    return { node, reads };
  }

  test('is read once when a page holds what there is', async (t) => {
    assert.equal(await readsOf(['{}', '{}', '{}'], t), 1);
  });

  test('is read on where a page ended at its limit, and where its messages got long', async (t) => {
    assert.equal(
      await readsOf(
        upTo(64).map(() => '{}'),
        t,
      ),
      2,
    );
    const long = JSON.stringify('x'.repeat(200_000));
    assert.equal(await readsOf([long, long, long], t), 2);
  });

  test('is not read again after its first read: what other nodes store continues in memory, between what this one stores', async (t) => {
    const { node, reads } = await shared(t);
    await node.send('m');
    await node.clock.advance(SECOND);
    for (let k = 0; k < 10; k++) {
      broadcast(node, await storeElsewhere(node, ['{}', '{}']));
      if (k % 3 > 0) await node.clock.advance(1);
      await node.send('m');
      if (k % 2 > 0) await node.clock.advance(1);
    }
    await node.clock.advance(SECOND);
    await everythingDelivered(node);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(31));
    assert.deepEqual(reads, []);
  });

  test('is read where something was missed, or arrived late: nothing is left out, nothing sent twice, all in order', async (t) => {
    const { node, reads } = await shared(t);
    await node.send('m');
    await storeElsewhere(node, ['{}']);
    broadcast(node, await storeElsewhere(node, ['{}']));
    await node.clock.advance(SECOND);
    assert.equal(reads.length, 1);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(3));
    const late = await storeElsewhere(node, ['{}', '{}']);
    await node.send('m');
    broadcast(node, late);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(7));
    assert.equal(reads.length, 2);
    // The same broadcast arrives again after the node has read the table, which already contained its messages.
    broadcast(node, late);
    broadcast(node, await storeElsewhere(node, ['{}']));
    await node.clock.advance(SECOND);
    await everythingDelivered(node);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(8));
  });

  test('is read again where what another node stored was read before its instance changed: what was cancelled is not pushed', async (t) => {
    const { node, reads } = await shared(t);
    await node.send('m');
    await node.clock.advance(SECOND);
    node.engine.onChange({ kind: 'reading' });
    const messages = await storeElsewhere(node, ['{}']);
    await node.store.instances.remove('i', 100, node.clock.wall());
    await node.meeting('m', 'i');
    node.engine.onChange({ kind: 'instance', instance_id: 'i', resets_backoff: true, requeued: true });
    const ranges = [{ meeting_id: 'm', first_seq: 2, last_seq: 2, messages }];
    node.engine.onChange({ kind: 'stored', ranges });
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    assert.deepEqual(await node.states(), ['delivered', 'cancelled instance_deleted']);
    // A broadcast that the node reads after the change is enough: the engine does not read the lane from the table.
    const before = reads.length;
    broadcast(node, await storeElsewhere(node, ['{}']));
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 3]);
    assert.equal(reads.length, before);
  });

  for (const {
    broadcasts: [from, to],
    stored,
  } of [
    { broadcasts: [1, 2], stored: 3 },
    { broadcasts: [64, 64], stored: 65 },
    { broadcasts: [60, 64], stored: 65 },
    { broadcasts: [60, 70], stored: 75 },
    { broadcasts: [64, 64], stored: 64 },
  ] as const) {
    test(`once read, has everything in the table: ${stored} messages, broadcasts of ${from} to ${to}`, async (t) => {
      const { node, reads } = await shared(t);
      // Another node stored these messages before this node listened.
      const messages = await storeElsewhere(
        node,
        upTo(stored).map(() => '{}'),
      );
      broadcast(node, messages.slice(from - 1, to));
      await node.clock.advance(SECOND);
      await everythingDelivered(node);
      assert.deepEqual(node.transport.seqsTo('i'), upTo(stored));
      assert.ok(reads.length <= 2);
    });
  }

  test('that this node does not know is read, whatever was broadcast before: it may have been delivered since', async (t) => {
    const { node, reads } = await shared(t);
    const stored = await storeElsewhere(node, ['{}']);
    broadcast(node, stored);
    await node.clock.advance(SECOND);
    await node.crash();
    broadcast(node, stored);
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    assert.ok(reads.length >= 2);
  });
});

describe('acceptance', () => {
  test('waits while dispatch is behind, is woken when it has caught up, and never for long', async (t) => {
    const node = await startNode(t, { settings: { max_in_flight: 2 } });
    const instances = namesOf('i', 30);
    await node.meeting('m', ...instances);
    node.transport.script = () => ({ says: 200, after_ms: 4 });
    // From the first message, acceptance knows how many deliveries the others have.
    const many = node.send('m').then(() => node.sendMany('m', 160));
    let accepted = false;
    const sent = many.then(() => node.send('m')).then(() => (accepted = true));
    await node.clock.settle();
    assert.equal(accepted, false);
    await node.clock.advance(999);
    assert.equal(accepted, false);
    await node.clock.advance(2);
    assert.equal(accepted, true);
    await sent;
    const more = Promise.all(upTo(20).map(() => node.send('m')));
    await node.clock.advance(MINUTE);
    await more;
    await everythingDelivered(node);
    assert.deepEqual(node.transport.seqsTo('i1'), upTo(182));
  });

  test('does not wait while the thread has time to spare: then it is the machines that are behind', async (t) => {
    const node = await startNode(t, { settings: { max_in_flight: 2 } });
    node.load = 0.5;
    await node.meeting('m', ...namesOf('i', 30));
    node.transport.script = () => ({ says: 200, after_ms: 1 });
    await node.sendMany('m', 250);
    await node.send('m');
    await node.clock.advance(MINUTE);
    await everythingDelivered(node);
    assert.deepEqual(node.transport.seqsTo('i1'), upTo(251));
  });

  test('waits while other nodes are behind, and no longer than they say so', async (t) => {
    const node = await startNode(t, { others: true });
    node.load = 0.5;
    await node.meeting('m', 'i');
    let accepted = 0;
    const send = () => node.send('m').then(() => accepted++);
    await send();
    // The control: the send waits neither for 3,000 deliveries, which are few enough, nor for a broadcast with another
    // topic.
    node.engine.onChange({ kind: 'broadcast', topic: 'backlog', text: '3000 another' });
    node.engine.onChange({ kind: 'broadcast', topic: 'other', text: '9000 another' });
    await send();
    node.engine.onChange({ kind: 'broadcast', topic: 'backlog', text: '9000 another' });
    const sent = send();
    await node.clock.advance(300);
    assert.equal(accepted, 2);
    await node.clock.advance(300);
    await sent;
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(3));
  });

  test('waits for what other nodes stored in its lanes, as for its own messages', async (t) => {
    const node = await startNode(t, { others: true });
    await node.meeting('m', ...namesOf('i', 30));
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    node.meddle = (name) => (name === 'deliveries.loadLanes' ? gate : undefined);
    const texts = upTo(100).map(() => '{}');
    broadcast(node, await storeElsewhere(node, texts));
    await node.send('m');
    broadcast(node, await storeElsewhere(node, texts));
    // The engine checks again 100 ms after its last check.
    await node.clock.advance(100);
    let accepted = false;
    const sent = node.send('m').then(() => (accepted = true));
    await node.clock.advance(100);
    assert.equal(accepted, false);
    open();
    await node.clock.advance(200);
    assert.equal(accepted, true);
    await sent;
    await node.clock.advance(SECOND);
    await everythingDelivered(node);
    assert.deepEqual(node.transport.seqsTo('i1'), upTo(202));
  });

  test('waits for what arrives behind a backlog whose turn it is, and not for the backlog', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', ...namesOf('i', 30));
    node.transport.script = () => HANGS;
    await node.sendMany('m', 200);
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    await node.crash(false);
    node.transport.script = () => ({ says: 200, after_ms: 1 });
    node.meddle = (name) => (name === 'deliveries.loadLanes' ? gate : undefined);
    await node.started();
    // After this second each of the 30 instances has had its turn.
    await node.clock.advance(SECOND);
    await node.sendMany('m', 140);
    let accepted = false;
    const sent = node.send('m').then(() => (accepted = true));
    await node.clock.advance(200);
    assert.equal(accepted, false);
    node.meddle = null;
    open();
    await node.clock.advance(MINUTE);
    await sent;
    await everythingDelivered(node);
    assert.deepEqual(firstAttempts(node.transport.to('i1')).at(-1), 341);
  });

  test('refuses when too much waits to be stored, and takes more when it is', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    node.meddle = (name) => (name === 'messages.accept' ? gate : undefined);
    const text = JSON.stringify({ text: 'x'.repeat(4 << 20) });
    const sends = upTo(24).map(() => node.send('m', { text }));
    const results = Promise.allSettled(sends);
    await node.clock.settle();
    open();
    node.meddle = null;
    await node.clock.advance(MINUTE);
    const refused = (await results).filter(({ status }) => status === 'rejected');
    assert.ok(refused.length > 0 && refused.length < 24);
    for (const result of refused) assert.equal((result as PromiseRejectedResult).reason.code, 'overloaded');
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(25 - refused.length));
  });
});

describe('a list of messages', () => {
  const WIDE = 400;

  test('is stored in its order, one transaction after the other when it has too many deliveries for one', async (t) => {
    const node = await startNode(t);
    for (const k of upTo(WIDE)) await node.meeting('m', `i${k}`);
    // From these sends the engine knows how many instances the meeting has.
    for (let k = 0; k < 20; k++) await node.send('m');
    await node.clock.advance(MINUTE);
    const sizes: number[] = [];
    node.meddle = (name, [batch]) => {
      if (name === 'messages.accept') sizes.push((batch as unknown[]).length);
      return undefined;
    };
    const results = node.engine.sendAll(upTo(12).map(() => node.sendOf('m')));
    await node.clock.advance(MINUTE);
    const seqs = (await results).map((result) => result.status === 'fulfilled' && result.value.message.seq);
    assert.deepEqual(
      seqs,
      upTo(12).map((k) => 20 + k),
    );
    assert.ok(sizes.length > 1 && Math.max(...sizes) < 12, String(sizes));
  });

  test('ends long before its client gives up when the storage is slow, and says what is stored', async (t) => {
    const node = await startNode(t);
    node.meddle = (name) =>
      name === 'messages.accept' ? new Promise((resolve) => node.clock.after(2 * SECOND, resolve)) : undefined;
    let stored: boolean[] = [];
    const results = node.engine.sendAll(upTo(500).map(() => node.sendOf('m')));
    void results.then((each) => (stored = each.map(({ status }) => status === 'fulfilled')));
    await node.clock.advance(TIMEOUT_MS - 2 * SECOND);
    assert.deepEqual([stored.length, stored[0], stored.at(-1)], [500, true, false]);
    node.meddle = null;
    await node.clock.advance(MINUTE);
    const first_failed = stored.indexOf(false);
    assert.equal((await node.send('m')).seq, first_failed + 1);
  });

  test('ends where the storage fails, so that none of it overtakes what is sent again', async (t) => {
    const node = await startNode(t);
    for (const k of upTo(WIDE)) await node.meeting('m', `i${k}`);
    for (let k = 0; k < 20; k++) await node.send('m');
    await node.clock.advance(MINUTE);
    let transactions = 0;
    node.meddle = (name) => (name === 'messages.accept' && ++transactions === 2 ? 'fails' : undefined);
    const results = node.engine.sendAll(upTo(40).map(() => node.sendOf('m')));
    await node.clock.advance(MINUTE);
    const stored = (await results).map(({ status }) => status === 'fulfilled');
    const first_failed = stored.indexOf(false);
    assert.ok(first_failed > 0);
    assert.deepEqual(new Set(stored.slice(first_failed)), new Set([false]));
    assert.equal(transactions, 2);
    assert.equal((await node.send('m')).seq, 20 + first_failed + 1);
  });

  test('ends where its sender loses the right to send', async (t) => {
    const node = await startNode(t);
    const gone = new Error('the key is revoked');
    let transactions = 0;
    node.meddle = (name) => void (name === 'messages.accept' && transactions++);
    const list = upTo(500).map(() => node.sendOf('m'));
    const results = node.engine.sendAll(list, () => {
      if (transactions === 2) throw gone;
    });
    await node.clock.advance(MINUTE);
    const stored = (await results).map((result) => result.status === 'fulfilled' || result.reason !== gone);
    const first_failed = stored.indexOf(false);
    assert.ok(first_failed > 0);
    assert.deepEqual(new Set(stored.slice(first_failed)), new Set([false]));
    assert.equal((await node.send('m')).seq, first_failed + 1);
  });
});
