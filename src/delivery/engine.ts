/**
 * The life of a delivery, from the committed row to the acknowledged webhook.
 *
 * accept:   sends that arrive together are stored in one transaction, answered together, and put into their lanes.
 * dispatch: instances that can start an attempt wait in lists (see turns.ts), their ready lanes in lists of their own; all go
 *           round, and nobody waits for somebody else's backlog.
 * attempt:  one POST; what it means for the delivery and for the instance is decided in src/domain.
 * settle:   what attempts made of deliveries is written in batches, every few milliseconds.
 *
 * Memory first, disk always: what was just committed is dispatched from memory. When a lane grows too long, its instance
 * does not move, or memory is full, the rest of the lane stays on disk only (it is spilled) and is loaded in its order
 * when the front has been delivered. After a start every lane is spilled.
 *
 * Where several nodes share a store, this one delivers what is in its partitions (see ./partitions.ts), whoever accepted it.
 */
import assert from 'node:assert/strict';
import {
  BACKOFF_MAX_MS,
  type DeliveryReason,
  healthAfter,
  isSuccessAgain,
  jittered,
  RETRY_AFTER_MS_MAX,
  verdictOf,
  withAttempt,
} from '../domain/delivery.ts';
import type { Instance, InstanceHealth } from '../domain/instance.ts';
import { pushBodyHead } from '../domain/message.ts';
import type { Attempt } from '../domain/outcome.ts';
import { Problem } from '../domain/problem.ts';
import { NO_LINGER, perNode } from '../store/linger.ts';
import { inDoubt, stalled } from '../store/thread/stall.ts';
import type { Accepted, AcceptedMessage, NewMessage } from '../store/contract/messages.ts';
import type { Change, StoredMessage } from '../store/contract/cluster.ts';
import {
  type DeliverySettlement,
  LANE_PAGE_CHARS_MAX,
  type LaneKey,
  type LaneRequest,
  type QueuedDelivery,
  queuedChars,
} from '../store/contract/deliveries.ts';
import type { Store } from '../store/store.ts';
import { StoreError } from '../store/store_error.ts';
import { ClusterBacklog } from './cluster/cluster_backlog.ts';
import { Batcher } from './batcher.ts';
import type { Clock } from './clock.ts';
import { PendingScan } from './pending_scan.ts';
import type { Observer } from './events.ts';
import type { Expiry } from './expiry.ts';
import { type Backlog, InstanceLanes, Lane, type LaneDelivery, PUSH_MS_GUESS, type Target } from './lanes/lane.ts';
import { scanPause } from './scan_pause.ts';
import type { Partition, Partitions } from './cluster/partitions.ts';
import { pushOf } from './transport/push.ts';
import { SeenRanges } from './cluster/seen_ranges.ts';
import { Settlements } from './attempts/settlements.ts';
import type { PushResult, Transport } from './transport/transport.ts';
import { Turns } from './lanes/turns.ts';
import { TimerQueue } from './timer_queue.ts';

export interface EngineSettings {
  /** Delays between attempts that were answered badly. */
  retry_schedule_ms: readonly number[];
  expire_after_ms: number;
  /** Attempts under way at a time, over all instances. */
  max_in_flight: number;
  /** Attempts under way at a time to one instance. */
  instance_concurrency: number;
  user_agent: string;
}

export interface EngineParts {
  clock: Clock;
  /** A number in [0, 1). */
  random: () => number;
  /** The share of the time since it was last asked that this thread was busy: 0 to 1. */
  load: () => number;
  store: Store;
  transport: Transport;
  partitions: Partitions;
  expiry: Expiry;
  observer: Observer;
  settings: EngineSettings;
}

/** A message to send, as the HTTP layer hands it over. */
export type Send = Pick<NewMessage, 'meeting_id' | 'message' | 'timestamp' | 'target_agents' | 'idempotency'>;

/** Messages in one transaction, and their bytes. */
const ACCEPT_BATCH_MAX = 500;
const ACCEPT_BATCH_BYTES_MAX = 8 << 20;
/** Messages waiting to be stored; beyond it senders are told to come back. */
const ACCEPT_WAITING_BYTES_MAX = 64 << 20;
/** What a message weighs beside its text. */
const MESSAGE_OVERHEAD_BYTES = 512;

/** Deliveries that a lane holds in memory, and while its instance does not move or the lane itself is held. */
const LANE_LENGTH_MAX = 1_024;
const SLOW_LANE_LENGTH_MAX = 2;
/**
 * A machine whose pushes take longer than this many times the average of all has a smaller share of the memory, so that
 * a few slow ones cannot fill it. Not a time in milliseconds: when this thread is saturated, all pushes take long.
 */
const SLOWER_ALLOWED = 4;
/** How much the latest push counts in the average of all. */
const PUSH_MS_WEIGHT = 0.01;
/** An instance that has not moved for this long is slow. */
const SLOW_AFTER_MS = 250;
/** Deliveries read at once into a lane, while there is room; one when there is none. */
const LANE_PAGE = 64;
/** Lanes read in one batch, and about so many deliveries: what is accepted meanwhile waits for it. */
const LANES_READ_MAX = 500;
const DELIVERIES_READ_MAX = 1_500;
/** How much the latest lane counts in the average of deliveries that one look brings. */
const PAGE_LENGTH_WEIGHT = 0.02;
/** Room for deliveries in memory, by number and by the bytes of their messages. */
const MEMORY_DELIVERIES_MAX = 50_000;
const MEMORY_BYTES_MAX = 64 << 20;
/** Of that room, what instances with a backlog have: the rest is for what is accepted meanwhile. */
const BACKLOG_SHARE = 0.5;
/** A look into a lane that ends it, and brings no more than this, found no backlog. */
const FEW = 16;
/**
 * Instances with a backlog whose turn it is at a time, and attempts under way to such: so many while this thread is saturated,
 * because whatever else it does waits for as many answers; and otherwise more and more, up to a share of all attempts.
 */
const TURNS_MIN = 256;
const TURNS_SHARE = 0.75;
const TURNS_GROWTH = 1.5;
/** Deliveries of moving instances that wait, for each node; beyond it acceptance waits for dispatch to catch up. */
const WAITING_HIGH = 4_000;
/** So many are told to the other nodes of a cluster. */
const BACKLOG_REPORT_MIN = 2_000;
/** The share of its time that this thread works when it is saturated: below that, whoever is behind is not us. */
const SATURATED = 0.75;
/** How often that is looked at, and the longest that acceptance waits. */
const CHECK_MS = 100;
const PAUSE_MS_MAX = 1_000;
/** Attempts answered and not yet written; beyond it no new ones are started. */
const UNSETTLED_MAX = 4_000;
/** How often a node of a cluster looks for lanes that it was not told of, unless that takes long. */
const POLL_MS = 30_000;
/** How much the latest batch counts in the average of deliveries per message. */
const FAN_OUT_WEIGHT = 0.2;
/** How soon the storage is asked again when it failed. */
const TRY_AGAIN_MS = 500;
/** How soon an instance whose secrets do not open is looked at, and told of, again. Giving it new ones ends the wait. */
const UNREADABLE_TRY_AGAIN_MS = 60_000;
/** How long a stop waits for the last results of attempts to be written. */
const LAST_WRITE_MS_MAX = 1_200;
/** Instances without work that are remembered, so that their next message needs no look into the table. */
const IDLE_INSTANCES_MAX = 20_000;
/** Empty lanes that are remembered in a cluster, for the same reason: of one instance, and of all. */
const LANE_CURSORS_OF_INSTANCE_MAX = 256;
const LANE_CURSORS_MAX = 200_000;

