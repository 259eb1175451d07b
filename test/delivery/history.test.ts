/** The history of the last day, on a clock that the test moves. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AttemptEvent } from '../../src/delivery/observer.ts';
import { History } from '../../src/delivery/history.ts';
import { InstanceHistory } from '../../src/delivery/instance_history.ts';
import { NO_HEALTH } from '../../src/domain/instance.ts';
import type { Outcome } from '../../src/domain/outcome.ts';
import { VIRTUAL_START, VirtualClock } from '../support/virtual_clock.ts';

const HOUR_MS = 3_600_000;

function attempt(state: AttemptEvent['state'], outcome: Outcome, instance_id = 'i'): AttemptEvent {
  return {
    delivery_id: 'dlv',
    message_id: 'msg',
    meeting_id: 'm',
    seq: 1,
    instance_id,
    attempt: {
      attempt: 1,
      started_at: '',
      duration_ms: 1,
      outcome,
      status_code: null,
      detail: '',
      response_excerpt: '',
    },
    state,
    reason: null,
    retry_in_ms: null,
    accepted_at: VIRTUAL_START,
    health_before: NO_HEALTH,
    health_after: NO_HEALTH,
  };
}

/** Several histories on one clock. Each sends its broadcasts to all others. */
function nodes(clock: VirtualClock, count: number): History[] {
  const all: History[] = [];
  for (let i = 0; i < count; i++) {
    const broadcast = async (topic: string, text: string): Promise<void> => {
      for (const other of all) if (other !== all[i]) other.onBroadcast(topic, text);
    };
    all.push(new History({ clock, cluster: { broadcast } }));
  }
  return all;
}

const sum = (counts: readonly number[]): number => counts.reduce((all, each) => all + each, 0);

test('messages, deliveries, failed attempts and failed deliveries are counted in their second', async () => {
  const clock = new VirtualClock();
  const history = new History({ clock, cluster: null });
  history.accepted(3);
  await clock.advance(1_500);
  history.attempted(attempt('delivered', 'ok'), clock.wall());
  history.attempted(attempt('pending', 'bad_status'), clock.wall());
  history.attempted(attempt('failed', 'gone'), clock.wall());
  history.failed(5);
  assert.deepEqual(history.read('5m', null).accepted, [3], 'a second that has not ended is left out');
  await clock.advance(1_500);
  const { accepted, delivered, failed_attempts, failed, p50_ms, p95_ms, ...rest } = history.read('5m', null);
  assert.deepEqual(
    { accepted, delivered, failed_attempts, failed },
    { accepted: [3, 0, 0], delivered: [0, 1, 0], failed_attempts: [0, 2, 0], failed: [0, 6, 0] },
  );
  assert.ok(p50_ms[0] === null && p95_ms[2] === null);
  assert.ok(Math.abs(p50_ms[1]! - 1_500) <= 1_500 / 8 && p95_ms[1] === p50_ms[1]);
  assert.deepEqual(rest, {
    counting_since: VIRTUAL_START,
    complete_since: VIRTUAL_START,
    starts_at: VIRTUAL_START,
    ends_at: VIRTUAL_START + 3_000,
    step_s: 1,
  });
});

test('the end of one response continues the next: no step twice, none left out', async () => {
  const clock = new VirtualClock();
  const history = new History({ clock, cluster: null });
  const seen: number[] = [];
  let since: number | null = null;
  for (let i = 1; i <= 40; i++) {
    history.accepted(i);
    await clock.advance(250);
    const { accepted, ends_at } = history.read('5m', since);
    seen.push(...accepted);
    since = ends_at;
  }
  assert.equal(seen.length, 10);
  assert.equal(sum(seen), (40 * 41) / 2);
});

test('a day stays, older seconds go, and a node at rest has no timer', async () => {
  const clock = new VirtualClock();
  const history = new History({ clock, cluster: null });
  for (let hour = 0; hour < 48; hour++) {
    history.accepted(1);
    await clock.advance(HOUR_MS);
  }
  assert.equal(clock.timers, 0);
  assert.equal(sum(history.read('24h', null).accepted), 24);
  assert.equal(sum(history.read('5m', null).accepted), 0);
  assert.equal(history.read('24h', null).counting_since, VIRTUAL_START);
});

