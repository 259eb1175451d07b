/**
 * Adds to the model store what PostgreSQL does for several nodes: leases of partitions, and notifications between
 * nodes. Here everything happens at once. The world decides when a node gets a notification, and whether it gets the
 * notification at all.
 */
import { fairShare, LEASE_MS, partitionOf, PARTITIONS } from '../../src/domain/partition.ts';
import type { Sync } from '../../src/store/sqlite/sync.ts';
import type { Accepted } from '../../src/store/contract/messages.ts';
import type { Change, ClusterStore, Lease, NodeRow, StoredRange } from '../../src/store/contract/cluster.ts';
import type { Store } from '../../src/store/store.ts';
import type { ModelStore, StoreOperations } from './model_store.ts';

/**
 * The calls that one node makes to the store. `stored` is not part of ClusterStore: the node's side of the model store
 * calls it to read what other nodes stored.
 */
export type ClusterOperations = StoreOperations & { cluster: Sync<ClusterStore> & Following };

interface Following {
  stored(message_ids: string[], partitions: number[]): StoredRange[];
}

/** The notifications that nodes get from the database. */
export type ClusterNotification =
  Exclude<Change, { kind: 'reading' | 'stored' }> | { kind: 'stored'; message_ids: string[] };

/** What the store knows of a node that is connected to it. */
export interface Connection {
  node_id: string;
  /** Gets the notifications of other nodes. */
  notify(notification: ClusterNotification): void;
}

/**
 * Called when a node no longer has a partition: the node released the partition, the node left, or its lease ended.
 * Also says whether another node has the partition now, and until when results of the previous node counted.
 */
export type OnHandOver = (
  partition_no: number,
  node_id: string,
  how: 'given back' | 'left' | 'lapsed' | 'taken',
) => void;

export class ModelCluster {
  readonly #store: ModelStore;
  readonly #now: () => number;
  readonly #onHandOver: OnHandOver;
  readonly #nodes = new Map<string, Omit<NodeRow, 'partition_count'>>();
  readonly #partitions = Array.from({ length: PARTITIONS }, () => ({ owner: null as string | null, epoch: 0 }));
  readonly connections = new Set<Connection>();
  /** Whether a node whose lease ended keeps its partitions until another node takes them. The contract allows both. */
  readonly #keeps_lapsed: boolean;
  #last_node_no = 0;

  constructor(store: ModelStore, now: () => number, keeps_lapsed: boolean, onHandOver: OnHandOver) {
    this.#store = store;
    this.#now = now;
    this.#keeps_lapsed = keeps_lapsed;
    this.#onHandOver = onHandOver;
  }

  epochOf(instance_id: string): number {
    return this.#partitions[partitionOf(instance_id)]!.epoch;
  }

  ownerOf(instance_id: string): string | null {
    return this.#partitions[partitionOf(instance_id)]!.owner;
  }

  operationsOf(connection: Connection): ClusterOperations {
    const { instances, meetings, messages, deliveries } = this.#store;
    const changed = (instance_id: string, lifts: boolean, requeued: boolean): void =>
      this.#notify(connection, { kind: 'instance', instance_id, resets_backoff: lifts, requeued });
    return {
      meetings: {
        ...meetings,
        join: (...args) => {
          const joined = meetings.join(...args);
          const [, instance_id, , , , rules = {}] = args;
          if (Object.keys(rules).length > 0) changed(instance_id, false, false);
          return joined;
        },
        patch: (meeting_id, ...args) => {
          const row = meetings.patch(meeting_id, ...args);
          if (row !== null) this.#notify(connection, { kind: 'meeting', meeting_id });
          return row;
        },
      },
      messages: {
        ...messages,
        accept: (batch) => {
          const results = messages.accept(batch);
          const stored = results.filter((result) => result.kind === 'accepted');
          const message_ids = stored.map(({ message }) => message.message_id);
          if (message_ids.length > 0) this.#notify(connection, { kind: 'stored', message_ids });
          return results;
        },
      },
      instances: {
        ...instances,
        register: (...args) => {
          const registered = instances.register(...args);
          changed(registered.instance.instance_id, true, false);
          return registered;
        },
        patch: (instance_id, patch, wall_ms) => {
          const lifts = patch.is_active === true || patch.webhook_enabled === true;
          changed(instance_id, lifts, false);
          return instances.patch(instance_id, patch, wall_ms);
        },
        heartbeat: (instance_id, wall_ms) => {
          const backoff_until = instances.get(instance_id)?.backoff_until ?? null;
          const row = instances.heartbeat(instance_id, wall_ms);
          if (row !== null && (backoff_until !== null || row.pending_deliveries > 0)) changed(instance_id, true, false);
          return row;
        },
        remove: (instance_id, limit, wall_ms) => {
          changed(instance_id, false, true);
          return instances.remove(instance_id, limit, wall_ms);
        },
      },
      deliveries: {
        ...deliveries,
        settle: (settled, healths) => {
          return deliveries.settle(
            settled.filter(({ delivery_id, epoch }) => {
              const instance_id = this.#store.instanceOf(delivery_id);
              return instance_id !== null && epoch === this.epochOf(instance_id);
            }),
            healths.filter(({ instance_id, epoch }) => epoch === this.epochOf(instance_id)),
          );
        },
        retry: (...args) => {
          const retried = deliveries.retry(...args);
          if (retried !== null) changed(retried.instance_id, true, true);
          return retried;
        },
        drop: (waiting, ...args) => {
          const { instance_id, meeting_id } = waiting;
          if (meeting_id !== undefined) this.#notify(connection, { kind: 'meeting', meeting_id });
          else if (instance_id !== undefined) changed(instance_id, false, true);
          return deliveries.drop(waiting, ...args);
        },
        recover: (of, ...args) => {
          changed(of.instance_id, true, true);
          return deliveries.recover(of, ...args);
        },
      },
      cluster: {
        renew: (node, release) => this.#renew(node, release),
        leave: () => this.#leave(connection),
        list: () => this.#rows(),
        // No request is forwarded here, because the world knows which node holds a partition.
        addressesOfHolders: () => new Map(),
        sign: (text) => text,
        isSigned: () => true,
        hasOlderNode: () => false,
        broadcast: (topic, text) => this.#notify(connection, { kind: 'broadcast', topic, text }),
        stored: (message_ids, partitions) =>
          this.#store.storedOf(message_ids, (instance_id) => partitions.includes(partitionOf(instance_id))),
      },
    };
  }

