import { isProbed } from '../../domain/delivery.ts';
import { type Instance, type InstanceHealth, isSwitchedOn, NO_HEALTH } from '../../domain/instance.ts';
import { type SigningKey, signingKey } from '../../domain/signature.ts';
import type { QueuedDelivery } from '../../store/contract/deliveries.ts';
import { Fifo } from '../fifo.ts';
import type { Partition } from '../cluster/partitions.ts';

/** A delivery in memory: the message's text has become the head of the push's body, shared by all its deliveries. */
export interface LaneDelivery extends Omit<QueuedDelivery, 'message'> {
  body_head: Uint8Array;
  /** It was read from the table, and not tried since. */
  is_read: boolean;
}

/**
 * What a lane does now.
 *
 *   idle ── offered ──► ready ── a step ──► attempting ──► idle
 *                         └──── a step ──► loading ──────► idle
 *
 * An idle lane with something in it is held until a time, or its instance may start nothing.
 */
export type LaneState = 'idle' | 'ready' | 'loading' | 'attempting';

/** The part of a lane that is on disk only. There is one exactly while there is such a part. */
export class Backlog {
  /** What follows it without a gap; in a cluster only. */
  tail: Fifo<LaneDelivery> | null = null;
  /** The seqs of the first and the last of the tail. */
  tail_from = Infinity;
  tail_to = 0;
  /** The lane was too long, or memory full: it gets no tail until all of it is read. */
  is_closed = false;
  /** Results of attempts must be written before it is read, or they would be made again. */
  is_unsettled = false;
  /** Counts what is added to it: a page that was requested before the last addition may not be the last page. */
  changes = 0;

  push(delivery: LaneDelivery): void {
    const tail = (this.tail ??= new Fifo());
    if (tail.length === 0) {
      this.tail_from = delivery.seq;
      this.changes++;
    }
    tail.push(delivery);
    this.tail_to = delivery.seq;
  }

  /** @returns what was in the tail: it is on disk only from now on */
  dropTail(): LaneDelivery[] {
    this.tail_from = Infinity;
    return this.tail === null ? [] : this.tail.truncate(0);
  }
}

/**
 * The deliveries of one instance in one meeting, in the order of seq.
 *
 * The front is in memory (`queue`); what follows may be on disk only (`backlog`). One attempt at a time; nothing is tried that
 * follows something on disk only.
 */
export class Lane {
  readonly meeting_id: string;
  /** The list of deliveries that stepped aside: they are read in the order in which they are due, and hold nobody. */
  readonly aside: boolean;
  readonly queue = new Fifo<LaneDelivery>();
  state: LaneState = 'idle';
  /** Null while all of the lane is in memory. */
  backlog: Backlog | null = null;
  /** Rises when what is in memory, tried or being read, is void: the rows may have changed. */
  generation = 0;
  /** The last seq that was ever in the queue: a load goes on after it. */
  last_seq: number;
  held_until = 0;
  /** Deliveries in memory that were read from the table, and not tried since. */
  queued_read = 0;
  /**
   * Where the range (see cluster/seen_ranges.ts) begins that it is complete for: everything since was seen, and what was
   * before was read. 0: for none. Null without a cluster, where it always is.
   */
  contiguous_from: number | null = null;

  constructor(meeting_id: string, last_seq: number, aside = false) {
    this.meeting_id = meeting_id;
    this.last_seq = last_seq;
    this.aside = aside;
  }

  get isBusy(): boolean {
    return this.state === 'loading' || this.state === 'attempting';
  }

  get isEmpty(): boolean {
    return this.queue.length === 0 && this.backlog === null;
  }

  get tail_length(): number {
    const tail = this.backlog === null ? null : this.backlog.tail;
    return tail === null ? 0 : tail.length;
  }

  /** The last seq that is in memory, or was. */
  get newest_seq(): number {
    return this.backlog !== null && this.tail_length > 0 ? this.backlog.tail_to : this.last_seq;
  }

  /** Deliveries in memory. */
  get length(): number {
    return this.queue.length + this.tail_length;
  }

  /** The next delivery: behind the backlog where there is one. */
  append(delivery: LaneDelivery): void {
    if (this.backlog === null) this.appendRead(delivery);
    else this.backlog.push(delivery);
  }

