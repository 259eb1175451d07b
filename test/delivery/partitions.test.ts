/** When a node of a cluster may start attempts: while its lease is valid, and while no attempt of an earlier hold runs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Partition, Partitions } from '../../src/delivery/cluster/partitions.ts';
import { PARTITIONS } from '../../src/domain/partition.ts';
import type { ClusterStore, Lease, NodeRow } from '../../src/store/contract/cluster.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const PARTITION_NO = 7;
const RENEW_MS = 3_000;

/** A node whose store gives it at each renewal what the test wants. */
async function node() {
  const clock = new VirtualClock();
  const row = { node_no: PARTITIONS + 1, stopping: false } as NodeRow;
  const lease: Lease = { node_no: row.node_no, renewed_at: 0, partitions: [], nodes: [row] };
  const given = { lease: { ...lease }, fails: false, released: [] as number[] };
  const cluster = {
    renew(_node: unknown, released: number[]) {
      given.released.push(...released);
      if (given.fails) return clock.watch(Promise.reject(new Error('no connection')));
      return clock.watch(Promise.resolve({ ...given.lease }));
    },
    broadcast: async () => {},
  } as unknown as ClusterStore;
  const identity = { node_id: 'n', version: '', address: () => '' };
  const partitions = new Partitions(clock, cluster, identity, { onHandOver() {}, storageFailed() {} });
  const resumed: Partition[] = [];
  await clock.watch(
    partitions.start({
      onAcquired: async () => {},
      onRevoked() {},
      onReleasing() {},
      flush: async () => {},
      onRenewed() {},
      onResumed: (partition) => resumed.push(partition),
    }),
  );
  const renewWith = async (epoch: number | null, nodes: NodeRow[] = [row]): Promise<void> => {
    const held = epoch === null ? [] : [{ partition_no: PARTITION_NO, epoch }];
    given.lease = { ...lease, partitions: held, nodes };
    await clock.advance(RENEW_MS);
  };
  const held = (): Partition => {
    const [partition] = partitions.held;
    assert.ok(partition !== undefined);
    return partition;
  };
  /** Each partition has an older node, so this node must release its own. */
  const crowd = [row, ...Array.from({ length: PARTITIONS }, (_, i) => ({ ...row, node_no: i + 1 }))];
  return { clock, crowd, given, partitions, resumed, renewWith, held };
}

/** A node that has lost its partition while an attempt was in flight, and has taken it again. */
async function nodeThatTookAgain() {
  const taken = await node();
  await taken.renewWith(1);
  const first = taken.held();
  first.attemptStarts();
  await taken.renewWith(null);
  await taken.renewWith(3);
  return { ...taken, first };
}

test('a partition that is lost, taken, released and taken again waits for the attempt of the first hold', async () => {
  const { crowd, given, resumed, renewWith, held, first } = await nodeThatTookAgain();
  assert.equal(held().paused, true);
  await renewWith(3, crowd);
  await renewWith(3, crowd);
  assert.deepEqual(given.released, [], 'the attempt of the first hold is still in flight');
  await renewWith(null);
  await renewWith(5);
  assert.equal(held().paused, true);
  assert.deepEqual(resumed, []);
  first.attemptEnds();
  assert.equal(held().paused, false);
  assert.deepEqual(resumed, [held()]);
});

test('a partition that is to be released is released when the attempt of an earlier hold has ended', async () => {
  const { clock, crowd, given, renewWith, first } = await nodeThatTookAgain();
  await renewWith(3, crowd);
  await clock.settle();
  assert.deepEqual(given.released, []);
  first.attemptEnds();
  await clock.settle();
  assert.deepEqual(given.released, [PARTITION_NO]);
});

test('after its machine was suspended, a node starts no attempt until it has renewed its lease', async () => {
  const { clock, given, partitions, renewWith } = await node();
  await renewWith(1);
  assert.equal(partitions.isLeaseValid(clock.now()), true);
  given.fails = true;
  // While a machine is suspended only the wall clock goes on.
  clock.stepWall(60_000);
  assert.equal(partitions.isLeaseValid(clock.now()), false);
  given.fails = false;
  await renewWith(1);
  assert.equal(partitions.isLeaseValid(clock.now()), true);
});

test('a wall clock that was set back does not make a lease longer', async () => {
  const { clock, given, partitions, renewWith } = await node();
  await renewWith(1);
  given.fails = true;
  clock.stepWall(-3_600_000);
  await clock.advance(9_000);
  assert.equal(partitions.isLeaseValid(clock.now()), true);
  await clock.advance(1_000);
  assert.equal(partitions.isLeaseValid(clock.now()), false);
});
