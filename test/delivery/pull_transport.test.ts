import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '../../src/delivery/clock.ts';
import { TimerWheel, WheelEntry } from '../../src/delivery/timer_wheel.ts';
import {
  type PullEnd,
  type PullPermit,
  type PullRequest,
  PullTransport,
} from '../../src/delivery/transport/pull_transport.ts';
import { RESPONSE_BYTES_MAX } from '../../src/delivery/transport/response.ts';
import type { Push, PushResult } from '../../src/delivery/transport/transport.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const WAY = {
  transport: 'pull',
  ack_timeout_ms: 30_000,
  timeout_ms: 5_000,
  runtime: null,
  headers: {},
  secret: '',
  earlier_secrets: [],
  keys: null,
  updated_at: 1,
} as const;

const pushOf = (id: string, bytes = 2): Push => ({
  instance_id: 'i',
  url: '',
  headers: { 'webhook-id': id, 'convoke-attempt': '1' },
  body: Buffer.alloc(bytes, 'x'),
  success_statuses: '200',
});

const permitAt = (updated_at: number, owner_key_id: string | null = null): PullPermit => ({
  owner_scope: null,
  owner_key_id,
  updated_at,
  as_of: 0,
});

/** Makes a transport on virtual time, and records everything that it reports. */
function setUp() {
  const clock = new VirtualClock();
  const ready: string[] = [];
  /** What the engine says about every instance. */
  const reading = { is: false };
  const connected: boolean[] = [];
  const transport = new PullTransport({
    clock,
    onReady: (instance_id) => ready.push(instance_id),
    isReading: () => reading.is,
    onConnection: (_, connection) => connected.push(connection !== null),
  });
  const ends: PullEnd[] = [];
  const pull = (more: Partial<PullRequest> = {}) =>
    transport.pull({
      instance_id: 'i',
      pull_id: null,
      permit: permitAt(1),
      max: 32,
      wait_ms: 10_000,
      address: null,
      client: null,
      standing: { revocationReason: () => null },
      onEnd: (end) => void ends.push(end),
      ...more,
    });
  const results: (PushResult | null)[] = [];
  const push = (id: string, bytes?: number) => void transport.push(pushOf(id, bytes), WAY).then((r) => results.push(r));
  const pushesOf = (end: PullEnd | undefined): string[] =>
    end !== undefined && 'pushes' in end ? end.pushes.map(({ delivery_id }) => delivery_id) : ['none'];
  /** What the clients of the pulls that ended with a problem are told. */
  const problems = () => ends.map((end) => 'problem' in end && [end.problem.code, end.problem.retry_after_s]);
  return { clock, transport, ready, reading, connected, ends, problems, pull, push, results, pushesOf };
}