test('somebody sets the wall clock: the steps keep their order, and have the time that people see', async () => {
  const clock = new VirtualClock();
  const history = new History({ clock, cluster: null });
  history.accepted(1);
  await clock.advance(2_000);
  clock.stepWall(-HOUR_MS);
  history.accepted(2);
  await clock.advance(2_000);
  const { accepted, ends_at, starts_at } = history.read('5m', null);
  assert.deepEqual(accepted, [1, 0, 2, 0]);
  assert.equal(ends_at, clock.wall());
  assert.equal(starts_at, clock.wall() - 4_000);
});

test('every node of a cluster answers for all of them', async () => {
  const clock = new VirtualClock();
  const [first, second, third] = nodes(clock, 3) as [History, History, History];
  first.accepted(10);
  second.attempted(attempt('delivered', 'ok'), clock.wall());
  third.attempted(attempt('pending', 'timeout'), clock.wall());
  await clock.advance(3_000);
  for (const node of [first, second, third]) {
    const { accepted, delivered, failed_attempts, p50_ms } = node.read('5m', null);
    assert.deepEqual([sum(accepted), sum(delivered), sum(failed_attempts)], [10, 1, 1]);
    assert.deepEqual(
      p50_ms.filter((ms) => ms !== null),
      [0],
    );
  }
});

test('a node that lost the others says since when it gets the figures of all of them', async () => {
  const clock = new VirtualClock();
  const history = new History({ clock, cluster: { broadcast: async () => {} } });
  await clock.advance(60_000);
  history.onResync();
  const { counting_since, complete_since } = history.read('5m', null);
  assert.deepEqual([counting_since, complete_since], [VIRTUAL_START, VIRTUAL_START + 60_000]);
});

test('texts of other topics, and texts that are no counts, change nothing', async () => {
  const clock = new VirtualClock();
  const history = new History({ clock, cluster: { broadcast: async () => {} } });
  history.onBroadcast('feed.ask', '[0,1]');
  for (const text of ['', '[0]', '[999,1]', '{"0":1}']) history.onBroadcast('history', text);
  await clock.advance(1_000);
  assert.deepEqual(history.read('5m', null).accepted, [0]);
  history.onBroadcast('history', '[0,1]');
  await clock.advance(1_000);
  assert.deepEqual(history.read('5m', null).accepted, [0, 1], 'control: counts of another node do');
});

test('a broadcast that fails costs this node nothing', async () => {
  const clock = new VirtualClock();
  const history = new History({ clock, cluster: { broadcast: () => Promise.reject(new Error('cut off')) } });
  history.accepted(4);
  await clock.advance(1_000);
  assert.deepEqual(history.read('5m', null).accepted, [4]);
});

test('a node whose broadcast failed says so with its next one: the others do not call its counts complete', async () => {
  const clock = new VirtualClock();
  const other = new History({ clock, cluster: null });
  let is_cut_off = false;
  const broadcast = async (topic: string, text: string): Promise<void> => {
    if (is_cut_off) throw new Error('cut off');
    other.onBroadcast(topic, text);
  };
  const node = new History({ clock, cluster: { broadcast } });
  const counted = async (): Promise<number> => {
    node.accepted(1);
    await clock.advance(1_000);
    return other.read('5m', null).complete_since - VIRTUAL_START;
  };
  assert.equal(await counted(), 0);
  is_cut_off = true;
  assert.equal(await counted(), 0);
  is_cut_off = false;
  assert.equal(await counted(), 3_000);
  assert.equal(await counted(), 3_000, 'it says so once');
  assert.equal(sum(other.read('5m', null).accepted), 2);
});

