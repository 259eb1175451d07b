/**
 * Simulates a few random days of one node, or some minutes of several nodes on one store. Machines respond, fail, give
 * wrong responses and disappear; people send messages, and join, leave and delete. The disk fails, and the clock is
 * set. Processes start, stop, are killed, are paused, or are cut off from the store. At the end all faults stop, and
 * the checker checks the promises. A seed always makes the same world.
 */
import { DeliveryChanges } from '../../src/changes/deliveries.ts';
import type { Clock } from '../../src/delivery/clock.ts';
import { Engine } from '../../src/delivery/engine.ts';
import { Expiry } from '../../src/delivery/expiry.ts';
import { Maintenance } from '../../src/delivery/maintenance.ts';
import { Partitions } from '../../src/delivery/cluster/partitions.ts';
import { type PullEnd, PullTransport } from '../../src/delivery/transport/pull_transport.ts';
import type { Push, PushResult, Transport, Way } from '../../src/delivery/transport/transport.ts';
import { Transports } from '../../src/delivery/transport/transports.ts';
import { WallSteps } from '../../src/delivery/wall_steps.ts';
import type { GuardLimits } from '../../src/domain/guard_rule.ts';
import { type Outcome, outcomeOfStatus } from '../../src/domain/outcome.ts';
import { partitionOf } from '../../src/domain/partition.ts';
import type { PullContext } from '../../src/http/routes/pull.ts';
import type { GivenRules } from '../../src/store/contract/meetings.ts';
import type { Store } from '../../src/store/store.ts';
import { Checker, type Flight, type Machine, promptWithin, type Sent, type WorldSettings } from './checker.ts';
import { ModelStore, type StoreOperations } from './model_store.ts';
import { Random } from './random.ts';
import { clustered, type Connection, ModelCluster, type OnHandOver } from './model_cluster.ts';
import {
  type Answer as Answered,
  type ForwardedPull,
  type PullBody,
  PullEndpoint,
  responseOf,
} from './pull_endpoint.ts';
import { PULL_MOODS, PullingMachine } from './pulling_machine.ts';
import { simulatedStore, type StoreConditions } from './simulated_store.ts';
import { SteppedClock } from './stepped_clock.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const STEPS_MAX = 50_000;
const EVER = { since_ms: 0, until_ms: Number.MAX_SAFE_INTEGER };
/** The limit of steps for worlds with forty agents: they have many pairs, so these worlds take longer. */
const STEPS_MAX_OF_CROWD = 500_000;
const ANSWER_MS_MAX = 20;
/** How late a sender repeats a message. A key is kept for a day, but somebody may set the clock ahead by some hours. */
const REPEATED_WITHIN_MS = 12 * HOUR;

const MOODS = ['fine', 'fine', 'slow', 'dead', 'bad', 'hung', 'moody', 'moody', 'accepting', 'lossy', 'gone'] as const;
type Mood = (typeof MOODS)[number];

interface Answer {
  says: number | Exclude<Outcome, 'ok' | 'not_200' | 'gone' | 'bad_status'>;
  after_ms: number;
  retry_after?: string;
  /** Whether the machine acted on the push, although its response reports a failure or never arrives. */
  handled?: boolean;
}

const MOODY: Answer['says'][] = [200, 200, 200, 500, 429, 202, 302, 404, 'timeout', 'connect_refused', 'dns_failed'];
const RETRY_AFTERS = ['1', '90', '7200', '1e99', '-1', 'Fri, 02 Jan 2026 00:00:00 GMT', 'soon'];

/** The share of worlds in which somebody pauses meetings, and the seed for the random numbers of pauses. */
const PAUSES_SHARE = 0.4;
const PAUSES = 0x70617573;

/**
 * At a start, a node does not believe a wall clock that is further ahead than this: a third of the time after which
 * deliveries expire.
 */
const BELIEVED_MS = 24 * HOUR;

/**
 * The share of worlds with a cluster. Such a world has a renewal every 3 s, so a long one would take long to simulate.
 * Therefore these worlds are shorter.
 */
const CLUSTER_SHARE = 0.15;
/**
 * The share of worlds in which machines reply in their responses, the share of machines that do so there, and the share
 * of their responses that have replies.
 */
const REPLYING_SHARE = 0.25;
const REPLIERS_SHARE = 0.5;
const REPLY_SHARE = 0.7;
const REPLIES_MAX = 3;
const CLUSTER_RETRY_SCHEDULE_MS = [10 * SECOND, 30 * SECOND, MINUTE, MINUTE, MINUTE];
const CLUSTER_RETRY_AFTERS = ['1', '90', '1e99', '-1', 'soon'];
const CLUSTER_END_MS = 20 * MINUTE;
/** How often a world with a cluster checks whether it has ended. */
const LOOK_MS = 20 * SECOND;
/** The share of machines that pull, by the kind of world, and how long they may take for a result. */
const PULLING = 0x70756c6c;
const PULLING_SHARE = { pulling: 0.7, returning: 0.5 };
const ACK_TIMEOUTS_MS = [5 * SECOND, 30 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE];
const WAITS_S = [10, 30, 60];
/**
 * The longest wait of pulls of a machine that is always well. Short waits let the machine notice soon that a node is
 * not well.
 */
const WAIT_S_WELL = 10;
/**
 * How soon, whatever happened to nodes, a machine that pulls and is well must find a node and get its pending messages.
 */
const FOUND_MS = 90 * SECOND;
/**
 * For worlds with agents that talk: which agents answer each other, how soon, and how many messages they say at most.
 */
const TALKING = 0x74616c6b;
const TALKS = ['pair', 'pair', 'ring', 'crowd'] as const;
type Talk = (typeof TALKS)[number];
const RING = 3;
const CROWD_MAX = 8;
const BIG_CROWD = 40;
const BIG_CROWD_SHARE = 0.01;
/**
 * After this many messages a big crowd says no more. Within the limits of the guard it could go on for as long as the
 * world lasts, which would take minutes of processor time.
 */
const SAID_OF_BIG_CROWD = 2_000;
const AGENT_THINKS_MS_MAX = 300;
/**
 * How many messages agents say at most. Without the guard, fewer messages are enough to see that agents do not stop.
 */
const SAID_MAX = { on: 1_500, off: 300 };
const SAID_MAX_OF_AGENT = 300;
/**
 * For worlds of the kind `late`: how often a write of results, or a read of messages that another node stored, is late,
 * and by how much. Also how often a node may have missed notifications.
 */
const LATE = 0x6c617465;
const LATE_SHARE = 0.5;
/** How many times as long the reply of a slow call takes at most. In a cluster, a tenth of the calls are slow. */
const SLOW_REPLY = 10;
const LATE_COMMITS_MS_MAX = { 'deliveries.settle': 4 * SECOND };
const LATE_REPLIES_MS_MAX = { 'cluster.stored': 4 * SECOND };
const MISSED_SHARE = 0.4;
const OFF = { hop_limit: 0, pair_limit: 0, pair_window_s: 0 };
/**
 * The timers of machines that pull end at a multiple of this. In the service the step is 100 ms; here it is longer, so
 * timers are later.
 */
const COARSE_MS = SECOND;
/** How long PullForwarder waits for a node, in addition to the wait of the pull. */
const FORWARD_MS = 12 * SECOND;
/** How long a call hangs at most on a connection that is lost. */
const NOTICED_MS_MAX = 5 * SECOND;
/** How soon a result that a failing disk refused is written, after the disk works again. */
const WRITTEN_MS_MAX = 2 * SECOND;
/** How soon other nodes take over the work of a node that is dead, paused or cut off. */
const TAKEN_OVER_MS = 20 * SECOND;
/** How long a standby gets no commits before it takes over, and how soon after that every node has noticed. */
const LOST_MS_MAX = 5 * SECOND;
const ALL_NOTICED_MS = MINUTE;

/** One process of a node. When it ends, everything that it started ends too. */
interface Life {
  number: number;
  node_id: string;
  alive: boolean;
  engine: Engine;
  store: Store;
  maintenance: Maintenance;
  expiry: Expiry;
  clock: Clock;
  stopping: boolean;
  /** What happens to the process during a pause, to run afterwards; null while the process is not paused. */
  missed: (() => void)[] | null;
  /** The number of the connection of the process to the store, and whether the process is cut off. */
  link: number;
  cut: boolean;
  /** Whether the process was ever paused or cut off: then its results may not be stored when it ends. */
  disturbed: boolean;
  /** Whether the disk failed while the process was stopping. Then it may have given up on its last results. */
  may_give_up: boolean;
  /** The sends and the operations in progress. */
  sends: Sent[];
  ops: Machine[];
  /** Meetings that somebody pauses or resumes. */
  brakes: string[];
  connection: Connection | null;
  /**
   * When the last notification to the process arrives. Notifications keep their order, and are lost while it is `deaf`.
   */
  notified_at: number;
  deaf: boolean;
  /** When the process has noticed that it is no longer paused or cut off. */
  well_from: number;
  /** Since when its machine is suspended; null while it is not. */
  asleep_since: number | null;
  /** How long its machine was suspended in all. Its steady clock is behind by this. */
  asleep_ms: number;
  /** The part for machines that pull; null in a world without such machines. */
  pulls: Pulls | null;
}

/** The part of a process for machines that pull. */
interface Pulls {
  transport: PullTransport;
  endpoint: PullEndpoint;
  /** Whether the process takes no more requests. */
  is_closed: boolean;
  /** Functions that close the connections of machines. They are called when the process ends. */
  connections: Set<() => void>;
  /** The names of the pulls that arrived. */
  names: Set<string>;
  forwards: Set<() => void>;
}

