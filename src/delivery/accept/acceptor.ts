import { refusalOf } from '../../domain/message_origin.ts';
import { Problem } from '../../domain/problem.ts';
import type { Accepted, AcceptedMessage, NewMessage } from '../../store/contract/messages.ts';
import { NO_LINGER, perNode } from '../../store/linger.ts';
import type { Store } from '../../store/store.ts';
import { StoreError, WHO_LOCKS } from '../../store/store_error.ts';
import { inDoubt, stalled } from '../../store/thread/stall.ts';
import type { Dispatcher } from '../attempts/dispatcher.ts';
import { Batcher } from '../batcher.ts';
import type { InvalidationClock } from '../lanes/invalidation_clock.ts';
import type { Partitions } from '../cluster/partitions.ts';
import type { SeenRanges } from '../cluster/seen_ranges.ts';
import type { Clock } from '../clock.ts';
import type { Observer } from '../observer.ts';
import type { Expiry } from '../expiry.ts';
import type { Tracer } from '../tracer.ts';
import { type Enqueuer, WIDE } from '../lanes/enqueuer.ts';
import { type Backpressure, WAITING_HIGH } from './backpressure.ts';
import { FanOuts } from './fan_outs.ts';

/** A message to send, as the HTTP layer hands it over. */
export interface Send extends Pick<
  NewMessage,
  'meeting_id' | 'message' | 'timestamp' | 'target_agents' | 'origin' | 'trace' | 'idempotency'
> {
  /**
   * How long from now the deliveries of the message expire, in milliseconds. A time that is longer than the setting
   * `expire_after` counts as `expire_after`. Null: `expire_after` holds.
   */
  expires_in_ms: number | null;
}

export interface Sent {
  message: AcceptedMessage;
  /** Whether the message was stored by an earlier send with the same idempotency key. */
  repeated: boolean;
}

/**
 * The most messages in one transaction, and the most bytes of these messages. Each delivery also stores a list of
 * agents. The lists of one transaction together should have no more than BATCH_BYTES_MAX characters.
 */
const BATCH_MAX = 500;
const BATCH_BYTES_MAX = 8 << 20;
/** The most bytes of messages that wait to be stored. When more bytes wait, a send gets 503 with Retry-After. */
const WAITING_BYTES_MAX = 64 << 20;
/** The bytes that a message takes in memory besides its text. */
const MESSAGE_OVERHEAD_BYTES = 512;
/** The most messages of one list in one transaction. */
const LIST_BATCH_MAX = 100;
/**
 * After this time no further transaction of a list begins, and the rest of the list gets 503 with Retry-After. When the
 * storage stalls, the last transaction ends with an error after at most 5.75 s. The two times together are less than
 * the 10 s that our clients wait. So a client learns which messages are stored.
 */
const LIST_MS_MAX = 4_000;

const DAMAGED = 'A row that this message needs is damaged; the log of the service says which.';
const LOCKED = 'Another session of the database has locked the row of this meeting. Nothing was stored: send again.';
const LOCKED_AGAIN_S = 1;
/** How often the log says that meetings are locked. */
const LOCKED_LOG_MS = 60_000;

const meetingsLocked = (meeting_id: string): StoreError =>
  new StoreError(
    'ROWS_LOCKED',
    `Another session of the database has locked rows of meetings for over 2 s, among them the row of ${JSON.stringify(meeting_id)}. Messages for these meetings get 503 until the session ends its transaction; all others are stored. ${WHO_LOCKS}`,
  );

export interface AcceptorParts {
  clock: Clock;
  store: Store;
  partitions: Partitions;
  observer: Observer;
  backpressure: Backpressure;
  /** Null without a cluster. */
  seen_ranges: SeenRanges | null;
  invalidations: InvalidationClock;
  enqueuer: Enqueuer;
  dispatcher: Dispatcher;
  tracer: Tracer | null;
  expiry: Pick<Expiry, 'endOfNew'>;
}

