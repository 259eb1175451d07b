import { randomInt } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { IdCodec } from '../../../domain/id.ts';
import { GenerationCache } from '../../../domain/generation_cache.ts';
import type { RefusedField, MessageOrigin } from '../../../domain/message_origin.ts';
import type { Accepted, AcceptedMessage, NewMessage } from '../../contract/messages.ts';
import { type BatchValue, bigints, ints, texts } from '../connection/batch_message.ts';
import { type Connection, ConnectionLost, isCollision, raisedDetail, storeErrorOf } from '../connection/connection.ts';
import { RUN_UNKNOWN } from '../functions/accept_messages.ts';
import { REFUSED } from '../functions/who_says.ts';
import { type AcceptedRow, isNew, isWhole, type Stored, storedOf } from './accepted_rows.ts';
import { GivenNumbers } from './given_numbers.ts';
import { DedicatedConnection } from '../connection/dedicated_connection.ts';
import { timestampText } from '../timestamp.ts';
import { RETRY_WINDOW_MS, RETRY_PAUSE_MS } from '../connection/retry.ts';
import { StoreError } from '../../store_error.ts';

/**
 * How long the writer waits for a result. Then it sends the batch again, and the database returns the stored result, or
 * stores the batch if it has none.
 */
const ANSWER_MS_MAX = 2_500;

/** The most meetings whose seq is remembered. */
const HINTS_MAX = 20_000;

/**
 * $25 is the number of the last batch with a result. If that batch is not stored, the database is behind this node, and
 * the run $1 in this database may be the run of another node. Then the statement passes NULL, as for an unknown run.
 */
const ACCEPT = `SELECT * FROM accept_messages_5(
  CASE WHEN $25::bigint = 0 OR EXISTS (SELECT 1 FROM batches WHERE run_no = $1 AND batch_no >= $25::bigint) THEN $1 END,
  $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)`;

/**
 * The deletion waits until no batch of the run is in progress. Afterwards the last batch of the run is stored, or it
 * never will be.
 */
const END_RUN = 'DELETE FROM runs WHERE run_no = $1';
const FORGET_BATCHES = 'DELETE FROM batches WHERE run_no = $1';
const BEGIN_RUN = 'INSERT INTO runs (run_no, started_at) OVERRIDING SYSTEM VALUE VALUES ($1, $2)';
/**
 * Raises the database's numbers to those that this node knows. Returns whether the database did not know the last
 * number that it gave to this node, because it went back in time.
 */
const RAISE_NUMBERS = 'SELECT raise_numbers($1, $2) AS is_behind';

/**
 * The number of a run is random, because a database that went back in time would give the same sequence number to two
 * nodes. Nodes of the previous version use a sequence whose numbers are far smaller.
 */
const RUN_NO_MIN = 2 ** 40;
/** `randomInt` requires a range of less than 2^48. */
const RUN_NO_MAX = RUN_NO_MIN + 2 ** 47;

/** The columns of a batch, as accept_messages_5 takes them. Of messages with the same key, only the first is sent. */
interface Batch {
  columns: BatchValue[];
  sent: NewMessage[];
  /** For each message, its place among the sent messages, counted from 0. */
  places: number[];
}

/**
 * The sender of notifications about stored batches. `signedName` signs one of them; `node_id` is null until the node
 * has joined.
 */
export interface NotifySource {
  signedName(): string;
  readonly node_id: string | null;
}

/**
 * Stores messages, one batch at a time, so that results follow the order of seq.
 *
 * When the connection is lost before the result arrives, the batch may or may not be stored. The writer sends the batch
 * again under the same number. If the batch is stored already, the database returns the stored result. If the database
 * does not come back in time, the writer fails the batch, although the batch may be stored. Before the next batch, the
 * writer finds out whether the failed batch was stored. The engine then notices the stored messages, because it has not
 * seen their seqs.
 *
 * The database may be behind this node: a standby without the last commits took over, or an older backup was restored.
 * The check of the last batch, or of the numbers, shows this. The writer then stores the batch in a new run, above all
 * numbers that were given, and the engine resyncs.
 */
