import assert from 'node:assert/strict';
import type { Attempt } from '../../domain/outcome.ts';
import type { Backlog } from './backlog.ts';
import type { Lane } from './lane.ts';
import type { LaneDelivery } from './lane_delivery.ts';
import { PUSH_MS_GUESS, type Recipient } from './recipient.ts';

/** The most deliveries of a lane in memory, and the most while its instance does not move or the lane is held. */
const LANE_LENGTH_MAX = 1_024;
const SLOW_LANE_LENGTH_MAX = 2;
/**
 * A receiver is slow when its pushes take longer than this many times the average of all pushes. A slow receiver has a
 * smaller share of the memory, so that a few slow receivers cannot fill the memory. The limit is not a time in
 * milliseconds, because all pushes take long when this thread is saturated.
 */
const SLOWER_ALLOWED = 4;
/** The weight of the latest push in the average of all. */
const PUSH_MS_WEIGHT = 0.01;
/** An instance does not move when it has attempts in flight and none of them has ended for this long. */
const SLOW_AFTER_MS = 250;
/** The most deliveries in memory, and the most bytes of their messages. */
const MEMORY_DELIVERIES_MAX = 50_000;
const MEMORY_BYTES_MAX = 64 << 20;
/** The share of that memory for instances with a backlog. The rest is for messages that are accepted meanwhile. */
const BACKLOG_SHARE = 0.5;

const NO_ATTEMPTS: Attempt[] = [];

/**
 * Counts the deliveries of all lanes in memory, and limits how many one lane has. Deliveries enter and leave a lane
 * only through this class.
 */
export class LaneMemory {
  #queued = 0;
  /** Deliveries in memory for which acceptance does not wait. */
  #queued_backlog = 0;
  #bytes = 0;
  /** The sum of `unread_estimate` over all backlogs. */
  #unread = 0;
  /**
   * Room reserved for deliveries that are being read. After a start, thousands of lanes begin to read before the first
   * read has ended. Without the reservation, together they would read more than memory has room for.
   */
  #reserved = 0;
  /** The average duration of recent pushes, over all instances. */
  #push_ms = PUSH_MS_GUESS;

  /** Deliveries in memory. */
  get queued(): number {
    return this.#queued;
  }

  /**
   * Deliveries in memory, and those that would be in memory if their lanes did not have to be read first. Backlogs and
   * wide messages do not count, so that acceptance does not wait for them, however large they are.
   */
  get waiting(): number {
    return this.#queued - this.#queued_backlog + this.#unread;
  }

  get isFull(): boolean {
    return this.#queued + this.#reserved >= MEMORY_DELIVERIES_MAX || this.#bytes >= MEMORY_BYTES_MAX;
  }

  /** Whether instances with a backlog have used all of their share of the memory. */
  get isShareFull(): boolean {
    return (
      this.#queued + this.#reserved >= MEMORY_DELIVERIES_MAX * BACKLOG_SHARE ||
      this.#bytes >= MEMORY_BYTES_MAX * BACKLOG_SHARE
    );
  }

  /** A push took this long. */
  pushed(duration_ms: number): void {
    this.#push_ms += (duration_ms - this.#push_ms) * PUSH_MS_WEIGHT;
  }

  /** Reserves room for deliveries that are about to be read; call `release` when they are read. */
  reserve(deliveries: number): void {
    this.#reserved += deliveries;
  }

  release(deliveries: number): void {
    this.#reserved -= deliveries;
  }