/** Gathers messages that arrive together, stores them in one transaction, and hands them to the enqueuer. */
export class Acceptor {
  readonly #clock: Clock;
  readonly #store: Store;
  readonly #observer: Observer;
  readonly #backpressure: Backpressure;
  readonly #seen_ranges: SeenRanges | null;
  readonly #invalidations: InvalidationClock;
  readonly #enqueuer: Enqueuer;
  readonly #dispatcher: Dispatcher;
  readonly #tracer: Tracer | null;
  readonly #expiry: AcceptorParts['expiry'];
  readonly #batcher: Batcher<NewMessage, Accepted>;
  readonly #fan_outs = new FanOuts();
  /** When the log may say again that meetings are locked. */
  #reports_locked_from = -Infinity;
  #is_closed = false;

  constructor(parts: AcceptorParts) {
    this.#clock = parts.clock;
    this.#store = parts.store;
    this.#observer = parts.observer;
    this.#backpressure = parts.backpressure;
    this.#seen_ranges = parts.seen_ranges;
    this.#invalidations = parts.invalidations;
    this.#enqueuer = parts.enqueuer;
    this.#dispatcher = parts.dispatcher;
    this.#tracer = parts.tracer;
    this.#expiry = parts.expiry;
    const lingers = parts.store.lingers ?? NO_LINGER;
    this.#batcher = new Batcher<NewMessage, Accepted>(
      parts.clock,
      {
        items_max: () => BATCH_MAX,
        sizer: () => this.#sizer(),
        weight_max: BATCH_BYTES_MAX,
        in_flight_max: 2,
        consumer_coalesces: true,
        linger: () => perNode(lingers.accept, parts.partitions.node_count),
        isPaused: () => this.#backpressure.isBehind(),
      },
      (batch) => this.#accept(batch),
    );
    parts.store.stall?.onStall((is_long) => {
      this.#batcher.rejectWaiting(stalled());
      if (is_long) this.#batcher.rejectInFlight(inDoubt());
    });
  }

  /** Whether no message is waiting or being stored. */
  get isIdle(): boolean {
    return this.#batcher.isIdle;
  }

  /** Stores the messages that wait, unless backpressure still holds them up. */
  flushIfReady(): void {
    this.#batcher.flushIfReady();
  }

  /** Accepts no more messages. */
  close(): void {
    this.#is_closed = true;
  }

  /**
   * Stores a message with its deliveries, and enqueues the deliveries. When the promise resolves, the message and its
   * deliveries are on disk.
   *
   * @throws Problem `idempotency_key_reused`, `not_permitted`, `invalid_fields`, `overloaded`, `shutting_down`,
   * `storage_unavailable` for a damaged or locked row; StoreError, with the code IN_DOUBT when the message may be
   * stored although the call failed
   */
  send(send: Send): Promise<Sent> {
    return this.#send(send, false);
  }

  /**
   * Stores a list of messages in the order of the list, one transaction after the other. A transaction has up to a
   * hundred messages. It has fewer when the messages have many deliveries, or when this node does not know how many
   * deliveries they have. A message that is refused changes nothing for the others. When the storage fails, or the
   * service is overloaded, the rest of the list fails in the same way, so that no message overtakes another. When rows
   * of the storage keep a message of a meeting from being stored, the later transactions leave out this meeting.
   *
   * @param assertMaySend called before each transaction, because a list takes seconds and its sender may lose the right
   * to send meanwhile; the rest of the list fails with what it throws
   * @returns a result for each message; when a message was not stored, its result has an error that `send` throws too
   */
  async sendAll(sends: Send[], assertMaySend: () => void): Promise<PromiseSettledResult<Sent>[]> {
    const until = this.#clock.now() + LIST_MS_MAX;
    const results: PromiseSettledResult<Sent>[] = [];
    let reason: unknown = null;
    const left_out = new Map<string, unknown>();
    while (results.length < sends.length) {
      reason ??= thrownBy(assertMaySend);
      if (this.#clock.now() > until) reason ??= new Problem('overloaded', undefined, { retry_after_s: 1 });
      const next = this.#beginningOf(sends.slice(results.length, results.length + LIST_BATCH_MAX));
      // All of these messages are refused when not all have room. Otherwise a small message could overtake a large one.
      if (!this.hasRoomFor(next)) reason ??= new Problem('overloaded', undefined, { retry_after_s: 1 });
      let is_joined = false;
      const stored = next.map((send) => {
        const why = reason ?? left_out.get(send.meeting_id) ?? null;
        if (why !== null) return Promise.reject(why);
        const sent = this.#send(send, is_joined);
        is_joined = true;
        return sent;
      });
      const settled = await Promise.allSettled(stored);
      reason ??= settled.find(isOfTheService)?.reason ?? null;
      for (const [i, result] of settled.entries()) {
        if (isOfTheMeeting(result)) left_out.set(next[i]!.meeting_id, result.reason);
      }
      results.push(...settled);
    }
    return results;
  }

  /**
   * Whether all of these messages have room to wait until they are stored. If not, `store` refuses some of them as
   * `overloaded`.
   */
  hasRoomFor(sends: readonly Pick<Send, 'message' | 'target_agents'>[]): boolean {
    const weight = sends.reduce((sum, send) => sum + weightOf(send), 0);
    return this.#batcher.waiting_weight + weight <= WAITING_BYTES_MAX;
  }

  async #send(send: Send, is_joined: boolean): Promise<Sent> {
    if (this.#is_closed) {
      // In a cluster, the sender can repeat the request soon, because another node takes the message. A single node
      // needs some seconds to restart.
      throw new Problem('shutting_down', undefined, { retry_after_s: this.#store.cluster === null ? 5 : 1 });
    }
    const accepted = await this.store(send, is_joined);
    if (accepted.kind === 'key_reused') throw new Problem('idempotency_key_reused');
    if (accepted.kind === 'refused') throw refusalOf(accepted.field);
    if (accepted.kind === 'locked') throw new Problem('storage_unavailable', LOCKED, { retry_after_s: LOCKED_AGAIN_S });
    if (accepted.kind === 'damaged') throw new Problem('storage_unavailable', DAMAGED, { retry_after_s: 60 });
    return { message: accepted.message, repeated: accepted.kind === 'repeated' };
  }

  /**
   * Stores a message; replies come here directly. Unlike `send`, this method also stores while the service stops,
   * because attempts in flight may still bring replies. The result says whether the message was stored, or why not.
   *
   * @param is_joined stores the message in the same transaction as the previous message
   * @throws Problem `overloaded`; StoreError, with the code IN_DOUBT when the message may be stored although the call
   * failed
   */
  store(send: Send, is_joined = false): Promise<Accepted> {
    if (this.#tracer === null) return this.#add(send, is_joined);
    return this.#tracer.accept(send, async (trace) => this.#add({ ...send, trace }, is_joined));
  }

  #add({ expires_in_ms, ...send }: Send, is_joined: boolean): Promise<Accepted> {
    if (this.#store.stall?.is_stalled === true) throw stalled();
    const weight = weightOf(send);
    if (this.#batcher.waiting_weight + weight > WAITING_BYTES_MAX) {
      throw new Problem('overloaded', undefined, { retry_after_s: 1 });
    }
    const expires_at = this.#expiry.endOfNew(expires_in_ms);
    return this.#batcher.add({ ...send, wall_ms: this.#clock.wall(), expires_at }, weight, is_joined);
  }

  async #accept(batch: NewMessage[]): Promise<Accepted[]> {
    const expected = this.#expectedOf(batch);
    this.#backpressure.expect(expected);
    const requested_at = this.#invalidations.now;
    const began_at = this.#clock.wall();
    const results = await this.#store.messages.accept(batch).finally(() => this.#backpressure.expect(-expected));
    this.#tracer?.committed(batch, began_at, this.#clock.wall());
    let messages = 0;
    let deliveries = 0;
    for (const [i, result] of results.entries()) {
      if (result.kind !== 'accepted') continue;
      messages++;
      deliveries += result.deliveries.length;
      const { message, origin, deliveries: queued } = result;
      this.#fan_outs.note(batch[i] as NewMessage, queued);
      const stored = { ...(batch[i] as NewMessage), ...message, origin, deliveries: queued };
      const { meeting_id, seq } = stored;
      const contiguous_from = this.#seen_ranges?.extend(meeting_id, seq, seq) ?? null;
      this.#enqueuer.enqueue(stored, contiguous_from, requested_at, true);
    }
    this.#observer.accepted(messages, deliveries, batch, results);
    this.#reportLocked(batch, results);
    this.#dispatcher.run();
    return results;
  }

  #reportLocked(batch: readonly NewMessage[], results: readonly Accepted[]): void {
    const locked = batch.find((_, i) => results[i]?.kind === 'locked');
    if (locked === undefined || this.#clock.now() < this.#reports_locked_from) return;
    this.#reports_locked_from = this.#clock.now() + LOCKED_LOG_MS;
    this.#observer.storageFailed(meetingsLocked(locked.meeting_id));
  }

  /** How many deliveries count as waiting while a batch is stored. The deliveries of wide messages do not count. */
  #expectedOf(batch: NewMessage[]): number {
    let expected = 0;
    for (const message of batch) {
      const { deliveries } = this.#fan_outs.expected(message);
      if (deliveries <= WIDE) expected += deliveries;
    }
    return expected;
  }

  /**
   * Makes a function that says how much of a batch a message fills; a full batch is BATCH_MAX. A message with many
   * deliveries fills more than others, for two reasons:
   *
   * - The deliveries of a batch should fit into memory beside the deliveries that already wait there. A delivery that
   *   does not fit is read from disk later, which costs more than all other work on a delivery.
   * - A transaction with a million deliveries takes so long that its senders get 503.
   *
   * No message counts as more than one full batch. Two full batches may be in flight, so another batch still fits
   * beside that message.
   */
  #sizer(): (message: Pick<Send, 'meeting_id' | 'target_agents'>) => number {
    const unknown = new Set<string>();
    return (message) => {
      const { deliveries, chars, is_known } = this.#fan_outs.expected(message);
      // This node does not know how many deliveries a message of this meeting has. So a batch takes only one message of
      // the meeting. When that message is stored, this node knows how many deliveries the next messages will have.
      if (!is_known && unknown.has(message.meeting_id)) return BATCH_MAX;
      if (!is_known) unknown.add(message.meeting_id);
      const size = Math.max(1, (BATCH_MAX * deliveries) / (WAITING_HIGH / 2), (BATCH_MAX * chars) / BATCH_BYTES_MAX);
      return Math.min(BATCH_MAX, size);
    };
  }

  /** The first messages of a list, as many as one transaction stores. */
  #beginningOf(sends: Send[]): Send[] {
    const sizeOf = this.#sizer();
    let size = 0;
    const end = sends.findIndex((send, i) => (size += sizeOf(send)) > BATCH_MAX && i > 0);
    return end === -1 ? sends : sends.slice(0, end);
  }
}

/** The bytes that a message takes in memory while it waits. */
function weightOf({ message, target_agents }: Pick<Send, 'message' | 'target_agents'>): number {
  const agents_chars = target_agents?.reduce((sum, agent_id) => sum + agent_id.length, 0) ?? 0;
  return message.length + agents_chars + MESSAGE_OVERHEAD_BYTES;
}

/** What a call throws; null when it returns. */
function thrownBy(call: () => void): unknown {
  try {
    call();
    return null;
  } catch (error) {
    return error;
  }
}

/** Whether a send failed for a reason that may make the next send to the same meeting fail too. */
function isOfTheMeeting(result: PromiseSettledResult<Sent>): result is PromiseRejectedResult {
  return (
    result.status === 'rejected' && result.reason instanceof Problem && result.reason.code === 'storage_unavailable'
  );
}

/** Whether a send failed for a reason that makes the next send fail too. */
function isOfTheService(result: PromiseSettledResult<Sent>): result is PromiseRejectedResult {
  if (result.status === 'fulfilled') return false;
  const { reason } = result as { reason: unknown };
  return !(reason instanceof Problem) || reason.code === 'overloaded' || reason.code === 'shutting_down';
}
