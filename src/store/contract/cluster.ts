import type { NewMessage, AcceptedMessage, AcceptedDelivery } from './messages.ts';

/** A message that another node stored, with those of its deliveries in partitions of this node that nobody tried yet. */
export interface StoredMessage
  extends Omit<AcceptedMessage, 'deliveries_queued'>, Pick<NewMessage, 'message' | 'timestamp' | 'expires_at'> {
  deliveries: AcceptedDelivery[];
}

/** What another node stored of a meeting in one batch. */
export interface StoredRange {
  meeting_id: string;
  /** All seqs from the first to the last, both included. */
  first_seq: number;
  last_seq: number;
  /** In the order of seq, those that have such deliveries. */
  messages: StoredMessage[];
}

/** What another node did that this one must know. */
export type Change =
  /** Another node stored messages, which are read now: they come with the next `stored`, as they were at this moment or later. */
  | { kind: 'reading' }
  | { kind: 'stored'; ranges: StoredRange[] }
  /**
   * An instance was changed by another node. `resets_backoff`: its back-off ends. `requeued`: deliveries of it were queued again or
   * cancelled: what is in memory must be read anew, and what is beside its lanes looked for at once.
   */
  | { kind: 'instance'; instance_id: string; resets_backoff: boolean; requeued: boolean }
  /** API keys changed. */
  | { kind: 'keys' }
  /** Any text that one node tells all. */
  | { kind: 'broadcast'; topic: string; text: string }
  /**
   * Changes may have been missed (the connection was lost), or a batch was given up of which is not known whether it was
   * stored: look at everything again.
   */
  | { kind: 'resync' };

/** One node of a cluster. Times are on the clock of the database: for people, nothing is decided by them. */
export interface NodeRow {
  /** A text that no other start of a node ever has. */
  node_id: string;
  /** Its number, in the order in which nodes joined. */
  node_no: number;
  version: string;
  /** Where it answers requests. */
  address: string;
  started_at: number;
  seen_at: number;
  lease_until: number;
  /** It gives back what it holds and takes nothing more. */
  stopping: boolean;
  partition_count: number;
}

export interface Lease {
  /** This node's. */
  node_no: number;
  /** What this node holds. The epoch of a partition rises whenever it is taken, even by whoever had it before. */
  partitions: { partition_no: number; epoch: number }[];
  /** Those that live, and this one. */
  nodes: NodeRow[];
}

/**
 * What the nodes on one store know of each other.
 *
 * So that no delivery is overlooked, the owner is told of whatever another node stores for him. When the answer to an
 * accept has come, the store tells of all deliveries but those in partitions that this node certainly holds: those of the
 * last lease, less those that a `renew` or `leave` gives back since it was asked for, and none `LEASE_SAFE_MS` after that
 * lease was asked for. Whoever takes a partition reads all of it after that.
 */
export interface ClusterStore {
  /**
   * Renews the lease of this node, or joins. Gives back `release` (what it does not hold is passed over), and takes what is
   * free, or what a node without a lease holds, up to its `fairShare`; a node that is stopping takes nothing. What nobody
   * took while its own lease had ended it keeps, with its epoch. One transaction.
   */
  renew(node: Pick<NodeRow, 'node_id' | 'version' | 'address' | 'stopping'>, release: number[]): Promise<Lease>;
  /** Gives back everything and removes the node; it does not come back under this id. */
  leave(): Promise<void>;
  list(): Promise<NodeRow[]>;
  /** Tells all other nodes, but not this one; lost to those that are not connected. At most 5,600 bytes. */
  broadcast(topic: string, text: string): Promise<void>;
}