describe('the way out for machines that pull', () => {
  test('is ready only while a pull waits, and a push without one was not made', async () => {
    const { clock, transport, ready, ends, pull, push, results, pushesOf } = setUp();
    assert.equal(transport.canPush('i', WAY), false);
    push('a');
    await turn();
    assert.deepEqual(results, [null]);
    pull();
    assert.deepEqual(ready, ['i']);
    assert.equal(transport.canPush('i', WAY), true);
    push('b');
    push('c');
    await clock.advance(1);
    assert.deepEqual(ends.map(pushesOf), [['b', 'c']]);
    assert.equal(transport.canPush('i', WAY), false);
  });

  test('ends the oldest of seventeen pulls for some seconds, so that they do not end each other without a pause', () => {
    const { problems, pull } = setUp();
    for (let k = 0; k < 16; k++) pull();
    assert.deepEqual(problems(), []);
    pull();
    assert.deepEqual(problems(), [['overloaded', 5]]);
  });

  test('takes back what the machine of an earlier owner has in hand when the new owner pulls', async () => {
    const { clock, transport, ends, pull, push, results, pushesOf } = setUp();
    pull({ permit: permitAt(1, 'anna') });
    push('a');
    await clock.advance(1);
    pull({ permit: permitAt(1, 'anna') });
    await turn();
    assert.deepEqual(results, [], 'control: the same owner pulls');
    pull({ permit: permitAt(1, 'ben') });
    await turn();
    assert.deepEqual([results, transport.counts], [[null], { waiting: 2, awaited: 0, connected: 1 }]);
    await clock.advance(20_000);
    assert.deepEqual(ends.map(pushesOf), [['a'], [], []], 'both pulls waited for as long as they asked');
  });

  test('takes back what a machine has in hand when its key ends, also while it does not pull', async () => {
    const { clock, transport, pull, push, results } = setUp();
    const ended = new Set<string>();
    const with_key = (key_id: string) => ({
      standing: { revocationReason: () => (ended.has(key_id) ? ('api_key_revoked' as const) : null) },
    });
    pull({ ...with_key('revoked'), max: 1 });
    pull({ ...with_key('expired'), max: 1 });
    pull({ ...with_key('valid'), max: 1 });
    for (const id of ['a', 'b', 'c']) push(id);
    await clock.advance(1);
    ended.add('revoked');
    transport.endRevoked();
    await turn();
    assert.deepEqual([results, transport.counts.awaited], [[null], 2]);
    ended.add('expired');
    await clock.advance(1_000);
    assert.deepEqual([results, transport.counts.awaited], [[null, null], 1]);
  });

  test('takes back what it handed out in a response that was lost, and nothing else', async () => {
    const { clock, transport, ends, pull, push, results, pushesOf } = setUp();
    pull({ max: 2, pull_id: 'lost' });
    push('a');
    push('b');
    pull({ max: 1, pull_id: 'other' });
    push('c');
    await clock.advance(1);
    const counted = { delivery_id: 'b', attempt: 1, status_code: 200, detail: '', retry_after: null, body: '' };
    transport.take('i', counted);
    transport.takeBack('i', 'lost');
    transport.takeBack('i', 'lost');
    transport.takeBack('another', 'other');
    await turn();
    assert.deepEqual(
      results.map((result) => result?.outcome ?? 'not made'),
      ['ok', 'not made'],
    );
    assert.equal(transport.counts.awaited, 1);
    assert.deepEqual(ends.map(pushesOf), [['a', 'b'], ['c']]);
  });

  test('counts an attempt as a timeout when three responses with its push were lost, so that it is not handed out for ever', async () => {
    const { clock, transport, ends, pull, push, results } = setUp();
    for (const lost of ['1', '2', '3', '4', '5', '6']) {
      pull({ pull_id: lost });
      push('a');
      await clock.advance(1);
      const end = ends.at(-1);
      if (lost === '2' && end !== undefined && 'pushes' in end) transport.lose(end.pushes);
      else transport.takeBack('i', lost);
      await turn();
    }
    const timeout = ['timeout', 'the response with the push was lost 3 times'];
    assert.deepEqual(
      results.map((result) => result && [result.outcome, result.detail]),
      [null, null, timeout, null, null, timeout],
    );
  });

  test('counts a lost response once, although the machine asks again and its connection then ends too', async () => {
    const { clock, transport, ends, pull, push, results } = setUp();
    for (const lost of ['1', '2']) {
      pull({ pull_id: lost });
      push('a');
      await clock.advance(1);
      transport.takeBack('i', lost);
      const end = ends.at(-1);
      if (end !== undefined && 'pushes' in end) transport.lose(end.pushes);
      await turn();
    }
    assert.deepEqual(results, [null, null]);
    pull({ pull_id: '3' });
    push('a');
    await clock.advance(1);
    assert.equal(transport.counts.awaited, 1);
  });

  test('hands out alone what was lost before, until its machine reports a result', async () => {
    const { clock, transport, ends, pull, push, pushesOf } = setUp();
    pull({ pull_id: 'lost' });
    for (const id of ['a', 'b', 'c']) push(id);
    await clock.advance(1);
    transport.takeBack('i', 'lost');
    for (let k = 0; k < 4; k++) pull();
    push('d');
    for (const id of ['a', 'b', 'c']) push(id);
    await clock.advance(1);
    assert.deepEqual(ends.map(pushesOf), [['a', 'b', 'c'], ['d'], ['a'], ['b'], ['c']]);
    const result = { attempt: 1, status_code: 200, detail: '', retry_after: null, body: '' };
    for (const delivery_id of ['b', 'c']) transport.take('i', { ...result, delivery_id });
    for (let k = 0; k < 2; k++) pull();
    for (const id of ['b', 'c', 'e']) push(id);
    await clock.advance(1);
    assert.deepEqual(ends.slice(5).map(pushesOf), [['b', 'c', 'e']]);
  });

  test('does not count as lost what went into no response', async () => {
    const { clock, transport, pull, push, results } = setUp();
    for (let k = 0; k < 4; k++) {
      const waiting = pull({ pull_id: 'one' });
      push('a');
      if (k % 2 === 0) transport.takeBack('i', 'one');
      else transport.cancel(waiting);
      await clock.advance(1);
    }
    assert.deepEqual(results, [null, null, null, null]);
  });

  test('takes a reported body that a machine cut for lost, and keeps one of the same length that is whole', async () => {
    const { transport, pull } = setUp();
    const keptOf = async (body: string): Promise<PushResult['kept_body']> => {
      pull();
      const pushed = transport.push({ ...pushOf('a'), keeps_body: true }, WAY);
      transport.take('i', { delivery_id: 'a', attempt: 1, status_code: 200, detail: '', retry_after: null, body });
      return (await pushed)?.kept_body;
    };
    const replyOf = (text: string): string => JSON.stringify({ reply: text });
    // The limit is in the middle of a character, which the machine leaves out.
    const cut = new TextDecoder().decode(Buffer.from(replyOf('😀'.repeat(20_000))).subarray(0, RESPONSE_BYTES_MAX));
    const lost = { lost: 'the body of the response was over 64 KiB' };
    assert.deepEqual(await keptOf(cut.replace(/\ufffd$/, '')), lost);
    assert.deepEqual(await keptOf(replyOf('x'.repeat(70_000)).slice(0, RESPONSE_BYTES_MAX)), lost);
    const longest = replyOf('x'.repeat(RESPONSE_BYTES_MAX - replyOf('').length));
    for (const text of [longest, 'x'.repeat(60_000), 'ok']) assert.deepEqual(await keptOf(text), { text });
    assert.deepEqual(await keptOf(`\ufeff${replyOf('x')}`), { text: replyOf('x') }, 'without its byte order mark');
  });

  test('ends a pull that still waits when it is made again, so that no push goes to a dead connection', async () => {
    const { clock, transport, ends, pull, push, results, pushesOf } = setUp();
    pull({ pull_id: 'one' });
    // This push goes into the response that is about to be written.
    push('a');
    transport.takeBack('i', 'one');
    await turn();
    assert.deepEqual([ends.map(pushesOf), results, transport.counts.waiting], [[[]], [null], 0]);
    pull({ pull_id: 'one' });
    push('a');
    await clock.advance(1);
    assert.deepEqual(ends.map(pushesOf), [[], ['a']]);
  });

  test('ends a pull at its maximum, and where its bodies get long; the next one continues', async () => {
    const { clock, ends, pull, push, pushesOf } = setUp();
    for (const max of [1, 32, 32]) pull({ max });
    push('a');
    push('large', 600 << 10);
    push('b');
    await clock.advance(1);
    assert.deepEqual(ends.map(pushesOf), [['a'], ['large'], ['b']]);
  });

  test('gives nothing to a pull that was allowed by an earlier registration', async () => {
    const { transport, ends, pull, pushesOf } = setUp();
    pull({ permit: permitAt(0) });
    assert.equal(transport.permitOf('i', null)?.updated_at, 0);
    assert.equal(transport.canPush('i', WAY), false);
    assert.deepEqual(ends.map(pushesOf), [[]]);
    assert.equal(transport.permitOf('i', null), null, 'the next pull reads the row');
    pull({ permit: permitAt(2) });
    assert.equal(transport.canPush('i', WAY), false, 'the row is read again first');
  });

  for (const changed of ['i', null]) {
    test(`ends the pulls of an earlier registration whose time is later: the clock was set back (${changed ?? 'any'} changed)`, () => {
      const { transport, ends, pull, pushesOf } = setUp();
      pull({ permit: permitAt(2) });
      pull({ permit: permitAt(2) });
      transport.registrationChanged('j');
      assert.equal(transport.canPush('i', WAY), false);
      assert.deepEqual(ends, [], 'another instance changed');
      transport.registrationChanged(changed);
      pull({ permit: { ...permitAt(1), as_of: transport.changes } });
      assert.equal(transport.canPush('i', WAY), true, 'the pull of the newer registration gets the push');
      assert.deepEqual(ends.map(pushesOf), [[], []]);
    });
  }

  test('lets a pull wait while the engine has an earlier registration, so that its machine does not ask without a pause', () => {
    const { transport, ends, pull } = setUp();
    pull({ permit: permitAt(2) });
    transport.registrationChanged('i');
    const again = () => pull({ permit: { ...permitAt(2), as_of: transport.changes } });
    assert.equal(transport.canPush('i', WAY), false);
    assert.equal(ends.length, 1);
    again();
    for (let k = 0; k < 5; k++) assert.equal(transport.canPush('i', WAY), false);
    assert.equal(ends.length, 1);
  });

  test('remembers by what a pull was allowed, for its caller alone, until the registration may have changed', async () => {
    const { clock, transport, pull } = setUp();
    const owner_scope = { key_id: 'anna', instance_id: null };
    const permit = { owner_scope, owner_key_id: 'anna', updated_at: 1, as_of: 0 };
    pull({ permit });
    assert.equal(transport.permitOf('i', { ...owner_scope }), permit);
    assert.equal(transport.permitOf('i', { ...owner_scope, key_id: 'ben' }), null);
    assert.equal(transport.permitOf('i', { ...owner_scope, instance_id: 'j' }), null);
    assert.equal(transport.permitOf('i', null), null);
    assert.equal(transport.permitOf('j', owner_scope), null);

    transport.registrationChanged('j');
    pull({ permit });
    assert.equal(transport.permitOf('i', owner_scope), permit, 'another instance changed');
    for (const changed of ['i', null]) {
      transport.registrationChanged(changed);
      assert.equal(transport.permitOf('i', owner_scope), null);
      pull({ permit: { ...permit, as_of: transport.changes - 1 } });
      assert.equal(transport.permitOf('i', owner_scope), null, 'its row was read before the change arrived');
      pull({ permit: { ...permit, as_of: transport.changes } });
      assert.notEqual(transport.permitOf('i', owner_scope), null);
    }
    await clock.advance(10_000);
    await clock.advance(10_100);
    assert.equal(transport.permitOf('i', owner_scope), null, 'its machine has gone');
  });

  test('keeps a bounded number of pulls and of pushes in hand', async () => {
    const { clock, transport, ends, pull, push } = setUp();
    for (let k = 0; k < 17; k++) pull();
    assert.equal(ends.length, 1);
    for (let k = 0; k < 300; k++) push(`p${k}`);
    await clock.advance(1);
    assert.equal(transport.counts.awaited, 256);
  });

  test('has room for every machine, whatever others have in hand and do not report', async () => {
    const { clock, transport, ready, pull } = setUp();
    const greedy = Array.from({ length: 12 }, (_, k) => `greedy ${k}`);
    const pushTo = (instance_id: string, k: number) =>
      transport.push({ ...pushOf(`${instance_id} ${k}`, 64 << 10), instance_id }, WAY);
    for (const instance_id of greedy) {
      for (let k = 0; k < 16; k++) pull({ instance_id, max: 256 });
      for (let k = 0; transport.canPush(instance_id, WAY); k++) void pushTo(instance_id, k);
    }
    await clock.advance(1);
    assert.ok(transport.counts.awaited < 512, `${transport.counts.awaited}`);
    const others = transport.counts.awaited;
    for (let k = 0; k < 16; k++) pull({ instance_id: 'modest', max: 256 });
    for (let k = 0; transport.canPush('modest', WAY); k++) void pushTo('modest', k);
    assert.ok(transport.counts.awaited - others > 8, `${transport.counts.awaited - others}`);
    // When a greedy machine reports, there is room, and the engine learns that the refused instance can have a push.
    await clock.advance(1);
    ready.length = 0;
    const result = { attempt: 1, status_code: 200, detail: '', retry_after: null, body: '' };
    for (let k = 0; k < 32; k++) transport.take('greedy 0', { ...result, delivery_id: `greedy 0 ${k}` });
    assert.ok(ready.includes('modest'));
    pull({ instance_id: 'modest' });
    assert.equal(transport.canPush('modest', WAY), true);
  });

  for (const [what, owner_key_id, has_room] of [
    [
      'an owner with any number of machines that report nothing leaves room for the machine of another owner',
      'b',
      true,
    ],
    ['control: a machine of the same owner has to wait', 'a', false],
  ] as const) {
    test(what, async () => {
      const { clock, transport, ready, pull } = setUp();
      const pushTo = (instance_id: string, k: number) =>
        transport.push({ ...pushOf(`${instance_id} ${k}`, 64 << 10), instance_id }, WAY);
      // While their owner has room, each greedy machine may have one push, whatever other machines have.
      for (let machine = 0; machine < 2_000; machine++) {
        const instance_id = `greedy ${machine}`;
        pull({ instance_id, permit: permitAt(1, 'a'), max: 256 });
        for (let k = 0; transport.canPush(instance_id, WAY); k++) void pushTo(instance_id, k);
      }
      await clock.advance(1);
      for (let k = 0; k < 16; k++) pull({ instance_id: 'modest', permit: permitAt(1, owner_key_id), max: 256 });
      assert.equal(transport.canPush('modest', WAY), has_room);
      if (!has_room) return;
      let taken = 0;
      for (; transport.canPush('modest', WAY); taken++) void pushTo('modest', taken);
      assert.ok(taken > 8, `${taken}`);
      // A result makes room for its own instance first, although thousands of other instances wait for room.
      await clock.advance(1);
      pull({ instance_id: 'modest', permit: permitAt(1, owner_key_id) });
      assert.equal(transport.canPush('modest', WAY), false);
      ready.length = 0;
      const result = { attempt: 1, status_code: 200, detail: '', retry_after: null, body: '' };
      assert.ok(transport.take('modest', { ...result, delivery_id: 'modest 0' }));
      assert.ok(ready.includes('modest'));
      assert.equal(transport.canPush('modest', WAY), true);
    });
  }

  test('counts a result once, and as a timeout when there is none', async () => {
    const { clock, transport, pull, push, results } = setUp();
    pull();
    push('a');
    push('b');
    await clock.advance(1);
    const result = { delivery_id: 'a', attempt: 1, status_code: 200, detail: '', retry_after: null, body: 'ok' };
    assert.equal(transport.take('other', result), false);
    assert.equal(transport.take('i', { ...result, attempt: 2 }), false);
    assert.equal(transport.take('i', result), true);
    assert.equal(transport.take('i', result), false);
    await clock.advance(31_000);
    assert.deepEqual(
      results.map((each) => each?.outcome),
      ['ok', 'timeout'],
    );
  });

  test('says of a timeout whether it counts for the health: it is the first of its turn, and no success came since', async () => {
    const { clock, transport, pull, push, results } = setUp();
    const handOut = async (...ids: string[]): Promise<void> => {
      pull({ max: ids.length });
      for (const id of ids) push(id);
      await clock.advance(1);
    };
    const isStale = () => results.splice(0).map((result) => [result?.outcome, result?.is_stale ?? false]);
    const success = { delivery_id: 'b', attempt: 1, status_code: 200, detail: '', retry_after: null, body: '' };
    await handOut('a', 'b', 'c');
    await clock.advance(10_000);
    assert.ok(transport.take('i', success));
    await handOut('d', 'e', 'f');
    await clock.advance(25_000);
    const stale = ['timeout', true];
    assert.deepEqual(isStale(), [['ok', false], stale, stale]);
    await clock.advance(10_000);
    assert.deepEqual(isStale(), [['timeout', false], stale, stale]);
    await handOut('g');
    await clock.advance(31_000);
    assert.deepEqual(isStale(), [['timeout', false]], 'control: nothing came since the success');
  });

  test('takes back what a machine has in hand when it hands the same delivery out again', async () => {
    const { clock, transport, pull, push, results } = setUp();
    for (let handed_out = 0; handed_out < 2; handed_out++) {
      pull();
      push('a');
      await clock.advance(1);
    }
    assert.deepEqual([...results], [null]);
    const result = { delivery_id: 'a', attempt: 1, status_code: 200, detail: '', retry_after: null, body: 'ok' };
    assert.equal(transport.take('i', result), true);
    await clock.advance(1);
    assert.deepEqual(
      results.map((each) => each?.outcome),
      [undefined, 'ok'],
    );
  });

  test('names the deadline in the reason of a timeout, however late its timer is', async (t) => {
    const { clock, pull, push, results } = setUp();
    pull();
    push('a');
    await clock.advance(1);
    const now = clock.now.bind(clock);
    const shortly_before = now() + WAY.ack_timeout_ms - 1_000;
    t.mock.method(clock, 'now', () => now() + (now() < shortly_before ? 0 : 2_000));
    await clock.advance(31_000);
    assert.deepEqual(
      results.map((each) => each?.detail),
      ['no result within 30 s'],
    );
    assert.ok(results[0]!.duration_ms > 31_000, `control: the timer was late, after ${results[0]!.duration_ms} ms`);
  });

  test('takes back what did not leave, and what another node continues', async () => {
    const { clock, transport, ends, pull, push, results } = setUp();
    const waiting = pull();
    push('a');
    transport.cancel(waiting);
    await clock.advance(1);
    assert.deepEqual([results, ends], [[null], []]);
    pull();
    push('b');
    await clock.advance(1);
    transport.handOver((instance_id) => instance_id === 'i');
    await turn();
    assert.deepEqual(results, [null, null]);
    assert.deepEqual(transport.counts, { waiting: 0, awaited: 0, connected: 0 });
  });

  test('says that a machine is connected until it has paused for ten seconds with nothing in hand', async () => {
    const { clock, transport, connected, pull, push } = setUp();
    pull();
    push('a');
    await clock.advance(29_000);
    assert.deepEqual(connected, [true]);
    await clock.advance(5_000);
    assert.deepEqual(connected, [true], 'its time for the result is up, and it may come back');
    await clock.advance(8_000);
    assert.deepEqual(connected, [true, false]);
    assert.equal(transport.counts.connected, 0);
  });

  test('keeps a pull without a wait open while deliveries are read that may be for it, for a second at most', async () => {
    const { clock, transport, reading, ends, pull, push, pushesOf } = setUp();
    const next = (): string[][] => ends.splice(0).map(pushesOf);
    pull({ wait_ms: 0 });
    await clock.settle();
    assert.deepEqual(next(), [[]], 'nothing is read');
    reading.is = true;

    pull({ wait_ms: 0 });
    push('a');
    push('b');
    await clock.settle();
    assert.deepEqual(next(), [['a', 'b']]);

    pull({ wait_ms: 0 });
    await clock.settle();
    push('c');
    push('d');
    await clock.settle();
    assert.deepEqual(next(), [['c', 'd']]);

    for (const read of ['i', null]) {
      pull({ wait_ms: 0 });
      transport.readEnded(read);
      transport.readEnded('another');
      await clock.settle();
      assert.deepEqual(next(), [], 'something else is read');
      reading.is = false;
      transport.readEnded(read);
      await clock.settle();
      assert.deepEqual(next(), [[]]);
      reading.is = true;
    }

    pull({ wait_ms: 0 });
    await clock.advance(900);
    assert.deepEqual(next(), []);
    await clock.advance(200);
    assert.deepEqual(next(), [[]]);

    pull();
    pull({ wait_ms: 0 });
    await clock.settle();
    assert.deepEqual(next(), [[]], 'the pull that waits gets what is read');
    transport.drain();
    pull({ wait_ms: 0 });
    await clock.settle();
    assert.deepEqual(next(), [[], []]);
  });

  test('ends all pulls when it drains, and those whose key was revoked', async () => {
    const { clock, transport, ends, problems, pull, pushesOf } = setUp();
    pull({ standing: { revocationReason: () => 'api_key_revoked' } });
    pull();
    transport.endRevoked();
    assert.deepEqual(problems(), [['api_key_revoked', undefined]]);
    transport.drain();
    pull();
    await clock.advance(1);
    assert.deepEqual(ends.slice(1).map(pushesOf), [[], []]);
  });
});