const NO_ATTEMPTS: Attempt[] = [];
const DAMAGED = 'A row that this message needs is damaged; the log of the service says which.';

export class Engine {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #load: () => number;
  readonly #store: Store;
  readonly #transport: Transport;
  readonly #partitions: Partitions;
  readonly #expiry: Expiry;
  readonly #observer: Observer;
  readonly #settings: EngineSettings;
  readonly #wakes: TimerQueue;
  readonly #pending_scan: PendingScan;
  readonly #cluster_backlog: ClusterBacklog;
  readonly #seen_ranges = new SeenRanges();
  /** How often another node may have changed deliveries otherwise than by an attempt. */
  #invalidations = 0;
  /** Their number when what others stored began to be read. */
  #read_started_at = 0;
  readonly #settlements: Settlements;
  readonly #accepts: Batcher<NewMessage, Accepted>;
  readonly #lane_loads: Batcher<LaneRequest, QueuedDelivery[]>;
  readonly #target_loads: Batcher<string, Instance | StoreError | null>;

  readonly #instances = new Map<string, InstanceLanes>();
  readonly #turns = new Turns();
  #turns_max: number;
  #in_flight = 0;
  /** Of these, attempts that were started in a turn. */
  #in_flight_behind = 0;
  #queued = 0;
  /** Of these, deliveries that were read from the table and not tried since. */
  #queued_read = 0;
  /** Deliveries that a look into a lane brought lately, on the average. */
  #page_length = LANE_PAGE / 2;
  #queued_bytes = 0;
  /** Deliveries that a message made lately, on the average, and the text of their lists of agents. */
  #fan_out = 1;
  #fan_out_chars = 0;
  /** Room for deliveries that are being read: after a start, thousands of lanes ask before the first is answered. */
  #loading = 0;
  #pumping = false;
  #forget_at = IDLE_INSTANCES_MAX;
  /** Since when acceptance waits for dispatch; null while it does not. */
  #behind_since: number | null = null;
  /** Deliveries expected of the messages that are being stored. */
  #expected_deliveries = 0;
  #check_at = 0;
  #is_saturated = false;
  #load_asked_at = -Infinity;
  #looks_for_room = false;
  /** How long a push takes lately, on the average of all. */
  #push_ms = PUSH_MS_GUESS;
  /** Empty lanes that are remembered, of all instances. */
  #lane_cursors = 0;
  #draining = false;
  #stopping = false;
  #onIdle: (() => void) | null = null;

