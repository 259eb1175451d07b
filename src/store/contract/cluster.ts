import type { MessageOrigin } from '../../domain/message_origin.ts';
import type { NewMessage, AcceptedMessage, AcceptedDelivery } from './messages.ts';

/**
 * A message that another node stored. `deliveries` has only deliveries that are in partitions of this node and have had
 * no attempt yet.
 */
export interface StoredMessage
  extends
    Omit<AcceptedMessage, 'deliveries_queued'>,
    Pick<NewMessage, 'message' | 'timestamp' | 'trace' | 'expires_at'> {
  origin: MessageOrigin | null;
  deliveries: AcceptedDelivery[];
}

/** The messages of one meeting in one batch that another node stored. */
export interface StoredRange {
  meeting_id: string;
  /** All seqs from the first to the last, both included. */
  first_seq: number;
  last_seq: number;
  /** The messages that have deliveries in partitions of this node, in the order of seq. */
  messages: StoredMessage[];
}

/** A change by another node that concerns this node. */
export type Change =
  /**
   * This node begins to read messages that another node stored. The rows in the next `stored` include every change that
   * was made before this moment. They may lack later changes.
   */
  | { kind: 'reading' }
  | { kind: 'stored'; ranges: StoredRange[] }
  /**
   * Another node changed an instance. `resets_backoff`: its back-off ends. `requeued`: some of its deliveries were
   * queued again or cancelled, so its lanes in memory and its deliveries aside must be read again at once.
   */
  | { kind: 'instance'; instance_id: string; resets_backoff: boolean; requeued: boolean }
  /**
   * Another node changed the settings of a meeting, or cancelled some of its deliveries: the settings and the lanes in
   * memory must be read again.
   */
  | { kind: 'meeting'; meeting_id: string }
  /** API keys changed. */
  | { kind: 'keys' }
  /** Any text that one node sends to all others. */
  | { kind: 'broadcast'; topic: string; text: string }
  /**
   * Changes may have been missed, so everything must be read again. Either the connection was lost, or a node gave up
   * on a batch and does not know whether that batch was stored.
   */
  | { kind: 'resync' };

/**
 * One node of a cluster. Times are on the clock of the database, and are for people: outside the store no decision
 * depends on them.
 */
export interface NodeRow {
  /** Different for each start of a node. */
  node_id: string;
  /** Its number, in the order in which nodes joined. */
  node_no: number;
  version: string;
  /** The URL at which it serves requests. */
  address: string;
  started_at: number;
  seen_at: number;
  lease_until: number;
  /** Whether the node is stopping: it releases its partitions and takes no more. */
  stopping: boolean;
  partition_count: number;
}

export interface Lease {
  /** The number of this node. */
  node_no: number;
  /** When the lease was renewed, on the clock of the database: a time between the call and its result. */
  renewed_at: number;
  /**
   * The partitions of this node. An epoch rises whenever a node takes the partition, even when the same node held it
   * before.
   */
  partitions: { partition_no: number; epoch: number }[];
  /** The nodes that are not gone, this one included. */
  nodes: NodeRow[];
}

/**
 * The most bytes of the text of a broadcast. A notification of PostgreSQL has less than 8,000 bytes, and encryption
 * makes a text a third longer.
 */
export const BROADCAST_BYTES_MAX = 5_600;

/**
 * What the nodes on one store know about each other.
 *
 * No delivery is overlooked. A node that takes a partition reads all pending deliveries of the partition. From then on,
 * each other node that stores a delivery there notifies the holder before its `accept` returns. An `accept` may leave
 * the notification out only for a partition that its own node certainly holds.
 *
 * A node certainly holds the partitions of its last lease, except those that it has released since it requested that
 * lease. `LEASE_SAFE_MS` after that request, the node certainly holds no partition.
 */
export interface ClusterStore {
  /**
   * Renews the lease of this node, or lets the node join. Releases the partitions in `release`, and ignores those that
   * the node does not hold. Then takes partitions up to the `fairShare` of the node: free ones, and those of a node
   * whose lease or process has provably ended. A node that is stopping takes none. If the lease of this node had ended,
   * the node keeps the partitions that no other node took, with their epochs. If a call is interrupted, the next call
   * does the rest.
   */
  renew(node: Pick<NodeRow, 'node_id' | 'version' | 'address' | 'stopping'>, release: number[]): Promise<Lease>;
  /** Releases every partition and removes the node; no node can join under this id again. */
  leave(): Promise<void>;
  list(): Promise<NodeRow[]>;
  /**
   * Sends a text to all other nodes, but not to this one. A node that is not connected does not receive it. At most
   * 5,600 bytes.
   */
  broadcast(topic: string, text: string): Promise<void>;
  /**
   * For each partition, the URL of the node that holds it. Leaves out partitions that no node holds, and those whose
   * node has not signed its address: requests with credentials must not go to an unsigned address.
   */
  addressesOfHolders(): Promise<Map<number, string>>;
  /**
   * Whether a node of the previous version runs. Such a node does not know runtimes: it would push the body of the
   * specification to every instance. If it changed the data key, nobody could read the options of runtimes any more.
   */
  hasOlderNode(): Promise<boolean>;
  /**
   * Signs a text under the data key. The signature shows the other nodes that a node of this cluster wrote the text.
   */
  sign(text: string): Promise<string>;
  isSigned(text: string, signature: string): Promise<boolean>;
}