class Entry extends WheelEntry {
  readonly name: string;
  readonly #ended: string[];

  constructor(name: string, ended: string[]) {
    super();
    this.name = name;
    this.#ended = ended;
  }

  expire(): void {
    this.#ended.push(this.name);
  }
}

test('entries of a wheel end in their order, once, and not when they were deleted or put off', async () => {
  const clock = new VirtualClock();
  const wheel = new TimerWheel(clock, 600_000);
  const ended: string[] = [];
  const [long, short, deleted, moved] = ['long', 'short', 'deleted', 'moved'].map((name) => new Entry(name, ended));
  wheel.add(long!, 600_000);
  wheel.add(short!, 50);
  wheel.add(deleted!, 100);
  wheel.add(moved!, 100);
  wheel.delete(deleted!);
  wheel.add(moved!, 5_000);
  await clock.advance(1_000);
  assert.deepEqual(ended, ['short']);
  await clock.advance(5_000);
  assert.deepEqual(ended, ['short', 'moved']);
  await clock.advance(594_000);
  assert.deepEqual(ended, ['short', 'moved', 'long']);
});

test('an entry that is added while a late turn of the wheel ends another one has its whole time', async () => {
  let now = 0;
  const turns: (() => void)[] = [];
  const clock = { now: () => now, after: (_: number, turn: () => void) => ({ cancel() {}, n: turns.push(turn) }) };
  const wheel = new TimerWheel(clock as unknown as Clock, 600_000);
  const takeTurnAt = (at: number): void => {
    now = at;
    for (const turn of turns.splice(0)) turn();
  };
  const ended: string[] = [];
  const added = new Entry('added', ended);
  const first = new (class extends Entry {
    override expire(): void {
      super.expire();
      wheel.add(added, 600_000);
    }
  })('first', ended);
  wheel.add(first, 200);
  wheel.add(new Entry('second', ended), 300);
  takeTurnAt(1_000);
  assert.deepEqual(ended, ['first', 'second']);
  takeTurnAt(600_900);
  assert.deepEqual(ended, ['first', 'second']);
  takeTurnAt(601_000);
  assert.deepEqual(ended, ['first', 'second', 'added']);
});

