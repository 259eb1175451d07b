/**
 * When a machine is not reached, or fails again and again, the whole instance backs off: all its lanes stop and
 * continue together.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { OUTCOMES, type Outcome } from '../../src/domain/outcome.ts';
import { HOUR, MINUTE, SECOND, startNode, temporaryFile, type TestNode } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';

type NotReached = Exclude<Outcome, 'ok' | 'not_200' | 'gone' | 'bad_status'>;
const NOT_REACHED = (Object.keys(OUTCOMES) as Outcome[]).filter((o): o is NotReached => !OUTCOMES[o].reached);
const DOUBLING_S = [10, 20, 40, 80, 160, 300, 300, 300];

describe('a machine that is not reached', () => {
  test('backs off for 10 s, doubling to 5 min; the delivery keeps its place and spends no retry', async (t) => {
    const node = await startNode(t);
    assert.equal(NOT_REACHED.length, 6);
    for (const outcome of NOT_REACHED) {
      await node.meeting(`m_${outcome}`, outcome);
      node.transport.answer(outcome, outcome);
      await node.sendMany(`m_${outcome}`, 3);
    }
    await node.clock.advance(1_211 * SECOND);
    for (const outcome of NOT_REACHED) {
      assert.deepEqual(node.gapsTo(outcome), DOUBLING_S, outcome);
      assert.deepEqual(new Set(node.transport.seqsTo(outcome)), new Set([1]), outcome);
      node.transport.answer(outcome, [500, 500, 500, 500, 500]);
    }
    await node.clock.advance(3 * HOUR);
    // The first message had five retries left, so its sixth response delivers it.
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  });

  test('continues to back off after a restart; but not when the policy of the previous process had blocked it', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'blocked', 'connect_refused');
    node.transport.answer('blocked', ['blocked', 'blocked']);
    node.transport.answer('connect_refused', 'connect_refused');
    await node.send('m');
    await node.clock.advance(11 * SECOND);
    await node.crash();
    await node.clock.advance(SECOND);
    assert.deepEqual(node.gapsTo('blocked'), [10, 1]);
    assert.deepEqual(node.gapsTo('connect_refused'), [10]);
    assert.deepEqual(await node.states({ instance_id: 'blocked' }), ['delivered']);
    await node.clock.advance(20 * SECOND);
    assert.deepEqual(node.gapsTo('connect_refused'), [10, 20]);
  });

  for (const [name, random, factor] of [
    ['lowest', () => 0, 0.8],
    ['highest', () => 0.999_999, 1.2],
  ] as const) {
    test(`with the ${name} jitter every back-off is ${factor} of it`, async (t) => {
      const node = await startNode(t, { random });
      await node.meeting('m', 'i');
      node.transport.answer('i', 'connect_refused');
      await node.send('m');
      await node.clock.advance(HOUR);
      for (const [k, expected] of DOUBLING_S.entries()) {
        assert.ok(Math.abs((node.gapsTo('i')[k] as number) - expected * factor) <= 0.01);
      }
    });
  }

  test('backs off in all its meetings at once, and attempts that were in progress do not lengthen it', async (t) => {
    const node = await startNode(t);
    const meetings = ['m1', 'm2', 'm3', 'm4', 'm5', 'm6'];
    for (const meeting of meetings) await node.meeting(meeting, 'i');
    node.transport.answer('i', { says: 'connect_timeout', after_ms: 2 * SECOND });
    await Promise.all(meetings.map((meeting) => node.send(meeting)));
    await node.clock.advance(11 * SECOND);
    assert.equal(node.transport.pushes.length, 4);
    assert.equal((await node.instance('i')).backoff_step, 1);
    // From now on there is one probe at a time: the first at 12 s, the second 20 s after the failure of the first.
    await node.clock.advance(2 * SECOND);
    assert.equal(node.transport.pushes.length, 5);
    await node.clock.advance(20 * SECOND);
    assert.equal(node.transport.pushes.length, 5);
    await node.clock.advance(2 * SECOND);
    assert.equal(node.transport.pushes.length, 6);
  });

  test('shows back_off as what its deliveries wait for', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', 'dns_failed');
    await node.sendMany('m', 2);
    await node.clock.advance(SECOND);
    assert.deepEqual(
      (await node.deliveries()).map(({ waiting_for }) => waiting_for),
      ['back_off', 'back_off'],
    );
  });

  test('costs the others nothing', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'dead', 'hung', 'fine');
    node.transport.answer('dead', 'connect_refused');
    node.transport.answer('hung', HANGS);
    for (let k = 0; k < 50; k++) {
      await node.sendMany('m', 20);
      await node.clock.advance(1);
    }
    assert.equal(node.transport.to('fine').length, 1_000);
    assert.equal(node.transport.to('hung').length, 1);
    assert.equal(node.transport.to('dead').length, 1);
  });
});

test('the time since when a machine is down outlives a restart, and ends with its address', async (t) => {
  const node = await startNode(t, { file: temporaryFile(t) });
  for (let k = 0; k < 5; k++) await node.meeting(`m${k}`, 'i');
  node.transport.answer('i', 500);
  const down_at = node.clock.wall();
  for (let k = 0; k < 5; k++) await node.send(`m${k}`);
  await node.clock.advance(SECOND);
  const { health_since, backoff_until } = await node.instance('i');
  assert.ok(health_since !== null && health_since >= down_at && health_since <= down_at + SECOND, `${health_since}`);
  await node.crash();
  const after = await node.instance('i');
  assert.deepEqual([after.health_since, after.backoff_until], [health_since, backoff_until]);
  await node.clock.advance(MINUTE);
  assert.equal((await node.instance('i')).health_since, health_since, 'another failure');
  await node.register('i', { url: 'http://elsewhere.test/' });
  assert.equal((await node.instance('i')).health_since, null);
});

describe('a machine that fails five times in a row', () => {
  const failures = [
    ['other statuses', [500, 404, 302, 429, 503]],
    ['other 2xx', [202, 202, 202, 202, 202]],
    ['a mixture', [202, 500, 'timeout', 'broken_response', 404]],
  ] as const;
  for (const [name, replies] of failures) {
    test(`is down and gets one probe at a time: ${name}`, async (t) => {
      const node = await startNode(t);
      const meetings = Array.from({ length: 12 }, (_, k) => `m${k}`);
      for (const meeting of meetings) await node.meeting(meeting, 'i');
      node.transport.answer('i', [...replies]);
      for (const meeting of meetings.slice(0, 4)) await node.send(meeting);
      await node.clock.settle();
      assert.equal((await node.instance('i')).backoff_step, 0);
      await node.send('m4');
      await node.clock.advance(SECOND);
      const { consecutive_failures, backoff_step } = await node.instance('i');
      assert.deepEqual([consecutive_failures, backoff_step], [5, 1]);
      node.transport.answer('i', HANGS);
      for (const meeting of meetings) await node.sendMany(meeting, 5);
      await node.clock.advance(8 * SECOND);
      assert.equal(node.transport.pushes.length, 5);
      await node.clock.advance(MINUTE);
      assert.equal(node.transport.pushes.length, 6);
      node.transport.release(500);
      await node.clock.advance(20 * SECOND);
      assert.equal(node.transport.pushes.length, 7);
      // After one success the instance is up, with four attempts at a time.
      node.transport.release(200);
      await node.clock.advance(SECOND);
      assert.equal(node.transport.in_flight.length, 4);
      node.transport.answer('i', 200);
      node.transport.release(200);
      await node.clock.advance(3 * HOUR);
      assert.equal(await node.store.deliveries.countPending(), 0);
    });
  }

  test('doubles its back-off with each failed probe', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', 202);
    await node.sendMany('m', 13);
    await node.clock.advance(HOUR);
    assert.deepEqual(node.gapsTo('i'), [0, 0, 0, 0, ...DOUBLING_S]);
  });

  test('is not down after four, and a success in between begins the count again', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [202, 202, 202, 202, 200, 202, 202, 202, 202]);
    await node.sendMany('m', 10);
    await node.clock.advance(SECOND);
    assert.equal(node.transport.pushes.length, 10);
    assert.equal((await node.instance('i')).consecutive_failures, 0);
  });
});

describe('a back-off is lifted at once', () => {
  async function backedOff(t: TestContext): Promise<TestNode> {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    await node.meeting('m2', 'i');
    node.transport.answer('i', 'connect_refused');
    await node.sendMany('m', 300);
    await node.sendMany('m2', 5);
    await node.clock.advance(20 * MINUTE);
    node.transport.answer('i', 200);
    return node;
  }

  const lifts: [name: string, lift: (node: TestNode) => Promise<unknown>][] = [
    ['a registration', (node) => node.register('i')],
    ['a registration at another URL', (node) => node.register('i', { url: 'http://elsewhere.test/' })],
    ['a heartbeat', (node) => node.heartbeat('i')],
    ['a PATCH that switches is_active on', (node) => node.patch('i', { is_active: true })],
    ['a PATCH that switches the webhook on', (node) => node.patch('i', { webhook_enabled: true })],
    ['a retry by hand', async (node) => node.retry((await node.deliveries())[3]?.delivery_id ?? '')],
    ['a recovery', (node) => node.recover('i', node.clock.wall())],
  ];
  for (const [name, lift] of lifts) {
    test(`by ${name}, and the backlog flows in order`, async (t) => {
      const node = await backedOff(t);
      const before = node.transport.to('i', 'm').length;
      await lift(node);
      assert.equal((await node.instance('i')).backoff_until, null);
      await node.clock.advance(50);
      assert.deepEqual(
        node.transport.seqsTo('i', 'm').slice(before),
        Array.from({ length: 300 }, (_, k) => k + 1),
      );
      assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
      const { backoff_step, backoff_until, consecutive_failures } = await node.instance('i');
      assert.deepEqual([backoff_step, backoff_until, consecutive_failures], [0, null, 0]);
    });
  }

  for (const [name, lift] of [
    ['rename', (node: TestNode) => node.patch('i', { instance_name: 'other' })],
    ['switching off', (node: TestNode) => node.patch('i', { is_active: false })],
  ] as const) {
    test(`but not by a PATCH that does something else: ${name}`, async (t) => {
      const node = await backedOff(t);
      const before = node.transport.pushes.length;
      await lift(node);
      await node.clock.advance(SECOND);
      assert.equal(node.transport.pushes.length, before);
      assert.ok((await node.instance('i')).backoff_step > 0);
    });
  }

  test('a lift while the instance is being loaded counts', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ['connect_refused', 'connect_refused']);
    await node.send('m');
    await node.clock.advance(15 * SECOND);
    const [delivery] = await node.deliveries();
    // The new process reads the back-off in the table. The retry is stored right after that, and succeeds.
    await node.crash(false);
    let retried: Promise<void> | null = null;
    node.meddle = (name) => {
      if (name === 'instances.load') queueMicrotask(() => void (retried ??= node.retry(delivery?.delivery_id ?? '')));
      return undefined;
    };
    await node.started();
    await node.clock.settle();
    assert.ok(retried !== null);
    await node.clock.settle();
    assert.equal(node.transport.pushes.length, 3);
  });

  test('a failure after the lift begins the back-off at 10 s again', async (t) => {
    const node = await backedOff(t);
    node.transport.answer('i', 'connect_refused');
    const before = node.transport.pushes.length;
    await node.heartbeat('i');
    await node.clock.advance(31 * SECOND);
    assert.deepEqual(node.gapsTo('i').slice(before), [10, 20]);
  });

  test('a retry that waits for its own time is not brought forward by a heartbeat', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [500]);
    await node.send('m');
    await node.clock.advance(SECOND);
    await node.heartbeat('i');
    await node.register('i');
    await node.clock.advance(6.9 * SECOND);
    assert.equal(node.transport.pushes.length, 1);
    await node.clock.advance(3 * SECOND);
    assert.equal(node.transport.pushes.length, 2);
  });
});

describe('a thousand machines that come back at once', () => {
  const MAX_IN_FLIGHT = 100;
  const PUSH_MS = 20;
  const MESSAGES = 4;

  async function comeBack(t: TestContext, max_in_flight: number): Promise<TestNode> {
    const node = await startNode(t, { settings: { max_in_flight } });
    const machines = Array.from({ length: 1_000 }, (_, k) => `back${k}`);
    await Promise.all(machines.map((machine) => node.register(machine)));
    await Promise.all(machines.map((machine) => node.join(machine, 'all')));
    await node.meeting('other', 'bystander');
    node.transport.script = () => 'connect_refused';
    await node.sendMany('all', MESSAGES);
    // By then every machine is down.
    await node.clock.advance(3 * MINUTE);
    node.transport.script = () => ({ says: 200, after_ms: PUSH_MS });
    node.transport.answer('bystander', 200);
    node.transport.peak = 0;
    await Promise.all(machines.map((machine) => node.heartbeat(machine)));
    return node;
  }

  test('take their share and no more: an instance without a backlog gets its messages at once', async (t) => {
    const node = await comeBack(t, MAX_IN_FLIGHT);
    for (let k = 1; k <= 20; k++) {
      await node.send('other');
      // `settle` does not move the clock.
      await node.clock.settle();
      assert.equal(node.transport.to('bystander').length, k);
      await node.clock.advance(PUSH_MS);
    }
    assert.ok((await node.store.deliveries.countPending()) > 2_000, 'the others are still hearing theirs');
    // From now on the thread has time to spare, so only their share of all attempts limits the machines.
    node.load = 0;
    // There are 4,000 pushes, and at most 50 of them are in flight: half of the limit, because the machines were down.
    // Each takes 20 ms. While enough pushes wait, exactly 50 are in flight.
    await node.clock.advance(3_500);
    assert.equal(node.transport.peak, MAX_IN_FLIGHT * 0.5);
    assert.equal(await node.store.deliveries.countPending(), 0);
    for (const k of [0, 499, 999]) {
      const seqs = node.transport.seqsTo(`back${k}`);
      assert.deepEqual([...new Set(seqs)], [1, 2, 3, 4]);
    }
  });

  test('leave room for an instance with a small backlog: the next message to it brings all of it forward', async (t) => {
    const node = await comeBack(t, MAX_IN_FLIGHT);
    node.transport.answer('bystander', HANGS);
    await node.sendMany('other', 3);
    await node.crash();
    node.transport.answer('bystander', 200);
    await node.send('other');
    await node.clock.advance(2 * PUSH_MS);
    assert.deepEqual([...new Set(node.transport.seqsTo('bystander'))], [1, 2, 3, 4]);
    assert.ok((await node.store.deliveries.countPending()) > 2_000, 'the others are still hearing theirs');
  });

  test('are pushed to by few at first, and by no more than 32 while this thread is saturated', async (t) => {
    const node = await comeBack(t, 10_000);
    await node.crash();
    // The receivers take long, but not so long that their attempts hang.
    node.transport.script = () => ({ says: 200, after_ms: 90 });
    node.transport.peak = 0;
    await node.clock.settle();
    assert.ok(node.transport.peak < 24, `${node.transport.peak}`);
    await node.clock.advance(4_000);
    assert.equal(node.transport.peak, 32);
  });

  test('and do not respond: their attempts leave room for others within a tenth of a second', async (t) => {
    const node = await comeBack(t, 10_000);
    node.transport.script = () => HANGS;
    node.transport.peak = 0;
    await node.clock.advance(200);
    assert.equal(node.transport.peak, 96);
    await node.clock.advance(4_000);
    assert.equal(node.transport.peak, 1_000);
  });

  test('control: while this thread has time to spare, and without the limit, all thousand are pushed to at once', async (t) => {
    const node = await comeBack(t, 10_000);
    node.load = 0;
    node.transport.script = () => ({ says: 200, after_ms: 4_000 });
    await node.clock.advance(1_000);
    assert.equal(node.transport.peak, 1_000);
  });
});

describe('what is written of the health of an instance', () => {
  test('is written at once when it changes; of one more success only the time, once a second', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    let writes = 0;
    node.meddle = (name, [, healths]) => {
      if (name === 'deliveries.settle') writes += (healths as object[]).length;
      return undefined;
    };
    const sendOne = async (): Promise<void> => {
      await node.send('m');
      await node.clock.advance(50);
    };
    await sendOne();
    assert.equal(writes, 1);
    for (let k = 0; k < 100; k++) await sendOne();
    assert.ok(writes >= 5 && writes <= 7, `${writes} in 5 s`);
    await node.clock.advance(SECOND);
    assert.equal((await node.instance('i')).last_success_at, node.attempts.at(-1)!.health_after.last_success_at);

    const before = writes;
    node.transport.answer('i', 500);
    await sendOne();
    assert.equal(writes, before + 1);
    assert.equal((await node.instance('i')).consecutive_failures, 1);
  });

  test('is all written when the node stops', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    for (let k = 0; k < 3; k++) {
      await node.send('m');
      await node.clock.advance(50);
    }
    await node.engine.stop();
    assert.equal((await node.instance('i')).last_success_at, node.attempts.at(-1)!.health_after.last_success_at);
  });
});

describe('a thousand machines whose backlog is found after a start', () => {
  /**
   * Starts the process again. After the start, reads of the given kind hang for the machines `back…`. The scan hangs
   * after its first page, so the lanes must be read one by one.
   */
  async function startAgain(t: TestContext, reads: string): Promise<TestNode> {
    const node = await startNode(t);
    const machines = Array.from({ length: 1_000 }, (_, k) => `back${k}`);
    await Promise.all(machines.map((machine) => node.register(machine)));
    await Promise.all(machines.map((machine) => node.join(machine, 'all')));
    await node.meeting('other', 'well');
    node.transport.script = () => HANGS;
    await node.sendMany('all', 2);
    await node.crash(false);
    node.transport.script = () => 200;
    node.load = 0;
    let scans = 0;
    node.meddle = (name, [of]) => {
      if (name === 'deliveries.pendingLanes') return scans++ === 0 ? undefined : 'lost';
      return name === reads && JSON.stringify(of).includes('back') ? 'lost' : undefined;
    };
    void node.started();
    await node.clock.advance(5_000);
    return node;
  }

  for (const reads of ['instances.load', 'deliveries.loadLanes']) {
    test(`are read behind one without a backlog, however many of them are being read: ${reads}`, async (t) => {
      const node = await startAgain(t, reads);
      await node.send('other');
      await node.clock.settle();
      assert.equal(node.transport.to('well').length, 1);
    });
  }

  test('control: a message to one of the thousand waits for its read; in one queue of reads every message would', async (t) => {
    const node = await startAgain(t, 'deliveries.loadLanes');
    await node.meeting('another', 'back0');
    await node.send('another');
    await node.clock.advance(5_000);
    assert.equal(node.transport.to('back0').length, 0);
  });
});
