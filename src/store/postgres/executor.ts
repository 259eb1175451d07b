import { randomUUID } from 'node:crypto';
import { IdCodec } from '../../domain/id.ts';
import type { KeySource } from '../secrets/data_keys.ts';
import {
  type Answer,
  type Call,
  failureOf,
  hasChanged,
  packReply,
  type Reply,
  unpackCall,
} from '../thread/thread_protocol.ts';
import { type OwnWork, OwnWorkFailures } from '../thread/own_work.ts';
import type { Accepted, NewMessage } from '../contract/messages.ts';
import type { DeliverySettlement, HealthSettlement, LaneRequest } from '../contract/deliveries.ts';
import type { Quotas } from '../contract/quotas.ts';
import { StoreError } from '../store_error.ts';
import { RestoredSchema } from './restored_schema.ts';
import { MessageWriter } from './writers/message_writer.ts';
import { Cluster } from './cluster/cluster.ts';
import type { Connection } from './connection/connection.ts';
import { Database, type DatabaseLimits, Session } from './database.ts';
import { openDataKeys } from './encryption.ts';
import { auditOperations } from './audit.ts';
import { openingFailure } from './connection/opening_failure.ts';
import { NodeMessages } from './cluster/notifications.ts';
import { Coalescer } from './coalescer.ts';
import { isForDelivery, isRead, operationOf, type Parts } from './operations.ts';
import { withRetry } from './connection/retry.ts';
import { exclusively, migrate, tagOf } from './schema.ts';
import { deliveryOperations } from './deliveries.ts';
import { reportDamaged } from '../rows/stored_values.ts';
import { Sweeper } from './pending/sweeper.ts';
import { OldRuns } from './writers/old_runs.ts';
import { SettlementWriter } from './writers/settlement_writer.ts';
import type { RawChange } from './cluster/stored_rows.ts';

/**
 * The longest time that the results of accepted messages wait until the engine has the earlier batches of other nodes.
 * Without this wait the engine sees a gap.
 */
const CATCH_UP_MS_MAX = 20;

/** Posts the messages of the thread: replies, changes by other nodes, and failures of the thread's own work. */
export interface ThreadPort {
  answer(answer: Answer): void;
  change(raw: RawChange): void;
  failed(work: OwnWork, error: unknown): void;
}

/** The calls of requests. */
const REQUESTS: DatabaseLimits = { connections_max: 4 };
/** The calls that deliver. */
const DELIVERY: DatabaseLimits = { connections_max: 3 };
/** Renewals of the lease, which ends soon, and touches. Neither waits long for a server that has vanished. */
const LEASE: DatabaseLimits = { connections_max: 1, answer_ms_max: 5_000 };

/**
 * Runs calls on the database. One connection stores messages, and another connection stores settlements, each of them
 * one batch at a time. A few more connections serve the calls that deliver, others the calls of requests, and one
 * serves renewals of the lease and touches. So requests that take long, or that are many, stop no delivery and end no
 * lease.
 */
export class Executor {
  readonly #db: Database;
  readonly #delivery_db: Database;
  readonly #lease_db: Database;
  readonly #cluster: Cluster;
  readonly #parts: Parts;
  readonly #message_writer: MessageWriter;
  readonly #settlement_writer: SettlementWriter;
  readonly #sweeper: Sweeper;
  readonly #old_runs: OldRuns;
  readonly #schema: RestoredSchema;
  readonly #accepts: Coalescer;
  readonly #loads: Coalescer;
  readonly #settles: Coalescer;
  readonly #port: ThreadPort;
  readonly #in_flight = new Set<Promise<void>>();

