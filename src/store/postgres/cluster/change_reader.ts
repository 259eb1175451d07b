import { Session, statement } from '../database.ts';
import type { DedicatedConnection } from '../connection/dedicated_connection.ts';
import type { Range } from './notifications.ts';
import { withRetry } from '../connection/retry.ts';
import type { BatchRow, RawChange } from './stored_rows.ts';

/** The most messages and deliveries that one statement reads, unless a single batch has more. */
const NUMBERS_PER_READ_MAX = 5_000;
/** A reader with more unread numbers than this reports a resync, and drops its unread batches. */
const NUMBERS_BEHIND_MAX = 500_000;

/**
 * Reads batches: the seqs of all messages, and the deliveries for this node with their messages. A column is the JSON
 * text of a list, because a row for each item would cost more. The numbers of deliveries follow the number of their
 * message. So one range of numbers finds the rows of a batch in both tables. OFFSET 0 makes the planner use these
 * numbers. Otherwise it could choose the index `deliveries_in_lane`, which exists until an upgrade has ended (see
 * pending_deliveries.ts).
 */
const READ = statement(`
  SELECT mine.delivery_nos, mine.of_messages, mine.expire_ats, mine.instance_ids, mine.agent_lists, said.*
  FROM unnest($first_nos::bigint[], $last_nos::bigint[]) WITH ORDINALITY AS b(first_no, last_no, place)
    CROSS JOIN LATERAL (
      SELECT array_agg(d.message_no) AS nos, json_agg(d.message_no ORDER BY d.delivery_no)::text AS of_messages,
        json_agg(d.delivery_no ORDER BY d.delivery_no)::text AS delivery_nos, json_agg(d.expires_at ORDER BY d.delivery_no)::text AS expire_ats,
        json_agg(d.instance_id ORDER BY d.delivery_no)::text AS instance_ids, json_agg(d.target_agents ORDER BY d.delivery_no)::text AS agent_lists
      FROM (SELECT * FROM deliveries d WHERE d.delivery_no > b.first_no AND d.delivery_no <= b.last_no OFFSET 0) d
      WHERE d.state = 'pending' AND d.aside = 0 AND d.attempt_count = 0 AND d.partition_no = ANY ($partitions::smallint[])) mine
    CROSS JOIN LATERAL (
      SELECT json_agg(m.message_no ORDER BY m.message_no)::text AS message_nos, json_agg(m.meeting_id ORDER BY m.message_no)::text AS meeting_ids,
        json_agg(m.seq ORDER BY m.message_no)::text AS seqs, json_agg(m.accepted_at ORDER BY m.message_no) FILTER (WHERE m.is_mine)::text AS accepted_ats,
        json_agg(m.timestamp ORDER BY m.message_no) FILTER (WHERE m.is_mine)::text AS timestamps,
        json_agg(m.message ORDER BY m.message_no) FILTER (WHERE m.is_mine)::text AS messages,
        json_agg(json_build_array(m.message_no, m.from_agent, m.in_reply_to, m.hops))
          FILTER (WHERE m.is_mine AND (m.from_agent IS NOT NULL OR m.in_reply_to IS NOT NULL))::text AS said,
        json_agg(json_build_array(m.message_no, m.trace)) FILTER (WHERE m.is_mine AND m.trace IS NOT NULL)::text AS traces
      FROM (
        SELECT m.*, w.message_no IS NOT NULL AS is_mine
        FROM (SELECT * FROM messages m WHERE m.message_no >= b.first_no AND m.message_no <= b.last_no OFFSET 0) m
          LEFT JOIN (SELECT DISTINCT unnest(mine.nos) AS message_no) w ON w.message_no = m.message_no
        ORDER BY m.message_no OFFSET 0) m) said
  ORDER BY b.place`);

/**
 * Reads the messages and deliveries that other nodes store, batch by batch in the order of their commits. To read the
 * same deliveries lane by lane would cost six times as much.
 */
export class ChangeReader {
  readonly #connection: DedicatedConnection;
  readonly #tag: string;
  readonly #partitions: () => Iterable<number>;
  readonly #onChange: (raw: RawChange) => void;
  readonly #onFailed: (error: unknown) => void;
  /** The batches that are not read yet. */
  #unread: Range[] = [];
  #reading: Promise<void> | null = null;
  #closed = false;

  /**
   * @param line the connection to the database
   * @param tag the tag of the database, which its ids contain
   * @param partitions returns the partitions whose deliveries are wanted
   * @param onChange receives stored messages, or a `resync` when batches were not read
   * @param onFailed called when batches could not be read; a `resync` follows
   */
  constructor(
    line: DedicatedConnection,
    tag: string,
    partitions: () => Iterable<number>,
    onChange: (raw: RawChange) => void,
    onFailed: (error: unknown) => void,
  ) {
    this.#connection = line;
    this.#tag = tag;
    this.#partitions = partitions;
    this.#onChange = onChange;
    this.#onFailed = onFailed;
  }

  /** Another node has stored a batch. */
  onBatchStored(batch: Range): void {
    if (countOf([batch]) > NUMBERS_BEHIND_MAX) return this.#miss();
    this.#unread.push(batch);
    this.#reading ??= this.#readAll();
  }

  /** Resolves when all batches that other nodes announced are read, or after `ms_max`. Mostly none waits to be read. */
  async caughtUp(ms_max: number): Promise<void> {
    if (this.#reading === null) return;
    const { promise: timed_out, resolve: timeOut } = Promise.withResolvers<void>();
    const timer = setTimeout(timeOut, ms_max);
    await Promise.race([this.#reading, timed_out]);
    clearTimeout(timer);
  }

  close(): Promise<void> {
    this.#closed = true;
    return this.#connection.close();
  }

  async #readAll(): Promise<void> {
    while (this.#unread.length > 0 && !this.#closed) {
      this.#onChange({ kind: 'reading' });
      try {
        this.#onChange({ kind: 'stored', tag: this.#tag, rows: await this.#read(this.#take()) });
      } catch (error) {
        // For example, the database was unreachable for longer than a call waits.
        if (!this.#closed) this.#onFailed(error);
        this.#miss();
      }
      if (countOf(this.#unread) > NUMBERS_BEHIND_MAX) this.#miss();
    }
    this.#reading = null;
  }

  #miss(): void {
    this.#unread = [];
    if (!this.#closed) this.#onChange({ kind: 'resync' });
  }

  #take(): Range[] {
    let numbers = 0;
    let count = 0;
    for (const batch of this.#unread) {
      numbers += countOf([batch]);
      if (count > 0 && numbers > NUMBERS_PER_READ_MAX) break;
      count++;
    }
    return this.#unread.splice(0, count);
  }

  #read(batches: Range[]): Promise<BatchRow[]> {
    const values = {
      first_nos: batches.map(({ first_no }) => first_no),
      last_nos: batches.map(({ last_no }) => last_no),
      partitions: [...this.#partitions()],
    };
    return withRetry(
      () => this.#connection.use((connection) => new Session(connection).all<BatchRow>(READ, values)),
      () => this.#closed,
    );
  }
}

function countOf(batches: readonly Range[]): number {
  return batches.reduce((sum, { first_no, last_no }) => sum + last_no - first_no + 1, 0);
}
