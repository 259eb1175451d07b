/**
 * The life of a delivery, from the committed row to the acknowledged webhook. This file only joins the parts:
 *
 * accept/:      messages that arrive together are stored in one transaction; they wait while dispatch is behind.
 * lanes/:       the deliveries of each instance, meeting by meeting, in memory and on disk.
 * replies/:     a reply is sent in the meeting before the delivery that it answers counts as delivered.
 * attempts/:    decides whose step is next, makes the attempts, and writes their results in batches.
 * transport/:   how a push is made.
 * runtimes/:    the requests of a push to an agent runtime, and the answers.
 * discovery.ts: after a start, finds the pending deliveries.
 * cluster/:     the instances of this node, and the changes of other nodes. A single node does not use it.
 *
 * Every delivery is on disk, and a delivery that was just committed is dispatched from memory. When a lane grows too
 * long, its instance does not move, or memory is full, the rest of the lane stays on disk only. This rest is the
 * backlog of the lane. It is read in order when the part in memory has been delivered. After a start every lane is a
 * backlog.
 */
import type { GuardLimits } from '../domain/guard_rule.ts';
import type { Instance, InstanceHealth } from '../domain/instance.ts';
import { retryDelayMsMax } from '../domain/retry_delay.ts';
import type { Change } from '../store/contract/cluster.ts';
import type { LaneKey } from '../store/contract/deliveries.ts';
import type { Store } from '../store/store.ts';
import { Acceptor, type Send, type Sent } from './accept/acceptor.ts';
import { Backpressure } from './accept/backpressure.ts';
import { AttemptLimit } from './attempts/attempt_limit.ts';
import { Attempts } from './attempts/attempts.ts';
import { CatchUp } from './attempts/catch_up.ts';
import { Dispatcher } from './attempts/dispatcher.ts';
import { HeldLanes } from './attempts/held_lanes.ts';
import { InFlight } from './attempts/in_flight.ts';
import { Results } from './attempts/results.ts';
import { LoopGuard } from './attempts/loop_guard.ts';
import { Saturation } from './attempts/saturation.ts';
import { TurnLimits } from './attempts/turn_limits.ts';
import { Settlements } from './attempts/settlements.ts';
import type { Clock } from './clock.ts';
import { ClusterBacklog } from './cluster/cluster_backlog.ts';
import { LaneCursors } from './cluster/lane_cursors.ts';
import type { Partitions } from './cluster/partitions.ts';
import { RemoteChanges } from './cluster/remote_changes.ts';
import { SeenRanges } from './cluster/seen_ranges.ts';
import { Discovery } from './discovery.ts';
import type { Observer } from './observer.ts';
import type { Expiry } from './expiry.ts';
import { InvalidationClock } from './lanes/invalidation_clock.ts';
import { LaneLoader } from './lanes/lane_loader.ts';
import { LaneMemory } from './lanes/lane_memory.ts';
import { RecipientCache } from './lanes/recipient_cache.ts';
import { Registrations } from './lanes/registrations.ts';
import { AsideDeliveries } from './lanes/aside_deliveries.ts';
import { Enqueuer } from './lanes/enqueuer.ts';
import { Turns } from './lanes/turns.ts';
import { LocalChanges } from './local_changes.ts';
import { Meetings } from './meetings.ts';
import { Replies } from './replies/replies.ts';
import type { ReplyAccess } from './replies/reply_access.ts';
import { PendingScan } from './pending_scan.ts';
import { TimerQueue } from './timer_queue.ts';
import type { Tracer } from './tracer.ts';
import type { Transport } from './transport/transport.ts';

/** The settings of the engine. `GuardLimits` hold for meetings without limits of their own. */
export interface EngineSettings extends GuardLimits {
  /** Delays between attempts that got a bad response. */
  retry_schedule_ms: readonly number[];
  /** The most attempts in flight, over all instances. */
  max_in_flight: number;
  /** The most attempts in flight to one instance. */
  instance_concurrency: number;
  max_message_bytes: number;
  user_agent: string;
  /** How long settled deliveries are kept. */
  retention_deliveries_ms: number;
}