  constructor({ clock, random, load, store, transport, partitions, expiry, observer, settings }: EngineParts) {
    this.#clock = clock;
    this.#random = random;
    this.#load = load;
    this.#store = store;
    this.#transport = transport;
    this.#partitions = partitions;
    this.#expiry = expiry;
    this.#cluster_backlog = new ClusterBacklog(clock, store.cluster, partitions.node_id);
    this.#observer = observer;
    this.#settings = settings;
    this.#turns_max = Math.min(TURNS_MIN, this.#turns_most);
    this.#wakes = new TimerQueue(clock);
    this.#pending_scan = new PendingScan(clock, this.#wakes, store, (error) => observer.storageFailed(error));
    this.#settlements = new Settlements(clock, store, observer, () => this.#pump());
    const lingers = store.lingers ?? NO_LINGER;
    this.#accepts = new Batcher(
      clock,
      {
        items_max: () => this.#acceptBatchMax(),
        weight_max: ACCEPT_BATCH_BYTES_MAX,
        in_flight_max: 2,
        consumer_coalesces: true,
        linger: () => perNode(lingers.accept, partitions.node_count),
        isPaused: () => this.#isBehind(),
      },
      (batch) => this.#accept(batch),
    );
    store.stall?.onStall((is_long) => {
      this.#accepts.rejectWaiting(stalled());
      if (is_long) this.#accepts.rejectInFlight(inDoubt());
    });
    this.#lane_loads = new Batcher(
      clock,
      {
        items_max: () => Math.min(LANES_READ_MAX, Math.ceil(DELIVERIES_READ_MAX / this.#page_length)),
        weight_max: Infinity,
        in_flight_max: 2,
        consumer_coalesces: true,
        linger: () => lingers.load,
      },
      (requests) => store.deliveries.loadLanes(requests),
    );
    this.#target_loads = new Batcher(
      clock,
      { items_max: () => 500, weight_max: Infinity, in_flight_max: 2 },
      (instance_ids) => this.#loadInstances(instance_ids),
    );
  }

  /** Figures for people and metrics. */
  get stats() {
    return {
      ...this.#partitions.stats,
      in_flight: this.#in_flight,
      queued_in_memory: this.#queued,
      unsettled: this.#settlements.unsettled,
      instances_in_memory: this.#instances.size,
    };
  }

  /** The instances in memory, with their health: those that have something to do are among them. */
  *healths(): Generator<[instance_id: string, health: InstanceHealth]> {
    for (const { instance_id, health } of this.#instances.values()) yield [instance_id, health];
  }

  // ── accept ────────────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Stores a message with its deliveries and queues them. When it resolves, they are on disk.
   *
   * @throws Problem `idempotency_key_reused`, `overloaded`, `shutting_down`; StoreError, IN_DOUBT when it may be stored all the same
   */
  async send(send: Send): Promise<{ message: AcceptedMessage; repeated: boolean }> {
    if (this.#stopping) {
      // Where there are other nodes, one of them takes it at once; this one needs some seconds to come back.
      throw new Problem('shutting_down', undefined, { retry_after_s: this.#store.cluster === null ? 5 : 1 });
    }
    if (this.#store.stall?.is_stalled === true) throw stalled();
    const agents_chars = send.target_agents?.reduce((sum, agent_id) => sum + agent_id.length, 0) ?? 0;
    const weight = send.message.length + agents_chars + MESSAGE_OVERHEAD_BYTES;
    if (this.#accepts.waiting_weight + weight > ACCEPT_WAITING_BYTES_MAX) {
      throw new Problem('overloaded', undefined, { retry_after_s: 1 });
    }
    const expires_at = this.#clock.now() + this.#settings.expire_after_ms;
    const accepted = await this.#accepts.add({ ...send, wall_ms: this.#clock.wall(), expires_at }, weight);
    if (accepted.kind === 'key_reused') throw new Problem('idempotency_key_reused');
    if (accepted.kind === 'damaged') throw new Problem('storage_unavailable', DAMAGED, { retry_after_s: 60 });
    return { message: accepted.message, repeated: accepted.kind === 'repeated' };
  }

  async #accept(batch: NewMessage[]): Promise<Accepted[]> {
    const expected = batch.length * this.#fan_out;
    this.#expected_deliveries += expected;
    const requested_at = this.#invalidations;
    const results = await this.#store.messages.accept(batch).finally(() => (this.#expected_deliveries -= expected));
    let messages = 0;
    let deliveries = 0;
    let chars = 0;
    for (const [i, result] of results.entries()) {
      if (result.kind !== 'accepted') continue;
      messages++;
      deliveries += result.deliveries.length;
      for (const { target_agents } of result.deliveries) chars += target_agents.length;
      const stored = { ...(batch[i] as NewMessage), ...result.message, deliveries: result.deliveries };
      this.#enqueue(stored, this.#contiguousFrom(stored.meeting_id, stored.seq, stored.seq), requested_at, true);
    }
    if (messages > 0) {
      this.#fan_out += (deliveries / messages - this.#fan_out) * FAN_OUT_WEIGHT;
      this.#fan_out_chars += (chars / messages - this.#fan_out_chars) * FAN_OUT_WEIGHT;
    }
    this.#observer.accepted(messages, deliveries, batch, results);
    this.#pump();
    return results;
  }

  /**
   * Messages for one transaction. What a batch brings should fit into memory beside what waits there: deliveries that are
   * spilled have to be read again, which costs more than all else about them.
   */
  #acceptBatchMax(): number {
    const by_number = Math.ceil(WAITING_HIGH / 2 / Math.max(1, this.#fan_out));
    const by_bytes = Math.ceil(ACCEPT_BATCH_BYTES_MAX / Math.max(1, this.#fan_out_chars));
    return Math.min(ACCEPT_BATCH_MAX, by_number, by_bytes);
  }

  /** The first seq of the range (see cluster/seen_ranges.ts) that some stored messages belong to; null without a cluster. */
  #contiguousFrom(meeting_id: string, first_seq: number, last_seq: number): number | null {
    return this.#store.cluster === null ? null : this.#seen_ranges.extend(meeting_id, first_seq, last_seq);
  }

  /**
   * @param contiguous_from the first seq of its range
   * @param requested_at `#invalidations` when this node asked for it
   * @param is_own whether this node stored it, and not another one that told of it
   */
  #enqueue(stored: StoredMessage, contiguous_from: number | null, requested_at: number, is_own: boolean): void {
    const { message_id, meeting_id, seq, message, timestamp, accepted_at, expires_at, deliveries } = stored;
    let body_head: Uint8Array | null = null;
    const now = this.#clock.now();
    for (const { delivery_id, instance_id, target_agents } of deliveries) {
      const instance = this.#instanceOf(instance_id);
      // Another node delivers it, and is told by the store.
      if (instance === null) continue;
      // Every message of the meeting was seen, and went into its lanes: what is not in memory is not pending. Of what
      // others stored, this one may have been read from the table long ago.
      const is_known = is_own && instance.partition.discovered && (contiguous_from === null || contiguous_from === 1);
      const lane = this.#laneOf(instance, meeting_id, is_known ? seq - 1 : null);
      // Of another range than the last one: messages that were not seen may stand before it.
      const is_after_gap = lane.contiguous_from !== contiguous_from;
      lane.contiguous_from = contiguous_from;
      // It was read from the table before this node heard of it.
      if (seq <= lane.newest_seq) continue;
      if (is_after_gap && lane.newest_seq < seq - 1) this.#spillTail(lane);
      // It may have been cancelled while its answer was on the way.
      let only_on_disk =
        requested_at < instance.invalidated_at ||
        (lane.backlog !== null && (contiguous_from === null || lane.backlog.is_closed));
      const is_long = !only_on_disk && (lane.length >= this.#lengthMaxOf(instance, lane, now) || this.#isMemoryFull());
      if (is_long) only_on_disk = instance.is_behind = true;
      instance.touch(now);
      if (only_on_disk) {
        const backlog = this.#spillTail(lane);
        if (is_long) backlog.is_closed = true;
      } else {
        this.#put(lane, {
          delivery_id,
          message_id,
          meeting_id,
          seq,
          instance_id,
          target_agents,
          body_head: (body_head ??= pushBodyHead(meeting_id, message)),
          timestamp,
          accepted_at,
          expires_at,
          attempt_count: 0,
          answered_badly: 0,
          attempts: [],
          next_attempt_at: null,
          is_read: false,
        });
      }
      this.#offer(instance, lane);
    }
  }

  /** @param known_to the seq up to which nothing is pending in a lane that is not in memory; null: it must be read */
  #laneOf(instance: InstanceLanes, meeting_id: string, known_to: number | null): Lane {
    const known = instance.lanes.get(meeting_id);
    if (known !== undefined) return known;
    const former = instance.lane_cursors.get(meeting_id);
    const lane = new Lane(meeting_id, former?.last_seq ?? known_to ?? 0);
    instance.lanes.set(meeting_id, lane);
    if (former !== undefined) {
      lane.contiguous_from = former.contiguous_from;
      instance.lane_cursors.delete(meeting_id);
      this.#lane_cursors--;
    } else if (known_to === null) {
      lane.spill().is_unsettled = true;
    }
    return lane;
  }

  #lengthMaxOf(instance: InstanceLanes, lane: Lane, now: number): number {
    if (instance.health.backoff_step > 0) return 0;
    const is_held = lane.held_until > now;
    if (is_held && this.#isShareFull()) return 0;
    if (is_held || !this.#isMoving(instance, now)) return SLOW_LANE_LENGTH_MAX;
    const share = Math.min(1, (SLOWER_ALLOWED * this.#push_ms) / instance.push_ms);
    return Math.max(SLOW_LANE_LENGTH_MAX, Math.round(LANE_LENGTH_MAX * share));
  }

  #isMoving(instance: InstanceLanes, now: number): boolean {
    if (instance.health.backoff_step > 0 || instance.target?.switched_on === false) return false;
    return instance.in_flight === 0 || now - instance.moved_at < SLOW_AFTER_MS;
  }

  #isMemoryFull(): boolean {
    return this.#queued + this.#loading >= MEMORY_DELIVERIES_MAX || this.#queued_bytes >= MEMORY_BYTES_MAX;
  }

  /** What is left is for those that have no backlog. */
  #isShareFull(): boolean {
    return (
      this.#queued + this.#loading >= MEMORY_DELIVERIES_MAX * BACKLOG_SHARE ||
      this.#queued_bytes >= MEMORY_BYTES_MAX * BACKLOG_SHARE
    );
  }

  /**
   * Deliveries in memory that are not under way, and those that what is being stored will bring. What was read from the
   * table does not count: a backlog is no reason to accept less, however large it is.
   */
  get #waiting(): number {
    return this.#queued - this.#queued_read - this.#in_flight + this.#expected_deliveries;
  }

  /** So much may wait in all nodes together. */
  get #waiting_high(): number {
    return WAITING_HIGH * this.#partitions.node_count;
  }

  /**
   * Whether dispatch is so far behind that acceptance should wait: intake that takes all the processor time would starve
   * delivery. While those who are behind, this node or others, have time to spare, it is the machines that are behind, and
   * senders do not wait for them. What machines that do not move have in memory is dropped first.
   */
  #isBehind(): boolean {
    if (this.#draining || this.#waiting + this.#cluster_backlog.others < this.#waiting_high) {
      this.#behind_since = null;
      return false;
    }
    const now = this.#clock.now();
    this.#checkSaturation(now);
    if (this.#behind_since === null) return false;
    if (now - this.#behind_since < PAUSE_MS_MAX) return true;
    this.#behind_since = now;
    return false;
  }

  #checkSaturation(now: number): void {
    if (now < this.#check_at) return;
    this.#check_at = now + CHECK_MS;
    const { others } = this.#cluster_backlog;
    const is_saturated = this.#isSaturated(now);
    const moving = this.#spillSlow(now);
    if (is_saturated && moving >= BACKLOG_REPORT_MIN && this.#partitions.node_count > 1)
      this.#cluster_backlog.report(moving);
    if (moving + others < this.#waiting_high || !(is_saturated || others > 0)) {
      this.#behind_since = null;
      return;
    }
    this.#behind_since ??= now;
    this.#wakes.schedule(this.#check_at, () => this.#accepts.flushIfReady());
  }

  /** Drops from memory what lanes should not hold now. Answers how many deliveries wait in lanes that move. */
  #spillSlow(now: number): number {
    let moving = 0;
    for (const instance of this.#instances.values()) {
      for (const lane of instance.lanes.values()) {
        this.#spill(lane, this.#lengthMaxOf(instance, lane, now));
        if (this.#isMoving(instance, now) && lane.held_until <= now) moving += lane.length - lane.queued_read;
      }
    }
    return moving - this.#in_flight + this.#expected_deliveries;
  }

  #isSaturated(now: number): boolean {
    if (now - this.#load_asked_at < CHECK_MS) return this.#is_saturated;
    this.#load_asked_at = now;
    this.#is_saturated = this.#load() >= SATURATED;
    const most = this.#turns_most;
    this.#turns_max = Math.min(most, this.#is_saturated ? TURNS_MIN : Math.ceil(this.#turns_max * TURNS_GROWTH));
    return this.#is_saturated;
  }

  get #turns_most(): number {
    return Math.ceil(this.#settings.max_in_flight * TURNS_SHARE);
  }

  // ── lanes in memory ───────────────────────────────────────────────────────────────────────────────────────────────

  /** Null for an instance of another node. */
  #instanceOf(instance_id: string): InstanceLanes | null {
    const known = this.#instances.get(instance_id);
    if (known !== undefined) return known;
    const partition = this.#partitions.of(instance_id);
    if (partition === null) return null;
    if (this.#instances.size >= this.#forget_at) this.#forgetIdle();
    const instance = new InstanceLanes(instance_id, partition);
    this.#instances.set(instance_id, instance);
    return instance;
  }

  /** Forgets the longest known tenth of those that have nothing to do; what they know is in the table. */
  #forgetIdle(): void {
    let left = IDLE_INSTANCES_MAX / 10;
    for (const [instance_id, instance] of this.#instances) {
      if (left === 0) break;
      if (!instance.isIdle || instance.health_dirty || instance.loading_target) continue;
      this.#instances.delete(instance_id);
      this.#lane_cursors -= instance.lane_cursors.size;
      left--;
    }
    // When most have something to do, looking through all of them at each new one would cost their square.
    this.#forget_at = Math.max(IDLE_INSTANCES_MAX, Math.ceil(this.#instances.size * 1.1));
  }

  /** Follows what is in memory, or what is on disk only. */
  #put(lane: Lane, delivery: LaneDelivery): void {
    lane.append(delivery);
    this.#countIn(lane, delivery);
  }

  /** The next one of a page that was read. */
  #putRead(lane: Lane, delivery: LaneDelivery): void {
    lane.appendRead(delivery);
    this.#countIn(lane, delivery);
  }

  #countIn(lane: Lane, delivery: LaneDelivery): void {
    this.#queued++;
    if (delivery.is_read) this.#countRead(lane, 1);
    this.#queued_bytes += bytesOf(delivery);
  }

  /** Its settlement is made before. */
  #take(lane: Lane): void {
    const delivery = lane.queue.shift();
    assert(delivery !== undefined, 'only the head of a lane is taken');
    this.#queued--;
    this.#isTried(lane, delivery);
    this.#queued_bytes -= bytesOf(delivery);
    // What waited for long is old for the collector: its young attempts would be kept until the whole heap is looked through.
    delivery.attempts = NO_ATTEMPTS;
  }

  /** What follows is on disk only. */
  #spillTail(lane: Lane): Backlog {
    const backlog = lane.spill();
    this.#dropped(lane, backlog.dropTail());
    return backlog;
  }

  /** It is no longer a part of what was read and waits. */
  #isTried(lane: Lane, delivery: LaneDelivery): void {
    if (delivery.is_read) this.#countRead(lane, -1);
    delivery.is_read = false;
  }

  #countRead(lane: Lane, count: number): void {
    lane.queued_read += count;
    this.#queued_read += count;
  }

  /** An instance that backs off needs no room: the next attempt reads what it is for. */
  #spillAway(instance: InstanceLanes): void {
    for (const lane of instance.lanes.values()) this.#spill(lane, 0);
  }

  #dropped(lane: Lane, deliveries: LaneDelivery[]): void {
    this.#queued -= deliveries.length;
    for (const delivery of deliveries) {
      this.#isTried(lane, delivery);
      this.#queued_bytes -= bytesOf(delivery);
    }
  }

  /** Keeps the first `length` deliveries of a lane in memory; the others are on disk and will be read again. */
  #spill(lane: Lane, length: number): void {
    if (lane.tail_length > 0 && lane.length > length) this.#spillTail(lane);
    const kept = Math.max(length, lane.isBusy ? 1 : 0);
    if (lane.queue.length > kept) this.#dropped(lane, lane.truncate(kept));
  }

  /** Lists a lane with its instance, and the instance with the engine, when there is something that they can start. */
  #offer(instance: InstanceLanes, lane?: Lane): void {
    if (instance.dropped) {
      this.#turns.end(instance);
      return;
    }
    const now = this.#clock.now();
    if (lane !== undefined && lane.state === 'idle' && !lane.isEmpty && lane.held_until <= now) {
      lane.state = 'ready';
      instance.ready.push(lane);
    }
    if (instance.ready.length > 0) {
      if (instance.target === null || instance.is_stale) {
        if (instance.goes_first || instance.turn !== null) this.#loadTarget(instance);
        else if (!instance.loading_target) this.#turns.list(instance);
      } else if (instance.canStart(now, this.#settings.instance_concurrency)) this.#turns.list(instance);
    }
    this.#endTurn(instance);
  }

  /** A turn ends when there is nothing left that it could start. */
  #endTurn(instance: InstanceLanes): void {
    if (instance.turn === null || instance.isUnderWay) return;
    this.#turns.end(instance);
    if (!instance.isSpilled && instance.health.backoff_step === 0) instance.is_behind = false;
  }

  #loadTarget(instance: InstanceLanes): void {
    if (instance.loading_target) return;
    instance.loading_target = true;
    const { version, health, may_need_reset, gone_as_of } = instance;
    // A row that is older than what attempts made cannot tell whether somebody lifted the back-off, or switched it on again.
    const written = may_need_reset || gone_as_of !== null ? this.#settlements.flush() : Promise.resolve();
    void written
      .then(() => this.#target_loads.add(instance.instance_id, 1))
      .then(
        (row) => {
          instance.loading_target = false;
          // Whoever changed it meanwhile handed over a newer row.
          if ((instance.target !== null && !instance.is_stale) || instance.dropped || instance.version !== version) {
            this.#offer(instance);
            return;
          }
          instance.is_stale = false;
          instance.may_need_reset = false;
          // Deleted meanwhile: what was pending is cancelled in the table.
          if (row === null) this.#drop(instance);
          else if (row instanceof StoreError) {
            // Not at every message that comes for it meanwhile.
            instance.loading_target = true;
            this.#turns.end(instance);
            const again = (): void => {
              instance.loading_target = false;
              this.#offer(instance);
            };
            this.#tryAgainLater(row, again, UNREADABLE_TRY_AGAIN_MS);
          } else {
            if (instance.target !== null && instance.target.url !== row.webhook_url)
              this.#transport.forget(instance.instance_id);
            instance.use(this.#withinBackoff(row));
            if (may_need_reset && instance.health === health && row.backoff_step === 0) this.#resetBackoff(instance);
            this.#wakeAfterBackoff(instance);
            this.#offer(instance);
          }
          this.#pump();
        },
        (error: unknown) => {
          instance.loading_target = false;
          this.#tryAgainLater(error, () => this.#offer(instance));
        },
      );
  }

  /**
   * Null for one that does not exist, an error for one whose secrets do not open: a row that somebody tampered with holds
   * up nobody else's pushes.
   */
  async #loadInstances(instance_ids: string[]): Promise<(Instance | StoreError | null)[]> {
    try {
      const found = new Map((await this.#store.instances.load(instance_ids)).map((i) => [i.instance_id, i]));
      return instance_ids.map((instance_id) => found.get(instance_id) ?? null);
    } catch (error) {
      if (!(error instanceof StoreError) || error.code !== 'SECRET_UNREADABLE') throw error;
      if (instance_ids.length > 1) {
        return (await Promise.all(instance_ids.map((instance_id) => this.#loadInstances([instance_id])))).flat();
      }
      return [error];
    }
  }

  #drop(instance: InstanceLanes): void {
    for (const lane of [...instance.lanes.values(), instance.aside]) {
      // An attempt under way comes to its end; it settles nothing, because the row is no longer pending. A load under
      // way finds nobody to load for.
      this.#spill(lane, 0);
      lane.joinTail();
    }
    instance.dropped = true;
    this.#turns.end(instance);
    this.#dropCursors(instance);
    // The same id may be registered again already.
    if (this.#instances.get(instance.instance_id) === instance) this.#instances.delete(instance.instance_id);
  }

  // ── dispatch ──────────────────────────────────────────────────────────────────────────────────────────────────────

  #pump(): void {
    if (this.#pumping || this.#draining) return;
    this.#pumping = true;
    while (this.#in_flight < this.#settings.max_in_flight && this.#settlements.unsettled < UNSETTLED_MAX) {
      const now = this.#clock.now();
      // Another node may deliver it by now.
      if (!this.#partitions.isLeaseValid(now)) break;
      const instance = this.#nextInstance(now);
      if (instance === undefined) break;
      if (instance.canStart(now, this.#settings.instance_concurrency)) {
        const lane = instance.ready.shift() as Lane;
        lane.state = 'idle';
        this.#step(instance, lane);
      }
      this.#offer(instance);
    }
    this.#pumping = false;
    if (this.#behind_since !== null && this.#waiting < WAITING_HIGH) this.#accepts.flushIfReady();
  }

  /** Whoever has a backlog leaves room for those who have none: of attempts under way, of results to write, and of memory. */
  #nextInstance(now: number): InstanceLanes | undefined {
    if (this.#turns.has_behind) this.#isSaturated(now);
    const may_go = this.#in_flight_behind < this.#turns_max && this.#settlements.unsettled < UNSETTLED_MAX / 2;
    const { in_turn } = this.#turns;
    const may_begin = in_turn === 0 || (in_turn < this.#turns_max && !this.#isShareFull());
    const instance = this.#turns.next(may_go, may_begin);
    if (instance === undefined && this.#turns.has_behind && !this.#looks_for_room) {
      // While those whose turn it is hang, nothing else asks whether there is room for more.
      this.#looks_for_room = true;
      this.#wakes.schedule(now + CHECK_MS, () => {
        this.#looks_for_room = false;
        this.#pump();
      });
    }
    return instance;
  }

  /** The next step of a ready lane: an attempt on its head, a look into the table, or an end. */
  #step(instance: InstanceLanes, lane: Lane): void {
    const now = this.#clock.now();
    for (let head = lane.queue.peek(); head !== undefined; head = lane.queue.peek()) {
      if (head.expires_at <= now && head.expires_at <= this.#expiry.timeAt(now)) {
        this.#settlements.add(this.#settlementOf(instance, head, 'failed', 'expired', null, false));
        this.#take(lane);
        this.#observer.settled('failed', 'expired', 1);
        continue;
      }
      if (!lane.aside && head.next_attempt_at !== null && head.next_attempt_at > now) {
        this.#hold(instance, lane, head.next_attempt_at);
        return;
      }
      this.#attempt(instance, lane, head);
      return;
    }
    if (lane.aside) void this.#loadAside(instance);
    else if (lane.backlog !== null && this.#turns.isUp(instance)) {
      this.#turns.end(instance);
      this.#offer(instance, lane);
    } else if (lane.backlog !== null) this.#loadLane(instance, lane, lane.backlog);
    else this.#evictIfIdle(instance, lane);
  }

  #hold(instance: InstanceLanes, lane: Lane, until: number): void {
    lane.held_until = until;
    this.#wakes.schedule(until, () => {
      this.#offer(instance, lane);
      this.#pump();
    });
  }

  /** An empty lane is forgotten: but not before discovery is over, because only the lane knows what was taken from it. */
  #evictIfIdle(instance: InstanceLanes, lane: Lane): void {
    if (!lane.isEmpty || lane.isBusy || lane.aside || !instance.partition.discovered) return;
    instance.lanes.delete(lane.meeting_id);
    if (lane.contiguous_from !== null && !instance.dropped) this.#cacheCursor(instance, lane);
  }

  #cacheCursor({ lane_cursors }: InstanceLanes, { meeting_id, contiguous_from, last_seq }: Lane): void {
    if (lane_cursors.size >= LANE_CURSORS_OF_INSTANCE_MAX || this.#lane_cursors >= LANE_CURSORS_MAX) {
      const [longest] = lane_cursors.keys();
      if (longest === undefined) return;
      lane_cursors.delete(longest);
      this.#lane_cursors--;
    }
    lane_cursors.set(meeting_id, { contiguous_from, last_seq });
    this.#lane_cursors++;
  }

  #dropCursors({ lane_cursors }: InstanceLanes): void {
    this.#lane_cursors -= lane_cursors.size;
    lane_cursors.clear();
  }

  #loadLane(instance: InstanceLanes, lane: Lane, backlog: Backlog): void {
    lane.state = 'loading';
    instance.loads++;
    const is_full = instance.goes_first ? this.#isMemoryFull() : this.#isShareFull();
    const length_max = Math.max(1, this.#lengthMaxOf(instance, lane, this.#clock.now()));
    const limit = is_full ? 1 : Math.min(LANE_PAGE, length_max);
    const { meeting_id, last_seq: after_seq, generation } = lane;
    const { is_unsettled, changes } = backlog;
    this.#loading += limit;
    const read = () => this.#lane_loads.add({ instance_id: instance.instance_id, meeting_id, after_seq, limit }, 1);
    backlog.is_unsettled = false;
    void (is_unsettled ? this.#settlements.flush().then(read) : read()).then(
      (rows) => {
        lane.state = 'idle';
        instance.loads--;
        this.#loading -= limit;
        this.#page_length += (Math.max(1, rows.length) - this.#page_length) * PAGE_LENGTH_WEIGHT;
        if (instance.dropped) return;
        // The rows may have changed since they were read: they are read again.
        if (lane.generation === generation) {
          // What was stored before this node listened, nobody tells it: the table has more than the tail.
          if (lane.tail_length > 0 && (rows.at(-1)?.seq ?? 0) > backlog.tail_to) this.#spillTail(lane);
          const before_tail = rows.filter(({ seq }) => seq < backlog.tail_from);
          for (const row of before_tail) this.#putRead(lane, this.#laneDeliveryOf(row));
          const reaches_tail = before_tail.length < rows.length;
          const is_last = backlog.changes === changes && isLastPage(rows, limit);
          // The table knows better than the tail, of which nothing is pending any more.
          if (is_last && !reaches_tail && lane.tail_length > 0) this.#spillTail(lane);
          else if (is_last || reaches_tail) lane.joinTail();
          if (rows.length > FEW || lane.backlog !== null) instance.is_behind = true;
          else if (instance.is_behind && instance.turn === null && !instance.isSpilled)
            instance.is_behind = instance.health.backoff_step > 0;
        }
        this.#evictIfIdle(instance, lane);
        this.#offer(instance, lane);
        this.#pump();
      },
      (error: unknown) => {
        lane.state = 'idle';
        instance.loads--;
        backlog.is_unsettled ||= is_unsettled;
        this.#loading -= limit;
        this.#tryAgainLater(error, () => this.#offer(instance, lane));
      },
    );
  }

  /** Reads what is due aside. What was settled before must be written first, or it would be read again. */
  async #loadAside(instance: InstanceLanes): Promise<void> {
    const lane = instance.aside;
    const { generation } = lane;
    lane.state = 'loading';
    lane.backlog = null;
    instance.loads++;
    // What comes to be due from here on is noted anew, and kept when the load has ended.
    instance.aside_due_at = null;
    try {
      await this.#settlements.flush();
      const limit = this.#isMemoryFull() ? 1 : LANE_PAGE;
      const now = this.#clock.now();
      const page = this.#store.deliveries.loadAside(instance.instance_id, now, limit);
      const { deliveries, next_at } = await page.finally(() => instance.loads--);
      if (instance.dropped) return;
      lane.state = 'idle';
      if (lane.generation !== generation) this.#scheduleAside(instance, now);
      else for (const row of deliveries) this.#putRead(lane, this.#laneDeliveryOf(row));
      if (next_at !== null) this.#scheduleAside(instance, next_at);
      this.#checkAside(instance);
      this.#offer(instance, lane);
      this.#pump();
    } catch (error) {
      lane.state = 'idle';
      this.#tryAgainLater(error, () => {
        this.#scheduleAside(instance, this.#clock.now());
        // What came to be due meanwhile was noted without a look, because the lane was busy; or it was forgotten.
        this.#checkAside(instance);
        this.#offer(instance, lane);
      });
    }
  }

  /** Something aside of an instance is due at a time. */
  #scheduleAside(instance: InstanceLanes, due_at: number): void {
    if (instance.aside_due_at !== null && instance.aside_due_at <= due_at) return;
    instance.aside_due_at = due_at;
    this.#checkAside(instance);
  }

  /** Reads what is due aside, now or when it is; while some of it is in memory, the end of that looks again. */
  #checkAside(instance: InstanceLanes): void {
    const lane = instance.aside;
    if (instance.dropped) return;
    if (instance.aside_due_at === null || lane.queue.length > 0 || lane.isBusy || lane.backlog !== null) return;
    if (instance.aside_due_at > this.#clock.now()) {
      this.#wakes.schedule(instance.aside_due_at, () => {
        this.#checkAside(instance);
        this.#pump();
      });
      return;
    }
    lane.spill();
    this.#offer(instance, lane);
  }

  #tryAgainLater(error: unknown, again: () => void, delay_ms = TRY_AGAIN_MS): void {
    if (this.#draining) return;
    this.#observer.storageFailed(error);
    this.#wakes.schedule(this.#clock.now() + delay_ms, () => {
      again();
      this.#pump();
    });
  }

  // ── attempt ───────────────────────────────────────────────────────────────────────────────────────────────────────

  #attempt(instance: InstanceLanes, lane: Lane, delivery: LaneDelivery): void {
    const { target } = instance;
    assert(target !== null, 'an instance without a target is never listed');
    if (instance.in_flight === 0) instance.moved_at = this.#clock.now();
    lane.state = 'attempting';
    const { generation } = lane;
    instance.partition.attemptStarts();
    instance.in_flight++;
    this.#in_flight++;
    const in_turn = instance.turn !== null;
    if (in_turn) this.#in_flight_behind++;
    instance.attempted();
    this.#isTried(lane, delivery);
    const started_wall = this.#clock.wall();
    const attempt = delivery.attempt_count + 1;
    const push = pushOf(delivery, target, attempt, started_wall, this.#settings.user_agent);
    void this.#transport.push(push).then((result) => {
      this.#in_flight--;
      instance.in_flight--;
      if (in_turn) this.#in_flight_behind--;
      instance.moved(this.#clock.now(), result.duration_ms);
      this.#push_ms += (result.duration_ms - this.#push_ms) * PUSH_MS_WEIGHT;
      lane.state = 'idle';
      this.#onAttemptEnd(
        instance,
        target,
        lane,
        delivery,
        {
          attempt,
          started_at: new Date(started_wall).toISOString(),
          duration_ms: result.duration_ms,
          outcome: result.outcome,
          status_code: result.status_code,
          detail: result.detail,
          response_excerpt: result.response_excerpt,
        },
        result,
        generation,
      );
      instance.partition.attemptEnds();
      this.#pump();
      if (this.#stopping && this.#in_flight === 0) this.#onIdle?.();
    });
  }

  #onAttemptEnd(
    instance: InstanceLanes,
    target: Target,
    lane: Lane,
    delivery: LaneDelivery,
    attempt: Attempt,
    result: PushResult,
    generation: number,
  ): void {
    const now = this.#clock.now();
    const wall = this.#clock.wall();
    delivery.attempt_count++;
    delivery.attempts = withAttempt(delivery.attempts, attempt);
    const verdict = verdictOf(
      result,
      delivery.answered_badly + 1,
      this.#settings.retry_schedule_ms,
      wall,
      this.#random(),
    );

    const health_before = instance.health;
    const health = healthAfter(health_before, result, now, wall, this.#random());
    instance.learn(target, health, result.outcome === 'gone');
    if (isSuccessAgain(health_before, instance.health)) this.#settlements.markSucceeded(instance);
    else this.#settlements.markDirty(instance);
    this.#wakeAfterBackoff(instance);

    let retry_in_ms: number | null = null;
    switch (verdict.state) {
      case 'delivered':
        this.#settlements.add(this.#settlementOf(instance, delivery, 'delivered', null, null, lane.aside));
        this.#take(lane);
        break;
      case 'failed':
        this.#settlements.add(this.#settlementOf(instance, delivery, 'failed', verdict.reason, null, lane.aside));
        this.#take(lane);
        break;
      case 'retry': {
        delivery.answered_badly++;
        retry_in_ms = verdict.delay_ms;
        const again_at = now + verdict.delay_ms;
        delivery.next_attempt_at = again_at;
        this.#settlements.add(
          this.#settlementOf(instance, delivery, 'pending', null, again_at, lane.aside || verdict.aside),
        );
        if (lane.aside || verdict.aside) {
          this.#take(lane);
          this.#scheduleAside(instance, again_at);
        } else {
          this.#hold(instance, lane, again_at);
        }
        break;
      }
      case 'not_reached':
        this.#settlements.add(
          this.#settlementOf(instance, delivery, 'pending', null, delivery.next_attempt_at, lane.aside),
        );
        break;
    }
    this.#observer.attempted({
      delivery_id: delivery.delivery_id,
      message_id: delivery.message_id,
      meeting_id: delivery.meeting_id,
      seq: delivery.seq,
      instance_id: delivery.instance_id,
      attempt,
      state: verdict.state === 'delivered' || verdict.state === 'failed' ? verdict.state : 'pending',
      reason: verdict.state === 'failed' ? verdict.reason : null,
      retry_in_ms,
      accepted_at: delivery.accepted_at,
      health_before,
      health_after: instance.health,
    });

    if (instance.dropped) {
      this.#spill(lane, 0);
      return;
    }
    if (lane.generation !== generation) this.#invalidateLane(instance, lane);
    if (instance.health.backoff_step > 0) this.#spillAway(instance);
    else if (lane.held_until > now && this.#isShareFull()) this.#spill(lane, 0);
    if (lane.aside) this.#checkAside(instance);
    this.#evictIfIdle(instance, lane);
    this.#offer(instance, lane);
  }

  #settlementOf(
    { partition }: InstanceLanes,
    delivery: LaneDelivery,
    state: DeliverySettlement['state'],
    reason: DeliveryReason | null,
    next_attempt_at: number | null,
    aside: boolean,
  ): DeliverySettlement {
    return {
      delivery_id: delivery.delivery_id,
      expires_at: delivery.expires_at,
      state,
      reason,
      attempt_count: delivery.attempt_count,
      answered_badly: delivery.answered_badly,
      attempts: JSON.stringify(delivery.attempts),
      next_attempt_at,
      aside,
      settled_at: state === 'pending' ? null : this.#clock.wall(),
      epoch: partition.epoch,
    };
  }

  #wakeAfterBackoff(instance: InstanceLanes): void {
    const { backoff_until } = instance.health;
    if (backoff_until === null) return;
    this.#wakes.schedule(backoff_until, () => {
      this.#offer(instance);
      this.#pump();
    });
  }

  /**
   * What a former process wrote of steady time may be far off, when the clock was set between the two: nothing waits for
   * longer than it could have been told to.
   */
  #laneDeliveryOf({ message, ...row }: QueuedDelivery): LaneDelivery {
    const next_attempt_at = row.next_attempt_at === null ? null : Math.min(row.next_attempt_at, this.#latest);
    return { ...row, next_attempt_at, body_head: pushBodyHead(row.meeting_id, message), is_read: true };
  }

  /** Nothing that was written on this clock is due later. */
  get #latest(): number {
    const longest_ms = jittered(Math.max(RETRY_AFTER_MS_MAX, ...this.#settings.retry_schedule_ms), 1);
    return this.#clock.now() + longest_ms;
  }

  #withinBackoff(row: Instance): Instance {
    if (row.backoff_until === null) return row;
    // The policy that blocked it may have been a former process's: asking the present one opens no socket.
    if (row.last_failure?.outcome === 'blocked') return { ...row, backoff_until: null };
    return { ...row, backoff_until: Math.min(row.backoff_until, this.#clock.now() + jittered(BACKOFF_MAX_MS, 1)) };
  }

  // ── what others change ────────────────────────────────────────────────────────────────────────────────────────────

  /** A registration was made or changed; `resets_backoff` says that it ends the back-off. */
  instanceChanged(row: Instance, resets_backoff: boolean): void {
    const instance = this.#instances.get(row.instance_id);
    if (instance === undefined) return;
    if (this.#store.cluster !== null) {
      // Answers come over many connections: of two rows the one that comes last need not be the later one.
      this.#onRemoteInstanceChange({ kind: 'instance', instance_id: row.instance_id, resets_backoff, requeued: false });
      this.#pump();
      return;
    }
    instance.is_stale = false;
    const moved = instance.target !== null && instance.target.url !== row.webhook_url;
    if (moved) this.#transport.forget(row.instance_id);
    instance.use(this.#withinBackoff(row));
    if (resets_backoff) this.#resetBackoff(instance);
    this.#wakeAfterBackoff(instance);
    this.#offer(instance);
    this.#pump();
  }

  #resetBackoff(instance: InstanceLanes): void {
    const { health } = instance;
    instance.resetBackoff();
    if (instance.health !== health) this.#settlements.markDirty(instance);
  }

  /**
   * A step of a deletion was done, or failed: whatever it made of the registration and its deliveries, both are read anew
   * before anything else is started.
   */
  invalidateInstance(instance_id: string): void {
    const instance = this.#instances.get(instance_id);
    if (instance === undefined) return;
    instance.invalidated_at = ++this.#invalidations;
    instance.invalidate();
    for (const lane of [...instance.lanes.values(), instance.aside]) this.#invalidateLane(instance, lane);
    this.#pump();
  }

  /** Drops what a lane has in memory; the end of an attempt under way drops its own. */
  #invalidateLane(instance: InstanceLanes, lane: Lane): void {
    this.#spill(lane, 0);
    lane.invalidate();
    this.#offer(instance, lane);
  }

  /** @param cancelled how many deliveries were pending */
  instanceRemoved(instance_id: string, cancelled: number): void {
    this.#observer.settled('cancelled', 'instance_deleted', cancelled);
    this.#transport.forget(instance_id);
    const instance = this.#instances.get(instance_id);
    if (instance !== undefined) this.#drop(instance);
    this.#pump();
  }

  /**
   * A delivery was queued again by hand: whoever asks for it wants to see it tried, so the back-off ends as well. One that
   * waits behind the head of its lane keeps its place, and the head its time.
   */
  deliveryRetried(retried: LaneKey & { aside: boolean; delivery_id?: string }): void {
    const { instance_id, meeting_id, aside, delivery_id } = retried;
    const instance = this.#instanceOf(instance_id);
    // The store tells the node that has it.
    if (instance === null) return;
    this.#resetBackoff(instance);
    if (aside) this.#scheduleAside(instance, this.#clock.now());
    else {
      const lane = instance.lanes.get(meeting_id);
      const head = lane?.queue.peek();
      if (lane !== undefined && (head === undefined || head.delivery_id === delivery_id)) {
        lane.held_until = 0;
        if (head === undefined) {
          if (lane.backlog !== null) lane.backlog.is_unsettled = true;
        } else head.next_attempt_at = null;
        this.#offer(instance, lane);
      }
    }
    this.#offer(instance);
    this.#pump();
  }

  // ── what other nodes change ───────────────────────────────────────────────────────────────────────────────────────

  /** Another node did something that this one must know of. */
  heard(change: Change): void {
    switch (change.kind) {
      case 'reading':
        this.#read_started_at = this.#invalidations;
        return;
      case 'stored':
        for (const { meeting_id, first_seq, last_seq, messages } of change.ranges) {
          const contiguous_from = this.#contiguousFrom(meeting_id, first_seq, last_seq);
          for (const message of messages) this.#enqueue(message, contiguous_from, this.#read_started_at, false);
        }
        // Who is behind tells the others, also when it accepts nothing itself.
        if (this.#waiting >= BACKLOG_REPORT_MIN) this.#checkSaturation(this.#clock.now());
        break;
      case 'instance':
        this.#onRemoteInstanceChange(change);
        break;
      case 'resync':
        void this.#resyncAll();
        break;
      case 'broadcast':
        this.#partitions.onBroadcast(change.topic);
        this.#cluster_backlog.onReport(change.topic, change.text);
        break;
      case 'keys':
        break;
    }
    this.#pump();
  }

  /** Something in a lane is on disk that this node has not seen. */
  #markSpilled({ instance_id, meeting_id }: LaneKey): void {
    const instance = this.#instanceOf(instance_id);
    if (instance === null) return;
    // What came to a lane that is in memory is being delivered: it may be what was found.
    if (!instance.lanes.has(meeting_id)) instance.is_behind = true;
    const lane = this.#laneOf(instance, meeting_id, null);
    // The table knows better than what is remembered of a lane: it is read from its beginning.
    const is_read_from_start = lane.isEmpty && !lane.isBusy;
    if (is_read_from_start) lane.last_seq = 0;
    lane.contiguous_from ??= instance.partition.is_solo ? null : 0;
    const backlog = lane.spill();
    if (is_read_from_start) backlog.is_unsettled = true;
    this.#offer(instance, lane);
  }

  #onRemoteInstanceChange({ instance_id, resets_backoff, requeued }: Extract<Change, { kind: 'instance' }>): void {
    const instance = requeued ? this.#instanceOf(instance_id) : (this.#instances.get(instance_id) ?? null);
    if (instance === null) return;
    instance.invalidate();
    if (resets_backoff) this.#resetBackoff(instance);
    if (requeued) {
      this.#invalidations++;
      this.#invalidateLanes(instance);
    }
    this.#offer(instance);
  }

  /** Whatever the table says of the deliveries of an instance, what is in memory says no more. */
  #invalidateLanes(instance: InstanceLanes): void {
    instance.invalidated_at = this.#invalidations;
    for (const lane of instance.lanes.values()) {
      lane.held_until = 0;
      this.#invalidateLane(instance, lane);
    }
    this.#invalidateLane(instance, instance.aside);
  }

  /**
   * Anything may have been missed. The database may even be behind what this node knows (a standby took over that had not
   * heard everything, or an older backup was put back), and give seqs again: lanes are read from their beginning.
   */
  async #resyncAll(): Promise<void> {
    this.#invalidations++;
    this.#seen_ranges.clear();
    for (const instance of this.#instances.values()) {
      instance.invalidate();
      instance.may_need_reset = true;
      this.#invalidateLanes(instance);
      this.#dropCursors(instance);
      for (const lane of instance.lanes.values()) {
        lane.last_seq = 0;
        if (lane.contiguous_from !== null) lane.contiguous_from = 0;
      }
    }
    await this.#find(this.#partitions.held, (lane) => this.#markSpilled(lane));
  }

  /** Stands behind what other nodes tell: what they told while nobody listened, or could not tell, is found here. */
  #scanForMissedLanes(): Promise<number> {
    // What has something in memory comes to its end first, and is found then if there is more.
    return this.#find(this.#partitions.held, (key) => {
      const lane = this.#instances.get(key.instance_id)?.lanes.get(key.meeting_id);
      if (lane === undefined || (lane.isEmpty && !lane.isBusy)) this.#markSpilled(key);
    });
  }

  async #poll(): Promise<void> {
    const took_ms = await this.#scanForMissedLanes();
    this.#wakes.schedule(this.#clock.now() + scanPause(took_ms, POLL_MS), () => void this.#poll());
  }

  /** Resolves with how long the table took, in milliseconds. */
  async #find(partitions: readonly Partition[], lane: (key: LaneKey) => void): Promise<number> {
    const aside = (instance_id: string, due_at: number): void => {
      const instance = this.#instanceOf(instance_id);
      if (instance !== null) this.#scheduleAside(instance, due_at);
    };
    try {
      return await this.#pending_scan.run(partitions, { lane, aside, page: () => this.#pump() });
    } catch {
      // The node stops: whoever has them next finds it.
      return 0;
    }
  }

  async #onAcquired(partitions: readonly Partition[]): Promise<void> {
    this.#invalidations++;
    for (const partition of partitions) partition.acquired_at = this.#invalidations;
    // Whoever had them may have had another clock.
    await this.#pending_scan.bound(partitions, this.#latest).catch(() => {});
    await this.#find(partitions, (lane) => this.#markSpilled(lane));
    for (const partition of partitions) partition.discovered = true;
    for (const instance of this.#instances.values()) {
      for (const lane of instance.lanes.values()) this.#evictIfIdle(instance, lane);
    }
  }

  #onRevoked(partitions: ReadonlySet<Partition>): void {
    for (const instance of this.#instances.values()) if (partitions.has(instance.partition)) this.#drop(instance);
  }

  #onResumed(partition: Partition): void {
    for (const instance of this.#instances.values()) if (instance.partition === partition) this.#offer(instance);
    this.#pump();
  }

  // ── start and stop ────────────────────────────────────────────────────────────────────────────────────────────────

  /** Finds what is pending in the partitions of this node. Resolves when all of it is in its lanes. */
  async start(): Promise<void> {
    if (this.#store.cluster !== null) this.#wakes.schedule(this.#clock.now() + POLL_MS, () => void this.#poll());
    await this.#partitions.start({
      onAcquired: (partitions) => this.#onAcquired(partitions),
      onRevoked: (partitions) => this.#onRevoked(partitions),
      flush: () => this.#settlements.flushAll(),
      onRenewed: () => this.#pump(),
      onResumed: (partition) => this.#onResumed(partition),
    });
  }

  /** Whether the end has begun. */
  get is_draining(): boolean {
    return this.#draining;
  }

  /**
   * The end begins: starts no more attempts, and gives its partitions back. What is sent meanwhile is on disk all the same,
   * for other nodes, or for the next start.
   */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#pending_scan.stop();
    this.#partitions.drain();
  }

  /** Drains, accepts nothing more, lets attempts under way end, and writes what they made. */
  async stop(): Promise<void> {
    this.drain();
    this.#stopping = true;
    if (this.#in_flight > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    this.#accepts.flushIfReady();
    // Storage that fails now would hold the process for ever; what was not written is delivered again after the start.
    const timed_out = Promise.withResolvers<void>();
    const timer = this.#clock.after(LAST_WRITE_MS_MAX, timed_out.resolve);
    await Promise.race([this.#settlements.flushAll(), timed_out.promise]);
    timer.cancel();
    await this.#partitions.leave();
    this.#wakes.stop();
  }

  /** Resolves when what attempts made so far is on disk. */
  written(): Promise<void> {
    return this.#settlements.flushAll();
  }

  /** Whether nothing is under way: for those who wait for it. */
  get isQuiet(): boolean {
    return this.#in_flight === 0 && this.#accepts.isIdle && this.#settlements.unsettled === 0 && this.#turns.isEmpty;
  }
}

/** Whether nothing followed when a page of a lane was read: it ends neither at its limit nor where deliveries get long. */
function isLastPage(rows: QueuedDelivery[], limit: number): boolean {
  if (rows.length >= limit) return false;
  let chars = 0;
  for (const row of rows) chars += queuedChars(row);
  return chars < LANE_PAGE_CHARS_MAX;
}

/** What a delivery takes in memory, but for what all do. */
function bytesOf({ body_head, target_agents }: LaneDelivery): number {
  return body_head.byteLength + target_agents.length;
}