export class MessageWriter {
  readonly #connection: DedicatedConnection;
  readonly #ids: IdCodec;
  readonly #notify_source: NotifySource;
  readonly #onUncertain: () => void;
  readonly #numbers = new GivenNumbers();
  /** A known seq of each meeting: the search for the last seq of the meeting starts there. */
  readonly #hints = new GenerationCache<number>(HINTS_MAX);
  #run_no: number | null = null;
  #batch_no = 0;
  /** The number of the last stored batch of the run; 0: none is stored. */
  #stored_no = 0;
  /** The connection whose database certainly gives only numbers above those that this node has already got. */
  #known: Connection | null = null;
  /** The number of a run whose last batch is in doubt. */
  #uncertain_run: number | null = null;

  /**
   * @param notify_source signs the notifications about stored batches
   * @param onUncertain is called when the writer has found out whether a failed batch was stored, and when the database
   * is behind
   */
  constructor(url: string, ids: IdCodec, notify_source: NotifySource, onUncertain: () => void) {
    this.#connection = new DedicatedConnection(url);
    this.#ids = ids;
    this.#notify_source = notify_source;
    this.#onUncertain = onUncertain;
  }

  /** @throws StoreError when the database was unreachable for too long; IN_DOUBT when the messages may be stored */
  async accept(messages: NewMessage[]): Promise<Accepted[]> {
    if (messages.length === 0) return [];
    const batch = batchOf(messages, this.#hints, this.#ids);
    let rows: AcceptedRow[];
    try {
      rows = await this.#stored(batch, messages[0]?.wall_ms ?? 0);
    } catch (error) {
      const refused = refusedIn(error);
      if (refused === null) throw error;
      return this.#acceptOthers(messages, batch, refused);
    }
    const by_place: Stored[] = [];
    for (const stored of rows.flatMap((row) => storedOf(row, this.#ids))) {
      by_place[stored.place - 1] = stored;
      if (isNew(stored)) this.#numbers.given(stored.message_no + stored.deliveries_queued);
    }
    for (const [i, { meeting_id }] of messages.entries()) {
      const stored = by_place[batch.places[i]!]!;
      if (isNew(stored)) this.#hints.set(meeting_id, stored.seq);
    }
    const firsts = new Map<number, NewMessage>();
    return messages.map((message, i) => {
      const place = batch.places[i]!;
      const first = firsts.get(place) ?? null;
      if (first === null) firsts.set(place, message);
      return this.#acceptedOf(message, by_place[place]!, first);
    });
  }

  /**
   * Stores the other messages of a batch that has refused messages. The database has stored nothing of that batch.
   *
   * @param refused the refused fields; the key is the place of the message in the batch, from 1
   */
  async #acceptOthers(
    messages: NewMessage[],
    { places, sent }: Batch,
    refused: ReadonlyMap<number, RefusedField>,
  ): Promise<Accepted[]> {
    const others = await this.accept(messages.filter((_, i) => !refused.has(places[i]! + 1)));
    let next = 0;
    return messages.map(({ idempotency }, i) => {
      const place = places[i]!;
      const field = refused.get(place + 1);
      if (field === undefined) return others[next++]!;
      // The database judged only the first message with this key. This message has the same key, and was not sent.
      const is_same = idempotency?.fingerprint === sent[place]!.idempotency?.fingerprint;
      return is_same ? { kind: 'refused', field } : { kind: 'key_reused' };
    });
  }

  async close(): Promise<void> {
    const run_no = this.#run_no;
    if (run_no !== null) await this.#connection.use((connection) => endRun(connection, run_no)).catch(() => {});
    await this.#connection.close();
  }

  async #stored({ columns }: Batch, wall_ms: number): Promise<AcceptedRow[]> {
    const until_ms = performance.now() + RETRY_WINDOW_MS;
    let sent: { batch_no: number } | null = null;
    /** Whether a try was sent and its connection lost. Then the batch may be stored, whatever later tries say. */
    let is_in_doubt = false;
    for (;;) {
      let is_sent = false;
      try {
        return await this.#connection.use(async (connection) => {
          if (this.#known !== connection) await this.#raiseNumbers(connection);
          const run_no = this.#run_no ?? (await this.#beginRun(connection, wall_ms));
          const batch_no: number = sent?.batch_no ?? ++this.#batch_no;
          sent = { batch_no };
          const values = [run_no, batch_no, ...columns, this.#notify_source.signedName(), this.#notify_source.node_id];
          is_sent = true;
          const { rows } = await connection.batch<AcceptedRow>(ACCEPT, [...values, this.#stored_no], ANSWER_MS_MAX);
          if (rows.some(({ former_fingerprints }) => former_fingerprints === null)) this.#stored_no = batch_no;
          return rows;
        });
      } catch (error) {
        const lost = error instanceof ConnectionLost;
        if (lost && is_sent) is_in_doubt = true;
        // No other node ends a run. So when the database does not know the run, it is behind, and does not have this
        // batch either.
        const is_behind = isRunUnknown(error);
        if (is_behind) {
          this.#run_no = null;
          this.#known = null;
          sent = null;
          is_in_doubt = false;
          this.#onUncertain();
        }
        const again = lost || is_behind || isCollision(error);
        if (!again || performance.now() > until_ms) {
          const failure = storeErrorOf(error);
          // An error that is no StoreError is about the batch itself: the database looked for a stored result, found
          // none, and refused the batch.
          if (!is_in_doubt || !(failure instanceof StoreError)) throw failure;
          this.#giveUp();
          throw new StoreError('IN_DOUBT', `the connection was lost while messages were stored: ${failure.message}`);
        }
        if (lost) await pause(RETRY_PAUSE_MS);
      }
    }
  }

  #giveUp(): void {
    this.#uncertain_run = this.#run_no;
    this.#run_no = null;
  }

  async #beginRun(connection: Connection, wall_ms: number): Promise<number> {
    const uncertain_run = this.#uncertain_run;
    if (uncertain_run !== null) await endRun(connection, uncertain_run);
    const run_no = randomInt(RUN_NO_MIN, RUN_NO_MAX);
    await connection.query(BEGIN_RUN, [run_no, wall_ms], ANSWER_MS_MAX);
    this.#run_no = run_no;
    this.#batch_no = 0;
    this.#stored_no = 0;
    this.#uncertain_run = null;
    if (uncertain_run !== null) this.#onUncertain();
    return run_no;
  }

  /** Every new connection may lead to a database that went back in time. */
  async #raiseNumbers(connection: Connection): Promise<void> {
    const { last, reached } = this.#numbers;
    if (last > 0) {
      const { rows } = await connection.query<{ is_behind: boolean }>(RAISE_NUMBERS, [last, reached], ANSWER_MS_MAX);
      if (rows[0]!.is_behind) this.#onUncertain();
    }
    this.#known = connection;
  }