  /** The next delivery of the backlog, now read, or of a lane without one. */
  appendRead(delivery: LaneDelivery): void {
    this.queue.push(delivery);
    if (!this.aside) this.last_seq = delivery.seq;
  }

  /** Something of the lane is on disk only. */
  spill(): Backlog {
    const backlog = (this.backlog ??= new Backlog());
    backlog.changes++;
    return backlog;
  }

  /** Keeps the first `length` of the queue. @returns the others: they are on disk only from now on */
  truncate(length: number): LaneDelivery[] {
    const dropped = this.queue.truncate(length);
    const backlog = this.spill();
    // What attempts made of the head may not be written yet.
    if (length === 0) backlog.is_unsettled = true;
    this.last_seq = Math.min(this.last_seq, (dropped[0] as LaneDelivery).seq - 1);
    return dropped;
  }

  /** All of the backlog is read: the tail follows. */
  joinTail(): void {
    const tail = this.backlog === null ? null : this.backlog.tail;
    this.backlog = null;
    if (tail === null) return;
    for (let next = tail.shift(); next !== undefined; next = tail.shift()) {
      this.queue.push(next);
      this.last_seq = next.seq;
    }
  }

  /** What is in memory, tried or being read is void; the rows are read again, once results are written. */
  invalidate(): void {
    this.generation++;
    this.spill().is_unsettled = true;
  }
}

/** What an instance needs to be pushed to, decoded once per registration. */
export interface Target {
  url: string;
  headers: Record<string, string>;
  success_statuses: Instance['success_statuses'];
  key: SigningKey;
  previous_key: SigningKey | null;
  previous_key_until: number;
  switched_on: boolean;
  /** Tells one version of the registration from the next. */
  updated_at: number;
}

export function targetOf(instance: Instance): Target {
  return {
    url: instance.webhook_url,
    headers: instance.webhook_headers,
    success_statuses: instance.success_statuses,
    key: signingKey(instance.webhook_secret),
    previous_key: instance.previous_secret === null ? null : signingKey(instance.previous_secret),
    previous_key_until: instance.previous_secret_until ?? 0,
    switched_on: isSwitchedOn(instance),
    updated_at: instance.updated_at,
  };
}

/** How long a push is thought to take before there was one. */
export const PUSH_MS_GUESS = 5;
/** How much the latest push counts in the average. */
const PUSH_MS_WEIGHT = 0.1;

/** What is remembered of a lane that is empty. */
export type LaneCursor = Pick<Lane, 'contiguous_from' | 'last_seq'>;

/** The lanes of one instance with what they share: its health, its back-off, its attempts in flight. */
export class InstanceLanes {
  readonly instance_id: string;
  readonly partition: Partition;
  readonly lanes = new Map<string, Lane>();
  /** By meeting, the longest empty first. Kept in a cluster only, so that the next message needs no look into the table. */
  readonly lane_cursors = new Map<string, LaneCursor>();
  readonly ready = new Fifo<Lane>();
  readonly aside = new Lane('', 0, true);
  /** When the next delivery aside is due; null when none is known. */
  aside_due_at: number | null = null;
  /** Null until it was loaded. */
  target: Target | null = null;
  loading_target = false;
  health: InstanceHealth = { ...NO_HEALTH };
  /** Health is not on disk yet. */
  health_dirty = false;
  /** A 410 came to what was registered at this `updated_at`; null when none did. */
  gone_as_of: number | null = null;
  /** What was asked for before (`Engine.#invalidations`) may have been changed by another node since. */
  invalidated_at: number;
  /** Deleted: nothing is started any more. */
  dropped = false;
  /** What the table says of it now is not known: nothing is started until it was read. */
  is_stale = false;
  /** Counts the reasons to read it again: a row that was read before the last one came says nothing of it. */
  version = 0;
  /** A back-off may have been lifted without our hearing of it. */
  may_need_reset = false;
  #resets_when_loaded = false;
  /** More waits for it than was accepted just now, or it was away: see turns.ts. */
  is_behind = false;
  /** A message was accepted for it since its last attempt. */
  is_touched = false;
  /** Attempts that it started in its turn; null when it is not its turn. */
  turn: number | null = null;
  /** Whether it stands in the first list of those that can take a step, and in one of those with a backlog. */
  listed = false;
  listed_behind = false;
  in_flight = 0;
  /** Looks into the table under way for its lanes. */
  loads = 0;
  /** The last time an attempt ended, or began while none was under way: an instance that has not moved for long is slow. */
  moved_at = 0;
  /** How long a push to it takes lately. */
  push_ms = PUSH_MS_GUESS;