/**
 * `plain`: all machines have webhooks. `pulling`: some machines pull, others have webhooks. `talking`: each machine has
 * an agent that answers the messages that it gets. `returning`: a machine that was away gets only the newest message
 * that waited; some machines pull. `late`: several nodes write results late, read messages of other nodes late, and
 * read the table again because they may have missed notifications.
 */
export const KINDS = ['plain', 'pulling', 'talking', 'returning', 'late', 'expiring'] as const;
export type Kind = (typeof KINDS)[number];

export interface WorldOptions {
  kind?: Kind;
  /** When `off`, nothing stops agents that talk. */
  guard?: 'on' | 'off';
  /** Makes the operations of the store. When absent, the store is the model in memory. */
  operations?: (wall: () => number) => StoreOperations;
  /** Whether several nodes share the store; when absent, they do in a part of the worlds. */
  cluster?: boolean;
  /** Gets every line of the trace. */
  onTrace?: (line: string) => void;
}

export class World {
  readonly seed: number;
  readonly checker: Checker;
  /** The FNV-1a hash of all lines of the trace. */
  trace_hash = 0x811c9dc5;
  done = false;
  steps = 0;
  readonly #random: Random;
  readonly #clock = new SteppedClock();
  readonly #operations: StoreOperations;
  readonly #settings: WorldSettings;
  readonly #meetings: string[];
  readonly #moods = new Map<string, Mood>();
  /** The meetings that were ever paused: calls in progress, and from when on every node knows of the last call. */
  readonly #brakes = new Map<string, { open: number; firm_from: number }>();
  readonly #onTrace: ((line: string) => void) | undefined;
  readonly #store_ms: number;
  /** The cluster; null in a world with one node. */
  readonly #cluster: ModelCluster | null;
  readonly #nodes_max: number;
  #lives: Life[] = [];
  #lives_ever = 0;
  /** The last time at which a fault began or ended that other nodes must repair. */
  #fault_at = 0;
  #wall_ahead_ms = 0;
  #steady_ahead_ms = 0;
  /** The sum of those forward steps of the clock that a node believes: each is shorter than BELIEVED_MS. */
  #forward_ms = 0;
  #failing = false;
  readonly #model: ModelStore | null;
  /** How far the steady clocks of two nodes may ever have been apart. */
  #clocks_apart_ms = 0;
  /** Puts the store back to the state of its standby; null while the standby has all commits. */
  #goBack: (() => void) | null = null;
  /** When all results that waited for the disk are written. */
  #written_from = 0;
  #is_healed = false;
  #crash_at: { name: string; when: 'before' | 'after' } | null = null;
  #labels = 0;
  /**
   * The machines that may reply. They use a separate generator of random numbers, so that other worlds stay the same.
   */
  readonly #repliers = new Set<string>();
  readonly #reply_random: Random;
  readonly #kind: Kind;
  /** Machines that pull also have a separate generator of random numbers. */
  readonly #pull_random: Random;
  readonly #pulling = new Map<string, PullingMachine>();
  readonly #talk_random: Random;
  readonly #late_random: Random;
  readonly #talk: Talk;
  readonly #guard: 'on' | 'off';
  /** Agents of a crowd that are about to say something. */
  readonly #thinking = new Set<string>();
  #said = 0;

  constructor(seed: number, { operations, cluster, onTrace, kind = 'plain', guard = 'on' }: WorldOptions = {}) {
    this.seed = seed;
    this.#kind = kind;
    this.#guard = guard;
    this.#pull_random = new Random(seed ^ PULLING);
    this.#talk_random = new Random(seed ^ TALKING);
    this.#late_random = new Random(seed ^ LATE);
    this.#talk = this.#talk_random.pick(TALKS);
    this.#onTrace = onTrace;
    const random = new Random(seed);
    this.#random = random;
    this.#reply_random = new Random(seed ^ 0x7e9117);
    const is_replying = this.#reply_random.chance(REPLYING_SHARE);
    this.#store_ms = random.pick([0, 1, 5, 40]);
    // Uses a separate generator of random numbers, so that worlds with one node stay the same when the share changes.
    const is_cluster = cluster ?? (kind === 'late' || new Random(~seed).chance(CLUSTER_SHARE));
    this.#nodes_max = operations === undefined && is_cluster ? 2 + random.below(2) : 1;
    const model = operations === undefined ? new ModelStore(() => this.#wall()) : null;
    this.#model = model;
    this.#operations = operations?.(() => this.#wall()) ?? (model as ModelStore);
    this.#cluster =
      this.#nodes_max === 1 || model === null
        ? null
        : new ModelCluster(
            model,
            () => this.#clock.now,
            random.chance(0.5),
            (...handed_over) => this.#onRebalance(...handed_over),
          );
    this.#meetings = Array.from({ length: 1 + random.below(3) }, (_, k) => `m${k}`);
    this.#settings = {
      retry_schedule_ms: this.#is_long
        ? [10 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE]
        : CLUSTER_RETRY_SCHEDULE_MS,
      expire_after_ms: 72 * HOUR,
      max_in_flight: random.chance(0.2) ? 1 + random.below(3) : 1_000,
      instance_concurrency: 1 + random.below(4),
      max_message_bytes: 262_144,
      user_agent: 'Convoke/simulated',
      retention_deliveries_ms: 168 * HOUR,
      ...(guard === 'off' ? OFF : this.#limits()),
    };
    this.checker = new Checker(this.#operations, this.#settings, this.#meetings, {
      now: () => this.#steady(),
      real: () => this.#clock.now + this.#forward_ms,
      // With one node, the term is the number of its process.
      termOf: (instance_id) => this.#cluster?.epochOf(instance_id) ?? this.#lives_ever,
      isUndisturbed: () => !this.#failing && this.#isUndisturbed(),
      clocksApart: () => this.#clocks_apart_ms,
      mayWaitForDisk: (instance_id) => this.#failing && (kind === 'returning' || this.#repliers.has(instance_id)),
    });
    this.checker.is_latest = kind === 'returning';
    const instances = kind === 'talking' ? this.#agentCount() : 1 + random.below(4);
    for (let k = 0; k < instances; k++) {
      if (is_replying && this.#reply_random.chance(REPLIERS_SHARE)) this.#repliers.add(`i${k}`);
      this.#settle(`i${k}`, k > 0 && random.chance(0.4));
    }
    for (let k = 0; k < this.#nodes_max; k++) this.#begin();
    if (this.#is_long) this.#plan();
    else this.#planShort();
  }

  /** Whether the world lasts some days: plain worlds with one node do. All other worlds last some minutes. */
  get #is_long(): boolean {
    return this.#cluster === null && this.#kind === 'plain';
  }

  #limits(): GuardLimits {
    const random = this.#talk_random;
    // Worlds of the kind `talking` test the loop guard. In worlds of the kind `returning` it is off; in others it has
    // fixed limits.
    if (this.#kind === 'returning') return OFF;
    if (this.#kind !== 'talking') return { hop_limit: 16, pair_limit: 20, pair_window_s: 60 };
    const pair_limit = this.#talk === 'crowd' ? 1 + random.below(3) : random.pick([3, 8, 20]);
    // In a crowd each message causes many more, so a limit of hops comes too late: the limit of pairs must stop them.
    const rules = this.#talk === 'crowd' ? 'pairs' : random.pick(['hops', 'pairs', 'both'] as const);
    return {
      hop_limit: rules === 'pairs' ? 0 : random.pick([4, 16]),
      pair_limit: rules === 'hops' ? 0 : pair_limit,
      pair_window_s: 60,
    };
  }

  #agentCount(): number {
    if (this.#talk === 'pair') return 2;
    if (this.#talk === 'ring') return RING;
    return this.#talk_random.chance(BIG_CROWD_SHARE) ? BIG_CROWD : 4 + this.#talk_random.below(CROWD_MAX - 3);
  }

  /** Runs the next event. Between two steps the caller lets promises settle. */
  step(): void {
    const steps_max = this.checker.machines.size === BIG_CROWD ? STEPS_MAX_OF_CROWD : STEPS_MAX;
    if (++this.steps > steps_max) this.checker.fail('it does not come to rest');
    if (!this.#clock.step() && !this.done) this.checker.fail('it stopped before its end');
  }

  #settle(instance_id: string, untouched: boolean): void {
    const random = this.#random;
    const pulls = this.#pulls(instance_id);
    const ack_timeout_ms = pulls ? this.#pull_random.pick(ACK_TIMEOUTS_MS) : null;
    const machine = this.checker.add(instance_id, `http://${instance_id}.test/0`, untouched, ack_timeout_ms);
    this.#moods.set(instance_id, untouched ? 'fine' : random.pick(MOODS));
    if (this.#kind === 'talking' && this.#talk_random.chance(0.7)) this.#moods.set(instance_id, 'fine');
    this.#operations.instances.register(this.#registration(machine), this.#wall());
    for (const meeting_id of this.#meetings) {
      if (!random.chance(0.8) && !(this.#kind === 'talking' && meeting_id === this.#meetings[0])) continue;
      this.#operations.meetings.join(
        meeting_id,
        instance_id,
        this.#agentsOf(instance_id),
        this.#wall(),
        null,
        this.#rules(),
      );
    }
    this.checker.look(machine);
    if (ack_timeout_ms !== null) this.#connectMachine(machine, ack_timeout_ms);
  }

  /** Decides whether a machine pulls. */
  #pulls(instance_id: string): boolean {
    const random = this.#pull_random;
    if (this.#kind === 'returning') return random.chance(PULLING_SHARE.returning);
    return this.#kind === 'pulling' && (instance_id === 'i0' || random.chance(PULLING_SHARE.pulling));
  }

  #agentsOf(instance_id: string): string[] {
    return this.#kind === 'talking' ? [instance_id] : ['a', instance_id];
  }

  #rules(): GivenRules {
    return this.#kind === 'returning' ? { catch_up: 'latest' } : {};
  }

  #registration({ instance_id, url, ack_timeout_ms }: Machine) {
    return {
      instance_id,
      instance_name: instance_id,
      agent_ids: ['a'],
      webhook_url: url,
      webhook_headers: undefined,
      webhook_secret: undefined,
      new_secret: SECRET,
      success_statuses: undefined,
      replies: this.#repliers.has(instance_id),
      ...(ack_timeout_ms !== null && { transport: 'pull' as const, ack_timeout_s: ack_timeout_ms / SECOND }),
    };
  }

  #trace(line: string): void {
    const text = `${this.#clock.now} ${line}`;
    let hash = this.trace_hash;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    this.trace_hash = hash >>> 0;
    this.#onTrace?.(text);
  }

  // ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────

  #wall(): number {
    return this.#clock.now + this.#wall_ahead_ms;
  }

  /** As in src/delivery/clock.ts: starts at the wall clock when the process starts; then nobody can set it. */
  #steady(): number {
    return this.#clock.now + this.#steady_ahead_ms;
  }

