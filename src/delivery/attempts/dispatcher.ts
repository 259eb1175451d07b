import type { Partitions } from '../cluster/partitions.ts';
import type { Clock } from '../clock.ts';
import type { Observer, SuppressReason } from '../observer.ts';
import type { Expiry } from '../expiry.ts';
import type { Backlog } from '../lanes/backlog.ts';
import type { Lane } from '../lanes/lane.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { LaneMemory } from '../lanes/lane_memory.ts';
import { AWAY_AFTER_MS, type Recipient, TURN_KINDS } from '../lanes/recipient.ts';
import type { RecipientCache } from '../lanes/recipient_cache.ts';
import type { Meetings } from '../meetings.ts';
import type { Turns } from '../lanes/turns.ts';
import type { TimerQueue } from '../timer_queue.ts';
import type { Target } from '../transport/target.ts';
import type { Transport } from '../transport/transport.ts';
import type { CatchUp } from './catch_up.ts';
import type { HeldLanes } from './held_lanes.ts';
import type { LoopGuard } from './loop_guard.ts';
import { HANGS_AFTER_MS, type InFlight } from './in_flight.ts';
import { settlementOf } from './settlement.ts';
import { type Settlements, UNSETTLED_MAX } from './settlements.ts';
import type { TurnLimits } from './turn_limits.ts';

/** How long the dispatcher takes steps in a row. Then it pauses for other work of this thread, such as requests. */
const RUN_MS_MAX = 10;
/** How long to wait before a failed call of the store is repeated. */
const RETRY_MS = 500;

export interface DispatcherParts {
  clock: Clock;
  timers: TimerQueue;
  transport: Pick<Transport, 'canPush' | 'readEnded'>;
  partitions: Partitions;
  expiry: Expiry;
  observer: Observer;
  settlements: Settlements;
  memory: LaneMemory;
  recipients: RecipientCache;
  turns: Turns;
  in_flight: InFlight;
  turn_limits: TurnLimits;
  meetings: Pick<Meetings, 'is_loaded' | 'isPaused'>;
  guard: LoopGuard;
  catch_up: CatchUp;
  held_lanes: HeldLanes;
  /** The most attempts in flight, over all instances. */
  max_in_flight: number;
  /** The most attempts in flight to one instance. */
  instance_concurrency: number;
}

/** The work that the dispatcher starts. */
export interface Steps {
  attempts: { start(recipient: Recipient, lane: Lane, head: LaneDelivery): void };
  loader: { load(recipient: Recipient, lane: Lane, backlog: Backlog): void };
  aside_deliveries: { load(recipient: Recipient): Promise<void>; putOff(recipient: Recipient): void };
  registrations: { load(recipient: Recipient): void };
  backpressure: { onDispatched(): void };
  replies: { readonly isFull: boolean };
}

/**
 * Decides what starts next. Recipients that can start something wait in lists (see lanes/turns.ts), and each recipient
 * has a list of its ready lanes. The dispatcher serves recipients in rotation, and the lanes of each in rotation. An
 * instance without a backlog never waits for the backlog of another.
 */
export class Dispatcher {
  readonly #observer: Observer;
  readonly #clock: Clock;
  readonly #timers: TimerQueue;
  readonly #transport: DispatcherParts['transport'];
  readonly #partitions: Partitions;
  readonly #expiry: Expiry;
  readonly #settlements: Settlements;
  readonly #memory: LaneMemory;
  readonly #recipients: RecipientCache;
  readonly #turns: Turns;
  readonly #in_flight: InFlight;
  readonly #turn_limits: TurnLimits;
  readonly #meetings: DispatcherParts['meetings'];
  readonly #guard: LoopGuard;
  readonly #catch_up: CatchUp;
  readonly #held_lanes: HeldLanes;
  readonly #max_in_flight: number;
  readonly #instance_concurrency: number;
  #steps!: Steps;
  #is_running = false;
  /** True while the dispatcher pauses, so that this thread does other work before the next step. */
  #gives_way = false;
  #is_draining = false;
  #looks_for_room = false;

