/**
 * Attempts that may take minutes end when they are of no use any more. Otherwise they would use up the concurrency of
 * their instance, or keep a partition on a node that releases it.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { LongAttempts } from '../../src/delivery/runtimes/long_attempts.ts';
import { Partition } from '../../src/delivery/cluster/partitions.ts';
import { RemoteChanges, type RemoteChangesParts } from '../../src/delivery/cluster/remote_changes.ts';
import { TimerQueue } from '../../src/delivery/timer_queue.ts';
import { partitionOf } from '../../src/domain/partition.ts';
import { SECOND } from '../support/node.ts';
import { startReceiver } from '../support/receiver.ts';
import { instancePath, ON_A_FILE, type Service, startService } from '../support/service.ts';
import { startTwoNodes } from '../support/two_nodes.ts';
import { until } from '../support/wait.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const MEETINGS = ['m1', 'm2', 'm3', 'm4'];

/** The attempts in flight on a node. */
async function inFlight(service: Service): Promise<number> {
  const { text } = await service.get('/metrics');
  return Number(/^convoke_attempts_in_flight (\d+)$/m.exec(text)?.[1]);
}

/** An instance whose attempts hang, as many as it may have in flight. */
async function hangingInstance(t: TestContext, service: Service) {
  const receiver = await startReceiver(t, 'hang');
  const { instance_id } = await service.register({ webhook_url: receiver.url, timeout_s: 600 });
  for (const meeting_id of MEETINGS) await service.join(meeting_id, instance_id, ['a']);
  for (const meeting_id of MEETINGS) await service.send(meeting_id, { text: 'a question' });
  await receiver.count(MEETINGS.length);
  return { instance_id, receiver };
}

/** The node that makes the attempts, and another one that changes the instance. On SQLite both are the same. */
async function startHouse(t: TestContext, engine: string): Promise<Service[]> {
  return engine === 'SQLite' ? [await startService(t, ON_A_FILE)] : ((await startTwoNodes(t)).slice(0, 2) as Service[]);
}

for (const engine of ['SQLite', 'PostgreSQL']) {
  describe(`while all attempts of an instance hang (${engine}),`, () => {
    test('it registers at another address: its pushes are made again there at once', async (t) => {
      const nodes = await startHouse(t, engine);
      const { instance_id } = await hangingInstance(t, nodes[0]!);
      const receiver = await startReceiver(t);
      const busy = await Promise.all(nodes.map(inFlight));
      const other = nodes.find((_, i) => busy[i] === 0) ?? nodes[0]!;
      await other.register({ instance_id, webhook_url: receiver.url, timeout_s: 600 });
      await receiver.count(MEETINGS.length);
    });

    test('it is deleted: its attempts end', async (t) => {
      const nodes = await startHouse(t, engine);
      const { instance_id } = await hangingInstance(t, nodes[0]!);
      const busy = await Promise.all(nodes.map(inFlight));
      const other = nodes.find((_, i) => busy[i] === 0) ?? nodes[0]!;
      const { status } = await other.request('DELETE', instancePath(instance_id));
      assert.equal(status, 204);
      await until(
        'the attempts to end',
        () => Promise.all(nodes.map(inFlight)),
        (counts) => counts.every((count) => count === 0),
      );
    });

    test('control: it registers at the same address: its attempts go on', async (t) => {
      const [node] = await startHouse(t, engine);
      const { instance_id, receiver } = await hangingInstance(t, node!);
      await node!.register({ instance_id, webhook_url: receiver.url, timeout_s: 300 });
      // A push to another instance ends, so the node has seen the change.
      const { receiver: fine } = await node!.member(t, 'other');
      await node!.settled(await node!.send('other', {}));
      assert.equal(fine.requests.length, 1);
      assert.equal(receiver.requests.length, MEETINGS.length);
    });
  });
}

describe('when all places for long attempts are taken,', () => {
  const PLACES = 1_000;
  const OTHERS = 5_000;

  /** Fills all places. 5,000 other instances wait, each with one push, except those of which `isIdle` says so. */
  function crowd(isIdle: (instance_id: string) => boolean) {
    const clock = new VirtualClock();
    const started: string[] = [];
    let woken = 0;
    const long = new LongAttempts(clock, 8, (instance_id) => {
      woken++;
      if (!isIdle(instance_id)) push(instance_id);
    });
    const push = (instance_id: string): void => {
      if (!long.hasRoom(instance_id)) return;
      long.start(instance_id);
      started.push(instance_id);
    };
    const first = Array.from({ length: PLACES }, (_, i) => `first-${i}`);
    for (const instance_id of first) push(instance_id);
    const others = Array.from({ length: OTHERS }, (_, i) => `other-${i}`);
    for (const instance_id of others) push(instance_id);
    assert.deepEqual(started, first);
    return { clock, long, started, first, others, woken: () => woken };
  }

  test('an attempt that ends wakes the instance that waited longest, and not all others', () => {
    const { long, started, others, woken } = crowd(() => false);
    for (let i = 0; i < PLACES + OTHERS; i++) {
      long.end(started[i]!);
      assert.equal(woken(), Math.min(i + 1, OTHERS));
    }
    assert.deepEqual(started.slice(PLACES), others);
  });

  test('its place goes to one that still has something to push, however many before it have nothing', async () => {
    const { clock, long, started, first, others } = crowd((instance_id) => instance_id !== `other-${OTHERS - 1}`);
    long.end(first[0]!);
    await clock.advance(0);
    assert.deepEqual(started.slice(PLACES), others.slice(-1));
  });
});

test('an instance with as many long attempts as it may have waits for the end of one of its own', () => {
  const ready: string[] = [];
  const long = new LongAttempts(new VirtualClock(), 1, (instance_id) => ready.push(instance_id));
  for (const instance_id of ['a', 'b']) long.start(instance_id);
  assert.equal(long.hasRoom('a'), false);
  long.end('b');
  assert.deepEqual(ready, []);
  long.end('a');
  assert.deepEqual(ready, ['a']);
});

describe('a partition that is released', () => {
  /** Releases a partition with an attempt in flight. Its recipient is not in memory. */
  function releasing() {
    const clock = new VirtualClock();
    const handed_over: ((instance_id: string) => boolean)[] = [];
    const changes = new RemoteChanges({
      clock,
      timers: new TimerQueue(clock),
      transport: { handOver: (isTaken: (instance_id: string) => boolean) => void handed_over.push(isTaken) },
      recipients: { all: () => [], known: () => undefined },
    } as unknown as RemoteChangesParts);
    const partition = new Partition(partitionOf('i'), 1);
    partition.attemptStarts();
    changes.onReleasing(partition);
    return { clock, partition, handed_over };
  }

  test('ends the long attempts to its instances after 5 s, even if they are no longer in memory', async () => {
    const { clock, handed_over } = releasing();
    await clock.advance(5 * SECOND - 1);
    assert.equal(handed_over.length, 0);
    await clock.advance(1);
    const elsewhere = Array.from({ length: 100 }, (_, i) => `i${i}`).find(
      (id) => partitionOf(id) !== partitionOf('i'),
    )!;
    assert.deepEqual(
      handed_over.map((isTaken) => [isTaken('i'), isTaken(elsewhere)]),
      [[true, false]],
    );
  });

  test('ends none when its attempts have ended by then: the node may have taken the partition again', async () => {
    const { clock, partition, handed_over } = releasing();
    partition.attemptEnds();
    await clock.advance(5 * SECOND);
    assert.equal(handed_over.length, 0);
  });
});
