import assert from 'node:assert/strict';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { type Outcome, OUTCOMES } from '../domain/outcome.ts';
import { type DeliveryReason, REASONS_OF } from '../domain/delivery.ts';
import { TIMEOUT_S_MAX } from '../domain/runtimes/runtimes.ts';
import type { Store } from '../store/store.ts';
import { StoreError } from '../store/store_error.ts';
import { stalled } from '../store/thread/stall.ts';
import type { Clock } from './clock.ts';
import { type DroppedSpans, SPAN_DROPS } from './tracer.ts';
import type { Engine } from './engine.ts';
import { type AttemptEvent, REPLY_RESULTS, REPLY_WAYS, type ReplyResult, type ReplyWay } from './observer.ts';
import type { Expiry } from './expiry.ts';
import type { PullTransport } from './transport/pull_transport.ts';
import { HAND_OVERS, type HandOver } from './cluster/partitions.ts';

/**
 * How often the library measures the delay of the event loop. Each measurement wakes the process. With the default of
 * 10 ms the measurements took a third of the processor time of an idle node. The library counts the whole time between
 * two measurements as delay. This class subtracts all of that time except 10 ms. So the metrics mean the same as with
 * the default.
 */
const LOOK_EVERY_MS = 100;
const LOOK_EVERY_DEFAULT_MS = 10;
/** Without a measurement, the shortest delay of the library is 292 years, and the others are under a microsecond. */
const DELAY_S = { min: 1e-6, max: 1e9 };

/**
 * How long the metrics wait for the store. Prometheus gives up after 10 s, or after 5 s if it asks every 5 s, and would
 * lack all metrics then.
 */
const STORE_MS_MAX = 4_000;

/** The metrics for Prometheus. Labels are outcomes, states and reasons: bounded sets, never an id. */
export class Metrics {
  readonly #clock: Clock;
  readonly #registry = new Registry();
  readonly #accepted: Counter;
  readonly #queued: Counter;
  readonly #attempts = new Map<Outcome, number>();
  /** By state and reason, with a space between. */
  readonly #settled = new Map<string, number>();
  readonly #replies: Counter;
  readonly #delivery_seconds: Histogram;
  readonly #attempt_seconds: Histogram;
  readonly #commit_items: Histogram;
  readonly #commit_seconds: Histogram;
  readonly #hand_overs: Counter;

