import type { Change } from '../../store/contract/cluster.ts';
import type { LaneKey } from '../../store/contract/deliveries.ts';
import type { Backpressure } from '../accept/backpressure.ts';
import type { Dispatcher } from '../attempts/dispatcher.ts';
import type { Settlements } from '../attempts/settlements.ts';
import type { Clock } from '../clock.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { Recipients } from '../lanes/recipient_cache.ts';
import type { Registrations } from '../lanes/registrations.ts';
import type { Retries } from '../lanes/retries.ts';
import type { Router } from '../lanes/router.ts';
import type { PendingScan } from '../pending_scan.ts';
import { scanPause } from '../scan_pause.ts';
import type { TimerQueue } from '../timer_queue.ts';
import type { ClusterBacklog } from './cluster_backlog.ts';
import type { InvalidationClock } from '../lanes/invalidation_clock.ts';
import type { Partition, Partitions, PartitionsListener } from './partitions.ts';
import type { SeenRanges } from './seen_ranges.ts';

/** How often a node of a cluster scans for lanes that it missed, unless a scan takes long. */
const POLL_MS = 30_000;

export interface OwnershipParts {
  clock: Clock;
  timers: TimerQueue;
  partitions: Partitions;
  pending_scan: PendingScan;
  cluster_backlog: ClusterBacklog;
  seen_ranges: SeenRanges;
  invalidations: InvalidationClock;
  settlements: Settlements;
  recipients: Recipients;
  registrations: Registrations;
  retries: Retries;
  router: Router;
  backpressure: Backpressure;
  dispatcher: Dispatcher;
  /** The latest time at which anything that is written now can be due. */
  latestDue: () => number;
}

/**
 * Finds what is pending in the partitions of this node, and follows what other nodes store and change. A single node
 * has one partition, and uses only the scan at the start.
 */
export class Ownership implements PartitionsListener {
  readonly #parts: OwnershipParts;
  /** The time of the invalidation clock when this node began to read what others stored. */
  #read_started_at = 0;

  constructor(parts: OwnershipParts) {
    this.#parts = parts;
  }

  /** Finds what is pending. Resolves when all of it is in its lanes. */
  async start(is_cluster: boolean): Promise<void> {
    const { timers, clock, partitions } = this.#parts;
    if (is_cluster) timers.schedule(clock.now() + POLL_MS, () => void this.#poll());
    await partitions.start(this);
  }

  /** Scans no more, and gives the partitions back. */
  drain(): void {
    this.#parts.pending_scan.stop();
    this.#parts.partitions.drain();
  }

  // ── what other nodes do ───────────────────────────────────────────────────────────────────────────────────────────

  /** Another node did something that this one must know of. */
  onChange(change: Change): void {
    const { partitions, cluster_backlog, invalidations, dispatcher } = this.#parts;
    switch (change.kind) {
      case 'reading':
        this.#read_started_at = invalidations.now;
        return;
      case 'stored':
        this.#onStored(change);
        break;
      case 'instance':
        this.onInstanceChange(change);
        break;
      case 'resync':
        void this.#resyncAll();
        break;
      case 'broadcast':
        partitions.onBroadcast(change.topic);
        cluster_backlog.onReport(change.topic, change.text);
        break;
      case 'keys':
        break;
    }
    dispatcher.run();
  }

  #onStored({ ranges }: Extract<Change, { kind: 'stored' }>): void {
    const { seen_ranges, router, backpressure } = this.#parts;
    for (const { meeting_id, first_seq, last_seq, messages } of ranges) {
      const contiguous_from = seen_ranges.extend(meeting_id, first_seq, last_seq);
      for (const message of messages) router.enqueue(message, contiguous_from, this.#read_started_at, false);
    }
    backpressure.onRemoteStored();
  }

  /** The row of an instance was changed: it is read again, and its deliveries too when those may have changed. */
  onInstanceChange({ instance_id, resets_backoff, requeued }: Extract<Change, { kind: 'instance' }>): void {
    const { recipients, registrations, invalidations, dispatcher } = this.#parts;
    const recipient = requeued ? recipients.of(instance_id) : (recipients.known(instance_id) ?? null);
    if (recipient === null) return;
    recipient.registration.invalidate();
    if (resets_backoff) registrations.resetBackoff(recipient);
    if (requeued) {
      invalidations.tick();
      this.#invalidateLanes(recipient);
    }
    dispatcher.offer(recipient);
  }

  /** What memory holds of the deliveries of an instance no longer counts: the table is right. */
  #invalidateLanes(recipient: Recipient): void {
    const { invalidations, dispatcher } = this.#parts;
    recipient.invalidated_at = invalidations.now;
    for (const lane of recipient.lanes.values()) {
      lane.held_until = 0;
      dispatcher.invalidateLane(recipient, lane);
    }
    dispatcher.invalidateLane(recipient, recipient.aside);
  }