  private constructor(url: string, parts: Parts, port: ThreadPort, now_ms: () => number) {
    this.#parts = parts;
    this.#port = port;
    const resync = (): void => port.change({ kind: 'resync' });
    this.#schema = new RestoredSchema(url, resync);
    this.#db = new Database(url, REQUESTS);
    this.#delivery_db = new Database(url, DELIVERY);
    this.#lease_db = new Database(url, LEASE);
    const failures = new OwnWorkFailures((work, error) => port.failed(work, error), now_ms);
    const messages = new NodeMessages(randomUUID(), () => parts.keys.all);
    this.#cluster = new Cluster(
      url,
      this.#delivery_db,
      this.#lease_db,
      parts.ids.tag,
      messages,
      (raw) => port.change(raw),
      (work, error) => failures.note(work, error),
      now_ms,
    );
    this.#message_writer = new MessageWriter(url, parts.ids, this.#cluster, resync);
    this.#settlement_writer = new SettlementWriter(url, parts.ids, this.#cluster);
    this.#sweeper = new Sweeper(this.#delivery_db, url, (error) => failures.note('sweep', error));
    this.#old_runs = new OldRuns(this.#delivery_db, now_ms, (error) => failures.note('remove_runs', error));
    this.#accepts = new Coalescer((calls) => this.#accept(calls));
    this.#loads = new Coalescer((calls) => this.#load(calls));
    this.#settles = new Coalescer((calls) => this.#settle(calls));
  }

  /**
   * @param wall_ms the time of the wall clock
   * @param now_ms reads a clock that nobody can set: this node watches the other nodes by this clock
   * @throws StoreError with the reason why the database cannot be used, and what to do
   */
  static async open(
    url: string,
    key_source: KeySource,
    quotas: Quotas,
    port: ThreadPort,
    wall_ms: number,
    now_ms = () => performance.now(),
  ): Promise<Executor> {
    const { keys, tag } = await openWithRetry(url, (connection) => prepared(connection, key_source, wall_ms));
    const executor = new Executor(url, { keys, ids: new IdCodec(tag), quotas }, port, now_ms);
    try {
      await executor.#cluster.listen();
      executor.#sweeper.start();
      executor.#old_runs.start();
    } catch (error) {
      throw openingFailure(error, url);
    }
    return executor;
  }

  run(packed_calls: Call[]): void {
    for (const packed of packed_calls) {
      const call = unpackCall(packed);
      const name = `${call.store}.${call.method}`;
      if (name === 'messages.accept') this.#keep(this.#accepts.add(call));
      else if (name === 'deliveries.loadLanes') this.#keep(this.#loads.add(call));
      else if (name === 'deliveries.settle') this.#keep(this.#settles.add(call));
      else this.#keep(this.#one(call));
    }
  }

  /** Waits for the calls in flight, and closes the connections. */
  async close(): Promise<void> {
    await Promise.all([this.#sweeper.close(), this.#old_runs.close(), ...this.#in_flight]);
    await Promise.all([this.#cluster.close(), this.#message_writer.close(), this.#settlement_writer.close()]);
    await Promise.all([this.#db, this.#delivery_db, this.#lease_db].map((db) => db.close()));
  }

  #keep(promise: Promise<void>): void {
    this.#in_flight.add(promise);
    void promise.finally(() => this.#in_flight.delete(promise));
  }

  #answer(calls: Call[], replies: Reply[], items: number, started_ms: number): void {
    this.#port.answer({
      replies: replies.map((reply, i) => packReply(calls[i] as Call, reply)),
      items,
      duration_ms: performance.now() - started_ms,
    });
  }

  async #one(call: Call): Promise<void> {
    const started_ms = performance.now();
    let reply: Reply;
    try {
      reply = { id: call.id, value: await this.#schema.watch(() => this.#valueOf(call)) };
    } catch (error) {
      reply = { id: call.id, ...failureOf(error) };
    }
    this.#answer([call], [reply], 1, started_ms);
  }

  #valueOf({ store, method, args, audited }: Call): Promise<unknown> {
    if (store === 'cluster') {
      const methods = this.#cluster as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
      return methods[method]!(...args);
    }
    const db = this.#databaseFor(store, method);
    if (isRead(store, method)) return db.read((session) => operationOf(session, this.#parts, store, method)(...args));
    return db.write(
      async (session) => {
        const value = await operationOf(session, this.#parts, store, method)(...args);
        if (audited !== undefined && hasChanged(value)) {
          await auditOperations(session).append({ ...audited.subject, outcome: 'done', code: null }, audited.wall_ms);
        }
        return value;
      },
      (session) => this.#cluster.notifyWithin(session, session.messages),
    );
  }

  #databaseFor(store: string, method: string): Database {
    // A touch shows whether the node can write, just as a renewal does.
    if (store === 'storage') return this.#lease_db;
    return isForDelivery(store, method) ? this.#delivery_db : this.#db;
  }

  async #accept(calls: Call[]): Promise<void> {
    const started_ms = performance.now();
    const batches = calls.map(({ args }) => args[0] as NewMessage[]);
    const messages = batches.flat();
    try {
      const accepted = await this.#schema.watch(() => this.#message_writer.accept(messages));
      // Waits until the engine has the earlier batches of other nodes. If the engine got these results first, it would
      // see a gap, and the lanes would read these messages from the table.
      await this.#cluster.caughtUp(CATCH_UP_MS_MAX);
      let at = 0;
      const replies = calls.map(({ id }, i) => ({ id, value: accepted.slice(at, (at += batches[i]!.length)) }));
      this.#answer(calls, replies, messages.length, started_ms);
    } catch (error) {
      // Runs the calls one by one, so that a failing call does not make the others fail.
      if (calls.length > 1 && !(error instanceof StoreError))
        return this.#oneByOne(calls, (each) => this.#accept(each));
      if (!(error instanceof StoreError)) return this.#acceptEach(calls[0]!, messages, started_ms);
      this.#answer(
        calls,
        calls.map(({ id }) => ({ id, ...failureOf(error) })),
        messages.length,
        started_ms,
      );
    }
  }

  /** Stores the messages one by one, because a row is damaged. Only the messages that need this row are not stored. */
  async #acceptEach(call: Call, messages: NewMessage[], started_ms: number): Promise<void> {
    const value: Accepted[] = [];
    let failure: Omit<Reply, 'id'> = {};
    for (const message of messages) {
      try {
        value.push(...(await this.#message_writer.accept([message])));
      } catch (error) {
        if (error instanceof StoreError) failure = failureOf(error);
        else reportDamaged('meetings', `what a message needs: ${(error as Error).message}`, message.meeting_id);
        value.push({ kind: 'damaged' });
      }
    }
    const { id } = call;
    this.#answer(
      [call],
      [value.some(isStored) ? { id, value } : { id, value, ...failure }],
      messages.length,
      started_ms,
    );
  }

  async #load(calls: Call[]): Promise<void> {
    const started_ms = performance.now();
    const requests = calls.map(({ args }) => args[0] as LaneRequest[]);
    let replies: Reply[];
    try {
      const pages = await this.#schema.watch(() =>
        this.#delivery_db.read((session) => deliveryOperations(session, this.#parts).loadLanes(requests.flat())),
      );
      let at = 0;
      replies = calls.map(({ id }, i) => ({ id, value: pages.slice(at, (at += requests[i]!.length)) }));
    } catch (error) {
      replies = calls.map(({ id }) => ({ id, ...failureOf(error) }));
    }
    this.#answer(calls, replies, calls.length, started_ms);
  }

  async #settle(calls: Call[]): Promise<void> {
    const started_ms = performance.now();
    const deliveries = calls.flatMap(({ args }) => args[0] as DeliverySettlement[]);
    const healths = calls.flatMap(({ args }) => args[1] as HealthSettlement[]);
    try {
      const value = await this.#schema.watch(() => this.#settlement_writer.settle(deliveries, healths));
      this.#answer(
        calls,
        calls.map(({ id }) => ({ id, value })),
        deliveries.length,
        started_ms,
      );
    } catch (error) {
      if (calls.length > 1 && !(error instanceof StoreError))
        return this.#oneByOne(calls, (each) => this.#settle(each));
      this.#answer(
        calls,
        calls.map(({ id }) => ({ id, ...failureOf(error) })),
        deliveries.length,
        started_ms,
      );
    }
  }

  async #oneByOne(calls: Call[], run: (calls: Call[]) => Promise<void>): Promise<void> {
    for (const call of calls) await run([call]);
  }
}

function isStored({ kind }: Accepted): boolean {
  return kind === 'accepted' || kind === 'repeated';
}

async function prepared(connection: Connection, key_source: KeySource, wall_ms: number) {
  await migrate(connection);
  return { keys: await openDataKeys(new Session(connection), key_source, wall_ms), tag: await tagOf(connection) };
}

/** Waits for a database that is just starting. */
async function openWithRetry<T>(url: string, run: (connection: Connection) => Promise<T>): Promise<T> {
  try {
    return await withRetry(() => exclusively(url, run));
  } catch (error) {
    throw openingFailure(error, url);
  }
}
