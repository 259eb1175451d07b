/** The process ends, the disk fails, somebody sets the clock: nothing is lost, nothing is early, nothing gets stuck. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { HOUR, MINUTE, SECOND, startNode, temporaryFile } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';

const upTo = (count: number) => Array.from({ length: count }, (_, k) => k + 1);

describe('a new process on the same file', () => {
  test('continues where the previous process ended: lanes in order, held heads, deliveries aside, back-off', async (t) => {
    const node = await startNode(t, { file: temporaryFile(t) });
    await node.meeting('lane', 'hung');
    await node.meeting('held', 'held');
    await node.meeting('beside', 'beside');
    await node.meeting('dead', 'dead');
    await node.meeting('off', 'off');
    node.transport.answer('hung', HANGS);
    node.transport.answer('held', [500]);
    node.transport.answer('beside', ({ seq, attempt }) => (seq === 1 && attempt < 4 ? 500 : 200));
    node.transport.answer('dead', 'connect_refused');
    node.transport.answer('off', HANGS);
    await node.send('beside');
    await node.clock.advance(2 * MINUTE);
    await node.sendMany('lane', 400);
    await node.sendMany('dead', 400);
    await node.sendMany('off', 10);
    await node.clock.advance(35 * SECOND);
    await node.sendMany('held', 3);
    await node.patch('off', { is_active: false });
    await node.clock.advance(SECOND);
    const before = new Map(['hung', 'held', 'beside', 'dead', 'off'].map((i) => [i, node.transport.to(i).length]));
    assert.deepEqual(Object.fromEntries(before), { hung: 1, held: 1, beside: 3, dead: 3, off: 1 });
    const crashed_at = node.clock.now();

    await node.crash();
    const since = (instance: string) => node.transport.to(instance).slice(before.get(instance));
    node.transport.answer('hung', 200);
    node.transport.answer('dead', 200);
    await node.clock.advance(SECOND);
    // The engine sends again what was in progress when the process ended, and the lane continues in order.
    assert.deepEqual(
      since('hung').map(({ seq }) => seq),
      upTo(400),
    );
    assert.equal(since('hung')[0]?.delivery_id, node.transport.to('hung')[0]?.delivery_id);
    assert.equal(since('held').length, 0);
    assert.equal(since('dead').length, 0);
    await node.clock.advance(HOUR);
    assert.deepEqual(
      since('held').map(({ seq, at }) => [seq, at - crashed_at]),
      upTo(3).map((seq) => [seq, 9 * SECOND]),
    );
    assert.deepEqual(
      since('beside').map(({ attempt, at }) => [attempt, at]),
      [[4, (node.transport.to('beside')[2]?.at ?? 0) + 120 * SECOND]],
    );
    assert.deepEqual(
      since('dead').map(({ seq }) => seq),
      upTo(400),
    );
    assert.equal(since('dead')[0]?.at, (node.transport.to('dead')[2]?.at ?? 0) + 40 * SECOND);
    assert.equal(since('off').length, 0);
    node.transport.answer('off', 200);
    await node.patch('off', { is_active: true });
    await node.clock.advance(SECOND);
    assert.deepEqual(
      since('off').map(({ seq }) => seq),
      upTo(10),
    );
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  });

  test('keeps the order when messages are sent while it still looks for what was pending', async (t) => {
    const node = await startNode(t);
    node.transport.script = () => 'connect_refused';
    const meetings = upTo(1_500).map((k) => `m${k}`);
    await node.register('i');
    await node.join('i', ...meetings);
    await Promise.all(meetings.map((meeting) => node.sendMany(meeting, 2)));
    await node.clock.settle();
    await node.crash(false);
    await node.heartbeat('i');
    node.transport.script = () => 200;
    // Discovery reads a page, waits, and reads the next page. Messages arrive while it waits.
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    let pages = 0;
    node.meddle = (name) => (name === 'deliveries.pendingLanes' && pages++ === 1 ? gate : undefined);
    const started = node.started();
    for (let k = 0; k < 3; k++) {
      await Promise.all(meetings.map((meeting) => node.send(meeting)));
      await node.clock.advance(10);
    }
    open();
    await Promise.all(meetings.map((meeting) => node.send(meeting)));
    await started;
    await Promise.all(meetings.map((meeting) => node.send(meeting)));
    await node.clock.advance(SECOND);
    const per_lane = new Map<string, number[]>();
    for (const { meeting_id, seq } of node.transport.pushes.slice(1)) {
      per_lane.set(meeting_id, [...(per_lane.get(meeting_id) ?? []), seq]);
    }
    for (const meeting of meetings) {
      const seqs = (per_lane.get(meeting) ?? []).filter((seq, k, all) => k === 0 || all[k - 1] !== seq);
      assert.deepEqual(seqs, upTo(7), meeting);
    }
    assert.equal(await node.store.deliveries.countPending(), 0);
  });

  test('does not give up when the storage fails during the scan for pending deliveries', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    await node.meeting('m2', 'j');
    node.transport.answer('i', HANGS);
    node.transport.answer('j', ({ attempt }) => (attempt < 4 ? 500 : 200));
    await node.sendMany('m', 3);
    await node.send('m2');
    await node.clock.advance(MINUTE);
    await node.crash(false);
    node.transport.answer('i', 200);
    let failures = 6;
    node.meddle = (name) => (/pending(Lanes|Aside)/.test(name) && failures-- > 0 ? 'fails' : undefined);
    const started = node.started();
    started.catch(() => {});
    await node.clock.advance(HOUR);
    await started;
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
    assert.ok(node.storage_errors.length > 0);
  });

  test('reads no more into memory than has room, however many lanes wait', async (t) => {
    const node = await startNode(t);
    node.transport.script = () => 'connect_refused';
    const instances = upTo(1_200).map((k) => `i${k}`);
    for (const instance of instances) await node.register(instance);
    for (const instance of instances) await node.join(instance, 'm');
    for (let k = 0; k < 12; k++) {
      void node.sendMany('m', 6);
      await node.clock.advance(SECOND);
    }
    await node.crash(false);
    node.transport.script = () => HANGS;
    for (const instance of instances) await node.heartbeat(instance);
    await node.started();
    await node.clock.settle();
    assert.ok(node.engine.stats.queued_in_memory <= 50_000 + instances.length, `${node.engine.stats.queued_in_memory}`);
  });
});

describe('a process that stops', () => {
  test('starts no more attempts, lets those in progress end, and writes their results', async (t) => {
    const node = await startNode(t);
    for (const meeting of ['m1', 'm2', 'm3']) await node.meeting(meeting, 'i', 'j');
    node.transport.script = () => HANGS;
    for (const meeting of ['m1', 'm2', 'm3']) await node.sendMany(meeting, 5);
    await node.clock.settle();
    let stopped = false;
    const stop = node.engine.stop().then(() => (stopped = true));
    await assert.rejects(node.send('m1'), { code: 'shutting_down' });
    await node.clock.advance(4 * SECOND);
    assert.equal(stopped, false);
    node.transport.release(200, 'i');
    await node.clock.advance(SECOND);
    assert.equal(stopped, false);
    node.transport.release(500, 'j');
    await node.clock.advance(0);
    await stop;
    assert.equal(node.transport.pushes.length, 6);
    assert.equal((await node.states({ state: 'delivered' })).length, 3);
    assert.equal((await node.deliveries({ instance_id: 'j' })).filter((d) => d.attempt_count === 1).length, 3);
    await node.crash();
    node.transport.script = () => 200;
    await node.clock.advance(HOUR);
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
    for (const instance of ['i', 'j']) {
      for (const meeting of ['m1', 'm2', 'm3']) {
        assert.deepEqual([...new Set(node.transport.seqsTo(instance, meeting))], upTo(5));
      }
    }
    // What was settled was not sent twice.
    assert.equal(node.transport.to('i').length, 15);
  });

  for (const { others, retry_after_s } of [
    { others: false, retry_after_s: 5 },
    { others: true, retry_after_s: 1 },
  ]) {
    test(`has senders wait for ${retry_after_s} s, ${others ? 'where other nodes are' : 'until it is back'}`, async (t) => {
      const node = await startNode(t, { others });
      const stopped = node.engine.stop();
      await assert.rejects(node.send('m1'), { code: 'shutting_down', retry_after_s });
      await stopped;
    });
  }

  test('stops while it accepts, loads and looks for what was pending; what it accepted is delivered by the next', async (t) => {
    for (const held of ['messages.accept', 'instances.load', 'deliveries.loadLanes', 'deliveries.pendingLanes']) {
      const node = await startNode(t);
      await node.meeting('m', 'i');
      node.transport.answer('i', 'connect_refused');
      await node.send('m');
      await node.clock.settle();
      await node.crash(false);
      await node.heartbeat('i');
      const { promise: gate, resolve: open } = Promise.withResolvers<void>();
      node.meddle = (name) => (name === held ? gate : undefined);
      const started = node.started();
      const sent = node.send('m');
      await node.clock.settle();
      const stopped = node.engine.stop();
      await node.clock.advance(SECOND);
      await stopped;
      const pushes = node.transport.pushes.length;
      open();
      node.meddle = null;
      await node.clock.advance(10 * MINUTE);
      await Promise.all([started, sent]);
      assert.equal(node.transport.pushes.length, pushes, held);
      await node.crash();
      await node.heartbeat('i');
      node.transport.answer('i', 200);
      await node.clock.advance(SECOND);
      assert.deepEqual(await node.states(), ['delivered', 'delivered'], held);
    }
  });

  test('leaves no timer behind', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'j');
    node.transport.answer('i', 'connect_refused');
    node.transport.answer('j', HANGS);
    await node.send('m');
    await node.clock.advance(SECOND);
    const stopped = node.engine.stop();
    node.transport.release('timeout');
    await node.clock.advance(SECOND);
    await stopped;
    assert.equal(node.clock.timers, 0);
  });
});

describe('a disk that fails', () => {
  test('loses no settlement: they are written when it works again, and nothing is sent twice', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'j');
    node.transport.answer('j', [500]);
    node.meddle = (name) => (name === 'deliveries.settle' ? 'fails' : undefined);
    await node.sendMany('m', 50);
    await node.clock.advance(5 * SECOND);
    assert.ok(node.storage_errors.length >= 9);
    assert.equal(await node.store.deliveries.countPending(), 100);
    assert.equal(node.engine.stats.unsettled, 51);
    node.meddle = null;
    await node.clock.advance(MINUTE);
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
    assert.deepEqual(node.transport.seqsTo('i'), upTo(50));
    assert.deepEqual(node.transport.seqsTo('j'), [1, ...upTo(50)]);
    assert.equal(node.engine.stats.unsettled, 0);
  });

  test('stops dispatch before unwritten results fill the memory', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', ...upTo(60).map((k) => `i${k}`));
    node.meddle = (name) => (name === 'deliveries.settle' ? 'fails' : undefined);
    for (let k = 0; k < 10; k++) {
      void node.sendMany('m', 10);
      await node.clock.advance(SECOND);
    }
    assert.ok(node.engine.stats.unsettled <= 4_060, `${node.engine.stats.unsettled}`);
    node.meddle = null;
    await node.clock.advance(10 * SECOND);
    assert.equal(await node.store.deliveries.countPending(), 0);
    assert.equal(node.transport.pushes.length, 6_000);
  });

  test('refuses messages while it fails, and every message that it accepted is delivered', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    let k = 0;
    node.meddle = (name) => (name === 'messages.accept' && k++ % 2 === 0 ? 'fails' : undefined);
    const seqs: number[] = [];
    for (let n = 0; n < 20; n++) {
      await node.send('m').then(
        ({ seq }) => seqs.push(seq),
        (error: unknown) => assert.equal((error as { code: string }).code, 'SQLITE_13'),
      );
    }
    await node.clock.advance(SECOND);
    assert.deepEqual(seqs, upTo(10));
    assert.deepEqual(node.transport.seqsTo('i'), seqs);
  });

  for (const name of ['instances.load', 'deliveries.loadLanes', 'deliveries.loadAside']) {
    test(`is called again when ${name} failed`, async (t) => {
      const node = await startNode(t);
      await node.meeting('m', 'i');
      node.transport.answer('i', ({ seq, attempt }) => (seq === 1 && attempt < 5 ? 500 : 200));
      await node.sendMany('m', 2);
      await node.clock.advance(SECOND);
      await node.crash(false);
      let failures = 3;
      node.meddle = (called) => (called === name && failures-- > 0 ? 'fails' : undefined);
      await node.started();
      await node.clock.advance(HOUR);
      assert.ok(failures < 0);
      assert.deepEqual(await node.states(), ['delivered', 'delivered']);
    });
  }
});

describe('a step of the wall clock', () => {
  for (const [name, step_ms] of [
    ['an hour ahead', HOUR],
    ['an hour back', -HOUR],
  ] as const) {
    test(`${name} makes nothing early and nothing stuck`, async (t) => {
      const node = await startNode(t);
      await node.meeting('bad', 'bad');
      await node.meeting('dead', 'dead');
      await node.meeting('later', 'later');
      node.transport.answer('bad', 500);
      node.transport.answer('dead', 'connect_refused');
      node.transport.answer('later', [{ says: 503, retry_after: '600' }]);
      for (const meeting of ['bad', 'dead', 'later']) await node.send(meeting);
      await node.clock.advance(SECOND);
      node.clock.stepWall(step_ms);
      await node.clock.advance(5 * SECOND);
      assert.equal(node.transport.pushes.length, 3);
      await node.clock.advance(2 * HOUR);
      assert.deepEqual(node.gapsTo('bad'), [10, 30, 120, 600, 1800]);
      assert.deepEqual(node.gapsTo('later'), [600]);
      assert.deepEqual(node.gapsTo('dead').slice(0, 6), [10, 20, 40, 80, 160, 300]);
      const sent = await node.send('later');
      await node.clock.advance(SECOND);
      assert.equal(sent.accepted_at, node.clock.wall() - SECOND);
      assert.deepEqual(await node.states({ instance_id: 'later' }), ['delivered', 'delivered']);
      // The delivery still expires after 72 hours.
      await node.clock.advance(69 * HOUR);
      assert.deepEqual(await node.states({ instance_id: 'dead' }), ['pending']);
      await node.clock.advance(HOUR + 10 * MINUTE);
      assert.deepEqual(await node.states({ instance_id: 'dead' }), ['failed expired']);
    });
  }
});

describe('a start with a clock that is five hours behind', () => {
  const BEHIND_MS = 5 * HOUR;

  test('makes no delivery wait for longer than the schedule allows: in its lane, aside, or backing off', async (t) => {
    const node = await startNode(t);
    for (const name of ['held', 'aside', 'dead']) await node.meeting(name, name);
    node.transport.answer('held', [{ says: 503, retry_after: '3600' }]);
    node.transport.answer('aside', 500);
    node.transport.answer('dead', 'connect_refused');
    for (const name of ['held', 'aside', 'dead']) await node.send(name);
    await node.clock.advance(3 * MINUTE);
    node.transport.answer('aside', 200);
    node.transport.answer('dead', 200);
    await node.restart(-BEHIND_MS);
    await node.clock.advance(73 * MINUTE);
    assert.deepEqual(await node.states(), ['delivered', 'delivered', 'delivered']);
  });

  test('nor when the registration arrives before its row is read', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ['connect_refused']);
    await node.send('m');
    await node.clock.advance(SECOND);
    const gate = Promise.withResolvers<void>();
    node.meddle = (name) => (name === 'instances.load' ? gate.promise : undefined);
    await node.restart(-BEHIND_MS);
    await node.patch('i', { instance_name: 'another' });
    gate.resolve();
    await node.clock.advance(7 * MINUTE);
    assert.deepEqual(await node.states(), ['delivered']);
  });
});

describe('a start with a clock that is four days ahead', () => {
  const AHEAD_MS = 96 * HOUR;

  async function withPending(t: TestContext) {
    const node = await startNode(t);
    await node.meeting('m', 'dead');
    await node.meeting('other', 'bad');
    node.transport.answer('dead', 'connect_refused');
    node.transport.answer('bad', 500);
    await node.send('m');
    await node.send('other');
    await node.clock.advance(10 * MINUTE);
    await node.maintenance().run();
    return node;
  }

  test('fails nothing: what is pending keeps the time that it had left, and then expires', async (t) => {
    const node = await withPending(t);
    await node.restart(AHEAD_MS);
    await node.maintenance().run();
    assert.deepEqual(await node.states(), ['pending', 'pending']);
    assert.equal(node.expiry.heldAt(node.clock.now()), AHEAD_MS);
    await node.clock.advance(HOUR);
    // The next process has the same clock, so it cannot know either that the clock is ahead.
    await node.maintenance().run();
    await node.restart(0);
    await node.clock.advance(70 * HOUR);
    await node.maintenance().run();
    assert.deepEqual(await node.states({ instance_id: 'dead' }), ['pending']);
    await node.clock.advance(HOUR);
    await node.maintenance().run();
    assert.deepEqual(await node.states({ instance_id: 'dead' }), ['failed expired']);
  });

  test('counts for what is accepted afterwards: that expires in its time, in its lane and aside', async (t) => {
    const node = await withPending(t);
    await node.restart(AHEAD_MS);
    await node.meeting('new', 'dead');
    await node.meeting('newer', 'bad');
    await node.send('new', { expires_in_ms: 30 * MINUTE });
    await node.send('newer', { expires_in_ms: 30 * MINUTE });
    await node.clock.advance(20 * MINUTE);
    await node.maintenance().run();
    assert.deepEqual(await node.states(), ['pending', 'pending', 'pending', 'pending']);
    const [aside] = await node.deliveries({ meeting_id: 'newer' });
    assert.equal(aside?.attempts.length, 5, 'after the third attempt a delivery is aside');
    // The next process holds the same deliveries back, and no others.
    await node.restart(0);
    await node.clock.advance(10 * MINUTE);
    await node.maintenance().run();
    assert.deepEqual(await node.states(), ['pending', 'pending', 'failed expired', 'failed expired']);
  });

  test('fails nothing that was accepted before the start, even after the clock was set', async (t) => {
    const node = await withPending(t);
    node.clock.stepWall(AHEAD_MS + HOUR);
    await node.send('m');
    await node.restart(-HOUR);
    await node.maintenance().run();
    assert.deepEqual(await node.states(), ['pending', 'pending', 'pending']);
  });

  test('counts after 72 hours, however often the service starts meanwhile', async (t) => {
    const node = await withPending(t);
    await node.restart(AHEAD_MS);
    for (let days = 0; days < 3; days++) {
      assert.equal(node.expiry.heldAt(node.clock.now()) > 0, true, `after ${days} days`);
      for (let hours = 0; hours < 24; hours += 8) {
        await node.maintenance().run();
        await node.clock.advance(8 * HOUR);
      }
      await node.restart(0);
    }
    assert.equal(node.expiry.heldAt(node.clock.now()), 0);
    await node.maintenance().run();
    assert.deepEqual(await node.states({ instance_id: 'dead' }), ['failed expired']);
  });

  test('and that jumps again while a jump is held is not believed either', async (t) => {
    const node = await withPending(t);
    await node.restart(AHEAD_MS);
    await node.meeting('new', 'dead');
    await node.clock.advance(60 * HOUR);
    await node.send('new');
    await node.maintenance().run();
    await node.restart(AHEAD_MS);
    await node.maintenance().run();
    assert.deepEqual(await node.states({ instance_id: 'dead' }), ['pending', 'pending']);
    assert.equal(node.expiry.heldAt(node.clock.now()), 2 * AHEAD_MS);
  });

  test('and is set right before the next start holds nothing', async (t) => {
    const node = await withPending(t);
    await node.restart(AHEAD_MS);
    await node.maintenance().run();
    await node.restart(-AHEAD_MS);
    assert.equal(node.expiry.heldAt(node.clock.now()), 0);
  });

  test('counts when the operator says that the clock is right', async (t) => {
    const node = await withPending(t);
    await node.restart(AHEAD_MS, { is_trusted: true });
    await node.maintenance().run();
    assert.deepEqual(await node.states(), ['failed expired', 'failed expired']);
  });

  test('and one that is ahead by less than a third of that time is believed', async (t) => {
    const node = await withPending(t);
    await node.restart(24 * HOUR);
    assert.equal(node.expiry.heldAt(node.clock.now()), 0);
    await node.restart(24 * HOUR + 10 * MINUTE);
    assert.notEqual(node.expiry.heldAt(node.clock.now()), 0);
  });
});