test('an entry that is added before a late turn of the wheel has its whole time, the longest as well', () => {
  let now = 0;
  const turns: (() => void)[] = [];
  const clock = { now: () => now, after: (_: number, turn: () => void) => ({ cancel() {}, n: turns.push(turn) }) };
  const wheel = new TimerWheel(clock as unknown as Clock, 600_000);
  const ended: string[] = [];
  wheel.add(new Entry('other', ended), 600_000);
  // The turn that was due at 100 has not come yet.
  now = 5_000;
  wheel.add(new Entry('late', ended), 600_000);
  for (const at of [5_000, 300_000, 600_000, 604_900, 605_000]) {
    now = at;
    for (const turn of turns.splice(0)) turn();
    assert.deepEqual(ended, at < 600_000 ? [] : at < 605_000 ? ['other'] : ['other', 'late']);
  }
});

test('what takes long in a turn of the wheel makes no entry miss its time', async () => {
  const clock = new VirtualClock();
  const ended: string[] = [];
  let late_ms = 0;
  const late = { now: () => clock.now() + late_ms, after: clock.after.bind(clock) };
  const wheel = new TimerWheel(late as unknown as Clock, 600_000);
  const slow = new (class extends Entry {
    override expire(): void {
      super.expire();
      late_ms = 1_000;
      wheel.add(new Entry('added', ended), 5_000);
    }
  })('slow', ended);
  wheel.add(slow, 100);
  wheel.add(new Entry('next', ended), 500);
  await clock.advance(2_000);
  assert.deepEqual(ended, ['slow', 'next']);
  await clock.advance(4_000);
  assert.deepEqual(ended, ['slow', 'next', 'added']);
});
