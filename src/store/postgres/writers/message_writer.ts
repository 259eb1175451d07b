import { randomInt } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { IdCodec } from '../../../domain/id.ts';
import { GenerationCache } from '../../../domain/generation_cache.ts';
import type { MessageOrigin } from '../../../domain/message_origin.ts';
import type { Accepted, AcceptedMessage, NewMessage } from '../../contract/messages.ts';
import { type Connection, ConnectionLost, isCollision, isLockTimeout, storeErrorOf } from '../connection/connection.ts';
import { RUN_UNKNOWN } from '../functions/accept_messages.ts';
import { type AcceptedRow, isNew, isWhole, type Stored, storedOf } from './accepted_rows.ts';
import { GivenNumbers } from './given_numbers.ts';
import { type Batch, batchOf, refusalsOf, refusedIn } from './message_batch.ts';
import { LockedMeetings, MeetingsLocked } from './locked_meetings.ts';
import { DedicatedConnection } from '../connection/dedicated_connection.ts';
import { RETRY_WINDOW_MS, RETRY_PAUSE_MS, withRetry } from '../connection/retry.ts';
import { StoreError } from '../../store_error.ts';

/**
 * How long the writer waits for a result. Then it sends the batch again, and the database returns the stored result, or
 * stores the batch if it has none.
 */
const ANSWER_MS_MAX = 2_500;
/**
 * How long a batch waits for a row that another session has locked. Then the batch is stored without the messages of
 * this meeting. Another node may hold this lock for as long as it stores a wide message. Less than ANSWER_MS_MAX.
 */
const LOCK_TIMEOUT = '2s';

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
const RAISE_NUMBERS = 'SELECT raise_numbers($1, $2)';

/**
 * The number of a run is random, because a database that went back in time would give the same sequence number to two
 * nodes. Nodes of the previous version use a sequence whose numbers are far smaller.
 */
const RUN_NO_MIN = 2 ** 40;
/** `randomInt` requires a range of less than 2^48. */
const RUN_NO_MAX = RUN_NO_MIN + 2 ** 47;

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
 * So the engine resyncs after each new connection. If the check of the last batch shows that the database is behind, the
 * writer stores the batch in a new run, above all numbers that were given.
 */
export class MessageWriter {
  readonly #connection: DedicatedConnection;
  readonly #ids: IdCodec;
  readonly #notify_source: NotifySource;
  readonly #onUncertain: () => void;
  readonly #numbers = new GivenNumbers();
  readonly #locked = new LockedMeetings();
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
   * may be behind
   */
  constructor(url: string, ids: IdCodec, notify_source: NotifySource, onUncertain: () => void) {
    this.#connection = new DedicatedConnection(url, `SET lock_timeout = '${LOCK_TIMEOUT}';`);
    this.#ids = ids;
    this.#notify_source = notify_source;
    this.#onUncertain = onUncertain;
  }

  /** @throws StoreError when the database was unreachable for too long; IN_DOUBT when the messages may be stored */
  accept(messages: NewMessage[]): Promise<Accepted[]> {
    return this.#accept(messages, true);
  }

  /** @param frees_keys whether the key of a refused message is free for the messages behind it */
  async #accept(messages: NewMessage[], frees_keys: boolean): Promise<Accepted[]> {
    if (messages.length === 0) return [];
    const batch = batchOf(messages, this.#hints, this.#ids);
    let rows: AcceptedRow[];
    try {
      await this.#assertUnlocked(this.#locked.knownAmong(batch.meeting_ids));
      rows = await this.#stored(batch, messages[0]?.wall_ms ?? 0);
    } catch (error) {
      if (error instanceof MeetingsLocked) {
        const results = messages.map(({ meeting_id }): Accepted | null =>
          error.meeting_ids.has(meeting_id) ? { kind: 'locked' } : null,
        );
        return this.#acceptRest(messages, results, frees_keys);
      }
      const refused = refusedIn(error);
      if (refused === null) throw error;
      return this.#acceptRest(messages, refusalsOf(messages, batch, refused, frees_keys), false);
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
   * Stores the messages of a batch that have no result yet. The database has stored nothing of that batch.
   *
   * @param results the result of each message that has one; null for the others
   */
  async #acceptRest(
    messages: NewMessage[],
    results: readonly (Accepted | null)[],
    frees_keys: boolean,
  ): Promise<Accepted[]> {
    const rest = await this.#accept(
      messages.filter((_, i) => results[i] === null),
      frees_keys,
    );
    let next = 0;
    return results.map((result) => result ?? rest[next++]!);
  }

  /** @throws MeetingsLocked when some of these meetings are locked */
  async #assertUnlocked(meeting_ids: readonly string[]): Promise<void> {
    if (meeting_ids.length === 0) return;
    const locked = await withRetry(() =>
      this.#connection.use((connection) => this.#locked.find(connection, meeting_ids)),
    );
    if (locked.size > 0) throw new MeetingsLocked(locked);
  }

  async close(): Promise<void> {
    const run_no = this.#run_no;
    if (run_no !== null) await this.#connection.use((connection) => endRun(connection, run_no)).catch(() => {});
    await this.#connection.close();
  }

  /** @throws MeetingsLocked when nothing is stored, because meetings of the batch are locked */
  async #stored({ columns, meeting_ids }: Batch, wall_ms: number): Promise<AcceptedRow[]> {
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
        // Another node ends a run only when nothing was stored in it for a day (`OldRuns`). So when the database does not
        // know the run, it does not have this batch either, and mostly it is behind.
        const is_behind = isRunUnknown(error);
        if (is_behind) {
          this.#run_no = null;
          this.#known = null;
          sent = null;
          is_in_doubt = false;
          this.#onUncertain();
        }
        // A batch in doubt may be stored already, so it must keep all its messages.
        const is_locked = isLockTimeout(error);
        if (is_locked && !is_in_doubt) await this.#assertUnlocked(meeting_ids);
        const again = lost || is_behind || is_locked || isCollision(error);
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

  /**
   * Every new connection may lead to a database that went back in time, and lost messages that this node knows of. The
   * database may have given the seqs of these messages to others, so the engine resyncs before this node stores more.
   */
  async #raiseNumbers(connection: Connection): Promise<void> {
    const { last, reached } = this.#numbers;
    if (last > 0) await connection.query(RAISE_NUMBERS, [last, reached], ANSWER_MS_MAX);
    if (this.#known !== null) this.#onUncertain();
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
