import assert from 'node:assert/strict';
import { Fifo } from '../fifo.ts';
import { Backlog } from './backlog.ts';
import type { LaneDelivery } from './lane_delivery.ts';

/**
 * The state of a lane.
 *
 *   idle ── offered ──► ready ── a step ──► attempting ──► idle
 *                         ├──── a step ──► loading ──────► idle
 *                         └──── a step ──► judging ──────► idle
 *
 * An idle lane with deliveries waits: it is held until a time, or its instance may start nothing now.
 */
export type LaneState = 'idle' | 'ready' | 'loading' | 'judging' | 'attempting';

/**
 * The deliveries of one instance in one meeting, in the order of seq.
 *
 * The front is in memory (`queue`); later deliveries may be on disk only (`backlog`). A lane has one attempt at a time.
 * No attempt on a delivery starts while an earlier delivery of the lane is on disk only.
 */
export class Lane {
  readonly meeting_id: string;
  /**
   * Whether this lane holds the deliveries that went aside. They are read in the order in which they are due, and block
   * no other delivery.
   */
  readonly aside: boolean;
  readonly queue = new Fifo<LaneDelivery>();
  #state: LaneState = 'idle';
  /** Null while all of the lane is in memory. */
  backlog: Backlog | null = null;
  /**
   * Rises when the rows may have changed. Deliveries of an earlier generation no longer count, whether they are in
   * memory, in flight or being read.
   */
  generation = 0;
  /**
   * The last seq that the queue has, or had before its deliveries ended. Deliveries that were dropped from memory do
   * not count, because the next read continues after this seq.
   */
  last_seq: number;
  /** No attempt of this lane starts before this time; Infinity while its meeting is paused. */
  held_until = 0;
  /** When the timer of the hold fires; Infinity when the lane has none. */
  wakes_at = Infinity;
  /**
   * True when the delivery of the attempt in flight is also aside: its row ended during the attempt, and was queued
   * again. The delivery aside starts when the attempt has ended.
   */
  is_awaited = false;
  /** How many deliveries in memory are marked `is_backlog`: acceptance does not wait for these. */
  queued_backlog = 0;
  /**
   * In a cluster, the first seq of the range (see cluster/seen_ranges.ts) for which this lane is complete: this node
   * saw every message from that seq on, and has read the earlier messages. 0: the lane is complete for no range. Null
   * without a cluster, where a lane is always complete.
   */
  contiguous_from: number | null = null;

  constructor(meeting_id: string, last_seq: number, aside = false) {
    this.meeting_id = meeting_id;
    this.last_seq = last_seq;
    this.aside = aside;
  }

  /** The state of the lane; set by `list`, `unlist`, `begin` and `end`. */
  get state(): LaneState {
    return this.#state;
  }

  /** The lane waits for a step of its recipient. */
  list(): void {
    assert(this.#state === 'idle' && !this.isEmpty, 'only an idle lane with something in it is listed');
    this.#state = 'ready';
  }

  /** Called when the step of the lane begins. */
  unlist(): void {
    assert(this.#state === 'ready', 'only a ready lane takes a step');
    this.#state = 'idle';
  }

  /** Begins an attempt on the head, its judgement, or a read of the backlog. */
  begin(state: 'attempting' | 'loading' | 'judging'): void {
    assert(this.#state === 'idle', 'a lane does one thing at a time');
    const has_head = this.queue.length > 0;
    // The lane of deliveries aside may be read without a backlog, when a delivery is due.
    if (state !== 'loading') assert(has_head, 'an attempt is made on the head, and the head is judged');
    else assert(!has_head && (this.aside || this.backlog !== null), 'only a backlog is read, when its turn is next');
    this.#state = state;
  }

  /** The attempt, the judgement or the read has ended. */
  end(): void {
    assert(this.isBusy, 'only what was begun ends');
    this.#state = 'idle';
  }

  get is_paused(): boolean {
    return this.held_until === Infinity;
  }

  get isBusy(): boolean {
    return this.#state !== 'idle' && this.#state !== 'ready';
  }

  /** Whether an attempt on this delivery is in flight. */
  isAttempting({ delivery_id }: LaneDelivery): boolean {
    return this.#state === 'attempting' && this.queue.peek()?.delivery_id === delivery_id;
  }

  get isEmpty(): boolean {
    return this.queue.length === 0 && this.backlog === null;
  }

  get tail_length(): number {
    const tail = this.backlog === null ? null : this.backlog.tail;
    return tail === null ? 0 : tail.length;
  }

  /** The same as `last_seq`, but for the queue and the tail together. */
  get newest_seq(): number {
    return this.backlog !== null && this.tail_length > 0 ? this.backlog.tail_to : this.last_seq;
  }

  /** Deliveries in memory. */
  get length(): number {
    return this.queue.length + this.tail_length;
  }

  get unread(): number {
    return this.backlog === null ? 0 : this.backlog.unread_estimate;
  }

  /** Adds the next delivery; when the lane has a backlog, behind the backlog. */
  append(delivery: LaneDelivery): void {
    if (this.backlog === null) this.appendRead(delivery);
    else this.backlog.push(delivery);
  }

  /** Adds the next delivery that was read from the backlog; without a backlog, the next delivery of the lane. */
  appendRead(delivery: LaneDelivery): void {
    this.queue.push(delivery);
    if (!this.aside) this.last_seq = delivery.seq;
  }

  /** Marks that a part of the lane is on disk only. */
  spill(): Backlog {
    const backlog = (this.backlog ??= new Backlog());
    backlog.changes++;
    return backlog;
  }

  /** Keeps the first `length` of the queue. @returns the other deliveries: they are on disk only from now on */
  truncate(length: number): LaneDelivery[] {
    const dropped = this.queue.truncate(length);
    const backlog = this.spill();
    // The results of attempts on the head may not be written yet.
    if (length === 0) backlog.is_unsettled = true;
    this.last_seq = Math.min(this.last_seq, (dropped[0] as LaneDelivery).seq - 1);
    return dropped;
  }

  /** The whole backlog is read: now the tail follows the queue. */
  joinTail(): void {
    const tail = this.backlog === null ? null : this.backlog.tail;
    this.backlog = null;
    if (tail === null) return;
    for (let next = tail.shift(); next !== undefined; next = tail.shift()) {
      this.queue.push(next);
      this.last_seq = next.seq;
    }
  }

  /** Starts a new generation: the lane is read again after all results are written. */
  invalidate(): void {
    this.generation++;
    this.spill().is_unsettled = true;
  }
}