  #acceptedOf({ meeting_id, idempotency, origin }: NewMessage, stored: Stored, first: NewMessage | null): Accepted {
    const { message_no, seq, accepted_at, deliveries_queued, deliveries, hops } = stored;
    const fingerprint = stored.fingerprint ?? first?.idempotency?.fingerprint ?? null;
    const message: AcceptedMessage = {
      message_id: this.#ids.encode('msg', message_no),
      meeting_id,
      seq,
      accepted_at,
      deliveries_queued,
    };
    if (fingerprint === null) return { kind: 'accepted', message, origin: originWith(origin, hops), deliveries };
    if (fingerprint !== idempotency?.fingerprint) return { kind: 'key_reused' };
    const row = JSON.stringify([meeting_id, idempotency.key]);
    // The first result is damaged. Storing the message again could deliver it twice.
    return isNew(stored) || isWhole(stored, row) ? { kind: 'repeated', message } : { kind: 'damaged' };
  }
}

function originWith(given: NewMessage['origin'], hops: number): MessageOrigin | null {
  return given === null ? null : { from_agent: given.from_agent, in_reply_to: given.in_reply_to, hops };
}

async function endRun(connection: Connection, run_no: number): Promise<void> {
  await connection.query(END_RUN, [run_no], ANSWER_MS_MAX);
  await connection.query(FORGET_BATCHES, [run_no], ANSWER_MS_MAX);
}