export interface EngineParts {
  clock: Clock;
  /** A number in [0, 1). */
  random: () => number;
  /** How busy this thread was since the last call: 0 to 1. */
  load: () => number;
  store: Store;
  transport: Transport;
  partitions: Partitions;
  expiry: Expiry;
  observer: Observer;
  settings: EngineSettings;
  /** Lets receivers reply later; absent: they cannot reply later. */
  reply_access?: ReplyAccess | undefined;
  /** Follows messages for a system that collects traces. */
  tracer?: Tracer | null;
}

/** How long a stop waits for the last results of attempts to be written. */
const LAST_WRITE_MS_MAX = 1_200;

export class Engine {
  readonly #clock: Clock;
  readonly #partitions: Partitions;
  readonly #timers: TimerQueue;
  readonly #memory = new LaneMemory();
  readonly #turns = new Turns();
  readonly #in_flight = new InFlight();
  readonly #settlements: Settlements;
  readonly #recipients: RecipientCache;
  readonly #dispatcher: Dispatcher;
  readonly #acceptor: Acceptor;
  readonly #replies: Replies;
  readonly #discovery: Discovery;
  readonly #local_changes: LocalChanges;
  /** Null without a cluster. */
  readonly #remote_changes: RemoteChanges | null;
  readonly #meetings: Meetings;