  // ── the processes ─────────────────────────────────────────────────────────────────────────────────────────────────

  #begin(): void {
    const number = ++this.#lives_ever;
    const life: Life = {
      number,
      node_id: `n${number}`,
      alive: true,
      stopping: false,
      may_give_up: false,
      missed: null,
      link: 1,
      cut: false,
      disturbed: false,
      sends: [],
      ops: [],
      brakes: [],
      connection: null,
      notified_at: 0,
      deaf: false,
      well_from: 0,
      asleep_since: null,
      asleep_ms: 0,
      pulls: null,
    } as unknown as Life;
    const steady = (): number => this.#steady() - life.asleep_ms;
    const after = (delay_ms: number, run: () => void): (() => void) => {
      let cancelled = false;
      let cancel = (): void => {};
      const { asleep_ms } = life;
      const at = this.#clock.now + delay_ms;
      const fire = (): void => {
        if (cancelled) return;
        // While a machine is suspended, its timers stand still.
        const slept_ms = life.asleep_ms - asleep_ms;
        if (slept_ms > 0 && this.#clock.now < at + slept_ms) arm(at + slept_ms - this.#clock.now);
        else run();
      };
      const arm = (ms: number): void => void (cancel = this.#clock.after(ms, () => this.#in(life, fire)));
      arm(delay_ms);
      return () => {
        cancelled = true;
        cancel();
      };
    };
    const steps = new WallSteps(steady(), this.#wall());
    const clock = {
      now: steady,
      wall: () => steps.read(steady(), this.#wall()),
      steadyOf: (wall_ms: number) => steps.steadyOf(wall_ms),
      after: (delay_ms: number, run: () => void) => ({ cancel: after(delay_ms, run) }),
      soon: (run: () => void) => void after(0, run),
    };
    const store = this.#storeOf(life, after);
    life.store = store;
    const partitions = new Partitions(
      clock,
      store.cluster,
      { node_id: life.node_id, version: '', address: () => '' },
      {
        onHandOver: (what, partition_nos) => this.#trace(`${life.node_id}: ${what} ${partition_nos.length}`),
        storageFailed: () => {},
      },
    );
    const expiry = new Expiry(clock, this.#settings.expire_after_ms);
    const { deliveries, messages } = this.#operations;
    expiry.begin(deliveries.timeNoted(), false, messages.last());
    life.expiry = expiry;
    life.clock = clock;
    if (this.#pulling.size > 0) life.pulls = this.#pullsOf(life, clock, partitions);
    life.engine = new Engine({
      clock,
      random: this.#random.next,
      load: () => 1,
      store,
      transport: this.#transport(life),
      partitions,
      expiry,
      observer: {
        accepted: () => {},
        attempted: () => {},
        settled: () => {},
        removed() {},
        suppressed: ({ delivery_id, instance_id, seq }, reason) => {
          this.#trace(`${reason} stops ${seq} to ${instance_id}`);
          this.checker.suppressed(delivery_id);
        },
        replied: () => {},
        storageFailed: () => {},
      },
      settings: this.#settings,
    });
    store.onChange((change) => life.engine.onChange(change));
    const hours = 1_000 * HOUR;
    const settings = { retention_deliveries_ms: hours, retention_messages_ms: hours, retention_audit_ms: hours };
    life.maintenance = new Maintenance(clock, store, settings, expiry, {
      expired: (lanes) => life.engine.expired(lanes),
      isMostlyEmpty: () => {},
      failed: () => {},
    });
    this.#lives.push(life);
    this.checker.disturbed_at = this.#steady();
    life.engine.start().then(
      () => (this.checker.disturbed_at = this.#steady()),
      () => {},
    );
  }

  /** Runs something in a process. A dead process never runs it; a paused process runs it after the pause. */
  #in(life: Life, run: () => void): void {
    if (!life.alive) return;
    if (life.missed === null) run();
    else life.missed.push(run);
  }

  #storeOf(life: Life, after: (delay_ms: number, run: () => void) => unknown): Store {
    const cluster = this.#cluster;
    const conditions: StoreConditions = {
      now: () => this.#clock.now,
      delays: (name) => ({
        commit_ms: this.#random.below(this.#store_ms + 1) + this.#lateMs(name, LATE_COMMITS_MS_MAX),
        reply_ms:
          this.#random.below(this.#store_ms * (cluster !== null && this.#random.chance(0.1) ? SLOW_REPLY : 1) + 1) +
          this.#lateMs(name, LATE_REPLIES_MS_MAX),
      }),
      channel: (name) => (cluster === null ? '' : CHANNELS.has(name) ? name : null),
      schedule: (at_ms, run) => void after(at_ms - this.#clock.now, run),
      scheduleThere: (at_ms, run) =>
        cluster === null
          ? void after(at_ms - this.#clock.now, run)
          : void this.#clock.after(at_ms - this.#clock.now, run),
      link: () => (life.cut ? null : life.link),
      noticed_ms: () => this.#random.below(NOTICED_MS_MAX),
      fate: (name, link) => {
        if (!life.alive || life.cut || life.link !== link) return this.#random.chance(0.5) ? 'unheard' : 'lost';
        return this.#failing && !READS.has(name) && this.#random.chance(0.5) ? 'fails' : 'done';
      },
      beforeCommit: (name) => !this.#crashes(life, name, 'before'),
      afterCommit: (name) => {
        if (ENDING.has(name)) this.checker.ended();
        return !this.#crashes(life, name, 'after');
      },
    };
    if (cluster === null) return simulatedStore(this.#watched(this.#operations), conditions);
    const connection: Connection = {
      node_id: life.node_id,
      notify: (change) => this.#notify(life, () => node_side.onNotification(change)),
    };
    const operations = cluster.operationsOf(connection);
    const { settle } = operations.deliveries;
    const watched = this.#watched({
      ...operations,
      deliveries: {
        ...operations.deliveries,
        settle: (...[deliveries, healths]: Parameters<typeof settle>) =>
          this.checker.watchSettling(life.number, deliveries, () => settle(deliveries, healths)),
      },
    });
    const store = simulatedStore(watched, conditions);
    const node_side = clustered(store, () => conditions.link());
    life.connection = connection;
    cluster.connections.add(connection);
    return node_side.store;
  }

  #lateMs(name: string, ms_max: Readonly<Record<string, number>>): number {
    const ms = this.#kind === 'late' ? ms_max[name] : undefined;
    return ms === undefined || !this.#late_random.chance(LATE_SHARE) ? 0 : this.#late_random.below(ms);
  }

  /** Wraps the operations, so that the checker checks each call of `settle`. */
  #watched<Of extends StoreOperations>(operations: Of): Of {
    if (this.#repliers.size === 0 && this.#pulling.size === 0) return operations;
    const { settle } = operations.deliveries;
    return {
      ...operations,
      deliveries: {
        ...operations.deliveries,
        settle: (...[deliveries, healths]: Parameters<typeof settle>) => {
          this.checker.checkSpent(deliveries, healths);
          this.checker.checkLeftOut(deliveries);
          const locked = settle(deliveries, healths);
          this.checker.checkReplied(deliveries);
          return locked;
        },
      },
    };
  }

  /**
   * Sends a notification to a process. It arrives after earlier notifications, but before or after results of calls.
   */
  #notify(life: Life, act: () => void): void {
    life.notified_at = Math.max(life.notified_at, this.#clock.now + this.#random.below(2 * this.#store_ms + 10));
    this.#clock.after(life.notified_at - this.#clock.now, () => {
      if (!life.deaf && !life.cut) this.#in(life, act);
    });
  }

  #crashes(life: Life, name: string, when: 'before' | 'after'): boolean {
    if (!life.alive || this.#crash_at?.name !== name || this.#crash_at.when !== when) return false;
    this.#end(life, false);
    return true;
  }

  /** Ends a process, and starts another one later. Unless `clean`, the process ends as after kill -9. */
  #end(life: Life, clean: boolean): void {
    this.#trace(`${life.node_id} ${clean ? 'stopped' : 'killed'}`);
    this.#crash_at = null;
    life.alive = false;
    this.#lives = this.#lives.filter((other) => other !== life);
    this.checker.nodeEnds(life.number, life.sends);
    for (const breaks of [...(life.pulls?.connections ?? []), ...(life.pulls?.forwards ?? [])]) breaks();
    if (this.#cluster === null) {
      const steady_ahead_ms = this.#wall_ahead_ms;
      const stepped = steady_ahead_ms !== this.#steady_ahead_ms;
      this.#closeOps(life);
      this.checker.onRebalance(() => true, clean && !life.may_give_up && this.#isAllWritten(), stepped);
      this.#steady_ahead_ms = steady_ahead_ms;
      this.#begin();
      return;
    }
    this.#cluster.connections.delete(life.connection as Connection);
    this.#fault();
    // Calls that the process had already sent may still arrive, and other nodes may learn of them late.
    this.#clock.after(SECOND, () => this.#whenAllNotified(() => this.#closeOps(life)));
    if (this.#lives.length < this.#nodes_max) this.#clock.after(this.#random.below(40 * SECOND), () => this.#join());
  }

  /** Ends the operations of a process that ended. Their callers get no response, so nobody knows which were done. */
  #closeOps(life: Life): void {
    for (const machine of life.ops) this.checker.opLost(machine);
    life.ops = [];
    this.checker.sendsEnd(life.sends);
    life.sends = [];
    while (life.brakes.length > 0) this.#closeBrake(life, life.brakes[0]!);
  }

  #join(): void {
    if (this.#lives.length >= this.#nodes_max) return;
    this.#trace('another node joins');
    this.#begin();
  }

  #stop(life: Life): void {
    if (life.stopping) return;
    life.stopping = true;
    this.#trace(`${life.node_id} stops`);
    this.#fault();
    // Until the process stops, it still stores messages, but it starts no pushes.
    life.engine.drain();
    life.pulls?.transport.drain();
    for (const breaks of life.pulls?.forwards ?? []) breaks();
    this.#clock.after(this.#random.below(2 * SECOND), () => this.#in(life, () => this.#stopNow(life)));
  }

  #stopNow(life: Life): void {
    if (life.pulls !== null) {
      life.pulls.is_closed = true;
      for (const breaks of life.pulls.connections) breaks();
      // As in src/convoke.ts.
      life.pulls.transport.handOver(() => true);
    }
    // Operations in progress get their responses before the process ends, as in the server.
    void life.engine.stop().then(() => {
      this.#clock.after(10 * SECOND, () => {
        if (life.alive) this.#end(life, true);
      });
    });
  }

  // ── what goes wrong between several ───────────────────────────────────────────────────────────────────────────────

  /** Notes a fault: from now on messages may be late, until other nodes have repaired it. */
  #fault(): void {
    this.checker.disturbed_at = this.#steady();
    this.#fault_at = this.#steady();
  }

  #isWell(life: Life): boolean {
    const { missed, cut, deaf, stopping, well_from } = life;
    return missed === null && !cut && !deaf && !stopping && this.#steady() >= well_from;
  }

  /**
   * Called when a node no longer has a partition. If the node released the partition, all its results must be written.
   * If not, the next node may repeat attempts whose results are not written, and no others.
   */
  #onRebalance(partition_no: number, node_id: string, how: Parameters<OnHandOver>[2]): void {
    this.checker.disturbed_at = this.#steady();
    // Cancels a planned takeover by the standby: in these worlds the store goes back only while each partition stays
    // with its node.
    this.#goBack = null;
    const concerns = (machine: Machine): boolean => partitionOf(machine.instance_id) === partition_no;
    const life = this.#lives.find((other) => other.node_id === node_id);
    const clean =
      how === 'given back' ||
      (how === 'left' && life?.disturbed === false && !life.may_give_up && this.#isAllWritten());
    if (clean) this.checker.givenBack(concerns);
    if (how === 'taken') this.checker.onRebalance(concerns, false, false);
  }

  /**
   * Pauses a process, like SIGSTOP: it does nothing while time passes, and then goes on. In worlds of the kind `expiring`
   * half of the pauses suspend the machine: its steady clock stands still.
   */
  #pause(life: Life, for_ms: number): void {
    if (life.missed !== null) return;
    const sleeps = this.#kind === 'expiring' && this.#talk_random.chance(0.5);
    this.#trace(`${life.node_id} is ${sleeps ? 'suspended' : 'paused'}`);
    life.missed = [];
    life.asleep_since = sleeps ? this.#clock.now : null;
    life.disturbed = true;
    this.#fault();
    this.#clock.after(for_ms, () => this.#resume(life));
  }

  #resume(life: Life): void {
    const { missed } = life;
    if (missed === null || !life.alive) return;
    this.#trace(`${life.node_id} goes on`);
    life.missed = null;
    if (life.asleep_since !== null) {
      life.asleep_ms += this.#clock.now - life.asleep_since;
      this.#clocks_apart_ms = Math.max(this.#clocks_apart_ms, life.asleep_ms);
      // Clients waited meanwhile.
      for (let k = 0; k < 3; k++) this.#clock.after(this.#talk_random.below(SECOND), () => this.#send());
    }
    // The notifications that it missed arrive now.
    life.notified_at = Math.max(life.notified_at, this.#clock.now);
    this.#comesBack(life);
    for (const run of missed) this.#clock.after(0, () => this.#in(life, run));
  }

  /** Cuts the network to the store. Nobody knows whether calls in progress are done, and notifications are lost. */
  #cut(life: Life, for_ms: number): void {
    if (life.cut) return;
    this.#trace(`${life.node_id} is cut off`);
    life.cut = true;
    life.link++;
    life.disturbed = true;
    this.#fault();
    this.#clock.after(for_ms, () => this.#connect(life));
  }

  #connect(life: Life): void {
    if (!life.cut) return;
    this.#trace(`${life.node_id} is connected again`);
    life.cut = false;
    this.#comesBack(life);
    this.#notify(life, () => life.engine.onChange({ kind: 'resync' }));
  }

  /** For a while the process gets no notifications of other nodes; its calls still work. */
  #deafen(life: Life, for_ms: number): void {
    if (life.deaf) return;
    this.#trace(`${life.node_id} hears nothing`);
    life.deaf = true;
    this.#fault();
    this.#clock.after(for_ms, () => {
      if (!life.deaf) return;
      this.#trace(`${life.node_id} hears again`);
      life.deaf = false;
      this.#comesBack(life);
      this.#notify(life, () => life.engine.onChange({ kind: 'resync' }));
    });
  }

  /** The process lost its connection for notifications for a moment. Its other calls still work. */
  #mayHaveMissed(life: Life): void {
    this.#trace(`${life.node_id} may have missed something`);
    this.#fault();
    this.#notify(life, () => life.engine.onChange({ kind: 'resync' }));
  }

  /** The standby gets no more commits. A while later it takes over, and all connections are lost. */
  #standbyTakesOver(): void {
    const model = this.#model as ModelStore;
    // Registrations and pauses must be the same before and after. So there is no takeover while somebody changes them.
    if (this.#goBack !== null || [...this.checker.machines.values()].some(({ ops_open }) => ops_open > 0)) return;
    if ([...this.#brakes.values()].some(({ open }) => open > 0)) return;
    this.#trace('the standby hears nothing');
    const putBack = model.copy();
    const goBack = (): void => {
      const before = this.checker.stored();
      putBack();
      this.#trace('the standby takes over');
      this.checker.wentBack(before, this.#steady() + ALL_NOTICED_MS);
      this.#clock.after(ALL_NOTICED_MS, () => this.checker.allNoticed());
      for (const life of this.#lives) this.#cut(life, this.#random.below(2 * SECOND));
    };
    this.#goBack = goBack;
    this.#clock.after(this.#random.below(LOST_MS_MAX), () => {
      if (this.#goBack !== goBack) return;
      this.#goBack = null;
      goBack();
    });
  }

  /**
   * Called when a node is no longer paused or cut off. It needs time to notice this, and if no other node was well,
   * time to do the work that waited.
   */
  #comesBack(life: Life): void {
    life.well_from = this.#steady() + NOTICED_MS_MAX + SECOND;
    this.#clock.after(NOTICED_MS_MAX + SECOND, () => {
      this.checker.disturbed_at = this.#steady();
      if (this.#lives.filter((other) => this.#isWell(other)).length <= 1) this.#fault_at = this.#steady();
    });
  }

  // ── the machines ──────────────────────────────────────────────────────────────────────────────────────────────────

  #transport(life: Life): Transport {
    const webhook: Transport = {
      push: (push) => (life.alive ? this.#push(life, push) : new Promise(() => {})),
      canPush: () => true,
      forget: () => {},
      handOver: () => {},
      close: async () => {},
    };
    if (life.pulls === null) return webhook;
    const { transport } = life.pulls;
    const pull: Transport = {
      push: (push, way) => this.#handOut(life, transport, push, way),
      canPush: (instance_id, way) => transport.canPush(instance_id, way),
      registrationChanged: (instance_id) => transport.registrationChanged(instance_id),
      forget: (instance_id) => transport.forget(instance_id),
      handOver: (isTaken) => transport.handOver(isTaken),
      close: () => transport.close(),
    };
    return new Transports({ webhook, pull });
  }

  /** Begins an attempt: the checker notes it. */
  #begins(life: Life, { instance_id, url, headers, body }: Push) {
    const { message, meeting_id, target_agents } = JSON.parse(Buffer.from(body).toString()) as {
      message: { n: number };
      meeting_id: string;
      target_agents: string[];
    };
    const delivery_id = headers['webhook-id'] as string;
    if (this.#isFirmlyPaused(meeting_id)) this.checker.fail(`message ${message.n}: ${meeting_id} is paused`);
    this.#trace(`push ${message.n} in ${meeting_id} to ${instance_id}, attempt ${headers['convoke-attempt']}`);
    if (this.#cluster !== null && this.#cluster.ownerOf(instance_id) !== life.node_id)
      this.checker.fail(`message ${message.n} to ${instance_id}: ${life.node_id} does not hold it`);
    const attempt = Number(headers['convoke-attempt']);
    const flight = this.checker.pushStarts(life.number, instance_id, delivery_id, message.n, attempt, url);
    const from = headers['convoke-from-agent'] ?? null;
    this.checker.checkHops(flight, Number(headers['convoke-hops'] ?? 0));
    return { flight, message, meeting_id, delivery_id, target_agents, from };
  }

  #push(life: Life, push: Push): Promise<PushResult> {
    const { instance_id, success_statuses } = push;
    const { flight, message, meeting_id, delivery_id, target_agents, from } = this.#begins(life, push);
    const { says, after_ms, retry_after = null, handled } = this.#answer(instance_id);
    return new Promise((resolve) => {
      this.#clock.after(after_ms, () => {
        if (!life.alive || flight === null) return;
        const status_code = typeof says === 'number' ? says : null;
        const outcome = typeof says === 'number' ? outcomeOfStatus(says, success_statuses) : says;
        const result: PushResult = {
          outcome,
          status_code,
          detail: '',
          duration_ms: after_ms,
          stages: [],
          response_excerpt: '',
          retry_after,
        };
        if (push.keeps_body === true && outcome === 'ok') {
          const places = this.#reply_random.chance(REPLY_SHARE) ? 1 + this.#reply_random.below(REPLIES_MAX) : 0;
          result.kept_body = { text: repliesTo(delivery_id, target_agents[0] as string, places) };
          this.checker.replied(delivery_id, places);
        }
        this.#trace(`${instance_id} says ${says} to ${message.n}`);
        if (handled === true || outcome === 'ok') {
          this.checker.handled(flight);
          this.#answersAloud(instance_id, meeting_id, from, delivery_id);
        }
        this.checker.pushEnds(flight);
        this.#in(life, () => {
          this.checker.onResult(flight, result, askedFor(status_code, retry_after));
          resolve(result);
        });
      });
    });
  }

  // ── the agents ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** An agent that got a message says an answer, if the world has agents that talk. */
  #answersAloud(instance_id: string, meeting_id: string, from: string | null, delivery_id: string): void {
    if (this.#kind !== 'talking') return;
    const random = this.#talk_random;
    const count = this.checker.machines.size;
    if (count === BIG_CROWD && this.#said >= SAID_OF_BIG_CROWD) return;
    // In a crowd, an agent gives one answer to all messages that it got while it thought.
    if (this.#talk === 'crowd') {
      if (this.#thinking.has(instance_id)) return;
      this.#thinking.add(instance_id);
    }
    const next = `i${(Number(instance_id.slice(1)) + 1) % count}`;
    const target = this.#talk === 'crowd' ? null : this.#talk === 'ring' ? next : (from ?? next);
    const answered = this.#operations.deliveries.get(delivery_id, this.#steady());
    const in_reply_to = random.chance(0.5) ? (answered?.message_id ?? null) : null;
    this.#clock.after(10 + random.below(AGENT_THINKS_MS_MAX), () => {
      this.#thinking.delete(instance_id);
      if (++this.#said > this.#saidMax(count)) return this.checker.fail('the agents do not stop');
      this.#post(this.#newSent(meeting_id, target, instance_id, in_reply_to));
    });
  }

  /** How many messages agents may say. Each message of a person may have a chain of answers, and some arrive twice. */
  #saidMax(agents: number): number {
    if (this.#guard === 'off') return SAID_MAX.off;
    const chains = (this.#labels - this.#said) * this.#settings.hop_limit * 2;
    return Math.max(SAID_MAX.on, agents * SAID_MAX_OF_AGENT, chains);
  }

  /** Drops the waiting deliveries of an instance, a meeting or a lane. */
  #drop(): void {
    const random = this.#talk_random;
    const life = this.#someLife();
    if (life === undefined || this.#goBack !== null) return;
    const machines = [...this.checker.machines.values()];
    const one = random.pick(machines);
    const meeting_id = random.pick(this.#meetings);
    const of = random.pick([
      { meeting_id },
      { instance_id: one.instance_id },
      { instance_id: one.instance_id, meeting_id },
    ]);
    const drop = this.checker.dropStarts(of, this.#wall());
    const { store, engine } = life;
    const changes = new DeliveryChanges({
      store,
      engine,
      feed: { publish() {} },
      clock: life.clock,
      expiry: life.expiry,
    });
    const author = {
      key_id: null,
      owner_scope: null,
      storeFor: () => store,
      assertStanding() {},
      record: async () => {},
    };
    const dropping = changes.drop(author, of).finally(() => (drop.until = this.#wall()));
    for (const machine of 'instance_id' in of ? [one] : machines) this.#do(life, machine, 'drop', () => dropping);
  }

  // ── the machines that pull ────────────────────────────────────────────────────────────────────────────────────────

  #pullsOf(life: Life, clock: Clock, partitions: Partitions): Pulls {
    const transport = new PullTransport({
      clock: { ...clock, after: (delay_ms, run) => clock.after(Math.ceil(delay_ms / COARSE_MS) * COARSE_MS, run) },
      onReady: (instance_id) => life.engine.isReady(instance_id),
      isReading: (instance_id) => life.engine.isReading(instance_id),
      onConnection: () => {},
    });
    const pull_forwarder = {
      get is_draining() {
        return life.stopping;
      },
      forward: (pull: ForwardedPull, onRequest: (cancel: () => void) => void) => this.#forward(life, pull, onRequest),
      // The check of the signature may ask the store for a secret.
      addressIn: () =>
        new Promise<null>((resolve) => void clock.after(this.#pull_random.below(3), () => resolve(null))),
    };
    const endpoint = new PullEndpoint({
      store: life.store,
      engine: {
        written: () => life.engine.written(),
        get isFullOfReplies() {
          return life.engine.isFullOfReplies;
        },
      },
      pull_transport: this.#watchedPulls(life, transport),
      clock,
      limits: { addressOf: () => '' },
      audit_trail: { standingEnded() {} },
      // As in src/convoke.ts.
      takesPullsOf: (instance_id) => partitions.of(instance_id) !== null && partitions.isLeaseValid(clock.now()),
      pull_forwarder: this.#cluster === null ? null : pull_forwarder,
    });
    return { transport, endpoint, is_closed: false, connections: new Set(), names: new Set(), forwards: new Set() };
  }

  /**
   * Makes two checks. Of all requests with the same name, at most one waits, because the others have dead connections.
   * And a result counts only at the node that holds the instance, because the store refuses the results of other nodes.
   */
  #watchedPulls(life: Life, transport: PullTransport): PullContext['pull_transport'] {
    const waiting = new Set<string>();
    return {
      get changes() {
        return transport.changes;
      },
      permitOf: (...of) => transport.permitOf(...of),
      pull: (request) => {
        const name = request.pull_id ?? '';
        if (waiting.has(name)) this.checker.fail(`two pulls wait under the name ${name}`);
        waiting.add(name);
        const machine = this.checker.machines.get(request.instance_id) as Machine;
        this.checker.pullWaits(machine, `${life.number} ${name}`);
        const onEnd = (end: PullEnd): void => {
          waiting.delete(name);
          this.checker.pullEnds(machine, `${life.number} ${name}`);
          request.onEnd(end);
        };
        return transport.pull({ ...request, onEnd });
      },
      cancel: (pull) => {
        const name = pull.request.pull_id ?? '';
        waiting.delete(name);
        const machine = this.checker.machines.get(pull.request.instance_id) as Machine;
        this.checker.pullEnds(machine, `${life.number} ${name}`);
        transport.cancel(pull);
      },
      refuse: (...of) => transport.refuse(...of),
      giveBack: (...of) => transport.giveBack(...of),
      lose: (...of) => transport.lose(...of),
      take: (instance_id, result) => {
        const counts = transport.take(instance_id, result);
        const owner = this.#cluster?.ownerOf(instance_id) ?? life.node_id;
        if (counts && owner !== life.node_id)
          this.checker.fail(`a result of ${instance_id} counts at ${life.node_id}, and ${owner} holds it`);
        return counts;
      },
      takeBack: (...of) => transport.takeBack(...of),
    };
  }

  #connectMachine({ instance_id, untouched }: Machine, ack_timeout_ms: number): void {
    const random = this.#pull_random;
    const options = {
      instance_id,
      ack_timeout_ms,
      pullers: untouched ? 2 : 1 + random.below(3),
      wait_s: untouched ? WAIT_S_WELL : random.pick(WAITS_S),
      thinks_in: untouched ? this.#meetings[0]! : null,
    };
    const machine = new PullingMachine(options, {
      random,
      after: (delay_ms, run) => this.#clock.after(delay_ms, run),
      nodes: () =>
        this.#lives.map((life) => ({
          node_id: life.node_id,
          pull: (instance, body, onAnswer) => this.#request(life, instance, body, false, onAnswer),
        })),
      trace: (line) => this.#trace(line),
      received: (push, pull_id) => this.checker.received(push, pull_id),
      repeats: (pull_id) => this.checker.repeatsPull(pull_id),
      handled: (delivery_id) => this.checker.handledDelivery(delivery_id),
      reports: ({ delivery_id, attempt }) => this.checker.reports(delivery_id, attempt),
      bodyOf: (delivery_id, target_agents) => {
        if (!this.#repliers.has(instance_id)) return '';
        // A machine that forgot its replies gives the same replies again: with other replies the checker would not know
        // which count.
        const places = partitionOf(delivery_id) % (REPLIES_MAX + 1);
        this.checker.replied(delivery_id, places);
        return repliesTo(delivery_id, target_agents[0] as string, places);
      },
    });
    if (!untouched) machine.mood = random.pick(PULL_MOODS);
    this.#pulling.set(instance_id, machine);
  }

  /** Sends a pull to a node. @returns a function that closes the connection of the pull */
  #request(
    life: Life,
    instance_id: string,
    body: PullBody,
    is_forwarded: boolean,
    onAnswer: (answer: Answered | null) => void,
  ): () => void {
    const pulls = life.pulls as Pulls;
    const networkMs = (): number => this.#pull_random.below(10);
    let is_over = false;
    let end: (is_written: boolean) => void = () => {};
    const respond = (answer: Answered | null): void => {
      if (is_over) return;
      is_over = true;
      pulls.connections.delete(breaks);
      onAnswer(answer);
    };
    const breaks = (): void => {
      this.#clock.after(networkMs(), () => respond(null));
    };
    pulls.connections.add(breaks);
    this.#clock.after(networkMs(), () => {
      if (!life.alive || pulls.is_closed) return breaks();
      this.#in(life, () => {
        if (is_over) return;
        const is_again = pulls.names.has(body.pull_id);
        pulls.names.add(body.pull_id);
        const exchange = pulls.endpoint.pull(instance_id, body, is_forwarded);
        end = (is_written) => exchange.end(is_written);
        void exchange.answered.then((answer) =>
          this.#in(life, () =>
            this.#answerPull(life, instance_id, answer, {
              pull_id: body.pull_id,
              is_again,
              end,
              respond,
              isOver: () => is_over,
              networkMs,
            }),
          ),
        );
      });
    });
    return () => {
      is_over = true;
      pulls.connections.delete(breaks);
      this.#in(life, () => end(false));
    };
  }

  #answerPull(
    life: Life,
    instance_id: string,
    answer: Answered,
    {
      pull_id,
      is_again,
      end,
      respond,
      isOver,
      networkMs,
    }: {
      pull_id: string;
      is_again: boolean;
      end: (is_written: boolean) => void;
      respond: (answer: Answered | null) => void;
      isOver: () => boolean;
      networkMs: () => number;
    },
  ): void {
    const { pushes, results } = answer.body ?? { pushes: [], results: [] };
    for (const { delivery_id, attempt, became } of results)
      if (became === 'counted' && !answer.is_passed_on) this.checker.saysCounted(life.number, delivery_id, attempt);
    // Only the node that hands out pushes sees whether the pull is a repetition.
    if (!answer.is_passed_on && answer.status === 200) {
      if (is_again) this.checker.pulledAgain(life.number, instance_id, pull_id);
      const machine = this.checker.machines.get(instance_id) as Machine;
      for (const push of pushes) this.checker.handedOut(life.number, push, machine, pull_id);
    }
    const random = this.#pull_random;
    // The machine may read slowly, and its connection may break before it has the whole response.
    const writes_ms = random.chance(0.1) ? random.below(SECOND) : 0;
    this.#clock.after(writes_ms, () =>
      this.#in(life, () => {
        if (isOver()) return;
        const is_written = writes_ms === 0 || this.#is_healed || random.chance(0.8);
        end(is_written);
        if (is_written)
          for (const { delivery_id, attempt } of pushes)
            this.checker.pushLeft(life.number, instance_id, delivery_id, attempt);
        this.#clock.after(networkMs(), () => respond(is_written ? answer : null));
      }),
    );
  }

  /** Forwards a pull to the node that delivers, as PullForwarder does. */
  #forward(life: Life, { instance_id, body, wait_ms }: ForwardedPull, onRequest: (cancel: () => void) => void) {
    const { promise, resolve } = Promise.withResolvers<ReturnType<typeof responseOf> | null>();
    const pulls = life.pulls as Pulls;
    const owner = this.#lives.find(({ node_id }) => node_id === this.#cluster?.ownerOf(instance_id));
    if (owner === undefined || owner === life || life.stopping) return Promise.resolve(null);
    const over = (answer: Answered | null): void => {
      pulls.forwards.delete(breaks);
      stop();
      this.#in(life, () => resolve(answer === null ? null : responseOf(answer)));
    };
    const breaks = (): void => {
      cancel();
      over(null);
    };
    const stop = this.#clock.after(wait_ms + FORWARD_MS, () => breaks());
    const cancel = this.#request(owner, instance_id, JSON.parse(body) as PullBody, true, over);
    pulls.forwards.add(breaks);
    onRequest(breaks);
    return promise;
  }

  /** Gives a push of the engine to the pull transport, which hands the push out if a pull waits. */
  #handOut(life: Life, transport: PullTransport, push: Push, way: Way): Promise<PushResult | null> {
    if (!life.alive) return new Promise(() => {});
    const { awaited } = transport.counts;
    const pushing = transport.push(push, way);
    let flight: Flight | null = null;
    if (transport.counts.awaited > awaited) ({ flight } = this.#begins(life, push));
    return new Promise((resolve) => {
      void pushing.then((result) => {
        if (!life.alive) return;
        if (flight === null) {
          if (result !== null) this.checker.fail(`${push.instance_id}: an attempt was made, and nobody pulled`);
        } else if (result === null) this.checker.takenBack(flight);
        else {
          this.#trace(`${push.instance_id}: ${result.outcome} for ${flight.track.sent.label}`);
          this.checker.inHandEnds(flight, result, life.disturbed);
          this.checker.onResult(flight, result, askedFor(result.status_code, result.retry_after));
        }
        resolve(result);
      });
    });
  }

  #answer(instance_id: string): Answer {
    const random = this.#random;
    switch (this.#moods.get(instance_id) as Mood) {
      case 'fine':
        return { says: 200, after_ms: random.below(ANSWER_MS_MAX) };
      case 'slow':
        return { says: 200, after_ms: random.below(5_000) };
      case 'dead':
        return { says: random.pick(['connect_timeout', 'connect_refused']), after_ms: random.below(5_000) };
      case 'bad':
        return {
          says: random.pick([503, 429]),
          retry_after: random.pick(this.#is_long ? RETRY_AFTERS : CLUSTER_RETRY_AFTERS),
          after_ms: random.below(100),
        };
      case 'hung':
        return { says: 'timeout', after_ms: 5_000 };
      case 'lossy':
        return random.chance(0.5)
          ? { says: random.pick(['timeout', 'broken_response']), after_ms: random.below(5_000), handled: true }
          : { says: 200, after_ms: random.below(50) };
      case 'moody':
        return { says: random.pick(MOODY), after_ms: random.below(500) };
      case 'accepting':
        return { says: 202, after_ms: random.below(50) };
      case 'gone':
        return { says: random.pick([410, 200]), after_ms: random.below(500) };
    }
  }

  // ── the people ────────────────────────────────────────────────────────────────────────────────────────────────────

  #plan(): void {
    const random = this.#random;
    let at = 0;
    for (let events = 5 + random.below(26); events > 0; events--) {
      const dice = random.next();
      if (dice < 0.4) at += random.below(20);
      else if (dice < 0.75) at += random.below(3_000);
      else if (dice < 0.93) at += random.below(90_000);
      else if (dice < 0.995) at += random.below(20 * MINUTE);
      else at += 73 * HOUR;
      this.#clock.after(at, () => this.#event());
    }
    this.#planPauses(at);
    this.#clock.after(at + 20 * SECOND, () => this.#heal());
    this.#clock.after(at + 30 * SECOND, () => this.#registerAll());
    this.#clock.after(at + 30 * SECOND + 6 * HOUR, () => this.#finish());
  }

  #event(): void {
    const random = this.#random;
    const life = this.#lives[0] as Life;
    if (this.#kind === 'expiring') void life.maintenance.run().catch(() => {});
    // Notes the time in the store, as maintenance does once a minute.
    this.#operations.deliveries.noteTime(life.expiry.note(this.#steady()));
    const dice = random.below(100);
    if (dice < 42) return this.#send();
    if (dice < 52) return this.#operate();
    if (dice < 62) {
      return this.#changeMood();
    }
    if (dice < 74) return this.#operate();
    if (dice < 80) return this.#failForAWhile();
    if (dice < 84) return this.#end(life, false);
    if (dice < 90) {
      const name = random.chance(0.4)
        ? 'answered'
        : random.pick(['messages.accept', 'deliveries.settle', 'cluster.renew', 'cluster.leave']);
      this.#crash_at = { name, when: random.pick(['before', 'after']) };
      return;
    }
    if (dice < 93) return this.#stop(life);
    if (dice < 96) {
      if (!this.#is_long) return this.#changeMood();
      const step_ms = random.pick([-HOUR, HOUR, -8 * HOUR, 96 * HOUR]);
      this.#wall_ahead_ms += step_ms;
      // A node does not believe a larger step, so such a step does not let deliveries expire earlier.
      if (step_ms > 0 && step_ms < BELIEVED_MS) this.#forward_ms += step_ms;
      return this.#trace('the clock is set');
    }
    void life.maintenance.run().catch(() => {});
  }

  #changeMood(): void {
    const machine = this.#touchable();
    if (machine === null) return;
    const pulling = this.#pulling.get(machine.instance_id);
    if (pulling === undefined) this.#moods.set(machine.instance_id, this.#random.pick(MOODS));
    else pulling.mood = this.#pull_random.pick(PULL_MOODS);
  }

  #planShort(): void {
    const random = this.#random;
    let at = random.below(5_000);
    for (let events = 8 + random.below(30); events > 0; events--) {
      const dice = random.next();
      if (dice < 0.5) at += random.below(20);
      else if (dice < 0.8) at += random.below(3_000);
      else at += random.below(25_000);
      this.#clock.after(at, () => (this.#cluster === null ? this.#event() : this.#eventInCluster()));
    }
    this.#planPauses(at);
    this.#clock.after(at + 20 * SECOND, () => this.#heal());
    this.#clock.after(at + 40 * SECOND, () => this.#registerAll());
    const rest_ms = this.#pulling.size === 0 ? MINUTE : MINUTE + FOUND_MS;
    this.#clock.after(at + rest_ms, () => this.#finishWhenQuiet(this.#clock.now + CLUSTER_END_MS));
  }

  /** Plans, for a part of the worlds, that meetings are paused for a while. */
  #planPauses(end_ms: number): void {
    const random = new Random(this.seed ^ PAUSES);
    if (!random.chance(PAUSES_SHARE)) return;
    for (let pauses = 1 + random.below(3); pauses > 0; pauses--) {
      const meeting_id = random.pick(this.#meetings);
      const at = random.below(end_ms + 1);
      const until = at + random.pick([10, SECOND, 30 * SECOND, 2 * MINUTE]);
      this.#clock.after(at, () => this.#brake(meeting_id, true));
      if (until < end_ms) this.#clock.after(until, () => this.#brake(meeting_id, false));
    }
  }

  /** Pauses or resumes a meeting, as the HTTP layer does. */
  #brake(meeting_id: string, paused: boolean): void {
    const life = this.#someLife();
    if (life === undefined || this.#goBack !== null) return;
    this.#trace(`${paused ? 'pause' : 'resume'} ${meeting_id}`);
    const brake = this.#brakes.get(meeting_id) ?? { open: 0, firm_from: 0 };
    this.#brakes.set(meeting_id, brake);
    brake.open++;
    life.brakes.push(meeting_id);
    this.#fault();
    const { store, engine } = life;
    const end = (): void => {
      if (!life.alive) return;
      if (this.#cluster === null) this.#closeBrake(life, meeting_id);
      else this.#whenAllNotified(() => this.#closeBrake(life, meeting_id));
    };
    store.meetings
      .patch(meeting_id, { paused }, this.#wall())
      .then(
        () => engine.meetingChanged(meeting_id, !paused),
        () => engine.meetingChanged(meeting_id, !paused),
      )
      .then(end, end);
  }

  #closeBrake(life: Life, meeting_id: string): void {
    const at = life.brakes.indexOf(meeting_id);
    if (at === -1) return;
    life.brakes.splice(at, 1);
    this.#fault();
    const brake = this.#brakes.get(meeting_id)!;
    brake.open--;
    brake.firm_from = this.#clock.now + (this.#cluster === null ? 0 : 2 * NOTICED_MS_MAX);
  }

  #isStoredPaused(meeting_id: string): boolean {
    return this.#operations.meetings.settings(meeting_id)?.paused === true;
  }

  /** Whether the deliveries of a meeting may have to wait. */
  #mayBePaused(meeting_id: string): boolean {
    return (this.#brakes.get(meeting_id)?.open ?? 0) > 0 || this.#isStoredPaused(meeting_id);
  }

  /** Whether every node knows that a meeting is paused. */
  #isFirmlyPaused(meeting_id: string): boolean {
    const brake = this.#brakes.get(meeting_id);
    if (brake === undefined || brake.open > 0 || this.#clock.now < brake.firm_from) return false;
    return this.#isStoredPaused(meeting_id);
  }

  #eventInCluster(): void {
    const random = this.#random;
    const dice = random.below(100);
    const life = this.#someLife();
    if (life === undefined) return;
    if (this.#kind === 'late' && this.#late_random.chance(MISSED_SHARE)) return this.#mayHaveMissed(life);
    if (dice < 50) return this.#send();
    if (dice < 65) return this.#operate();
    if (dice < 70) {
      return this.#changeMood();
    }
    if (dice < 72) return this.#failForAWhile();
    if (dice < 75) return this.#end(life, false);
    if (dice < 80) {
      const name = random.pick(['messages.accept', 'deliveries.settle', 'cluster.renew', 'cluster.leave', 'answered']);
      this.#crash_at = { name, when: random.pick(['before', 'after']) };
      return;
    }
    if (dice < 84) return this.#stop(life);
    if (dice < 87) return this.#join();
    if (dice < 91) return this.#pause(life, random.chance(0.5) ? MINUTE : random.below(30_000));
    if (dice < 95) return this.#cut(life, random.chance(0.3) ? 0 : random.below(40_000));
    if (dice < 97) return this.#deafen(life, random.below(5_000));
    if (dice < 99) return this.#standbyTakesOver();
    void life.maintenance.run().catch(() => {});
  }

  /** Some process that people can reach: it is not paused. */
  #someLife(): Life | undefined {
    const running = this.#lives.filter(({ missed }) => missed === null);
    return running.length > 1 ? this.#random.pick(running) : running[0];
  }

  #failForAWhile(): void {
    if (this.#failing) return;
    this.#failing = true;
    this.checker.disturbed_at = this.#steady();
    this.#trace('the disk fails');
    this.#clock.after(this.#random.below(20 * SECOND), () => {
      this.#mendDisk();
      this.#fault();
      this.#trace('the disk is well');
    });
  }

  #mendDisk(): void {
    if (!this.#failing) return;
    this.#failing = false;
    for (const life of this.#lives) if (life.stopping) life.may_give_up = true;
    this.#written_from = this.#clock.now + WRITTEN_MS_MAX;
  }

  /**
   * Whether a process that stops has certainly written all results. A stop waits only for a limited time. So results
   * may be lost while the disk fails, shortly after that, and in worlds that write results late.
   */
  #isAllWritten(): boolean {
    return this.#kind !== 'late' && !this.#failing && this.#clock.now >= this.#written_from;
  }

  #touchable(): Machine | null {
    const machines = [...this.checker.machines.values()].filter(({ untouched }) => !untouched);
    return machines.length === 0 ? null : this.#random.pick(machines);
  }

  #send(): void {
    const random = this.#random;
    // In worlds that allow few attempts in flight, more messages are sent at a time, so that backlogs grow.
    const burst = this.#settings.max_in_flight < 1_000 ? 4 : 1;
    const count = random.chance(0.15) ? burst * (2 + random.below(6)) : 1;
    for (let k = 0; k < count; k++) {
      const meeting_id = random.pick(this.#meetings);
      const target = random.chance(0.2) ? `i${random.below(this.checker.machines.size)}` : null;
      const recent = this.checker.sent.filter(({ wall_at }) => this.#wall() - wall_at < REPEATED_WITHIN_MS);
      const repeated = recent.length > 0 && random.chance(0.15) ? random.pick(recent) : null;
      const from = this.#kind === 'returning' && this.#talk_random.chance(0.5) ? 'outsider' : null;
      this.#post(repeated ?? this.#newSent(meeting_id, target, from, null));
    }
  }

  /** In worlds of the kind `expiring`, half of the messages expire before slow or distant machines have them. */
  #expiresInMs(): number | null {
    if (this.#kind !== 'expiring' || !this.#talk_random.chance(0.5)) return null;
    return SECOND + this.#talk_random.below(MINUTE);
  }

  #newSent(meeting_id: string, target: string | null, from: string | null, in_reply_to: string | null): Sent {
    return {
      label: ++this.#labels,
      meeting_id,
      target,
      from,
      in_reply_to,
      expires_in_ms: this.#expiresInMs(),
      must: new Set(),
      may: new Set(),
      started_at: this.#steady(),
      began_at: this.#clock.now,
      wall_at: this.#wall(),
      open: 0,
      response: null,
      unknown: false,
      refused: false,
    };
  }

  #post(sent: Sent): void {
    const { label, meeting_id, target, from, in_reply_to } = sent;
    const life = this.#someLife();
    if (life === undefined) return;
    const sent_at = this.#steady();
    this.#trace(`send ${label} in ${meeting_id}`);
    // Each message has its own idempotency key, so that a sender without a response can repeat the message.
    const message = `{"n":${label}}`;
    const send = {
      meeting_id,
      message,
      timestamp: '',
      target_agents: target === null ? null : [target],
      origin: from === null && in_reply_to === null ? null : { from_agent: from, in_reply_to, speaks_for: null },
      trace: null,
      expires_in_ms: sent.expires_in_ms,
      idempotency: { key: String(label), sender: '', fingerprint: message },
    };
    this.checker.sendStarts(sent);
    life.sends.push(sent);
    const ended = (): void => void life.sends.splice(life.sends.indexOf(sent), 1);
    void life.engine.send(send).then(
      ({ message, repeated }) => {
        if (!life.alive) return;
        ended();
        const dies = this.#crash_at?.name === 'answered';
        this.#trace(`accepted ${label} as ${message.seq}${repeated ? ' before' : ''}`);
        this.checker.sendEnds(sent, message);
        const is_open = !repeated && !life.stopping && !this.#mayBePaused(sent.meeting_id);
        const waits = this.#cluster === null && this.#kind !== 'talking' && is_open;
        if (waits) this.checker.waitsFor(sent, (instance_id) => this.#repliers.has(instance_id));
        const answered_at = this.#steady();
        if (repeated || this.#settings.max_in_flight < 1_000 || from !== null || this.#kind === 'late') return;
        if (sent.expires_in_ms !== null) return;
        const wait_ms = promptWithin(this.checker.sent.length, ANSWER_MS_MAX + 2 * this.#store_ms);
        this.#clock.after(wait_ms, () => this.#checkPrompt(life, sent, sent_at, answered_at));
        if (this.#cluster !== null) this.#checkNotifiedWithin(sent, answered_at, TAKEN_OVER_MS + wait_ms, isCalled);
        if (this.#pulling.size > 0 && sent.meeting_id !== this.#meetings[0])
          this.#checkNotifiedWithin(sent, answered_at, FOUND_MS + wait_ms, (machine) => !isCalled(machine));
        if (dies) this.#end(life, false);
      },
      () => {
        if (!life.alive) return;
        ended();
        this.#trace(`refused ${label}`);
        sent.open--;
        sent.refused = true;
        // The connection may have been lost after the message was stored.
        if (this.#cluster !== null && life.disturbed) sent.unknown = true;
      },
    );
  }

  #checkPrompt(life: Life, sent: Sent, sent_at: number, answered_at: number): void {
    if (!life.alive || life.stopping || this.#failing || !this.#isUndisturbed()) return;
    if (this.#mayBePaused(sent.meeting_id)) return;
    const call_ms_max = this.#store_ms * (this.#cluster === null ? 2 : 1 + SLOW_REPLY);
    this.checker.checkPrompt(sent, sent_at, answered_at, call_ms_max);
  }

  /** Whether every instance has a node that is well. */
  #isUndisturbed(): boolean {
    const cluster = this.#cluster;
    if (cluster === null) return true;
    const well = new Set(this.#lives.filter((life) => this.#isWell(life)).map(({ node_id }) => node_id));
    const ids = [...this.checker.machines.keys()];
    return well.size === this.#lives.length && ids.every((instance_id) => well.has(cluster.ownerOf(instance_id) ?? ''));
  }

  /** Checks that machines have the message within this time, because other nodes take over the work of lost nodes. */
  #checkNotifiedWithin(
    sent: Sent,
    answered_at: number,
    within_ms: number,
    concerns: (machine: Machine) => boolean,
  ): void {
    const due_at = Math.max(answered_at, this.#fault_at) + within_ms;
    this.#clock.after(due_at - this.#steady(), () => {
      const again = (from: number): void => this.#checkNotifiedWithin(sent, from, within_ms, concerns);
      if (this.#mayBePaused(sent.meeting_id)) return again(this.#steady());
      // While the store fails, or no node is well, no node can take over.
      if (this.#failing || !this.#lives.some((life) => this.#isWell(life))) this.#fault_at = this.#steady();
      if (this.#fault_at + within_ms > due_at) again(answered_at);
      else this.checker.checkNotified(sent, within_ms, concerns);
    });
  }

  #operate(): void {
    const random = this.#random;
    if (this.#goBack !== null) return;
    if (this.#kind === 'talking' && this.#talk_random.chance(0.4)) return this.#drop();
    const machine = this.#touchable();
    if (machine === null) return;
    const { instance_id } = machine;
    const meeting_id = random.pick(this.#meetings);
    const life = this.#someLife();
    if (life === undefined) return;
    const { store, engine } = life;
    const wall = this.#wall();
    const dice = random.below(100);
    if (dice < 20)
      this.#do(life, machine, 'join', async () => {
        const rules = this.#rules();
        const joining = store.meetings.join(meeting_id, instance_id, this.#agentsOf(instance_id), wall, null, rules);
        // The instance may have had no rules before.
        await joining.finally(() => Object.keys(rules).length > 0 && engine.memberRulesChanged(instance_id));
      });
    else if (dice < 32) this.#do(life, machine, 'leave', () => store.meetings.leave(meeting_id, instance_id, wall));
    else if (dice < 46) this.#register(life, machine, random.chance(0.3));
    else if (dice < 52) {
      this.#do(life, machine, 'heartbeat', async () => {
        const row = await store.instances.heartbeat(instance_id, wall);
        if (row !== null) engine.instanceChanged(row, true);
      });
    } else if (dice < 68) {
      const field = random.pick(['is_active', 'webhook_enabled'] as const);
      const value = random.chance(0.5);
      this.#do(life, machine, `patch ${field} ${value}`, async () => {
        const row = await store.instances.patch(instance_id, { [field]: value }, wall);
        if (row !== null) engine.instanceChanged(row, value);
      });
    } else if (dice < 76) this.#remove(life, machine);
    else if (dice < 90) this.#retry(life, machine);
    else {
      this.checker.markManual(instance_id);
      this.#do(life, machine, 'recover', async () => {
        const now = this.#steady();
        await store.deliveries.recover({ instance_id, ...EVER }, 1e9, now, life.expiry.endOfNew());
        this.checker.markManual(instance_id);
        engine.deliveryRetried({ instance_id, meeting_id: '', aside: true });
      });
    }
  }

  /** Does an operation as the HTTP layer does: first in the store, then in the engine. */
  #do(life: Life, machine: Machine, what: string, act: () => Promise<unknown>): void {
    this.#trace(`${what} ${machine.instance_id}`);
    this.checker.opStarts(machine);
    life.ops.push(machine);
    const started_at = this.#steady();
    const close = (done: boolean): void => {
      if (!life.ops.includes(machine)) return;
      life.ops.splice(life.ops.indexOf(machine), 1);
      this.checker.opEnds(machine, started_at, done && what === 'register');
    };
    const end = (done: boolean): void => {
      if (!life.alive) return;
      this.#trace(`${done ? 'done' : 'failed'} ${what} ${machine.instance_id}`);
      if (this.#cluster === null) close(done);
      else this.#whenAllNotified(() => close(done));
    };
    act().then(
      () => end(true),
      () => end(false),
    );
  }

  /**
   * Calls `then` when all nodes have their notifications. Before, the node that delivers may not know of an operation
   * that another node made, so the checker expects nothing of it.
   */
  #whenAllNotified(then: () => void): void {
    const all_notified = this.#lives.every(
      (life) => life.missed === null && !life.cut && !life.deaf && life.notified_at < this.#clock.now,
    );
    if (all_notified) then();
    else this.#clock.after(50, () => this.#whenAllNotified(then));
  }

  #register(life: Life, machine: Machine, moves: boolean): void {
    const { store, engine } = life;
    if (moves) machine.url = `http://${machine.instance_id}.test/${this.#random.below(3)}`;
    const registration = this.#registration(machine);
    this.#do(life, machine, 'register', async () => {
      try {
        const { instance } = await store.instances.register(registration, this.#wall());
        engine.instanceChanged(instance, true);
      } finally {
        // The stored URL counts.
        const row = this.#operations.instances.load([machine.instance_id])[0];
        machine.url = row?.webhook_url ?? machine.url;
      }
    });
  }

  #remove(life: Life, machine: Machine): void {
    const { store, engine } = life;
    const limit = this.#random.pick([1, 2, 2_000]);
    machine.generation++;
    machine.removed = true;
    this.#do(life, machine, 'remove', async () => {
      for (let done = false; !done;) {
        const removing = store.instances.remove(machine.instance_id, limit, this.#wall());
        const removed = await removing.finally(() => engine.invalidateInstance(machine.instance_id));
        done = removed.done;
      }
      engine.instanceRemoved(machine.instance_id);
    });
  }

  #retry(life: Life, machine: Machine): void {
    const { store, engine } = life;
    const rows = this.#operations.deliveries
      .list({ instance_id: machine.instance_id, limit: 1_000 }, this.#steady())
      .data.filter(({ state }) => state === 'failed' || state === 'pending');
    if (rows.length === 0) return;
    const row = this.#random.pick(rows);
    this.checker.markRetried(row);
    this.#do(life, machine, `retry seq ${row.seq} of`, async () => {
      const now = this.#steady();
      const retried = await store.deliveries.retry(row.delivery_id, now, life.expiry.endOfNew());
      this.checker.markRetried(row);
      if (retried !== null) engine.deliveryRetried({ ...retried, delivery_id: row.delivery_id });
    });
  }

  // ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────

  #heal(): void {
    this.#trace('all is well again');
    this.#is_healed = true;
    this.#goBack = null;
    this.#mendDisk();
    this.#crash_at = null;
    for (const instance_id of this.#moods.keys()) this.#moods.set(instance_id, 'fine');
    for (const machine of this.#pulling.values()) machine.mood = 'fine';
    for (const life of this.#lives) {
      this.#resume(life);
      this.#connect(life);
    }
    this.#fault();
  }

  #registerAll(): void {
    if (this.#lives.length === 0) this.#begin();
    const life = this.#someLife() as Life;
    for (const machine of this.checker.machines.values()) if (!machine.untouched) this.#register(life, machine, false);
    for (const meeting_id of this.#brakes.keys()) this.#brake(meeting_id, false);
  }

  #finish(): void {
    for (const { engine } of this.#lives) {
      const { in_flight, queued_in_memory, unsettled } = engine.stats;
      if (in_flight + queued_in_memory + unsettled > 0)
        this.checker.fail(`the engine still holds ${in_flight} + ${queued_in_memory} + ${unsettled}`);
    }
    this.checker.checkEnd();
    this.done = true;
  }

  #finishWhenQuiet(until: number): void {
    const is_quiet =
      this.#operations.deliveries.countPending() === 0 && this.#lives.every(({ engine }) => engine.isQuiet);
    if (is_quiet || this.#clock.now >= until) this.#finish();
    else this.#clock.after(LOOK_MS, () => this.#finishWhenQuiet(until));
  }
}