function isRunUnknown(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === RUN_UNKNOWN;
}

/** The refused messages of a batch, by place, from 1; null when the batch failed for another reason. */
function refusedIn(error: unknown): Map<number, RefusedField> | null {
  const detail = raisedDetail(error, REFUSED);
  return detail === null ? null : new Map(JSON.parse(detail) as [number, RefusedField][]);
}

/** Columns for accept_messages_5. */
function batchOf(messages: NewMessage[], hints: GenerationCache<number>, ids: IdCodec): Batch {
  const meetings = new Map<string, { place: number; created_at: number; count: number }>();
  const first_with_key = new Map<string, number>();
  const places: number[] = [];
  const sent: NewMessage[] = [];
  for (const message of messages) {
    const { meeting_id, idempotency, wall_ms } = message;
    const key = idempotency === null ? null : `${meeting_id}\n${idempotency.sender}\n${idempotency.key}`;
    const first = key === null ? undefined : first_with_key.get(key);
    if (first !== undefined) {
      places.push(first);
      continue;
    }
    if (key !== null) first_with_key.set(key, sent.length);
    places.push(sent.length);
    sent.push(message);
    const meeting = meetings.get(meeting_id);
    if (meeting === undefined) meetings.set(meeting_id, { place: 0, created_at: wall_ms, count: 1 });
    else meeting.count++;
  }
  // All nodes lock meetings in the same order.
  const sorted = [...meetings].toSorted(([a], [b]) => (a < b ? -1 : 1));
  for (const [i, [, meeting]] of sorted.entries()) meeting.place = i + 1;
  const columns = [
    texts(sorted.map(([meeting_id]) => meeting_id)),
    bigints(sorted.map(([, { created_at }]) => created_at)),
    bigints(sorted.map(([, { count }]) => count)),
    bigints(sorted.map(([meeting_id]) => hints.get(meeting_id) ?? null)),
    ints(sent.map(({ meeting_id }) => meetings.get(meeting_id)!.place)),
    bigints(sent.map(({ wall_ms }) => wall_ms)),
    bigints(sent.map(({ expires_at }) => expires_at)),
    texts(sent.map(({ target_agents }) => (target_agents === null ? null : JSON.stringify(target_agents)))),
    texts(sent.map(({ timestamp }) => timestampText(timestamp))),
    texts(sent.map(({ message }) => message)),
    ...originColumns(sent, ids),
    texts(sent.some(({ trace }) => trace !== null) ? sent.map(({ trace }) => trace) : []),
    first_with_key.size > 0,
    texts(sent.map(({ idempotency }) => idempotency?.key ?? null)),
    texts(sent.map(({ idempotency }) => idempotency?.sender ?? null)),
    texts(sent.map(({ idempotency }) => idempotency?.fingerprint ?? null)),
  ];
  return { columns, sent, places };
}

/**
 * The columns with the senders of messages and the messages that they answer. The lists are empty when no message of
 * the batch has a sender or answers another.
 */
function originColumns(sent: readonly NewMessage[], ids: IdCodec): BatchValue[] {
  const has_said = sent.some(({ origin }) => origin !== null);
  const given = has_said ? sent.map(({ origin }) => origin) : [];
  // No message has the number 0.
  const numberOf = (message_id: string): number => ids.decode('msg', message_id) ?? 0;
  const speaks_for = given.map((origin) => (origin === null || origin.from_agent === null ? null : origin.speaks_for));
  return [
    has_said,
    texts(given.map((origin) => origin?.from_agent ?? null)),
    bigints(
      given.map((origin) => (origin === null || origin.in_reply_to === null ? null : numberOf(origin.in_reply_to))),
    ),
    texts(speaks_for.map((scope) => scope?.key_id ?? null)),
    texts(speaks_for.map((scope) => scope?.instance_id ?? null)),
  ];
}
