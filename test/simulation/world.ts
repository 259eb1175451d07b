/**
 * A few random days of one node: machines that answer, fail, lie and vanish, people who send, join, leave, delete and
 * restart, a disk that fails, a clock that is set, a process that is killed. Then quiet, and the promises are checked.
 * One seed is one world, to the letter.
 */
import { Engine, type EngineSettings } from '../../src/delivery/engine.ts';
import { Maintenance } from '../../src/delivery/maintenance.ts';
import type { Push, PushResult, Transport } from '../../src/delivery/transport.ts';
import { type Outcome, outcomeOfStatus } from '../../src/domain/outcome.ts';
import type { Store } from '../../src/store/store.ts';
import { Checker, type Machine, promptWithin, type Sent } from './checker.ts';
import { ModelStore, type StoreOperations } from './model_store.ts';
import { Random } from './random.ts';
import { simulatedStore } from './simulated_store.ts';
import { SteppedClock } from './stepped_clock.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const STEPS_MAX = 50_000;
const ANSWER_MS_MAX = 20;
/** An Idempotency-Key is kept for a day; the clock may be set by some hours meanwhile. */
const REPEATED_WITHIN_MS = 12 * HOUR;

const MOODS = ['fine', 'fine', 'slow', 'dead', 'bad', 'hung', 'moody', 'moody', 'accepting', 'lossy', 'gone'] as const;
type Mood = (typeof MOODS)[number];

interface Answer {
  says: number | Exclude<Outcome, 'ok' | 'not_200' | 'gone' | 'bad_status'>;
  after_ms: number;
  retry_after?: string;
  /** The machine acted on it, though its answer says otherwise or never came. */
  handled?: boolean;
}

const MOODY: Answer['says'][] = [200, 200, 200, 500, 429, 202, 302, 404, 'timeout', 'connect_refused', 'dns_failed'];
const RETRY_AFTERS = ['1', '90', '7200', '1e99', '-1', 'Fri, 02 Jan 2026 00:00:00 GMT', 'soon'];

/** One process: what it started dies with it. */
interface Life {
  number: number;
  alive: boolean;
  engine: Engine;
  store: Store;
  maintenance: Maintenance;
  stopping: boolean;
}

export interface WorldOptions {
  /** Makes the store's operations; the model in memory unless told. */
  operations?: (wall: () => number) => StoreOperations;
  /** Hears every line of the trace. */
  onTrace?: (line: string) => void;
}

export class World {
  readonly seed: number;
  readonly checker: Checker;
  /** FNV-1a over everything that happened. */
  trace_hash = 0x811c9dc5;
  done = false;
  steps = 0;
  readonly #random: Random;
  readonly #clock = new SteppedClock();
  readonly #operations: StoreOperations;
  readonly #settings: EngineSettings;
  readonly #meetings: string[];
  readonly #moods = new Map<string, Mood>();
  readonly #onTrace: ((line: string) => void) | undefined;
  readonly #store_ms: number;
  #life!: Life;
  #wall_ahead_ms = 0;
  #steady_ahead_ms = 0;
  #failing = false;
  #crash_at: { name: string; when: 'before' | 'after' } | null = null;
  #labels = 0;

  constructor(seed: number, { operations, onTrace }: WorldOptions = {}) {
    this.seed = seed;
    this.#onTrace = onTrace;
    const random = new Random(seed);
    this.#random = random;
    this.#store_ms = random.pick([0, 1, 5, 40]);
    this.#operations = operations?.(() => this.#wall()) ?? new ModelStore(() => this.#wall());
    this.#meetings = Array.from({ length: 1 + random.below(3) }, (_, k) => `m${k}`);
    this.#settings = {
      retry_schedule_ms: [10 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE],
      expire_after_ms: 72 * HOUR,
      max_in_flight: random.chance(0.2) ? 1 + random.below(3) : 1_000,
      instance_concurrency: 1 + random.below(4),
      user_agent: 'Convoke/simulated',
    };
    this.checker = new Checker(this.#operations, this.#settings, this.#meetings, () => this.#steady());
    const instances = 1 + random.below(4);
    for (let k = 0; k < instances; k++) this.#settle(`i${k}`, k > 0 && random.chance(0.4));
    this.#begin();
    this.#plan();
  }

