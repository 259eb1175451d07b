/**
 * A node without HTTP: the engine on a real SQLite store, with virtual time and scripted receivers. Its methods call
 * store and engine in the same order as the HTTP layer.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { Send } from '../../src/delivery/accept/acceptor.ts';
import { ConnectionNotes } from '../../src/delivery/connection_notes.ts';
import { Engine, type EngineSettings } from '../../src/delivery/engine.ts';
import type { AttemptEvent, SuppressedDelivery } from '../../src/delivery/observer.ts';
import { Expiry } from '../../src/delivery/expiry.ts';
import { Maintenance } from '../../src/delivery/maintenance.ts';
import { Partitions } from '../../src/delivery/cluster/partitions.ts';
import { PullTransport } from '../../src/delivery/transport/pull_transport.ts';
import { Transports } from '../../src/delivery/transport/transports.ts';
import type { TransportName } from '../../src/domain/instance.ts';
import type { AcceptedMessage } from '../../src/store/contract/messages.ts';
import type { Store } from '../../src/store/store.ts';
import type { ClusterStore } from '../../src/store/contract/cluster.ts';
import type { DeliveryFilter, DeliveryRow, LaneKey } from '../../src/store/contract/deliveries.ts';
import type { InstancePatch } from '../../src/store/contract/instances.ts';
import type { MeetingPatch } from '../../src/store/contract/meetings.ts';
import type { Quotas } from '../../src/store/contract/quotas.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { GroupCommit } from '../../src/store/sqlite/group_commit.ts';
import { type Call, errorOf } from '../../src/store/thread/thread_protocol.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { ScriptedTransport } from './scripted_transport.ts';
import { type MakeCall, storeOfCalls } from './store_of_calls.ts';
import { VirtualClock } from './virtual_clock.ts';

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;

export const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

/** A registration with a webhook. It lacks the id. */
export const REGISTRATION = {
  instance_name: 'n',
  agent_ids: ['a'],
  webhook_url: 'http://127.0.0.1:9/',
  webhook_headers: undefined,
  webhook_secret: undefined,
  new_secret: SECRET,
  success_statuses: undefined,
};

export const SETTINGS: EngineSettings & { expire_after_ms: number } = {
  retry_schedule_ms: [10 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE],
  expire_after_ms: 72 * HOUR,
  max_in_flight: 1_000,
  instance_concurrency: 4,
  max_message_bytes: 262_144,
  user_agent: 'Convoke/test',
  retention_deliveries_ms: 168 * HOUR,
  hop_limit: 16,
  pair_limit: 20,
  pair_window_s: 60,
};

/** A file in a temporary directory that is removed after the test. */
export function temporaryFile(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'convoke-test-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return join(directory, 'convoke.db');
}

/**
 * Opens the real SQLite store on this thread. That takes 1 ms, and 200 ms with a separate thread; and every run is the
 * same. As in the thread, calls of one turn are committed together, and results come in the order of the calls.
 */
export function openStoreHere(file = ':memory:', quotas?: Quotas): Store {
  const group_commit = new GroupCommit(file, { kind: 'memory' }, Date.now, quotas);
  let waiting: { call: Call; resolve: (value: unknown) => void; reject: (error: Error) => void }[] = [];
  let last_id = 0;
  const run = (): void => {
    const calls = waiting;
    waiting = [];
    // Copies values, as they are copied from thread to thread in the service.
    const replies = group_commit.run(structuredClone(calls.map(({ call }) => call)));
    for (const [i, { resolve, reject }] of calls.entries()) {
      const reply = structuredClone(replies[i]);
      const error = reply === undefined ? new Error('no reply') : errorOf(reply);
      if (error === null) resolve(reply?.value);
      else reject(error);
    }
  };
  const call: MakeCall = (noun, method, args, audited) => {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    waiting.push({ call: { id: ++last_id, store: noun, method, args, ...(audited && { audited }) }, resolve, reject });
    if (waiting.length === 1) setImmediate(run);
    return promise;
  };
  return {
    ...storeOfCalls(call),
    cluster: null,
    onChange() {},
    ping: async () => void (await call('instances', 'load', [[]])),
    close: async () => group_commit.close(),
  };
}

/**
 * Decides about a call before it is made: undefined lets it through, a promise delays it, `answered` delays its result,
 * and anything else replaces its result.
 */
export type Meddle = (
  name: string,
  args: unknown[],
) => undefined | 'fails' | 'lost' | Promise<void> | { answered: Promise<void> };

