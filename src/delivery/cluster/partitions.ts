import { fairShare, LEASE_SAFE_MS, partitionOf, PARTITIONS } from '../../domain/partition.ts';
import type { ClusterStore, Lease } from '../../store/contract/cluster.ts';
import type { Clock, Timer } from '../clock.ts';

/** How often the node renews its lease, and how soon it tries again when the store failed. */
const RENEW_MS = 3_000;
const TRY_AGAIN_MS = 500;
/**
 * How long a stop waits until the store has recorded that this node releases everything. If the store has not recorded
 * it by then, the partitions are free only when the lease ends.
 */
const LEAVE_MS_MAX = 500;
/** The topic of a broadcast: there are partitions to take or to release, so the other nodes renew at once. */
const TOPIC = 'partitions';
const SOLO = -1;

/**
 * A partition that this node holds. If the node loses the partition and takes it again, a new object has the new epoch.
 */
export class Partition {
  readonly partition_no: number;
  readonly epoch: number;
  /** Attempts in flight to its instances. */
  in_flight = 0;
  /**
   * The time of the invalidation clock when this node took the partition. Rows that were requested earlier do not count
   * for this partition.
   */
  acquired_at = 0;
  /** When this node took the partition, on the steady clock. */
  taken_at = 0;
  /**
   * Whether every lane with a pending delivery is known. If so, a lane that is not in memory has nothing on disk,
   * except deliveries that other nodes store from now on.
   */
  discovered = false;
  /**
   * While true, no attempt to the instances of the partition starts: this node is releasing the partition, or attempts
   * of the previous epoch are still in flight.
   */
  paused = false;
  /** Called when the last attempt ended. */
  onIdle: (() => void) | null = null;

  constructor(partition_no: number, epoch: number) {
    this.partition_no = partition_no;
    this.epoch = epoch;
  }

  /** Whether this is the only partition of a node without a cluster. */
  get is_solo(): boolean {
    return this.partition_no === SOLO;
  }

  attemptStarts(): void {
    this.in_flight++;
  }

  attemptEnds(): void {
    if (--this.in_flight === 0) this.onIdle?.();
  }
}

/** What is called when this node takes, releases or loses partitions. */
export interface PartitionsListener {
  /** Finds the pending deliveries of these partitions; resolves when all are found. */
  onAcquired(partitions: readonly Partition[]): Promise<void>;
  /** Starts nothing more for the instances of these partitions, because another node delivers to them, now or soon. */
  onRevoked(partitions: ReadonlySet<Partition>): void;
  /** The partition is released when its attempts have ended, so the listener ends the attempts that may take long. */
  onReleasing(partition: Partition): void;
  /** Resolves when the results of all attempts so far are on disk. */
  flush(): Promise<void>;
  /**
   * The lease was renewed. If it had ended, attempts may start again.
   *
   * @param renewed_at on the clock of the database
   * @param requested_at on the steady clock
   */
  onRenewed(renewed_at: number, requested_at: number): void;
  /** The pause of a partition has ended: attempts to its instances may start again. */
  onResumed(partition: Partition): void;
}

/**
 * How a partition changes its node: this node took it, released it, or lost it because the lease had ended. The words
 * are those of the metric `convoke_partition_hand_overs_total`.
 */
export const HAND_OVERS = ['taken', 'given_back', 'lost'] as const;
export type HandOver = (typeof HAND_OVERS)[number];

export interface PartitionsObserver {
  onHandOver(what: HandOver, partition_nos: number[]): void;
  storageFailed(error: unknown): void;
}

/** What the other nodes know about this node. */
export interface NodeIdentity {
  node_id: string;
  version: string;
  /** A function, because the address is only known when the port is bound. */
  address: () => string;
}

/**
 * The partitions that this node holds, and whether it may still act on them.
 *
 *   free ── renew ──► held ── too many, or the node stops ──► paused ── attempts ended, results written, renew ──► free
 *                     held, paused ── another node took it when the lease had ended ──► lost
 *
 * The lease is renewed every 3 s. Every attempt checks `isLeaseValid` first. So a process that was paused, or that gets
 * no response from the store, sees by its own clock that it must start no more attempts. Without a cluster, the node
 * holds everything for ever.
 */
export class Partitions {
  readonly #clock: Clock;
  readonly #cluster: ClusterStore | null;
  readonly #node: NodeIdentity;
  readonly #observer: PartitionsObserver;
  #listener: PartitionsListener | null = null;
  readonly #held = new Map<number, Partition>();
  /** The only partition of a node without a cluster; null in a cluster. */
  readonly #solo: Partition | null;
  /** Partitions that this node is about to release. */
  readonly #releasing = new WeakSet<Partition>();
  /** Partitions that are ready to be released: paused, without an attempt in flight, every result written. */
  readonly #released = new Set<Partition>();
  /** The numbers of partitions that were lost while attempts were in flight; these attempts have not ended yet. */
  readonly #ending = new Set<number>();
  #requested_at: number | null = null;
  #lease_valid_until: number;
  /** The same end by the wall clock, because the steady clock stands still while the machine is suspended. */
  #lease_valid_until_wall: number;
  #timer: Timer | null = null;
  #renewing: Promise<void> | null = null;
  #renew_again = false;
  #joined = false;
  /** How many nodes had a lease when this node last renewed its own. */
  #node_count = 0;
  /** Resolves when the deliveries pending in the first partitions were found. */
  readonly #found_first = Promise.withResolvers<void>();
  #first_renewal: Promise<void> = Promise.resolve();
  #stopping = false;
  #left = false;

