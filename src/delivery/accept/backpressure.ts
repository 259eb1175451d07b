import type { Dispatcher } from '../attempts/dispatcher.ts';
import type { InFlight } from '../attempts/in_flight.ts';
import { CHECK_MS, type Saturation } from '../attempts/saturation.ts';
import type { ClusterBacklog } from '../cluster/cluster_backlog.ts';
import type { Partitions } from '../cluster/partitions.ts';
import type { Clock } from '../clock.ts';
import { isMoving, type LaneMemory } from '../lanes/lane_memory.ts';
import type { RecipientCache } from '../lanes/recipient_cache.ts';
import type { TimerQueue } from '../timer_queue.ts';

/**
 * How many deliveries may wait, for each node of the cluster. When more deliveries wait and the processor is busy,
 * acceptance waits until dispatch has caught up. Deliveries of instances that do not move are not counted.
 */
export const WAITING_HIGH = 4_000;
/** A saturated node with at least this many waiting deliveries reports them to the other nodes. */
const BACKLOG_REPORT_MIN = 2_000;
/** The longest time that acceptance waits. After this time it stores one batch, even if dispatch is still behind. */
const PAUSE_MS_MAX = 1_000;

export interface BackpressureParts {
  clock: Clock;
  timers: TimerQueue;
  partitions: Partitions;
  /** Null without a cluster. */
  cluster_backlog: ClusterBacklog | null;
  memory: LaneMemory;
  recipients: RecipientCache;
  in_flight: InFlight;
  dispatcher: Dispatcher;
  saturation: Saturation;
  /** Called when acceptance may continue. */
  onRelief: () => void;
}

/**
 * Decides whether dispatch is so far behind that acceptance should wait. If acceptance never waited, intake could take
 * all the processor time, and nothing would be delivered. When a node is behind although its processor is not busy, its
 * receivers are slow. Then acceptance does not wait, because senders should not wait for slow receivers.
 */
export class Backpressure {
  readonly #clock: Clock;
  readonly #timers: TimerQueue;
  readonly #partitions: Partitions;
  readonly #cluster_backlog: ClusterBacklog | null;
  readonly #memory: LaneMemory;
  readonly #recipients: RecipientCache;
  readonly #in_flight: InFlight;
  readonly #dispatcher: Dispatcher;
  readonly #saturation: Saturation;
  readonly #onRelief: () => void;
  /** When acceptance began to wait for dispatch; null while it does not wait. */
  #behind_since: number | null = null;
  #check_at = 0;
  /** Deliveries that the messages being stored are expected to have. */
  #expected = 0;

  constructor(parts: BackpressureParts) {
    this.#clock = parts.clock;
    this.#timers = parts.timers;
    this.#partitions = parts.partitions;
    this.#cluster_backlog = parts.cluster_backlog;
    this.#memory = parts.memory;
    this.#recipients = parts.recipients;
    this.#in_flight = parts.in_flight;
    this.#dispatcher = parts.dispatcher;
    this.#saturation = parts.saturation;
    this.#onRelief = parts.onRelief;
  }

  /**
   * The caller is storing messages that will have about this many deliveries, and these deliveries count as waiting.
   * When the messages are stored, the caller calls this method again with the same number, but negative.
   */
  expect(deliveries: number): void {
    this.#expected += deliveries;
  }

  /** Deliveries that wait and are not in flight, and the deliveries expected from messages that are being stored. */
  get #waiting(): number {
    return this.#memory.waiting - this.#in_flight.count + this.#expected;
  }

  /** Deliveries that wait in other nodes. Only saturated nodes report theirs. */
  get #waiting_elsewhere(): number {
    return this.#cluster_backlog?.others ?? 0;
  }

  /** How many deliveries may wait in all nodes together. */
  get #waiting_high(): number {
    return WAITING_HIGH * this.#partitions.node_count;
  }

  /**
   * Whether acceptance should wait. Before acceptance waits, this method drops from memory the deliveries of instances
   * that do not move, because senders should not wait for these instances.
   */
  isBehind(): boolean {
    const { is_draining, isHeld } = this.#dispatcher;
    if (is_draining || isHeld || this.#waiting + this.#waiting_elsewhere < this.#waiting_high) {
      this.#behind_since = null;
      return false;
    }
    const now = this.#clock.now();
    this.#check(now);
    if (this.#behind_since === null) return false;
    if (now - this.#behind_since < PAUSE_MS_MAX) return true;
    this.#behind_since = now;
    return false;
  }

  /** Other nodes stored messages. If this node is behind, it reports how far, even when it accepts nothing itself. */
  onRemoteStored(): void {
    if (this.#waiting >= BACKLOG_REPORT_MIN) this.#check(this.#clock.now());
  }

  /** The dispatcher has started all steps that it could. */
  onDispatched(): void {
    if (this.#behind_since !== null && this.#waiting < WAITING_HIGH) this.#onRelief();
  }

  #check(now: number): void {
    if (now < this.#check_at) return;
    this.#check_at = now + CHECK_MS;
    const others = this.#waiting_elsewhere;
    const is_saturated = this.#saturation.measure(now);
    const moving = this.#trimSlow(now);
    if (is_saturated && moving >= BACKLOG_REPORT_MIN && this.#partitions.node_count > 1) {
      this.#cluster_backlog?.report(moving);
    }
    if (moving + others < this.#waiting_high || !(is_saturated || others > 0)) {
      this.#behind_since = null;
      return;
    }
    this.#behind_since ??= now;
    this.#timers.schedule(this.#check_at, () => this.#onRelief());
  }

  /**
   * Drops from memory the deliveries that lanes should not hold now.
   *
   * @returns how many deliveries wait in lanes of instances that move
   */
  #trimSlow(now: number): number {
    let moving = 0;
    for (const recipient of this.#recipients.all()) {
      for (const lane of recipient.allLanes) {
        this.#memory.trim(lane, this.#memory.limitFor(recipient, lane, now));
        if (isMoving(recipient, now) && lane.held_until <= now) {
          moving += lane.length - lane.queued_backlog + lane.unread;
        }
      }
    }
    return moving - this.#in_flight.count + this.#expected;
  }
}