/** Wraps a store: the virtual clock waits for its calls, and a test can make calls fail, wait or get lost. */
export function meddledStore(store: Store, clock: VirtualClock, meddle: Meddle): Store {
  const call: MakeCall = (noun, method, args) => {
    const methods = store[noun] as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
    const made = (): Promise<unknown> => clock.watch(methods[method]!(...args));
    const verdict = meddle(`${noun}.${method}`, args);
    if (verdict === undefined) return made();
    if (verdict === 'lost') return new Promise(() => {});
    if (verdict === 'fails') return Promise.reject(new StoreError('SQLITE_13', 'scripted: the disk is full'));
    if (!('answered' in verdict)) return verdict.then(made);
    return made().then(async (value) => {
      await verdict.answered;
      return value;
    });
  };
  return {
    ...storeOfCalls(call),
    cluster: store.cluster,
    onChange: (listener) => store.onChange(listener),
    audited: (audited) => store.audited(audited),
    ping: () => store.ping(),
    close: () => store.close(),
  };
}

export interface NodeOptions {
  /** The data file. With a file, the store runs in its real thread; without a file it is SQLite in memory. */
  file?: string;
  /** A store that the test has opened, and will close. This node has all partitions. */
  store?: Store;
  random?: () => number;
  settings?: Partial<typeof SETTINGS>;
  /** Whether the engine looks for earlier pending deliveries; true by default. */
  start?: boolean;
  /** Whether other nodes share the store. This node still has all partitions. */
  others?: boolean;
}

export interface SendOptions {
  target_agents?: string[];
  key?: string;
  text?: string;
  expires_in_ms?: number;
  from_agent?: string;
  trace?: string;
  in_reply_to?: string;
}

/**
 * The timers of machines that pull end at a multiple of this. In the service the step is 100 ms, but hours of virtual
 * time with such a short step would take long.
 */
const COARSE_MS = SECOND;

/** The store of a cluster that does not send the broadcasts of this node. */
const SILENT = { broadcast: () => Promise.resolve() } as unknown as ClusterStore;

export async function startNode(t: TestContext, options: NodeOptions = {}): Promise<TestNode> {
  const node = new TestNode(options);
  t.after(() => node.close());
  await node.open();
  return node;
}

export class TestNode {
  readonly clock = new VirtualClock();
  readonly transport = new ScriptedTransport(this.clock);
  readonly attempts: AttemptEvent[] = [];
  readonly suppressed: SuppressedDelivery[] = [];
  readonly settled_without_attempt = new Map<string, number>();
  /** The load of the event loop that the engine sees. */
  load = 1;
  readonly storage_errors: unknown[] = [];
  /** What happened to the replies of agents, also in earlier processes of this node. */
  readonly replied: string[] = [];
  meddle: Meddle | null = null;
  onAttempt: ((event: AttemptEvent) => void) | null = null;
  engine!: Engine;
  /** The transport to machines that pull. */
  pulls!: PullTransport;
  store!: Store;
  expiry!: Expiry;
  readonly #options: NodeOptions;
  #file_store: Store | null = null;
  #life = 0;

  constructor(options: NodeOptions) {
    this.#options = options;
  }

