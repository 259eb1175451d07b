import { partitionOf } from '../../domain/partition.ts';
import type { Change } from '../../store/contract/cluster.ts';
import type { Backpressure } from '../accept/backpressure.ts';
import type { Dispatcher } from '../attempts/dispatcher.ts';
import type { LoopGuard } from '../attempts/loop_guard.ts';
import type { Settlements } from '../attempts/settlements.ts';
import type { Clock } from '../clock.ts';
import type { Discovery } from '../discovery.ts';
import type { Expiry } from '../expiry.ts';
import type { InvalidationClock } from '../lanes/invalidation_clock.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { RecipientCache } from '../lanes/recipient_cache.ts';
import type { Registrations } from '../lanes/registrations.ts';
import type { Enqueuer } from '../lanes/enqueuer.ts';
import type { Meetings } from '../meetings.ts';
import { scanPause } from '../scan_pause.ts';
import type { TimerQueue } from '../timer_queue.ts';
import type { Transport } from '../transport/transport.ts';
import type { ClusterBacklog } from './cluster_backlog.ts';
import type { LaneCursors } from './lane_cursors.ts';
import type { Partition, Partitions, PartitionsListener } from './partitions.ts';
import type { SeenRanges } from './seen_ranges.ts';

/** How long an attempt may still take when this node releases its partition: as long as a plain webhook may take. */
const PARTING_MS = 5_000;
/** How often a node of a cluster scans for lanes that it missed, unless a scan takes long. */
const POLL_MS = 30_000;

export interface RemoteChangesParts {
  clock: Clock;
  timers: TimerQueue;
  transport: Pick<Transport, 'handOver' | 'registrationChanged'>;
  partitions: Partitions;
  discovery: Discovery;
  cluster_backlog: ClusterBacklog;
  seen_ranges: SeenRanges;
  lane_cursors: LaneCursors;
  invalidations: InvalidationClock;
  meetings: Meetings;
  settlements: Settlements;
  recipients: RecipientCache;
  registrations: Registrations;
  enqueuer: Enqueuer;
  backpressure: Backpressure;
  dispatcher: Dispatcher;
  guard: Pick<LoopGuard, 'forgetAll'>;
  expiry: Pick<Expiry, 'compare'>;
}

/**
 * Follows the other nodes of a cluster: the messages that they store, the instances that they change, the partitions
 * that they take and leave.
 */
export class RemoteChanges implements PartitionsListener {
  readonly #parts: RemoteChangesParts;
  /** The time of the invalidation clock when this node began to read the messages that others stored. */
  #read_started_at = 0;

  constructor(parts: RemoteChangesParts) {
    this.#parts = parts;
  }