  constructor(parts: DispatcherParts) {
    this.#observer = parts.observer;
    this.#clock = parts.clock;
    this.#timers = parts.timers;
    this.#transport = parts.transport;
    this.#partitions = parts.partitions;
    this.#expiry = parts.expiry;
    this.#settlements = parts.settlements;
    this.#memory = parts.memory;
    this.#recipients = parts.recipients;
    this.#turns = parts.turns;
    this.#in_flight = parts.in_flight;
    this.#turn_limits = parts.turn_limits;
    this.#meetings = parts.meetings;
    this.#guard = parts.guard;
    this.#catch_up = parts.catch_up;
    this.#held_lanes = parts.held_lanes;
    this.#max_in_flight = parts.max_in_flight;
    this.#instance_concurrency = parts.instance_concurrency;
  }

  /** Called once, before any lane is offered: the steps need a dispatcher, so they are made after it. */
  connect(steps: Steps): void {
    this.#steps = steps;
  }

  get is_draining(): boolean {
    return this.#is_draining;
  }

  /**
   * True while too many replies wait to be stored: no attempt starts until some are stored. Meanwhile acceptance does
   * not wait for dispatch, because acceptance stores the replies.
   */
  get isHeld(): boolean {
    return this.#steps.replies.isFull;
  }

  /** Starts no more attempts. */
  drain(): void {
    this.#is_draining = true;
  }

  /**
   * Puts the lane into the list of its recipient if the lane can take a step. Puts the recipient into the lists of
   * turns if the recipient can start something.
   */
  offer(recipient: Recipient, lane?: Lane): void {
    if (recipient.dropped) {
      this.#turns.end(recipient);
      return;
    }
    const now = this.#clock.now();
    if (lane !== undefined && lane.state === 'idle' && !lane.isEmpty && lane.held_until <= now) {
      lane.list();
      recipient.ready.push(lane);
    }
    const { isCurrent, reading } = recipient.registration;
    if (!isCurrent && recipient.long_in_flight > 0) {
      // Long attempts end when the row says that the instance has another URL or transport, or when the instance was
      // deleted.
      this.#steps.registrations.load(recipient);
    } else if (recipient.ready.length > 0) {
      if (!isCurrent) {
        if (recipient.goes_first || recipient.attempts_in_turn !== null) this.#steps.registrations.load(recipient);
        else if (reading === 'none') this.#turns.list(recipient);
      } else if (this.#canStart(recipient, now)) this.#turns.list(recipient);
    }
    this.#noteIfDone(recipient);
    if (!recipient.isActive) this.#transport.readEnded?.(recipient.instance_id);
  }

  /** Offers a recipient or one of its lanes, and takes steps. */
  wake(recipient: Recipient, lane?: Lane): void {
    this.offer(recipient, lane);
    this.run();
  }

  #canStart(recipient: Recipient, now: number): boolean {
    if (!recipient.canStart(now, this.#instance_concurrency)) return false;
    const target = recipient.registration.target as Target;
    if (this.#transport.canPush(recipient.instance_id, target)) {
      if (target.transport === 'pull') recipient.noteReturn(now);
      // A webhook waits only for room for another long attempt. The receiver was busy and not away, so `returned_at`
      // does not change.
      else recipient.waits_since = null;
      return true;
    }
    recipient.waits_since ??= now;
    if (!recipient.wait_watched) this.#watchWait(recipient, recipient.waits_since + AWAY_AFTER_MS);
    return false;
  }

  /** Drops the deliveries of an instance from memory when its machine counts as away. The deliveries stay on disk. */
  #watchWait(recipient: Recipient, at: number): void {
    recipient.wait_watched = true;
    this.#timers.schedule(at, () => {
      recipient.wait_watched = false;
      if (recipient.dropped || recipient.waits_since === null) return;
      if (!recipient.isAway(this.#clock.now()))
        return this.#watchWait(recipient, recipient.waits_since + AWAY_AFTER_MS);
      recipient.is_behind = true;
      this.#memory.trimAll(recipient);
    });
  }

  /**
   * A recipient that has no short attempt and no read in flight, and can start nothing, has no turn. Unless more waits
   * on disk, it no longer counts as one with a backlog.
   */
  #noteIfDone(recipient: Recipient): void {
    if ((recipient.attempts_in_turn === null && !recipient.is_behind) || recipient.isActive) return;
    this.#turns.end(recipient);
    recipient.registration.forgetKeys();
    const is_backing_off = recipient.registration.health.backoff_step > 0;
    if (!is_backing_off && recipient.ready.length === 0 && !recipient.isSpilled) recipient.is_behind = false;
  }