  constructor(instance_id: string, partition: Partition) {
    this.instance_id = instance_id;
    this.partition = partition;
    this.invalidated_at = partition.acquired_at;
  }

  /** Nothing is started until the registration was read anew. */
  invalidate(): void {
    this.is_stale = true;
    this.version++;
  }

  /** Takes over what a registration says. Health is ours while we deliver: the row is only read when it is first loaded. */
  use(instance: Instance): void {
    if (this.target === null || this.target.url !== instance.webhook_url) {
      const { consecutive_failures, last_success_at, last_failure, backoff_step, backoff_until } = instance;
      this.health = { consecutive_failures, last_success_at, last_failure, backoff_step, backoff_until };
    }
    this.target = targetOf(instance);
    // A row that was read before a 410 was written still says that it is switched on.
    if (this.gone_as_of === instance.updated_at) this.target.switched_on = false;
    else this.gone_as_of = null;
    if (this.#resets_when_loaded) this.resetBackoff();
    this.#noteBackoff();
  }

  /** Whoever backs off has been away. */
  #noteBackoff(): void {
    if (this.health.backoff_step === 0) return;
    this.is_behind = true;
    this.is_touched = false;
  }

  /** A message was accepted for it. Of one that is away, it waits with all others. */
  touch(now: number): void {
    const { backoff_until } = this.health;
    if (backoff_until === null || backoff_until <= now) this.is_touched = true;
  }

  /** An attempt starts. */
  attempted(): void {
    this.is_touched = false;
    if (this.turn !== null) this.turn++;
  }

  /** It has no backlog, or what was accepted just now is worth an attempt all the same. */
  get goes_first(): boolean {
    return !this.is_behind || this.is_touched;
  }

  /** Whether something is under way for it, or listed. */
  get isUnderWay(): boolean {
    return this.listed || this.listed_behind || this.loading_target || this.in_flight + this.loads > 0;
  }

  /** Whether a lane has something on disk only. */
  get isSpilled(): boolean {
    for (const { backlog } of this.lanes.values()) if (backlog !== null) return true;
    return false;
  }

  /** Ends the back-off; health stays what the attempts say. */
  resetBackoff(): void {
    this.#resets_when_loaded = this.target === null;
    if (this.health.backoff_step === 0 && this.health.backoff_until === null) return;
    this.health = { ...this.health, backoff_step: 0, backoff_until: null };
  }

  /** What a push to this target made of the instance. Void when it was registered at another URL meanwhile. */
  learn(target: Target, health: InstanceHealth, gone: boolean): void {
    if (this.target === null || this.target.url !== target.url) return;
    this.health = health;
    this.#noteBackoff();
    if (!gone || this.target.updated_at !== target.updated_at) return;
    this.gone_as_of = target.updated_at;
    this.version++;
    this.target = { ...this.target, switched_on: false };
  }

  /** An attempt ended. */
  moved(now: number, duration_ms: number): void {
    this.moved_at = now;
    this.push_ms += (duration_ms - this.push_ms) * PUSH_MS_WEIGHT;
  }

  canStart(now: number, concurrency: number): boolean {
    if (this.dropped || this.is_stale || this.partition.paused) return false;
    if (this.ready.length === 0 || this.target === null || !this.target.switched_on) return false;
    if (this.health.backoff_until !== null && now < this.health.backoff_until) return false;
    return this.in_flight + this.loads < (isProbed(this.health) ? 1 : concurrency);
  }

  get isIdle(): boolean {
    return this.lanes.size === 0 && this.in_flight === 0 && this.aside.isEmpty && this.aside_due_at === null;
  }
}
