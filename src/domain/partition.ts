/**
 * Each instance belongs to a partition, and one node at a time holds a partition. That node alone decides on the order
 * of lanes, the attempts in flight and the back-off, and keeps them in memory. The store records which node holds which
 * partition.
 */
import { crc32 } from 'node:zlib';

/** This number never changes: stored rows, and nodes of neighbouring versions, depend on it. */
export const PARTITIONS = 64;

/** How long a lease lasts, from its renewal. */
export const LEASE_MS = 15_000;
/**
 * How long a node trusts its lease, by its own clocks, from the moment at which it requested the renewal. After this
 * time the node starts no attempt. A short attempt ends within 5.1 s, so no short attempt is in flight when another
 * node may take over. A long attempt may still be in flight, and its result then has an epoch that no longer counts.
 */
export const LEASE_SAFE_MS = 9_500;
/**
 * A node counts as gone when its row does not change for this long, by the clock of the node that watches it. By then
 * the lease that the gone node trusted has ended, and its short attempts have ended. The watching node looks at the row
 * each time it renews its own lease, every 3 s. This time is a little shorter than five of these intervals, so that the
 * fifth look decides and not the sixth.
 */
export const LEASE_WATCHED_MS = 14_700;

/**
 * The partition of an instance, 0 to 63: CRC-32 of the UTF-8 of its id. Like the number of partitions, it never
 * changes.
 */
export function partitionOf(instance_id: string): number {
  return crc32(instance_id) % PARTITIONS;
}

/**
 * How many partitions a node should hold. The staying nodes share all partitions evenly. When some partitions are left
 * over, each of the nodes that joined first holds one more. A node that is stopping should hold none.
 *
 * @param staying the numbers of the nodes that are not gone and not stopping
 */
export function fairShare(node_no: number, staying: readonly number[]): number {
  if (!staying.includes(node_no)) return 0;
  const before = staying.filter((other) => other < node_no).length;
  const left_over = PARTITIONS % staying.length;
  return Math.floor(PARTITIONS / staying.length) + (before < left_over ? 1 : 0);
}