  /**
   * Called when this node may have missed anything. The database may even be older than what this node knows: a standby
   * without the last commits took over, or an older backup was restored. Then it may give a seq again, so lanes are
   * read from their beginning.
   */
  async #resyncAll(): Promise<void> {
    const { invalidations, seen_ranges, recipients, partitions } = this.#parts;
    invalidations.tick();
    seen_ranges.clear();
    for (const recipient of recipients.all()) {
      recipient.registration.invalidate();
      recipient.registration.may_need_reset = true;
      this.#invalidateLanes(recipient);
      recipients.dropCursors(recipient);
      for (const lane of recipient.lanes.values()) {
        lane.last_seq = 0;
        if (lane.contiguous_from !== null) lane.contiguous_from = 0;
      }
    }
    await this.#scan(partitions.held, (lane) => this.#markSpilled(lane));
  }

  // ── the scan ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** A lane has something on disk that this node has not seen. */
  #markSpilled({ instance_id, meeting_id }: LaneKey): void {
    const { recipients, dispatcher } = this.#parts;
    const recipient = recipients.of(instance_id);
    if (recipient === null) return;
    // This node is delivering what was added to a lane in memory: perhaps the scan found only that.
    if (!recipient.lanes.has(meeting_id)) recipient.is_behind = true;
    const lane = recipients.laneOf(recipient, meeting_id, null);
    // Of an empty lane, memory has only a position, and the table knows better: the lane is read from its beginning.
    const is_read_from_start = lane.isEmpty && !lane.isBusy;
    if (is_read_from_start) lane.last_seq = 0;
    lane.contiguous_from ??= recipient.partition.is_solo ? null : 0;
    const backlog = lane.spill();
    if (is_read_from_start) backlog.is_unsettled = true;
    dispatcher.offer(recipient, lane);
  }

  /** Finds what the broadcasts of other nodes missed. */
  #scanForMissedLanes(): Promise<number> {
    const { partitions, recipients } = this.#parts;
    // A lane with something in memory delivers that first. A later scan finds whether there is more.
    return this.#scan(partitions.held, (key) => {
      const lane = recipients.known(key.instance_id)?.lanes.get(key.meeting_id);
      if (lane === undefined || (lane.isEmpty && !lane.isBusy)) this.#markSpilled(key);
    });
  }

  async #poll(): Promise<void> {
    const { timers, clock } = this.#parts;
    const took_ms = await this.#scanForMissedLanes();
    timers.schedule(clock.now() + scanPause(took_ms, POLL_MS), () => void this.#poll());
  }

  /** @returns how long the table took, in milliseconds */
  async #scan(partitions: readonly Partition[], lane: (key: LaneKey) => void): Promise<number> {
    const { pending_scan, recipients, retries, dispatcher } = this.#parts;
    const aside = (instance_id: string, due_at: number): void => {
      const recipient = recipients.of(instance_id);
      if (recipient !== null) retries.schedule(recipient, due_at);
    };
    try {
      return await pending_scan.run(partitions, { lane, aside, page: () => dispatcher.run() });
    } catch {
      // The node stops: the next owner finds it.
      return 0;
    }
  }

  // ── partitions ────────────────────────────────────────────────────────────────────────────────────────────────────

  async onAcquired(partitions: readonly Partition[]): Promise<void> {
    const { invalidations, pending_scan, recipients, latestDue } = this.#parts;
    const acquired_at = invalidations.tick();
    for (const partition of partitions) partition.acquired_at = acquired_at;
    // The previous owner may have had another clock.
    await pending_scan.bound(partitions, latestDue()).catch(() => {});
    await this.#scan(partitions, (lane) => this.#markSpilled(lane));
    for (const partition of partitions) partition.discovered = true;
    for (const recipient of recipients.all()) {
      for (const lane of recipient.lanes.values()) recipients.evictIfIdle(recipient, lane);
    }
  }

  onRevoked(partitions: ReadonlySet<Partition>): void {
    const { recipients } = this.#parts;
    for (const recipient of recipients.all()) if (partitions.has(recipient.partition)) recipients.drop(recipient);
  }

  flush(): Promise<void> {
    return this.#parts.settlements.flushAll();
  }

  onRenewed(): void {
    this.#parts.dispatcher.run();
  }

  onResumed(partition: Partition): void {
    const { recipients, dispatcher } = this.#parts;
    for (const recipient of recipients.all()) if (recipient.partition === partition) dispatcher.offer(recipient);
    dispatcher.run();
  }
}