  constructor(
    clock: Clock,
    engine: () => Engine,
    store: Store,
    expiry: Pick<Expiry, 'heldAt'>,
    pulls: Pick<PullTransport, 'counts'>,
    /** Null while traces are off. */
    traces: { dropped(): DroppedSpans } | null,
  ) {
    this.#clock = clock;
    const registers = [this.#registry];
    this.#collectDefaults();
    this.#accepted = new Counter({
      name: 'convoke_messages_accepted_total',
      help: 'Messages stored and answered.',
      registers,
    });
    this.#queued = new Counter({
      name: 'convoke_deliveries_queued_total',
      help: 'Deliveries made for accepted messages.',
      registers,
    });
    // Convoke counts attempts itself, and the library asks for these figures when it needs them. A counter of the
    // library would look up the label at every attempt, which takes long.
    const counted = this.#attempts;
    new Counter({
      name: 'convoke_attempts_total',
      help: 'Attempts that ended, by outcome.',
      labelNames: ['outcome'],
      registers,
      collect() {
        this.reset();
        for (const outcome of Object.keys(OUTCOMES) as Outcome[]) this.inc({ outcome }, counted.get(outcome) ?? 0);
      },
    });
    // Prometheus sees no increase when a series begins with its first event. So every series begins with 0.
    const settled = this.#settled.set(settledKey('delivered', null), 0);
    for (const state of ['failed', 'cancelled'] as const)
      for (const reason of REASONS_OF[state]) settled.set(settledKey(state, reason), 0);
    new Counter({
      name: 'convoke_deliveries_settled_total',
      help: 'Deliveries that ended, by state and reason.',
      labelNames: ['state', 'reason'],
      registers,
      collect() {
        this.reset();
        for (const [key, deliveries] of settled) {
          const [state = '', reason = ''] = key.split(' ');
          this.inc({ state, reason }, deliveries);
        }
      },
    });
    new Counter({
      name: 'convoke_trace_spans_dropped_total',
      help: 'Spans that did not reach the collector of traces, by reason.',
      labelNames: ['reason'],
      registers,
      collect() {
        this.reset();
        const dropped = traces?.dropped();
        for (const reason of SPAN_DROPS) this.inc({ reason }, dropped?.[reason] ?? 0);
      },
    });
    this.#replies = new Counter({
      name: 'convoke_replies_total',
      help: 'Replies of agents, by how they arrived and what became of them.',
      labelNames: ['way', 'result'],
      registers,
    });
    for (const way of REPLY_WAYS) for (const result of REPLY_RESULTS) this.#replies.inc({ way, result }, 0);
    this.#delivery_seconds = new Histogram({
      name: 'convoke_delivery_seconds',
      help: 'From acceptance to delivery.',
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 600, 3600],
      registers,
    });
    this.#attempt_seconds = new Histogram({
      name: 'convoke_attempt_seconds',
      help: 'Duration of attempts.',
      // The last bucket is the longest timeout that a runtime may have: a quantile is never above the last bucket, so a
      // smaller one would hide longer attempts.
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 150, TIMEOUT_S_MAX],
      registers,
    });
    this.#commit_items = new Histogram({
      name: 'convoke_commit_batch_size',
      help: 'Messages, settlements and other requests that were committed together.',
      buckets: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4000],
      registers,
    });
    this.#commit_seconds = new Histogram({
      name: 'convoke_commit_seconds',
      help: 'Duration of transactions, with the wait for the disk.',
      buckets: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
      registers,
    });
    this.#hand_overs = new Counter({
      name: 'convoke_partition_hand_overs_total',
      help: 'Partitions that this node took, gave back as agreed, or lost because its lease had ended.',
      labelNames: ['what'],
      registers,
    });
    for (const what of HAND_OVERS) this.#hand_overs.inc({ what }, 0);
    this.#gauge('convoke_partitions_held', 'Partitions of this node, of 64.', () => engine().stats.partitions);
    this.#gauge(
      'convoke_lease_age_seconds',
      'Since the lease of this node was asked for; it is trusted for 9.5 s. 0 without a cluster.',
      () => engine().stats.lease_age_ms / 1000,
    );
    this.#gauge('convoke_store_writable', '1 when a write reached the disk just now, otherwise 0.', () =>
      store.ping().then(
        () => 1,
        () => 0,
      ),
    );
    this.#gauge('convoke_deliveries_pending', 'Deliveries that are not settled.', () =>
      store.deliveries.countPending(),
    );
    this.#gauge('convoke_oldest_pending_seconds', 'Age of the longest pending delivery; 0 when none is.', async () => {
      const oldest_at = await store.deliveries.oldestPending();
      return oldest_at === null ? 0 : Math.max(0, clock.wall() - oldest_at) / 1000;
    });
    this.#gauge(
      'convoke_expiry_held_seconds',
      'How far the clock was ahead at the start, while the service does not believe the clock; otherwise 0.',
      () => expiry.heldAt(clock.now()) / 1_000,
    );
    this.#gauge('convoke_attempts_in_flight', 'Attempts in flight.', () => engine().stats.in_flight);
    this.#gauge('convoke_pulls_waiting', 'Pulls that wait for a push on this node.', () => pulls.counts.waiting);
    this.#gauge(
      'convoke_pushes_in_hand',
      'Pushes that machines have which pull, and whose results are awaited. They are among the attempts in flight.',
      () => pulls.counts.awaited,
    );
    this.#gauge(
      'convoke_instances_connected',
      'Instances of this node whose machine pulls.',
      () => pulls.counts.connected,
    );
    this.#gauge(
      'convoke_deliveries_in_memory',
      'Deliveries that wait in memory.',
      () => engine().stats.queued_in_memory,
    );
    this.#gauge(
      'convoke_settlements_waiting',
      'Results of attempts that are not on disk yet.',
      () => engine().stats.unsettled,
    );
  }

  #collectDefaults(): void {
    const prefix = 'convoke_';
    collectDefaultMetrics({ register: this.#registry, prefix, eventLoopMonitoringPrecision: LOOK_EVERY_MS });
    for (const what of ['min', 'max', 'mean', 'stddev', 'p50', 'p90', 'p99']) {
      const lag = this.#registry.getSingleMetric(`${prefix}nodejs_eventloop_lag_${what}_seconds`);
      assert(lag instanceof Gauge);
      const excess = what === 'stddev' ? 0 : (LOOK_EVERY_MS - LOOK_EVERY_DEFAULT_MS) / 1_000;
      const set = lag.set.bind(lag);
      // Each request for the metrics makes the library forget its measurements. When the next request follows within
      // LOOK_EVERY_MS, there is no measurement, and the previous values stay.
      Object.assign(lag, {
        set(labels: object, seconds: number): void {
          const is_measured = seconds < DELAY_S.max && (seconds > DELAY_S.min || what === 'stddev');
          if (is_measured) set(labels, Math.max(0, seconds - excess));
        },
      });
    }
  }

  /**
   * Leaves a metric out when the store fails or does not respond, so that the other metrics can still show the failure.
   */
  #gauge(name: string, help: string, value: () => number | Promise<number>): void {
    const clock = this.#clock;
    new Gauge({
      name,
      help,
      registers: [this.#registry],
      async collect() {
        const late = Promise.withResolvers<never>();
        const timer = clock.after(STORE_MS_MAX, () => late.reject(stalled()));
        try {
          this.set(await Promise.race([value(), late.promise]));
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          this.remove();
        } finally {
          timer.cancel();
        }
      },
    });
  }

  accepted(messages: number, deliveries: number): void {
    this.#accepted.inc(messages);
    this.#queued.inc(deliveries);
  }

  onHandOver(what: HandOver, partitions: number): void {
    this.#hand_overs.inc({ what }, partitions);
  }

  committed({ items, duration_ms }: { items: number; duration_ms: number }): void {
    this.#commit_items.observe(items);
    this.#commit_seconds.observe(duration_ms / 1000);
  }

  /** Deliveries that ended, by an attempt or without one. */
  settled(state: 'delivered' | 'failed' | 'cancelled', reason: DeliveryReason | null, deliveries: number): void {
    if (deliveries === 0) return;
    const key = settledKey(state, reason);
    this.#settled.set(key, (this.#settled.get(key) ?? 0) + deliveries);
  }

  attempted({ attempt, state, reason, accepted_at }: AttemptEvent, wall_ms: number): void {
    this.#attempts.set(attempt.outcome, (this.#attempts.get(attempt.outcome) ?? 0) + 1);
    this.#attempt_seconds.observe(attempt.duration_ms / 1000);
    if (state === 'pending') return;
    this.settled(state, reason, 1);
    if (state === 'delivered') this.#delivery_seconds.observe(Math.max(0, wall_ms - accepted_at) / 1000);
  }

  replied(way: ReplyWay, result: ReplyResult): void {
    this.#replies.inc({ way, result });
  }

  async text(): Promise<{ content_type: string; text: string }> {
    return { content_type: this.#registry.contentType, text: await this.#registry.metrics() };
  }
}

function settledKey(state: 'delivered' | 'failed' | 'cancelled', reason: DeliveryReason | null): string {
  return `${state} ${reason ?? 'none'}`;
}