test('the pushes of an instance are counted in steps of ten minutes, the present one included', async () => {
  const clock = new VirtualClock();
  const history = new InstanceHistory({ clock, cluster: null });
  history.attempted(attempt('delivered', 'ok'), clock.wall());
  history.attempted(attempt('pending', 'timeout', 'another'), clock.wall());
  await clock.advance(600_000);
  history.attempted(attempt('failed', 'gone'), clock.wall());
  const { counting_since, starts_at, ends_at, ...columns } = history.read('i', 0);
  assert.deepEqual(columns, {
    step_s: 600,
    delivered: [1, 0],
    failed_attempts: [0, 1],
    failed: [0, 1],
    p50_ms: [0, null],
    p95_ms: [0, null],
  });
  assert.equal(counting_since, VIRTUAL_START);
  assert.equal(ends_at - starts_at, 1_200_000);
  assert.deepEqual(history.read('another', 0).failed_attempts, [1, 0]);
  assert.deepEqual(history.read('nobody', 0).delivered, [0, 0]);
  await clock.advance(10_000);
  assert.equal(clock.timers, 0, 'at rest there is no timer');
});

test('pushes in the second in which the instance was registered count, also in the last second of a step', async () => {
  const clock = new VirtualClock();
  const history = new InstanceHistory({ clock, cluster: null });
  await clock.advance(599_500);
  const registered_at = clock.wall();
  history.attempted(attempt('delivered', 'ok'), clock.wall());
  assert.deepEqual(history.read('i', registered_at).delivered, [1]);
});

test('every node of a cluster answers for an instance, after ten seconds, and ignores any text that is no count', async () => {
  const clock = new VirtualClock();
  const texts: string[] = [];
  const second = new InstanceHistory({ clock, cluster: { broadcast: async () => {} } });
  const broadcast = async (topic: string, text: string): Promise<void> => {
    texts.push(text);
    second.onBroadcast(topic, text);
  };
  const first = new InstanceHistory({ clock, cluster: { broadcast } });
  for (let i = 0; i < 1_000; i++) first.attempted(attempt('delivered', 'ok', `machine-${i} é`), clock.wall());
  await clock.advance(10_000);
  for (let i = 0; i < 1_000; i++) assert.deepEqual(second.read(`machine-${i} é`, 0).delivered, [1]);
  assert.ok(texts.length > 1 && texts.every((text) => Buffer.byteLength(text) <= 5_600));
  for (const text of ['', '{}', '[7]', '[["machine-1 é"]]', '[["machine-1 é",[0]]]', '[[1,[1,1]]]'])
    second.onBroadcast('history.instances', text);
  second.onBroadcast('history', '[["machine-1 é",[1,1]]]');
  assert.deepEqual(second.read('machine-1 é', 0).delivered, [1]);
});

test('a node that stops tells the others the latest pushes of its instances', async () => {
  const clock = new VirtualClock();
  const second = new InstanceHistory({ clock, cluster: null });
  const broadcast = async (topic: string, text: string): Promise<void> => second.onBroadcast(topic, text);
  const first = new InstanceHistory({ clock, cluster: { broadcast } });
  first.attempted(attempt('delivered', 'ok'), clock.wall());
  first.stop();
  assert.deepEqual(second.read('i', 0).delivered, [1]);
  assert.equal(clock.timers, 0);
});

test('the next owner of an id sees no counts of the instance that was removed, on any node', async () => {
  const clock = new VirtualClock();
  const all: InstanceHistory[] = [];
  const broadcastFrom = (i: number) => async (topic: string, text: string) => all[1 - i]!.onBroadcast(topic, text);
  for (const i of [0, 1]) all.push(new InstanceHistory({ clock, cluster: { broadcast: broadcastFrom(i) } }));
  const [first, second] = all as [InstanceHistory, InstanceHistory];
  first.attempted(attempt('delivered', 'ok'), clock.wall());
  await clock.advance(10_000);
  assert.deepEqual(second.read('i', 0).delivered, [1], 'control');
  second.attempted(attempt('pending', 'timeout'), clock.wall());
  first.removed('i');
  await clock.advance(1_000);
  const registered_at = clock.wall();
  // An attempt of the removed instance was in flight. It ends only now.
  second.attempted(attempt('failed', 'timeout'), clock.wall());
  await clock.advance(10_000);
  for (const node of all) {
    const { delivered, failed_attempts, p95_ms } = node.read('i', registered_at);
    assert.deepEqual([delivered, failed_attempts, p95_ms], [[0], [0], [null]]);
  }
  second.attempted({ ...attempt('delivered', 'ok'), accepted_at: clock.wall() }, clock.wall());
  await clock.advance(10_000);
  for (const node of all) assert.deepEqual(node.read('i', registered_at).delivered, [1]);
});
