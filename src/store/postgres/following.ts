import type { IdCodec } from '../../domain/id.ts';
import type { AcceptedDelivery, Change, StoredMessage } from '../store.ts';
import { type Database, statement } from './database.ts';
import { timestampOf } from './messages.ts';
import type { Range } from './messages_between.ts';

/** A statement reads batches with so many messages and deliveries, or a single larger one. */
const NUMBERS_PER_READ_MAX = 5_000;
/** Whoever is so far behind looks at everything instead. */
const NUMBERS_BEHIND_MAX = 500_000;

/**
 * In the order of the batches, and of the messages in each. Deliveries are found by their numbers, which follow that of their
 * message; OFFSET 0 keeps the planner from looking for those that are pending by an index of theirs.
 */
const READ = statement(`
  SELECT m.message_no, m.meeting_id, m.seq, m.accepted_at, mine.expires_at, mine.offsets, mine.instance_ids, mine.agent_lists,
    CASE WHEN mine.offsets IS NULL THEN '' ELSE m.timestamp END AS timestamp, CASE WHEN mine.offsets IS NULL THEN '' ELSE m.message END AS message
  FROM unnest($first_nos::bigint[], $last_nos::bigint[]) WITH ORDINALITY AS r(first_no, last_no, place)
    CROSS JOIN LATERAL (SELECT * FROM messages m WHERE m.message_no >= r.first_no AND m.message_no <= r.last_no OFFSET 0) m
    CROSS JOIN LATERAL (
      SELECT min(d.expires_at) AS expires_at, json_agg(d.delivery_no - m.message_no ORDER BY d.delivery_no)::text AS offsets,
        json_agg(d.instance_id ORDER BY d.delivery_no)::text AS instance_ids, json_agg(d.target_agents ORDER BY d.delivery_no)::text AS agent_lists
      FROM (SELECT * FROM deliveries d WHERE d.delivery_no > m.message_no AND d.delivery_no <= m.message_no + m.deliveries_queued OFFSET 0) d
      WHERE d.state = 'pending' AND d.aside = 0 AND d.attempt_count = 0 AND d.partition_no = ANY ($partitions::smallint[])) mine
  ORDER BY r.place, m.message_no`);

interface Row {
  message_no: number;
  meeting_id: string;
  seq: number;
  accepted_at: number;
  timestamp: string;
  message: string;
  /** Null without a delivery, as those below, which are the JSON text of lists. */
  expires_at: number | null;
  offsets: string | null;
  instance_ids: string | null;
  agent_lists: string | null;
}

/**
 * Reads what other nodes store, batch by batch in the order in which they were committed: in one look what would else be read
 * lane by lane, for six times as much.
 */
export class Following {
  readonly #db: Database;
  readonly #ids: IdCodec;
  readonly #partitions: () => Iterable<number>;
  readonly #onChange: (change: Change) => void;
  /** Batches to read. */
  #told: Range[] = [];
  #reading: Promise<void> | null = null;
  #closed = false;

  /**
   * @param partitions whose deliveries are wanted
   * @param onChange hears what was stored; that it is unsure, when batches were not read
   */
  constructor(db: Database, ids: IdCodec, partitions: () => Iterable<number>, onChange: (change: Change) => void) {
    this.#db = db;
    this.#ids = ids;
    this.#partitions = partitions;
    this.#onChange = onChange;
  }

  /** Another node has stored a batch. */
  told(batch: Range): void {
    this.#told.push(batch);
    this.#reading ??= this.#readAll();
  }

  /** Resolves when what was told is read: at once most of the time, and never later than after `ms_max`. */
  async caughtUp(ms_max: number): Promise<void> {
    if (this.#reading === null) return;
    const { promise: given_up, resolve: giveUp } = Promise.withResolvers<void>();
    const timer = setTimeout(giveUp, ms_max);
    await Promise.race([this.#reading, given_up]);
    clearTimeout(timer);
  }

  close(): void {
    this.#closed = true;
  }

  async #readAll(): Promise<void> {
    while (this.#told.length > 0 && !this.#closed) {
      this.#onChange({ kind: 'reading' });
      try {
        this.#onChange({ kind: 'stored', messages: await this.#read(this.#take()) });
      } catch {
        // The database was away for longer than a call waits for it.
        this.#miss();
      }
      if (numbersIn(this.#told) > NUMBERS_BEHIND_MAX) this.#miss();
    }
    this.#reading = null;
  }

  #miss(): void {
    this.#told = [];
    if (!this.#closed) this.#onChange({ kind: 'unsure' });
  }

  #take(): Range[] {
    let numbers = 0;
    let count = 0;
    for (const batch of this.#told) {
      numbers += numbersIn([batch]);
      if (count > 0 && numbers > NUMBERS_PER_READ_MAX) break;
      count++;
    }
    return this.#told.splice(0, count);
  }

  async #read(batches: Range[]): Promise<StoredMessage[]> {
    const values = {
      first_nos: batches.map(({ first_no }) => first_no),
      last_nos: batches.map(({ last_no }) => last_no),
      partitions: [...this.#partitions()],
    };
    const rows = await this.#db.read((session) => session.all<Row>(READ, values));
    return rows.map(({ message_no, timestamp, expires_at, offsets, instance_ids, agent_lists, ...row }) => ({
      message_id: this.#ids.encode('msg', message_no),
      meeting_id: row.meeting_id,
      seq: row.seq,
      accepted_at: row.accepted_at,
      message: row.message,
      timestamp: offsets === null ? '' : timestampOf(timestamp),
      expires_at: expires_at ?? 0,
      deliveries: offsets === null ? [] : this.#deliveriesOf(message_no, offsets, instance_ids!, agent_lists!),
    }));
  }

  #deliveriesOf(message_no: number, offsets: string, instance_ids: string, agent_lists: string): AcceptedDelivery[] {
    const ids = JSON.parse(instance_ids) as string[];
    const lists = JSON.parse(agent_lists) as string[];
    return (JSON.parse(offsets) as number[]).map((offset, i) => ({
      delivery_id: this.#ids.encode('dlv', message_no + offset),
      instance_id: ids[i]!,
      target_agents: lists[i]!,
    }));
  }
}

function numbersIn(batches: readonly Range[]): number {
  return batches.reduce((sum, { first_no, last_no }) => sum + last_no - first_no + 1, 0);
}