  constructor(given: EngineParts) {
    const { clock, random, load, store, transport, partitions, expiry, observer, settings, reply_access } = given;
    const { tracer = null } = given;
    const timers = new TimerQueue(clock);
    const memory = this.#memory;
    const turns = this.#turns;
    const in_flight = this.#in_flight;
    const settlements = new Settlements(clock, store, observer, () => this.#dispatcher.run());
    const invalidations = new InvalidationClock();
    const cluster = store.cluster && {
      cluster_backlog: new ClusterBacklog(clock, store.cluster, partitions.node_id),
      seen_ranges: new SeenRanges(),
      lane_cursors: new LaneCursors(invalidations),
    };
    const recipients = new RecipientCache(partitions, memory, turns, cluster?.lane_cursors ?? null);
    const saturation = new Saturation(load);
    const attempt_limit = new AttemptLimit(saturation, settings.max_in_flight);
    const turn_limits = new TurnLimits(attempt_limit, in_flight, settlements, memory);
    const { max_in_flight, instance_concurrency, retry_schedule_ms, user_agent, max_message_bytes } = settings;
    const limits = { max_in_flight, instance_concurrency };
    const held_lanes = new HeldLanes(clock, timers, expiry, (recipient, lane) =>
      this.#dispatcher.wake(recipient, lane),
    );
    const base = {
      clock,
      timers,
      store,
      transport,
      partitions,
      expiry,
      observer,
      settlements,
      memory,
      recipients,
      in_flight,
      held_lanes,
    };
    const { hop_limit, pair_limit, pair_window_s } = settings;
    const meetings = new Meetings({
      limits: { hop_limit, pair_limit, pair_window_s },
      store,
      retryLater: (error, again) => this.#dispatcher.retryLater(error, again),
      onChange: (meeting_id) => this.#local_changes.invalidateMeetings(new Set([meeting_id])),
      onRead: (meeting_ids, resumed) => this.#local_changes.meetingsRead(meeting_ids, resumed),
      onCaughtUp: () => this.#dispatcher.run(),
    });
    const guard = new LoopGuard({ store, settlements, meetings, dispatcher: () => this.#dispatcher });
    const kept_ms = settings.retention_deliveries_ms;
    const catch_up = new CatchUp({ ...base, dispatcher: () => this.#dispatcher, kept_ms });
    const dispatcher = new Dispatcher({
      ...base,
      ...limits,
      turns,
      turn_limits,
      meetings,
      guard,
      catch_up,
    });
    const delay_ms_max = retryDelayMsMax(retry_schedule_ms);
    const latestDue = (): number => clock.now() + delay_ms_max;
    const parts = { ...base, dispatcher, saturation, meetings, latestDue };

    const registrations = new Registrations(parts);
    const aside_deliveries = new AsideDeliveries(parts);
    const loader = new LaneLoader(parts);
    const enqueuer = new Enqueuer(clock, memory, recipients, dispatcher);
    const results = new Results({ ...parts, random, registrations, aside_deliveries, retry_schedule_ms });

    const onRelief = (): void => this.#acceptor.flushIfReady();
    const backpressure = new Backpressure({ ...parts, cluster_backlog: cluster?.cluster_backlog ?? null, onRelief });
    const intake = { backpressure, invalidations, enqueuer };
    const acceptor = new Acceptor({
      ...parts,
      ...intake,
      seen_ranges: cluster?.seen_ranges ?? null,
      tracer,
    });
    const replies = new Replies({ clock, observer, acceptor, registrations, max_message_bytes });
    const attempts = new Attempts({ ...parts, aside_deliveries, results, replies, reply_access, tracer, user_agent });
    const pending_scan = new PendingScan(clock, timers, store, (error) => observer.storageFailed(error));
    dispatcher.connect({ attempts, loader, aside_deliveries, registrations, backpressure, replies });

    const discovery = new Discovery({ ...parts, pending_scan, invalidations, aside_deliveries });
    const remote_changes =
      cluster && new RemoteChanges({ ...parts, ...intake, ...cluster, registrations, discovery, guard });

    this.#meetings = meetings;
    this.#clock = clock;
    this.#partitions = partitions;
    this.#timers = timers;
    this.#settlements = settlements;
    this.#recipients = recipients;
    this.#dispatcher = dispatcher;
    this.#acceptor = acceptor;
    this.#replies = replies;
    this.#discovery = discovery;
    this.#remote_changes = remote_changes;
    this.#local_changes = new LocalChanges({
      ...parts,
      remote_changes,
      invalidations,
      registrations,
      aside_deliveries,
      discovery,
    });
  }

  // ── figures ────────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Figures for people and metrics. */
  get stats() {
    return {
      ...this.#partitions.stats,
      in_flight: this.#in_flight.count,
      queued_in_memory: this.#memory.queued,
      unsettled: this.#settlements.unsettled,
      instances_in_memory: this.#recipients.size,
    };
  }

  /** The instances in memory, with their health. Every instance with something to deliver is in memory. */
  healths(): Generator<[instance_id: string, health: InstanceHealth]> {
    return this.#recipients.healths();
  }

  /** Whether nothing is in flight, for tests. */
  get isQuiet(): boolean {
    const is_at_rest = this.#in_flight.count === 0 && this.#turns.isEmpty;
    const is_written = this.#replies.storing === 0 && this.#settlements.unsettled === 0;
    return is_at_rest && this.#acceptor.isIdle && is_written;
  }

  /** Resolves when the results of all attempts so far are on disk. */
  written(): Promise<void> {
    return this.#settlements.flushAll();
  }

  // ── what the API does (see accept/acceptor.ts and local_changes.ts) ──────────────────────────────────────────────

  /**
   * Stores a message with its deliveries, and queues the deliveries. When the promise resolves, the message and its
   * deliveries are on disk.
   *
   * @throws Problem `idempotency_key_reused`, `not_permitted`, `invalid_fields`, `overloaded`, `shutting_down`,
   * `storage_unavailable` for a damaged or locked row; StoreError, with the code IN_DOUBT when the message may be
   * stored although the call failed
   */
  send(send: Send): Promise<Sent> {
    return this.#acceptor.send(send);
  }

  /**
   * Stores a list of messages in the order of the list: see `Acceptor.sendAll`. Resolves with the result of each
   * message.
   */
  sendAll(sends: Send[], assertMaySend: () => void = () => {}): Promise<PromiseSettledResult<Sent>[]> {
    return this.#acceptor.sendAll(sends, assertMaySend);
  }

  /** A registration was made or changed. `resets_backoff`: the change ends the back-off. */
  instanceChanged(row: Instance, resets_backoff: boolean): void {
    this.#local_changes.instanceChanged(row, resets_backoff);
  }

  /** The rules of a membership changed: they are read again. */
  memberRulesChanged(instance_id: string): void {
    this.#local_changes.memberRulesChanged(instance_id);
  }

  /** Nobody knows how the instance is stored now: it is read again. */
  invalidateInstance(instance_id: string): void {
    this.#local_changes.invalidateInstance(instance_id);
  }

  /** @param cancelled how many pending deliveries this step of the removal cancelled */
  removalStep(instance_id: string, cancelled: number): void {
    this.#local_changes.removalStep(instance_id, cancelled);
  }

  /** The last step of the removal was made. */
  instanceRemoved(instance_id: string): void {
    this.#local_changes.instanceRemoved(instance_id);
  }

  /**
   * A machine pulls, or an instance has room for another push again: the waiting deliveries of the instance may start.
   */
  isReady(instance_id: string): void {
    const recipient = this.#recipients.known(instance_id);
    if (recipient !== undefined) this.#dispatcher.wake(recipient);
  }

  /**
   * Whether deliveries of an instance are being read, or a step that may read or push them is next. When that ends,
   * `Transport.readEnded` is called.
   */
  isReading(instance_id: string): boolean {
    if (this.#partitions.of(instance_id)?.discovered === false) return true;
    return this.#recipients.known(instance_id)?.isActive === true;
  }

  /** Deliveries were queued again by hand: one delivery of a lane, or deliveries aside. */
  deliveryRetried(retried: LaneKey & { aside: boolean; delivery_id?: string }): void {
    this.#local_changes.deliveryRetried(retried);
  }

  /**
   * The settings of a meeting changed. Resolves when this node uses the new settings, or when the store has failed.
   *
   * @param resumed whether the change ends a pause
   */
  meetingChanged(meeting_id: string, resumed: boolean): Promise<void> {
    return this.#local_changes.meetingChanged(meeting_id, resumed);
  }

  /** Pending deliveries of an instance, of a meeting, or of a lane were cancelled. */
  dropped(of: Partial<LaneKey>, deliveries: number): Promise<void> {
    return this.#local_changes.dropped(of, deliveries);
  }

  /** Maintenance ended deliveries of these lanes, because they had expired. */
  expired(lanes: readonly LaneKey[]): void {
    this.#local_changes.expired(lanes);
  }

  /** Whether so many replies wait to be stored that no pull may bring the response of a runtime. */
  get isFullOfReplies(): boolean {
    return this.#replies.isFull;
  }

  /** Another node changed something that concerns this node. */
  onChange(change: Change): void {
    this.#remote_changes?.onChange(change);
  }

  // ── start and stop ────────────────────────────────────────────────────────────────────────────────────────────────

  /** Finds the pending deliveries of this node's partitions. Resolves when all are in their lanes. */
  async start(): Promise<void> {
    const discovered = this.#remote_changes?.start() ?? this.#discovery.discover(this.#partitions.held);
    await Promise.all([this.#meetings.readAll(), discovered]);
  }

  /** Whether `drain` was called. */
  get is_draining(): boolean {
    return this.#dispatcher.is_draining;
  }

  /**
   * Begins to stop: starts no more attempts and releases the partitions. A message that arrives now is still stored:
   * other nodes deliver it, or this node after its next start.
   */
  drain(): void {
    if (this.is_draining) return;
    this.#dispatcher.drain();
    this.#discovery.stop();
    this.#partitions.drain();
  }

  /** Drains, and waits for attempts in flight. */
  async attemptsEnded(): Promise<void> {
    this.drain();
    await this.#in_flight.idle();
  }

  /** Drains, accepts nothing more, waits for attempts in flight, and writes their results. */
  async stop(): Promise<void> {
    this.drain();
    this.#acceptor.close();
    await this.#in_flight.idle();
    this.#acceptor.flushIfReady();
    // The storage may fail now, so the stop waits only for a limited time. A delivery whose result is not written is
    // pushed again after the next start.
    const timed_out = Promise.withResolvers<void>();
    const timer = this.#clock.after(LAST_WRITE_MS_MAX, timed_out.resolve);
    const written = this.#replies.idle().then(() => this.#settlements.flushAll());
    await Promise.race([written, timed_out.promise]);
    timer.cancel();
    this.#replies.giveUp();
    await this.#partitions.leave();
    this.#timers.stop();
  }
}
