import type { LaneKey } from '../store/contract/deliveries.ts';
import type { Clock } from './clock.ts';
import type { Dispatcher } from './attempts/dispatcher.ts';
import type { Partition } from './cluster/partitions.ts';
import type { InvalidationClock } from './lanes/invalidation_clock.ts';
import type { RecipientCache } from './lanes/recipient_cache.ts';
import type { AsideDeliveries } from './lanes/aside_deliveries.ts';
import type { PendingScan } from './pending_scan.ts';
import type { Transport } from './transport/transport.ts';

export interface DiscoveryParts {
  clock: Clock;
  pending_scan: PendingScan;
  invalidations: InvalidationClock;
  recipients: RecipientCache;
  aside_deliveries: AsideDeliveries;
  dispatcher: Dispatcher;
  transport: Pick<Transport, 'readEnded'>;
  /** The latest time at which a delivery written now can be due. */
  latestDue: () => number;
}

/**
 * Puts the pending deliveries that the scan finds into lanes, as their backlogs. After a start, only the table knows
 * them.
 */
export class Discovery {
  readonly #parts: DiscoveryParts;

  constructor(parts: DiscoveryParts) {
    this.#parts = parts;
  }

  /**
   * Finds the pending deliveries of partitions that this node just took; after a start these are all its partitions.
   * Resolves when the deliveries are in their lanes.
   */
  async discover(partitions: readonly Partition[]): Promise<void> {
    const { clock, invalidations, pending_scan, recipients, transport, latestDue } = this.#parts;
    const acquired_at = invalidations.tick();
    for (const partition of partitions) {
      partition.acquired_at = acquired_at;
      partition.taken_at = clock.now();
    }
    // Lowers the due times that are too late: the process that wrote them may have had a wrong clock.
    await pending_scan.bound(partitions, latestDue()).catch(() => {});
    await this.scan(partitions, (lane) => this.markSpilled(lane));
    for (const partition of partitions) partition.discovered = true;
    for (const recipient of recipients.all()) {
      for (const lane of recipient.lanes.values()) recipients.evictIfIdle(recipient, lane);
    }
    transport.readEnded?.(null);
  }

  /**
   * Finds the pending deliveries of partitions.
   *
   * @param lane called for each lane that has a pending delivery
   * @returns how long the reads of the table took, in milliseconds
   */
  async scan(partitions: readonly Partition[], lane: (key: LaneKey) => void): Promise<number> {
    const { pending_scan, dispatcher } = this.#parts;
    try {
      const found = { lane, aside: this.#onAside, page: () => dispatcher.run() };
      return await pending_scan.run(partitions, found);
    } catch {
      // This node is stopping. The next process, or the next node that takes the partition, finds these deliveries.
      return 0;
    }
  }

  /** Finds the pending deliveries aside of these partitions. */
  async scanAside(partitions: readonly Partition[]): Promise<void> {
    // The scan rejects only when this node stops.
    await this.#parts.pending_scan.aside(partitions, { aside: this.#onAside }).catch(() => {});
    this.#parts.dispatcher.run();
  }

  readonly #onAside = (instance_id: string, due_at: number): void => {
    const { recipients, aside_deliveries } = this.#parts;
    const recipient = recipients.of(instance_id);
    if (recipient !== null) aside_deliveries.schedule(recipient, due_at);
  };

  /** A lane has a delivery on disk that this node may not have seen. */
  markSpilled({ instance_id, meeting_id }: LaneKey): void {
    const { recipients, dispatcher } = this.#parts;
    const recipient = recipients.of(instance_id);
    if (recipient === null) return;
    // An instance whose lane is in memory does not count as behind: the scan may have found only deliveries that memory
    // has too, and these are no backlog.
    if (!recipient.lanes.has(meeting_id)) recipient.is_behind = true;
    const lane = recipients.laneOf(recipient, meeting_id, null);
    // Of an empty lane, memory knows only a position (seq), and the delivery that the scan found may be before that
    // position. So the lane is read from its beginning.
    const is_read_from_start = lane.isEmpty && !lane.isBusy;
    if (is_read_from_start) lane.last_seq = 0;
    lane.contiguous_from ??= recipient.partition.is_solo ? null : 0;
    const backlog = lane.spill();
    if (is_read_from_start) backlog.is_unsettled = true;
    dispatcher.offer(recipient, lane);
  }

  /** Scans no more. */
  stop(): void {
    this.#parts.pending_scan.stop();
  }
}