  constructor(clock: Clock, cluster: ClusterStore | null, node: NodeIdentity, observer: PartitionsObserver) {
    this.#clock = clock;
    this.#cluster = cluster;
    this.#node = node;
    this.#observer = observer;
    this.#solo = cluster === null ? new Partition(SOLO, 0) : null;
    this.#lease_valid_until = this.#lease_valid_until_wall = cluster === null ? Infinity : -Infinity;
  }

  /** The partitions of a node without a cluster: a single partition with all instances. */
  static alone(clock: Clock): Partitions {
    const nobody = { node_id: '', version: '', address: () => '' };
    return new Partitions(clock, null, nobody, { onHandOver() {}, storageFailed() {} });
  }

  get node_id(): string {
    return this.#node.node_id;
  }

  /** How many nodes had a lease when this node last renewed its own, this node included. */
  get node_count(): number {
    return Math.max(1, this.#node_count);
  }

  /** Whether attempts may be started. */
  isLeaseValid(now: number): boolean {
    return now < this.#lease_valid_until && this.#clock.wall() < this.#lease_valid_until_wall;
  }

  /** The partition of an instance; null while this node does not hold it. */
  of(instance_id: string): Partition | null {
    return this.#solo ?? this.#held.get(partitionOf(instance_id)) ?? null;
  }

  /** Whether this node holds a partition. */
  holds(partition_no: number): boolean {
    return this.#solo !== null || this.#held.has(partition_no);
  }

  /** The partitions that this node holds. */
  get held(): Partition[] {
    return this.#solo === null ? [...this.#held.values()] : [this.#solo];
  }

  /** Figures for people and metrics. */
  get stats(): { partitions: number; lease_age_ms: number } {
    return {
      partitions: this.#solo === null ? this.#held.size : PARTITIONS,
      lease_age_ms: this.#requested_at === null ? 0 : this.#clock.now() - this.#requested_at,
    };
  }

  /** Takes the partitions that are free for this node. Resolves when the deliveries pending there are found. */
  async start(listener: PartitionsListener): Promise<void> {
    this.#listener = listener;
    if (this.#solo !== null) return listener.onAcquired([this.#solo]);
    this.#first_renewal = this.#renew();
    await this.#found_first.promise;
  }

  /** Resolves when the first renewal has ended: if it succeeded, this node has the partitions that were free. */
  get first_renewal(): Promise<void> {
    return this.#first_renewal;
  }

  /** Another node reports that there are partitions to take or to release. */
  onBroadcast(topic: string): void {
    if (topic === TOPIC && this.#joined) void this.#renew();
  }

  // ── the lease ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Renews; if a renewal is in progress, renews again after it. */
  #renew(): Promise<void> {
    if (this.#left) return Promise.resolve();
    if (this.#renewing !== null) {
      this.#renew_again = true;
      return this.#renewing;
    }
    this.#timer?.cancel();
    this.#renewing = this.#renewOnce().then((next_at) => {
      this.#renewing = null;
      if (this.#left) return;
      const delay_ms = this.#renew_again ? 0 : Math.max(0, next_at - this.#clock.now());
      this.#renew_again = false;
      this.#timer = this.#clock.after(delay_ms, () => void this.#renew());
    });
    return this.#renewing;
  }

  async #renewOnce(): Promise<number> {
    const requested_at = this.#clock.now();
    const requested_wall = this.#clock.wall();
    const released = new Set(this.#released);
    const { node_id, version, address } = this.#node;
    try {
      const lease = await (this.#cluster as ClusterStore).renew(
        { node_id, version, address: address(), stopping: this.#stopping },
        Array.from(released, ({ partition_no }) => partition_no),
      );
      this.#lease_valid_until_wall = requested_wall + LEASE_SAFE_MS;
      this.#apply(lease, requested_at, released);
      return requested_at + RENEW_MS;
    } catch (error) {
      this.#observer.storageFailed(error);
      return this.#clock.now() + TRY_AGAIN_MS;
    }
  }

  #apply(lease: Lease, requested_at: number, released: ReadonlySet<Partition>): void {
    const epochs = new Map(lease.partitions.map(({ partition_no, epoch }) => [partition_no, epoch]));
    const gone = new Set([...this.#held.values()].filter((held) => epochs.get(held.partition_no) !== held.epoch));
    for (const partition of gone) this.#lose(partition);
    const taken: Partition[] = [];
    for (const [partition_no, epoch] of epochs) {
      if (!this.#held.has(partition_no)) taken.push(this.#take(partition_no, epoch));
    }
    this.#requested_at = requested_at;
    this.#lease_valid_until = requested_at + LEASE_SAFE_MS;
    const given_back = [...gone].filter((partition) => released.has(partition));
    const lost = [...gone].filter((partition) => !released.has(partition));
    this.#report('given_back', given_back);
    this.#report('lost', lost);
    this.#report('taken', taken);
    if (gone.size > 0) this.#listener?.onRevoked(gone);
    void this.#find(taken);
    this.#listener?.onRenewed(lease.renewed_at, requested_at);
    // The other nodes should renew at once: to release partitions for a node that joins, or to take released
    // partitions.
    if (given_back.length > 0 || !this.#joined) this.#notifyOthers();
    this.#joined = true;
    this.#node_count = lease.nodes.length;
    this.#releaseSurplus(lease);
  }

  #report(what: HandOver, partitions: readonly Partition[]): void {
    if (partitions.length === 0) return;
    const partition_nos = partitions.map(({ partition_no }) => partition_no).toSorted((a, b) => a - b);
    this.#observer.onHandOver(what, partition_nos);
  }

  #lose(partition: Partition): void {
    const { partition_no } = partition;
    this.#held.delete(partition_no);
    this.#released.delete(partition);
    if (partition.in_flight === 0) return;
    this.#ending.add(partition_no);
    partition.onIdle = () => this.#onEnded(partition_no);
  }

  #take(partition_no: number, epoch: number): Partition {
    const partition = new Partition(partition_no, epoch);
    this.#held.set(partition_no, partition);
    // Attempts that began before the loss still count against the limits of their instances. So no attempt of the new
    // partition starts until these attempts have ended.
    partition.paused = this.#ending.has(partition_no);
    return partition;
  }

  /** The last attempt of a lost partition has ended. This node may have taken the partition again in the meantime. */
  #onEnded(partition_no: number): void {
    this.#ending.delete(partition_no);
    const partition = this.#held.get(partition_no);
    if (partition === undefined) return;
    if (this.#releasing.has(partition)) return void this.#finishRelease(partition);
    partition.paused = false;
    this.#listener?.onResumed(partition);
  }

  async #find(taken: readonly Partition[]): Promise<void> {
    try {
      if (taken.length > 0) await this.#listener?.onAcquired(taken);
    } catch {
      // This node is stopping. The next node that takes the partition finds the pending deliveries.
    }
    this.#found_first.resolve();
  }

  #notifyOthers(): void {
    // A node that misses this broadcast renews within 3 s anyway.
    void this.#cluster?.broadcast(TOPIC, '').catch(() => {});
  }

  // ── releases ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Releases the partitions beyond this node's share. Picks the partitions with the highest numbers, so that the same
   * few partitions always change their node.
   */
  #releaseSurplus({ node_no, nodes }: Lease): void {
    const staying = nodes.filter(({ stopping }) => !stopping);
    const share = fairShare(
      node_no,
      staying.map((node) => node.node_no),
    );
    const kept = this.held.filter((partition) => !this.#releasing.has(partition));
    kept.sort((a, b) => a.partition_no - b.partition_no);
    for (const partition of kept.slice(share)) this.#release(partition);
  }

  #release(partition: Partition): void {
    this.#releasing.add(partition);
    partition.paused = true;
    // This node held the partition before, and an attempt from that time is still in flight. When it ends, `#onEnded`
    // goes on with the release.
    if (this.#ending.has(partition.partition_no)) return;
    partition.onIdle = () => void this.#finishRelease(partition);
    if (partition.in_flight === 0) partition.onIdle();
    else this.#listener?.onReleasing(partition);
  }

  async #finishRelease(partition: Partition): Promise<void> {
    await this.#listener?.flush();
    if (this.#held.get(partition.partition_no) !== partition) return;
    this.#released.add(partition);
    await this.#renew();
  }

  // ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Begins to release everything; partitions without an attempt in flight are released at once. */
  drain(): void {
    this.#stopping = true;
    this.#found_first.resolve();
    if (this.#cluster === null) return;
    for (const partition of this.held) if (!this.#releasing.has(partition)) this.#release(partition);
    if (this.#joined) void this.#renew();
  }

  /** Releases the partitions that are left, and leaves the cluster. Call it when nothing is in flight any more. */
  async leave(): Promise<void> {
    if (this.#cluster === null) return;
    this.#left = true;
    this.#timer?.cancel();
    const timed_out = Promise.withResolvers<void>();
    const timer = this.#clock.after(LEAVE_MS_MAX, timed_out.resolve);
    await Promise.race([this.#leaveNow(), timed_out.promise]);
    timer.cancel();
  }

  async #leaveNow(): Promise<void> {
    await this.#renewing;
    if (!this.#joined) return;
    try {
      await this.#cluster?.leave();
      await this.#cluster?.broadcast(TOPIC, '');
    } catch (error) {
      this.#observer.storageFailed(error);
    }
    this.#report('given_back', [...this.#held.values()]);
    this.#held.clear();
  }
}