  /** Takes partitions. Resolves when the pending deliveries of the first partitions are in their lanes. */
  async start(): Promise<void> {
    const { timers, clock, partitions } = this.#parts;
    timers.schedule(clock.now() + POLL_MS, () => void this.#poll());
    await partitions.start(this);
  }

  // ── changes of other nodes ─────────────────────────────────────────────────────────────────────────────────────────

  /** Another node did something that concerns this node. */
  onChange(change: Change): void {
    const { partitions, transport, cluster_backlog, invalidations, meetings, dispatcher } = this.#parts;
    switch (change.kind) {
      case 'reading':
        this.#read_started_at = invalidations.now;
        return;
      case 'stored':
        this.#onStored(change);
        break;
      case 'instance':
        transport.registrationChanged?.(change.instance_id);
        this.onInstanceChange(change);
        break;
      case 'meeting':
        void meetings.changed(change.meeting_id, false);
        return;
      case 'resync':
        transport.registrationChanged?.(null);
        void meetings.readAll();
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
    const { seen_ranges, enqueuer, backpressure } = this.#parts;
    for (const { meeting_id, first_seq, last_seq, messages } of ranges) {
      const contiguous_from = seen_ranges.extend(meeting_id, first_seq, last_seq);
      for (const message of messages) enqueuer.enqueue(message, contiguous_from, this.#read_started_at, false);
    }
    backpressure.onRemoteStored();
  }

  /**
   * The row of an instance was changed, so this node reads the row again. It also reads the deliveries of the instance
   * again if the change may have affected these deliveries.
   */
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

  /** Drops the deliveries of an instance from memory, because the table may have changed; they are read again. */
  #invalidateLanes(recipient: Recipient): void {
    const { invalidations, dispatcher } = this.#parts;
    recipient.invalidated_at = invalidations.now;
    for (const lane of recipient.lanes.values()) dispatcher.invalidateLane(recipient, lane);
    dispatcher.invalidateLane(recipient, recipient.aside);
  }

  /**
   * Called when this node may have missed a broadcast. The database may even be older than this node's knowledge: a
   * standby without the last commits took over, or an older backup was restored. Then the database may use a seq again,
   * so lanes are read from their beginning.
   */
  async #resyncAll(): Promise<void> {
    const { invalidations, seen_ranges, lane_cursors, recipients, partitions, discovery, guard } = this.#parts;
    invalidations.tick();
    seen_ranges.clear();
    guard.forgetAll();
    for (const recipient of recipients.all()) {
      recipient.registration.invalidate();
      recipient.registration.may_need_reset = true;
      this.#invalidateLanes(recipient);
      lane_cursors.drop(recipient);
      for (const lane of recipient.lanes.values()) {
        lane.last_seq = 0;
        if (lane.contiguous_from !== null) lane.contiguous_from = 0;
      }
    }
    await discovery.scan(partitions.held, (lane) => discovery.markSpilled(lane));
  }

  // ── the scan ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Finds pending deliveries whose broadcasts this node missed. */
  #scanForMissedLanes(): Promise<number> {
    const { partitions, recipients, discovery } = this.#parts;
    // Skips a lane with deliveries in memory, because the lane delivers these first. A later scan finds out whether the
    // table has more deliveries.
    return discovery.scan(partitions.held, (key) => {
      const lane = recipients.known(key.instance_id)?.lanes.get(key.meeting_id);
      if (lane === undefined || (lane.isEmpty && !lane.isBusy)) discovery.markSpilled(key);
    });
  }

  async #poll(): Promise<void> {
    const { timers, clock } = this.#parts;
    const took_ms = await this.#scanForMissedLanes();
    timers.schedule(clock.now() + scanPause(took_ms, POLL_MS), () => void this.#poll());
  }

  // ── partitions ────────────────────────────────────────────────────────────────────────────────────────────────────

  onAcquired(partitions: readonly Partition[]): Promise<void> {
    return this.#parts.discovery.discover(partitions);
  }

  onRevoked(partitions: ReadonlySet<Partition>): void {
    const { recipients, transport } = this.#parts;
    for (const recipient of recipients.all()) if (partitions.has(recipient.partition)) recipients.drop(recipient);
    // Compares partitions by number, because `handOver` knows only the ids of instances. This node may have lost a
    // partition and taken it again at once, with the same number. No attempt of the new partition has started yet, so
    // `handOver` ends only attempts of the old one.
    const partition_nos = new Set([...partitions].map(({ partition_no }) => partition_no));
    transport.handOver((instance_id) => partition_nos.has(partitionOf(instance_id)));
  }

  onReleasing(partition: Partition): void {
    const { timers, clock, transport } = this.#parts;
    const { partition_no } = partition;
    timers.schedule(clock.now() + PARTING_MS, () => {
      // Selects the attempts to end by the number of the partition, because their instances may no longer be in memory.
      // This node may take a partition with the same number again, but starts no attempt of the new partition while
      // attempts of the old one are in flight.
      if (partition.in_flight > 0) transport.handOver((instance_id) => partitionOf(instance_id) === partition_no);
    });
  }

  flush(): Promise<void> {
    return this.#parts.settlements.flushAll();
  }

  onRenewed(renewed_at: number, requested_at: number): void {
    this.#parts.expiry.compare(renewed_at, requested_at);
    this.#parts.dispatcher.run();
  }

  onResumed(partition: Partition): void {
    const { recipients, dispatcher } = this.#parts;
    for (const recipient of recipients.all()) if (recipient.partition === partition) dispatcher.offer(recipient);
    dispatcher.run();
  }
}