  #notify(from: Connection, notification: ClusterNotification): void {
    for (const connection of this.connections) if (connection !== from) connection.notify(notification);
  }

  // ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────

  #renew(
    { node_id, version, address, stopping }: Pick<NodeRow, 'node_id' | 'version' | 'address' | 'stopping'>,
    release: number[],
  ): Lease {
    const now = this.#now();
    const previous = this.#nodes.get(node_id);
    if (previous !== undefined && previous.lease_until <= now && !this.#keeps_lapsed)
      this.#releaseAll(node_id, 'lapsed');
    const node_no = previous?.node_no ?? ++this.#last_node_no;
    const started_at = previous?.started_at ?? now;
    const row = { node_id, node_no, version, address, started_at, seen_at: now, lease_until: now + LEASE_MS, stopping };
    this.#nodes.set(node_id, row);
    for (const partition_no of release) {
      const partition = this.#partitions[partition_no]!;
      if (partition.owner !== node_id) continue;
      partition.owner = null;
      this.#onHandOver(partition_no, node_id, 'given back');
    }
    this.#takeShare(row, now);
    const nodes = this.#rows().filter(({ lease_until }) => lease_until > now);
    const partitions = this.#held(node_id).map((partition_no) => ({
      partition_no,
      epoch: this.#partitions[partition_no]!.epoch,
    }));
    return { node_no, renewed_at: now, partitions, nodes };
  }

  #takeShare({ node_id, node_no }: Pick<NodeRow, 'node_id' | 'node_no'>, now: number): void {
    const living = [...this.#nodes.values()].filter(({ lease_until }) => lease_until > now);
    const staying = living.filter(({ stopping }) => !stopping).map((node) => node.node_no);
    const ids = new Set(living.map((node) => node.node_id));
    let room = fairShare(node_no, staying) - this.#held(node_id).length;
    for (const [partition_no, partition] of this.#partitions.entries()) {
      if (room <= 0) break;
      if (partition.owner !== null && ids.has(partition.owner)) continue;
      partition.owner = node_id;
      partition.epoch++;
      room--;
      this.#onHandOver(partition_no, node_id, 'taken');
    }
  }

  #held(node_id: string): number[] {
    return this.#partitions.flatMap(({ owner }, partition_no) => (owner === node_id ? [partition_no] : []));
  }

  #releaseAll(node_id: string, how: 'left' | 'lapsed'): void {
    for (const partition_no of this.#held(node_id)) {
      this.#partitions[partition_no]!.owner = null;
      this.#onHandOver(partition_no, node_id, how);
    }
  }

  #leave({ node_id }: Connection): void {
    this.#releaseAll(node_id, 'left');
    this.#nodes.delete(node_id);
  }

  #rows(): NodeRow[] {
    return [...this.#nodes.values()].map((node) => ({ ...node, partition_count: this.#held(node.node_id).length }));
  }
}

/**
 * The node's side of the store: it knows the partitions of the node, and reads what other nodes stored for them.
 *
 * @param link the number of the current connection; null while there is none
 */
export function clustered(store: Store, link: () => number | null) {
  let link_of_accepts: number | null = null;
  let held: number[] = [];
  let listener: (change: Change) => void = () => {};
  let accepting: Promise<unknown> = Promise.resolve();
  let following: Promise<unknown> = Promise.resolve();
  const theirs = store.cluster as ClusterStore & { [method in keyof Following]: AsyncOf<Following[method]> };
  const client: Store = {
    ...store,
    onChange: (onChange) => (listener = onChange),
    messages: {
      ...store.messages,
      // Runs accepts one after the other.
      accept(batch) {
        const accepted = accepting.then((): Promise<Accepted[]> => {
          const link_now = link();
          if (link_now !== null && link_of_accepts !== null && link_now !== link_of_accepts)
            listener({ kind: 'resync' });
          link_of_accepts = link_now ?? link_of_accepts;
          return store.messages.accept(batch);
        });
        accepting = accepted.catch(() => listener({ kind: 'resync' }));
        return accepted;
      },
    },
    cluster: {
      ...theirs,
      async renew(node, release) {
        const lease = await theirs.renew(node, release);
        held = lease.partitions.map(({ partition_no }) => partition_no);
        return lease;
      },
    },
  };
  return {
    store: client,
    /** Called when a notification arrives. Reads stored batches in the order of their notifications. */
    onNotification(notification: ClusterNotification): void {
      if (notification.kind !== 'stored') return listener(notification);
      following = following.then(() => {
        listener({ kind: 'reading' });
        return theirs.stored(notification.message_ids, held).then(
          (ranges) => listener({ kind: 'stored', ranges }),
          () => listener({ kind: 'resync' }),
        );
      });
    },
  };
}

type AsyncOf<Method> = Method extends (...args: infer Args) => infer Result
  ? (...args: Args) => Promise<Result>
  : never;