  /** Opens the store if it is not open, and starts an engine on it. */
  async open(start = this.#options.start ?? true): Promise<void> {
    if (this.#file_store === null) {
      const { file, store } = this.#options;
      if (store !== undefined) this.#file_store = { ...store, cluster: null, close: async () => {} };
      else if (file === undefined) this.#file_store = openStoreHere();
      else {
        const { store, opened } = openSqliteStore(file, null);
        await opened;
        this.#file_store = store;
      }
    }
    const life = ++this.#life;
    const store = meddledStore(this.#file_store, this.clock, (name, args) =>
      life === this.#life ? this.meddle?.(name, args) : 'lost',
    );
    this.store = this.#options.others === true ? { ...store, cluster: SILENT } : store;
    this.expiry = new Expiry(this.clock, this.#options.settings?.expire_after_ms ?? SETTINGS.expire_after_ms);
    this.pulls = this.#pullTransport();
    this.engine = new Engine({
      clock: this.clock,
      random: this.#options.random ?? (() => 0.5),
      load: () => this.load,
      store: this.store,
      transport: new Transports({ webhook: this.transport, pull: this.pulls }),
      partitions: Partitions.alone(this.clock),
      expiry: this.expiry,
      observer: {
        accepted: () => {},
        attempted: (event) => {
          this.attempts.push(event);
          this.onAttempt?.(event);
        },
        settled: (state, reason, deliveries) => this.#count(`${state} ${reason}`, deliveries),
        removed() {},
        suppressed: (delivery, reason) => {
          this.#count(`cancelled ${reason}`, 1);
          this.suppressed.push(delivery);
        },
        replied: (way, result) => void this.replied.push(`${way} ${result}`),
        storageFailed: (error) => void this.storage_errors.push(error),
      },
      settings: { ...SETTINGS, ...this.#options.settings },
    });
    if (start) await this.started();
  }

  /** Makes the pull transport. It notes in the store which machines are connected, as in the service. */
  #pullTransport(): PullTransport {
    const { clock, store } = this;
    const notes = new ConnectionNotes({
      clock,
      store,
      epochOf: () => 0,
      onNoted: () => {},
      onError: (error) => void this.storage_errors.push(error),
    });
    return new PullTransport({
      clock: {
        now: () => clock.now(),
        wall: () => clock.wall(),
        steadyOf: (wall_ms) => clock.steadyOf(wall_ms),
        soon: (callback) => clock.soon(callback),
        after: (delay_ms, callback) => clock.after(Math.ceil(delay_ms / COARSE_MS) * COARSE_MS, callback),
      },
      onReady: (instance_id) => this.engine.isReady(instance_id),
      isReading: (instance_id) => this.engine.isReading(instance_id),
      onConnection: (instance_id, connection) => notes.note(instance_id, connection),
    });
  }

  started(): Promise<void> {
    const started = this.engine.start();
    return started;
  }

  /** Ends the process as kill -9 does: calls that have not reached the store are lost. Then opens the store again. */
  async crash(start = true): Promise<void> {
    this.#life++;
    this.clock.forgetTimers();
    this.transport.cut();
    await this.clock.settle();
    if (this.#options.file !== undefined) await this.close();
    await this.open(start);
  }

  /** Ends the process, sets the wall clock, and starts another process. */
  async restart(step_ms: number, { is_trusted = false } = {}): Promise<void> {
    await this.crash(false);
    this.clock.stepWall(step_ms);
    this.clock.startAnew();
    const { deliveries, messages } = this.store;
    this.expiry.begin(await deliveries.timeNoted(), is_trusted, await messages.last());
    await this.started();
  }

  async close(): Promise<void> {
    const store = this.#file_store;
    this.#file_store = null;
    this.#life++;
    await store?.close();
  }

  maintenance(store: Store = this.store): Maintenance {
    const settings = {
      retention_deliveries_ms: 7 * 24 * HOUR,
      retention_messages_ms: 30 * 24 * HOUR,
      retention_audit_ms: 400 * 24 * HOUR,
    };
    return new Maintenance(this.clock, store, settings, this.expiry, {
      expired: (lanes) => {
        this.engine.expired(lanes);
        lanes.forEach(({ count }) => this.#count('failed expired', count));
      },
      isMostlyEmpty: () => {},
      failed: (error) => void this.storage_errors.push(error),
    });
  }

  // ── what users do ─────────────────────────────────────────────────────────────────────────────────────────────────

  async register(
    instance_id: string,
    {
      url = `http://${instance_id}.test/hook`,
      success_statuses = undefined as undefined | '200' | '2xx',
      replies = undefined as undefined | boolean,
      transport = undefined as undefined | TransportName,
    } = {},
  ) {
    const { instance } = await this.store.instances.register(
      {
        instance_id,
        instance_name: instance_id,
        agent_ids: ['a'],
        webhook_url: url,
        webhook_headers: undefined,
        webhook_secret: undefined,
        new_secret: SECRET,
        success_statuses,
        replies,
        transport,
      },
      this.clock.wall(),
    );
    this.engine.instanceChanged(instance, true);
    return instance;
  }

  async join(instance_id: string, ...meeting_ids: string[]): Promise<void> {
    for (const meeting_id of meeting_ids)
      await this.store.meetings.join(meeting_id, instance_id, ['a', instance_id], this.clock.wall());
  }

  /** Registers instances, and lets them join a meeting. All of it together, because tests do it with thousands. */
  async meeting(meeting_id: string, ...instance_ids: string[]): Promise<void> {
    await Promise.all(
      instance_ids.map(async (instance_id) => {
        if ((await this.store.instances.get(instance_id)) === null) await this.register(instance_id);
        await this.join(instance_id, meeting_id);
      }),
    );
  }

  async leave(instance_id: string, meeting_id: string): Promise<void> {
    await this.store.meetings.leave(meeting_id, instance_id, this.clock.wall());
  }

  async heartbeat(instance_id: string): Promise<void> {
    const row = await this.store.instances.heartbeat(instance_id, this.clock.wall());
    if (row !== null) this.engine.instanceChanged(row, true);
  }

  async patch(instance_id: string, patch: InstancePatch): Promise<void> {
    const row = await this.store.instances.patch(instance_id, patch, this.clock.wall());
    if (row !== null) this.engine.instanceChanged(row, patch.is_active === true || patch.webhook_enabled === true);
  }

  #count(what: string, deliveries: number): void {
    this.settled_without_attempt.set(what, (this.settled_without_attempt.get(what) ?? 0) + deliveries);
  }

  async remove(instance_id: string, limit = 2_000): Promise<void> {
    for (let done = false; !done;) {
      const removing = this.store.instances.remove(instance_id, limit, this.clock.wall());
      const removed = await removing.finally(() => this.engine.invalidateInstance(instance_id));
      this.engine.removalStep(instance_id, removed.cancelled);
      done = removed.done;
    }
    this.engine.instanceRemoved(instance_id);
  }

  async retry(delivery_id: string): Promise<void> {
    const now = this.clock.now();
    const retried = await this.store.deliveries.retry(delivery_id, now, this.expiry.endOfNew());
    if (retried !== null) this.engine.deliveryRetried({ ...retried, delivery_id });
  }

  async setMeeting(meeting_id: string, patch: MeetingPatch): Promise<void> {
    await this.store.meetings.patch(meeting_id, patch, this.clock.wall());
    await this.engine.meetingChanged(meeting_id, patch.paused === false);
  }

  /** Drops waiting deliveries; returns their number. */
  async drop(of: Partial<LaneKey>, limit = 2_000): Promise<number> {
    const waiting = { ...of, up_to: await this.store.messages.last() };
    let dropped = 0;
    for (let step = limit; step >= limit;) {
      const lanes = await this.store.deliveries.drop(waiting, limit, this.clock.wall());
      step = lanes.reduce((sum, { count }) => sum + count, 0);
      await this.engine.dropped(of, step);
      dropped += step;
    }
    return dropped;
  }

  async recover(instance_id: string, since_ms: number): Promise<number> {
    const now = this.clock.now();
    const of = { instance_id, since_ms, until_ms: this.clock.wall() };
    const recovered = await this.store.deliveries.recover(of, 1_000, now, this.expiry.endOfNew());
    this.engine.deliveryRetried({ instance_id, meeting_id: '', aside: true });
    return recovered?.recovered ?? 0;
  }

  async send(meeting_id: string, options: SendOptions = {}): Promise<AcceptedMessage> {
    return (await this.post(meeting_id, options)).message;
  }

  post(meeting_id: string, options: SendOptions = {}) {
    return this.engine.send(this.sendOf(meeting_id, options));
  }

  /** Makes a send as the HTTP layer makes it. */
  sendOf(meeting_id: string, options: SendOptions = {}): Send {
    const { target_agents, key, text = '{"text":"hello"}', expires_in_ms, from_agent, in_reply_to = null } = options;
    return {
      meeting_id,
      message: text,
      timestamp: '',
      target_agents: target_agents ?? null,
      origin:
        from_agent === undefined && in_reply_to === null
          ? null
          : { from_agent: from_agent ?? null, in_reply_to, speaks_for: null },
      trace: options.trace ?? null,
      expires_in_ms: expires_in_ms ?? null,
      idempotency: key === undefined ? null : { key, sender: '', fingerprint: text },
    };
  }

  /** Sends messages that arrive together. */
  async sendMany(meeting_id: string, count: number): Promise<AcceptedMessage[]> {
    return Promise.all(Array.from({ length: count }, () => this.send(meeting_id)));
  }

  // ── what is seen ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** Every delivery in the table, the oldest first. */
  async deliveries(filter: Omit<DeliveryFilter, 'limit' | 'cursor'> = {}): Promise<DeliveryRow[]> {
    const rows: DeliveryRow[] = [];
    let cursor: string | null | undefined;
    do {
      const page = await this.store.deliveries.list(
        { ...filter, limit: 5_000, cursor: cursor ?? undefined },
        this.clock.now(),
      );
      rows.push(...page.data);
      cursor = page.next_cursor;
    } while (cursor !== null);
    return rows.toReversed();
  }

  /** The states of deliveries in the order of acceptance: `delivered`, `failed exhausted` and so on. */
  async states(filter: Omit<DeliveryFilter, 'limit' | 'cursor'> = {}): Promise<string[]> {
    return (await this.deliveries(filter)).map(({ state, reason }) => (reason === null ? state : `${state} ${reason}`));
  }

  async instance(instance_id: string) {
    const row = await this.store.instances.get(instance_id);
    if (row === null) throw new Error(`there is no instance ${instance_id}`);
    return row;
  }

  /** The seconds of virtual time between consecutive pushes to an instance. */
  gapsTo(instance_id: string): number[] {
    const at = this.transport.to(instance_id).map((push) => push.at);
    return at.slice(1).map((time, i) => (time - (at[i] as number)) / SECOND);
  }
}