  /** Moves to the next thing that happens; promises must come to rest in between. */
  step(): void {
    if (++this.steps > STEPS_MAX) this.checker.fail('it does not come to rest');
    if (!this.#clock.step() && !this.done) this.checker.fail('it stopped before its end');
  }

  #settle(instance_id: string, untouched: boolean): void {
    const random = this.#random;
    const machine = this.checker.add(instance_id, `http://${instance_id}.test/0`, untouched);
    this.#moods.set(instance_id, untouched ? 'fine' : random.pick(MOODS));
    this.#operations.instances.register(this.#registration(machine), this.#wall());
    for (const meeting_id of this.#meetings)
      if (random.chance(0.8)) this.#operations.meetings.join(meeting_id, instance_id, ['a', instance_id], this.#wall());
    this.checker.look(machine);
  }

  #registration({ instance_id, url }: Machine) {
    return {
      instance_id,
      instance_name: instance_id,
      agent_ids: ['a'],
      webhook_url: url,
      webhook_headers: undefined,
      webhook_secret: undefined,
      new_secret: SECRET,
      success_statuses: undefined,
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

  /** As src/delivery/clock.ts says it: the wall clock as it was when the process started, and never stepped from there. */
  #steady(): number {
    return this.#clock.now + this.#steady_ahead_ms;
  }

  // ── the process ───────────────────────────────────────────────────────────────────────────────────────────────────

  #begin(): void {
    const number = (this.#life?.number ?? 0) + 1;
    const life = { number, alive: true, stopping: false } as Life;
    const after = (delay_ms: number, run: () => void) =>
      this.#clock.after(delay_ms, () => {
        if (life.alive) run();
      });
    const clock = {
      now: () => this.#steady(),
      wall: () => this.#wall(),
      after: (delay_ms: number, run: () => void) => ({ cancel: after(delay_ms, run) }),
      soon: (run: () => void) => void after(0, run),
    };
    life.store = simulatedStore(this.#operations, {
      now: () => this.#clock.now,
      delays: () => ({
        commit_ms: this.#random.below(this.#store_ms + 1),
        reply_ms: this.#random.below(this.#store_ms + 1),
      }),
      schedule: (at_ms, run) => void after(at_ms - this.#clock.now, run),
      fails: (name) => this.#failing && !READS.has(name) && this.#random.chance(0.5),
      beforeCommit: (name) => !this.#crashes(name, 'before'),
      afterCommit: (name) => !this.#crashes(name, 'after'),
    });
    life.engine = new Engine({
      clock,
      random: this.#random.next,
      load: () => 1,
      store: life.store,
      transport: this.#transport(life),
      observer: { accepted: () => {}, attempted: () => {}, settled: () => {}, storageFailed: () => {} },
      settings: this.#settings,
    });
    const settings = { retention_deliveries_ms: 1_000 * HOUR, retention_messages_ms: 1_000 * HOUR };
    life.maintenance = new Maintenance(clock, life.store, settings, { expired: () => {}, failed: () => {} });
    this.#life = life;
    this.checker.disturbed_at = this.#steady();
    life.engine.start().then(
      () => (this.checker.disturbed_at = this.#steady()),
      () => {},
    );
  }

  #crashes(name: string, when: 'before' | 'after'): boolean {
    if (this.#crash_at?.name !== name || this.#crash_at.when !== when) return false;
    this.#end(false);
    return true;
  }

  /** Ends the process, as kill -9 does unless `clean`, and starts the next. */
  #end(clean: boolean): void {
    this.#trace(clean ? 'stopped' : 'killed');
    this.#crash_at = null;
    this.#life.alive = false;
    const steady_ahead_ms = this.#wall_ahead_ms;
    const stepped = steady_ahead_ms !== this.#steady_ahead_ms;
    this.checker.lifeEnds(clean && !this.#failing, stepped);
    this.#steady_ahead_ms = steady_ahead_ms;
    this.#begin();
  }