  endTurn(recipient: Recipient): void {
    this.#turns.end(recipient);
  }

  /**
   * Drops the deliveries that a lane has in memory, because the table may have changed; they are read again. The lane
   * is no longer held, because the head for which it was held may have ended. If the head has not ended, a step after
   * the read holds the lane again.
   */
  invalidateLane(recipient: Recipient, lane: Lane): void {
    this.#memory.invalidate(lane);
    lane.held_until = 0;
    this.offer(recipient, lane);
  }

  /** The storage failed: calls `again` later, unless this node is stopping. */
  retryLater(error: unknown, again: () => void, delay_ms = RETRY_MS): void {
    if (this.#is_draining) return;
    this.#observer.storageFailed(error);
    this.#timers.schedule(this.#clock.now() + delay_ms, () => {
      again();
      this.run();
    });
  }

  /** Takes steps until none is left. */
  run(): void {
    if (this.#is_running || this.#gives_way || this.#is_draining || !this.#meetings.is_loaded) return;
    this.#is_running = true;
    const until = this.#clock.now() + RUN_MS_MAX;
    while (this.#in_flight.limited < this.#max_in_flight && this.#settlements.unsettled < UNSETTLED_MAX) {
      if (this.isHeld) break;
      const now = this.#clock.now();
      if (now > until) {
        this.#giveWay();
        break;
      }
      // Without a valid lease, another node may deliver these deliveries by now.
      if (!this.#partitions.isLeaseValid(now)) break;
      const recipient = this.#next(now);
      if (recipient === undefined) break;
      if (this.#canStart(recipient, now)) {
        const lane = recipient.ready.shift() as Lane;
        lane.unlist();
        this.#step(recipient, lane);
      } else this.#turns.endUnused(recipient);
      this.offer(recipient);
    }
    this.#is_running = false;
    this.#steps.backpressure.onDispatched();
  }

  #giveWay(): void {
    this.#gives_way = true;
    this.#clock.soon(() => {
      this.#gives_way = false;
      this.run();
    });
  }

  /** The recipient whose step is next; undefined when none may take a step. */
  #next(now: number): Recipient | undefined {
    if (this.#turns.isEmpty && !this.#in_flight.has_young) return undefined;
    this.#turn_limits.measure(now);
    this.#endTurnsThatHang(now);
    const recipient = this.#turns.next(this.#turn_limits);
    if (recipient === undefined && !this.#looks_for_room) {
      // When no attempt in a turn gets a response, nothing else calls this function. So a timer checks again which
      // attempts hang, and whether there is room for more turns.
      this.#looks_for_room = true;
      this.#timers.schedule(now + HANGS_AFTER_MS, () => {
        this.#looks_for_room = false;
        this.run();
      });
    }
    return recipient;
  }

  /** A turn ends when an attempt hangs: receivers that do not respond leave the turns to others. */
  #endTurnsThatHang(now: number): void {
    for (const kind of TURN_KINDS) {
      for (let hanging; (hanging = this.#in_flight.takeHanging(kind, now)) !== null;) {
        this.#turns.end(hanging);
        this.offer(hanging);
      }
    }
  }

  /** The next step of a ready lane: an attempt on its head, a read of the table, or nothing more. */
  #step(recipient: Recipient, lane: Lane): void {
    if (!lane.aside && this.#meetings.isPaused(lane.meeting_id)) {
      this.#pause(lane);
      return;
    }
    const now = this.#clock.now();
    for (let head = lane.queue.peek(); head !== undefined; head = lane.queue.peek()) {
      if (this.#expiry.hasExpired(head, now)) {
        this.#expireHead(recipient, lane, head);
        continue;
      }
      if (lane.aside && this.#mustWait(recipient, head)) {
        // The delivery stays on disk, and is read again when its wait is over.
        this.#memory.takeHead(lane);
        if (lane.queue.length > 0 || lane.backlog !== null) continue;
        this.#steps.aside_deliveries.putOff(recipient);
        return;
      }
      if (!lane.aside && head.next_attempt_at !== null && head.next_attempt_at > now) {
        this.#held_lanes.hold(recipient, lane, head, head.next_attempt_at);
        return;
      }
      const verdict = this.#judge(recipient, lane, head);
      if (verdict === 'reading') return;
      if (verdict !== null) {
        this.#suppressHead(recipient, lane, head, verdict);
        continue;
      }
      this.#steps.attempts.start(recipient, lane, head);
      return;
    }
    if (lane.aside) void this.#steps.aside_deliveries.load(recipient);
    else if (lane.backlog === null) this.#recipients.evictIfIdle(recipient, lane);
    else if (this.#turns.mustYield(recipient)) {
      this.#turns.end(recipient);
      this.offer(recipient, lane);
    } else this.#steps.loader.load(recipient, lane, lane.backlog);
  }

  /** Whether a delivery aside waits: for its meeting, or for the end of an earlier attempt on it in its lane. */
  #mustWait({ lanes }: Recipient, delivery: LaneDelivery): boolean {
    if (this.#meetings.isPaused(delivery.meeting_id)) return true;
    const lane = lanes.get(delivery.meeting_id);
    if (lane === undefined || !lane.isAttempting(delivery)) return false;
    lane.is_awaited = true;
    return true;
  }

  /**
   * Why the head is not pushed; null when it is pushed. `reading`: the facts that decide are read first, and then the
   * lane is offered again. Deliveries aside are not judged: each was attempted before, or a person queued it again.
   */
  #judge(recipient: Recipient, lane: Lane, head: LaneDelivery): SuppressReason | 'reading' | null {
    if (lane.aside) return null;
    // When an attempt has reached a receiver, the receiver may have seen the push. Then no rule cancels the delivery
    // any more.
    if (recipient.registration.target?.has_rules === true && head.answered_badly === 0) {
      const verdict = this.#catch_up.judge(recipient, lane, head);
      if (verdict === 'unknown') {
        void this.#catch_up.read(recipient, lane, head);
        return 'reading';
      }
      if (verdict !== null) {
        this.#guard.uncount(recipient, head);
        return verdict;
      }
    }
    if (head.origin === null || head.attempt_count > 0) return null;
    const verdict = this.#guard.judge(recipient, head);
    if (verdict === 'unknown') void this.#guard.read(recipient, lane, head);
    return verdict === 'unknown' ? 'reading' : verdict;
  }

  /** The meeting of a lane is paused: the lane stays on disk until the meeting resumes. */
  #pause(lane: Lane): void {
    lane.held_until = Infinity;
    this.#memory.trim(lane, 0);
  }

  #suppressHead(recipient: Recipient, lane: Lane, head: LaneDelivery, reason: SuppressReason): void {
    const { epoch } = recipient.partition;
    this.#settlements.add(settlementOf(head, 'cancelled', reason, null, false, this.#clock.wall(), epoch));
    this.#memory.takeHead(lane);
    this.#observer.suppressed(head, reason);
  }

  #expireHead(recipient: Recipient, lane: Lane, head: LaneDelivery): void {
    const { epoch } = recipient.partition;
    this.#settlements.add(settlementOf(head, 'failed', 'expired', null, false, this.#clock.wall(), epoch));
    this.#memory.takeHead(lane);
    this.#observer.settled('failed', 'expired', 1, head);
  }
}
