/**
 * What PostgreSQL is to several nodes, on top of the model store: who holds which partition until when, runs of messages,
 * what nodes tell each other. Everything happens at once here; how late a node hears of it, and whether, decides the world.
 */
import { fairShare, LEASE_MS, LEASE_TRUSTED_MS, partitionOf, PARTITIONS } from '../../src/domain/partition.ts';
import type { Sync } from '../../src/store/sqlite/operations.ts';
import type { Accepted, Change, ClusterStore, LaneKey, Lease, NodeRow, Store } from '../../src/store/store.ts';
import type { ModelStore, StoreOperations } from './model_store.ts';

/** What one node asks of the store. */
export type ClusterOperations = StoreOperations & { cluster: Sync<ClusterStore> };

/** What the store knows of a node that is connected to it. */
export interface Connection {
  node_id: string;
  /** Another one for every start, and after a batch of which the node does not know whether it was stored. */
  run_no: number;
  /** Hears what other nodes tell. */
  tell(change: Change): void;
}

/**
 * How a partition ceased to be a node's: given back when nothing was left to do, by leaving, or because its lease had
 * ended; and that another one has it now, until when what the former one said still counted.
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
  readonly #runs = new Map<string, { run: string; from: number }>();
  readonly connections = new Set<Connection>();
  /** Whether a node whose lease ended keeps what nobody took; the contract allows both. */
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
      this.#tell(connection, { kind: 'instance', instance_id, lifts, requeued });
    return {
      meetings,
      messages: {
        ...messages,
        accept: (batch) => messages.accept(batch).map((accepted) => this.#inRun(connection, accepted)),
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
          if ((instances.get(instance_id)?.backoff_until ?? null) !== null) changed(instance_id, true, false);
          return instances.heartbeat(instance_id, wall_ms);
        },
        remove: (instance_id, limit, wall_ms) => {
          changed(instance_id, false, true);
          return instances.remove(instance_id, limit, wall_ms);
        },
      },
      deliveries: {
        ...deliveries,
        settle: (settled, healths) => {
          deliveries.settle(
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
        recover: (instance_id, ...args) => {
          changed(instance_id, true, true);
          return deliveries.recover(instance_id, ...args);
        },
      },
      cluster: {
        renew: (node, release) => this.#renew(node, release),
        leave: () => this.#leave(connection),
        list: () => this.#rows(),
        tell: (topic, text) => this.#tell(connection, { kind: 'told', topic, text }),
      },
    };
  }

  #tell(from: Connection, change: Change): void {
    for (const connection of this.connections) if (connection !== from) connection.tell(change);
  }

  /** Lanes that one node stored something for: the others hear of it. */
  announce(from: Connection, lanes: LaneKey[]): void {
    if (lanes.length > 0) this.#tell(from, { kind: 'deliveries', lanes: lanes.map((lane) => ({ ...lane, count: 1 })) });
  }

  #inRun({ node_id, run_no }: Connection, accepted: Accepted): Accepted {
    if (accepted.kind !== 'accepted') return accepted;
    const { meeting_id, seq } = accepted.message;
    const run = `${node_id} ${run_no}`;
    let former = this.#runs.get(meeting_id);
    if (former?.run !== run) this.#runs.set(meeting_id, (former = { run, from: seq }));
    return { ...accepted, run_from: former.from };
  }

  // ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────

  #renew(
    { node_id, version, address, stopping }: Pick<NodeRow, 'node_id' | 'version' | 'address' | 'stopping'>,
    release: number[],
  ): Lease {
    const now = this.#now();
    const former = this.#nodes.get(node_id);
    if (former !== undefined && former.lease_until <= now && !this.#keeps_lapsed) this.#releaseAll(node_id, 'lapsed');
    const node_no = former?.node_no ?? ++this.#last_node_no;
    const started_at = former?.started_at ?? now;
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
    return { node_no, partitions, nodes };
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

/** The node's side of such a store: it knows what it holds, and tells the others of what it stored for them. */
export function clustered(
  store: Store,
  cluster: ModelCluster,
  connection: Connection,
  now: () => number,
  soon: (run: () => void) => void,
) {
  let held = new Set<number>();
  let trusted_until = -Infinity;
  let listener: (change: Change) => void = () => {};
  const renewing = new Set<number>();
  let former = Promise.resolve();
  const theirs = store.cluster as ClusterStore;
  const client: Store = {
    ...store,
    onChange: (hear) => (listener = hear),
    messages: {
      ...store.messages,
      async accept(batch) {
        let results: Accepted[];
        // One after the other: what follows a batch of which is not known whether it was stored is of another run.
        const accepting = former.then(() => store.messages.accept(batch));
        former = accepting.then(
          () => {},
          () => {},
        );
        try {
          results = await accepting;
        } catch (error) {
          connection.run_no++;
          listener({ kind: 'unsure' });
          throw error;
        }
        const certain = now() < trusted_until;
        const lanes = results.flatMap((result) =>
          result.kind === 'accepted'
            ? result.deliveries.flatMap(({ instance_id }) => {
                const partition_no = partitionOf(instance_id);
                if (certain && held.has(partition_no) && !renewing.has(partition_no)) return [];
                return [{ instance_id, meeting_id: result.message.meeting_id }];
              })
            : [],
        );
        // Gathered for a while, with what others store: a node that dies meanwhile tells nobody.
        soon(() => cluster.announce(connection, lanes));
        return results;
      },
    },
    cluster: {
      ...theirs,
      async renew(node, release) {
        const asked_at = now();
        for (const partition_no of release) renewing.add(partition_no);
        const lease = await theirs.renew(node, release);
        held = new Set(lease.partitions.map(({ partition_no }) => partition_no));
        renewing.clear();
        trusted_until = asked_at + LEASE_TRUSTED_MS;
        return lease;
      },
      leave() {
        held.clear();
        return theirs.leave();
      },
    },
  };
  return {
    store: client,
    /** What another node told arrives: of lanes only those that this one holds. */
    hear(change: Change): void {
      if (change.kind !== 'deliveries') return listener(change);
      const lanes = change.lanes.filter(({ instance_id }) => held.has(partitionOf(instance_id)));
      if (lanes.length > 0) listener({ kind: 'deliveries', lanes });
    },
  };
}
