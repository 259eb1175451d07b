/**
 * Instances fall into partitions, and a partition belongs to one node at a time: what must be one node's business (the
 * order of lanes, attempts in flight, a back-off) lives in the memory of that node. Which node it is says the store.
 */
import { crc32 } from 'node:zlib';

/** Never changed: rows and nodes of a neighbouring version must agree on it. */
export const PARTITIONS = 64;

/** A lease lasts for so long, from the renewal on. */
export const LEASE_MS = 15_000;
/**
 * A node trusts its lease for so long on its own steady clock, from the moment at which it asked for the renewal. An attempt
 * ends within 5.1 s: nothing of it is under way when another node may take over.
 */
export const LEASE_SAFE_MS = 9_500;
/**
 * A node whose row did not change for so long, while another one watched by its own clock, is gone: what it trusted when it
 * was seen has ended, and so have its attempts. A little less than five renewals, so that it is not the sixth look that tells.
 */
export const LEASE_WATCHED_MS = 14_700;

/** The partition of an instance, 0 to 63: CRC-32 of the UTF-8 of its id. Never changed, as the number of partitions. */
export function partitionOf(instance_id: string): number {
  return crc32(instance_id) % PARTITIONS;
}

/**
 * How many partitions a node should hold: those that stay share them evenly, and where that leaves some over, the nodes
 * that came first have one more. A node that does not stay should hold none.
 *
 * @param staying the numbers of the nodes that live and are not stopping
 */
export function fairShare(node_no: number, staying: readonly number[]): number {
  if (!staying.includes(node_no)) return 0;
  const before = staying.filter((other) => other < node_no).length;
  const left_over = PARTITIONS % staying.length;
  return Math.floor(PARTITIONS / staying.length) + (before < left_over ? 1 : 0);
}