  /** How many deliveries a lane may hold now. */
  limitFor(recipient: Recipient, lane: Lane, now: number): number {
    const is_stopped = recipient.registration.health.backoff_step > 0 || recipient.isAway(now);
    if (is_stopped || lane.is_paused) return 0;
    const is_held = lane.held_until > now;
    if (is_held && this.isShareFull) return 0;
    if (is_held || !isMoving(recipient, now)) return SLOW_LANE_LENGTH_MAX;
    const share = Math.min(1, (SLOWER_ALLOWED * this.#push_ms) / recipient.push_ms);
    return Math.max(SLOW_LANE_LENGTH_MAX, Math.round(LANE_LENGTH_MAX * share));
  }

  /** Adds the next delivery at the end of a lane. When the lane has a backlog, the delivery waits behind it. */
  append(lane: Lane, delivery: LaneDelivery): void {
    lane.append(delivery);
    this.#countIn(lane, delivery);
  }

  /** Adds the next delivery of a page that was read. */
  appendRead(lane: Lane, delivery: LaneDelivery): void {
    lane.appendRead(delivery);
    this.#countIn(lane, delivery);
  }

  #countIn(lane: Lane, delivery: LaneDelivery): void {
    this.#queued++;
    if (delivery.is_backlog) this.#countRead(lane, 1);
    this.#bytes += bytesOf(delivery);
  }

  /** Removes the head, and its list of attempts. A caller that settles the head makes the settlement first. */
  takeHead(lane: Lane): void {
    const delivery = lane.queue.shift();
    assert(delivery !== undefined, 'only the head of a lane is taken');
    this.#queued--;
    this.tried(lane, delivery);
    this.#bytes -= bytesOf(delivery);
    // For the garbage collector, a delivery that waited for long is an old object. Until the next full collection, an
    // old object keeps in memory the young objects that it refers to: here the attempts.
    delivery.attempts = NO_ATTEMPTS;
  }

  /** A delivery no longer waits: an attempt on it starts, or it leaves memory. */
  tried(lane: Lane, delivery: LaneDelivery): void {
    if (delivery.is_backlog) this.#countRead(lane, -1);
    delivery.is_backlog = false;
  }

  #countRead(lane: Lane, count: number): void {
    lane.queued_backlog += count;
    this.#queued_backlog += count;
  }

  /** Drops the tail: from now on, the deliveries behind the queue are on disk only. */
  spillTail(lane: Lane): Backlog {
    const backlog = lane.spill();
    this.#countOut(lane, backlog.dropTail());
    return backlog;
  }

  /** Keeps the first `length` deliveries of a lane in memory; the others are on disk and are read again. */
  trim(lane: Lane, length: number): void {
    if (lane.tail_length > 0 && lane.length > length) this.spillTail(lane);
    const kept = Math.max(length, lane.isBusy ? 1 : 0);
    if (lane.queue.length > kept) this.#countOut(lane, lane.truncate(kept));
  }

  #countOut(lane: Lane, deliveries: LaneDelivery[]): void {
    this.#queued -= deliveries.length;
    for (const delivery of deliveries) {
      this.tried(lane, delivery);
      this.#bytes -= bytesOf(delivery);
    }
  }

  /**
   * Keeps nothing in memory for an instance that backs off, or whose machine is away. The deliveries are read again for
   * the next attempt.
   */
  trimAll(recipient: Recipient): void {
    for (const lane of recipient.allLanes) this.trim(lane, 0);
  }

  /** Drops the deliveries that a lane has in memory. A head with an attempt in flight stays until the attempt ends. */
  invalidate(lane: Lane): void {
    this.trim(lane, 0);
    lane.invalidate();
  }

  /** All of a lane is in memory now. */
  joinTail(lane: Lane): void {
    if (lane.backlog === null) return;
    this.setUnread(lane.backlog, 0);
    lane.joinTail();
  }

  /** A delivery was added to a backlog. The delivery counts as unread if the lane would have had room for it. */
  countUnread(recipient: Recipient, lane: Lane, backlog: Backlog, now: number): void {
    const room = this.limitFor(recipient, lane, now) - lane.length;
    this.setUnread(backlog, Math.min(backlog.unread_estimate + 1, Math.max(backlog.unread_estimate, room)));
  }

  setUnread(backlog: Backlog, unread: number): void {
    this.#unread += unread - backlog.unread_estimate;
    backlog.unread_estimate = unread;
  }
}

/** Whether an instance moves: it is reached, and its attempts end soon. */
export function isMoving(recipient: Recipient, now: number): boolean {
  const { health, target } = recipient.registration;
  if (health.backoff_step > 0 || target?.switched_on === false || recipient.isAway(now)) return false;
  return recipient.in_flight === 0 || now - recipient.moved_at < SLOW_AFTER_MS;
}

/** The bytes of a delivery in memory, beyond those that every delivery takes. */
function bytesOf({ body_head, target_agents }: LaneDelivery): number {
  return body_head.byteLength + target_agents.length;
}