  #stop(): void {
    const life = this.#life;
    if (life.stopping) return;
    life.stopping = true;
    this.#trace('stops');
    this.checker.disturbed_at = this.#steady();
    // Operations under way are answered before the process ends, as the server does it.
    void life.engine.stop().then(() => {
      this.#clock.after(10 * SECOND, () => {
        if (life.alive) this.#end(true);
      });
    });
  }

  // ── the machines ──────────────────────────────────────────────────────────────────────────────────────────────────

  #transport(life: Life): Transport {
    return {
      push: (push) => (life.alive ? this.#push(life, push) : new Promise(() => {})),
      forget: () => {},
      close: async () => {},
    };
  }

  #push(life: Life, { instance_id, url, headers, body, success_statuses }: Push): Promise<PushResult> {
    const { message, meeting_id } = JSON.parse(Buffer.from(body).toString()) as {
      message: { n: number };
      meeting_id: string;
    };
    const delivery_id = headers['webhook-id'] as string;
    this.#trace(`push ${message.n} in ${meeting_id} to ${instance_id}, attempt ${headers['convoke-attempt']}`);
    const flight = this.checker.pushStarts(instance_id, delivery_id, message.n, url);
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
        this.#trace(`${instance_id} says ${says} to ${message.n}`);
        if (handled === true || outcome === 'ok') this.checker.handled(flight);
        this.checker.pushEnds(flight, result, askedFor(status_code, retry_after));
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
        return { says: random.pick([503, 429]), retry_after: random.pick(RETRY_AFTERS), after_ms: random.below(100) };
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
    this.#clock.after(at + 20 * SECOND, () => this.#heal());
    this.#clock.after(at + 30 * SECOND, () => this.#registerAll());
    this.#clock.after(at + 30 * SECOND + 6 * HOUR, () => this.#finish());
  }

  #event(): void {
    const random = this.#random;
    const dice = random.below(100);
    if (dice < 42) return this.#send();
    if (dice < 52) return this.#operate();
    if (dice < 62) {
      const machine = this.#touchable();
      if (machine !== null) this.#moods.set(machine.instance_id, random.pick(MOODS));
      return;
    }
    if (dice < 74) return this.#operate();
    if (dice < 80) return this.#failForAWhile();
    if (dice < 84) return this.#end(false);
    if (dice < 90) {
      const name = random.pick(['messages.accept', 'messages.accept', 'deliveries.settle', 'deliveries.retry']);
      this.#crash_at = { name, when: random.pick(['before', 'after']) };
      return;
    }
    if (dice < 93) return this.#stop();
    if (dice < 96) {
      this.#wall_ahead_ms += random.pick([-HOUR, HOUR]);
      return this.#trace('the clock is set');
    }
    void this.#life.maintenance.run().catch(() => {});
  }

  #failForAWhile(): void {
    if (this.#failing) return;
    this.#failing = true;
    this.checker.disturbed_at = this.#steady();
    this.#trace('the disk fails');
    this.#clock.after(this.#random.below(20 * SECOND), () => {
      this.#failing = false;
      this.checker.disturbed_at = this.#steady();
      this.#trace('the disk is well');
    });
  }

  #touchable(): Machine | null {
    const machines = [...this.checker.machines.values()].filter(({ untouched }) => !untouched);
    return machines.length === 0 ? null : this.#random.pick(machines);
  }

  #send(): void {
    const random = this.#random;
    const count = random.chance(0.15) ? 2 + random.below(6) : 1;
    for (let k = 0; k < count; k++) {
      const meeting_id = random.pick(this.#meetings);
      const target = random.chance(0.2) ? `i${random.below(this.checker.machines.size)}` : null;
      const recent = this.checker.sent.filter(({ started_at }) => this.#steady() - started_at < REPEATED_WITHIN_MS);
      const repeated = recent.length > 0 && random.chance(0.15) ? random.pick(recent) : null;
      this.#post(
        repeated ?? {
          label: ++this.#labels,
          meeting_id,
          target,
          must: new Set(),
          may: new Set(),
          started_at: this.#steady(),
          open: 0,
          told: null,
          unknown: false,
          refused: false,
        },
      );
    }
  }

  #post(sent: Sent): void {
    const { label, meeting_id, target } = sent;
    const life = this.#life;
    const sent_at = this.#steady();
    this.#trace(`send ${label} in ${meeting_id}`);
    // A key of its own for each message: that is how whoever got no answer asks again.
    const message = `{"n":${label}}`;
    const send = {
      meeting_id,
      message,
      timestamp: '',
      target_agents: target === null ? null : [target],
      idempotency: { key: String(label), fingerprint: message },
    };
    this.checker.sendStarts(sent);
    void life.engine.send(send).then(
      ({ message, repeated }) => {
        if (!life.alive) return;
        this.#trace(`accepted ${label} as ${message.seq}${repeated ? ' before' : ''}`);
        this.checker.sendEnds(sent, message);
        const answered_at = this.#steady();
        if (repeated || this.#settings.max_in_flight < 1_000) return;
        const wait_ms = promptWithin(this.checker.sent.length, ANSWER_MS_MAX + 2 * this.#store_ms);
        this.#clock.after(wait_ms, () => this.#checkPrompt(life, sent, sent_at, answered_at));
      },
      () => {
        if (!life.alive) return;
        this.#trace(`refused ${label}`);
        sent.open--;
        sent.refused = true;
      },
    );
  }

  #checkPrompt(life: Life, sent: Sent, sent_at: number, answered_at: number): void {
    if (life.alive && !life.stopping && !this.#failing) this.checker.checkPrompt(sent, sent_at, answered_at);
  }

  #operate(): void {
    const random = this.#random;
    const machine = this.#touchable();
    if (machine === null) return;
    const { instance_id } = machine;
    const meeting_id = random.pick(this.#meetings);
    const { store, engine } = this.#life;
    const wall = this.#wall();
    const dice = random.below(100);
    if (dice < 20)
      this.#do(machine, 'join', () => store.meetings.join(meeting_id, instance_id, ['a', instance_id], wall));
    else if (dice < 32) this.#do(machine, 'leave', () => store.meetings.leave(meeting_id, instance_id, wall));
    else if (dice < 46) this.#register(machine, random.chance(0.3));
    else if (dice < 52) {
      this.#do(machine, 'heartbeat', async () => {
        const row = await store.instances.heartbeat(instance_id, wall);
        if (row !== null) engine.instanceChanged(row, true);
      });
    } else if (dice < 68) {
      const field = random.pick(['is_active', 'webhook_enabled'] as const);
      const value = random.chance(0.5);
      this.#do(machine, `patch ${field} ${value}`, async () => {
        const row = await store.instances.patch(instance_id, { [field]: value }, wall);
        if (row !== null) engine.instanceChanged(row, value);
      });
    } else if (dice < 76) this.#remove(machine);
    else if (dice < 90) this.#retry(machine);
    else {
      this.checker.markManual(instance_id);
      this.#do(machine, 'recover', async () => {
        const now = this.#steady();
        await store.deliveries.recover(instance_id, 0, now, now + this.#settings.expire_after_ms);
        this.checker.markManual(instance_id);
        engine.deliveryRetried({ instance_id, meeting_id: '', aside: true });
      });
    }
  }

  /** What an operator does, as the HTTP layer does it: the store first, then the engine is told. */
  #do(machine: Machine, what: string, act: () => Promise<unknown>): void {
    const life = this.#life;
    this.#trace(`${what} ${machine.instance_id}`);
    this.checker.opStarts(machine);
    const started_at = this.#steady();
    const end = (done: boolean): void => {
      if (!life.alive) return;
      this.#trace(`${done ? 'done' : 'failed'} ${what} ${machine.instance_id}`);
      this.checker.opEnds(machine, started_at, done && what === 'register');
    };
    act().then(
      () => end(true),
      () => end(false),
    );
  }

  #register(machine: Machine, moves: boolean): void {
    const { store, engine } = this.#life;
    if (moves) machine.url = `http://${machine.instance_id}.test/${this.#random.below(3)}`;
    const registration = this.#registration(machine);
    this.#do(machine, 'register', async () => {
      try {
        const { instance } = await store.instances.register(registration, this.#wall());
        engine.instanceChanged(instance, true);
      } finally {
        // The URL that counts is the one that is stored.
        const row = this.#operations.instances.load([machine.instance_id])[0];
        machine.url = row?.webhook_url ?? machine.url;
      }
    });
  }

  #remove(machine: Machine): void {
    const { store, engine } = this.#life;
    const limit = this.#random.pick([1, 2, 2_000]);
    machine.generation++;
    machine.removed = true;
    this.#do(machine, 'remove', async () => {
      for (let done = false; !done;) {
        const removing = store.instances.remove(machine.instance_id, limit, this.#wall());
        const removed = await removing.finally(() => engine.instanceUnsure(machine.instance_id));
        done = removed.done;
      }
      engine.instanceRemoved(machine.instance_id, 0);
    });
  }

  #retry(machine: Machine): void {
    const { store, engine } = this.#life;
    const rows = this.#operations.deliveries
      .list({ instance_id: machine.instance_id, limit: 1_000 }, this.#steady())
      .data.filter(({ state }) => state === 'failed' || state === 'pending');
    if (rows.length === 0) return;
    const row = this.#random.pick(rows);
    this.checker.markRetried(row);
    this.#do(machine, `retry seq ${row.seq} of`, async () => {
      const now = this.#steady();
      const retried = await store.deliveries.retry(row.delivery_id, now, now + this.#settings.expire_after_ms);
      this.checker.markRetried(row);
      if (retried !== null) engine.deliveryRetried({ ...retried, delivery_id: row.delivery_id });
    });
  }

  // ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────

  #heal(): void {
    this.#trace('all is well again');
    this.#failing = false;
    this.#crash_at = null;
    for (const instance_id of this.#moods.keys()) this.#moods.set(instance_id, 'fine');
  }

  #registerAll(): void {
    for (const machine of this.checker.machines.values()) if (!machine.untouched) this.#register(machine, false);
  }

  #finish(): void {
    const { engine } = this.#life;
    const { in_flight, queued_in_memory, unsettled } = engine.stats;
    if (in_flight + queued_in_memory + unsettled > 0)
      this.checker.fail(`the engine still holds ${in_flight} + ${queued_in_memory} + ${unsettled}`);
    this.checker.checkEnd();
    this.done = true;
  }
}

/** They answer though the disk is full. */
const READS = new Set(['instances.get', 'deliveries.countPending']);

/** What a Retry-After in seconds asks for; the other forms are left out of account. */
function askedFor(status_code: number | null, retry_after: string | null): number {
  if ((status_code !== 429 && status_code !== 503) || retry_after === null) return 0;
  return /^\d+$/.test(retry_after) ? Number(retry_after) * SECOND : 0;
}