/** Each of these kinds of calls has its own connection; all other calls share several connections. */
const CHANNELS = new Set(['messages.accept', 'deliveries.settle']);

/** Calls that end deliveries without a result. */
const ENDING = new Set(['deliveries.drop', 'deliveries.expireLanes', 'deliveries.expireAside']);

/** Calls that only read, so that they succeed even when the disk is full. */
const READS = new Set([
  'instances.get',
  'deliveries.get',
  'deliveries.countPending',
  'meetings.settings',
  'meetings.allSettings',
]);

/** Whether the machine has a webhook; the other machines pull. */
function isCalled({ ack_timeout_ms }: Machine): boolean {
  return ack_timeout_ms === null;
}

/** The pause in ms that a Retry-After asks for. In these worlds it always has seconds. */
function askedFor(status_code: number | null, retry_after: string | null): number {
  if ((status_code !== 429 && status_code !== 503) || retry_after === null) return 0;
  return /^\d+$/.test(retry_after) ? Number(retry_after) * SECOND : 0;
}

/** The response of a machine: replies that nobody answers, each with the delivery that it answers and its place. */
function repliesTo(delivery_id: string, from_agent: string, places: number): string {
  const replies = Array.from({ length: places }, (_, place) => ({
    message: { to: delivery_id, place },
    from_agent,
    target_agents: ['nobody'],
  }));
  return JSON.stringify({ replies });
}
