import { agentsToNotify } from '../../domain/agents_to_notify.ts';
import type { IdCodec, NumberSource } from '../../domain/id.ts';
import { hopsOf, type RefusedField, type MessageOrigin } from '../../domain/message_origin.ts';
import { IDEMPOTENCY_MS } from '../contract/messages.ts';
import type { Accepted, MessageStore, NewMessage, NewOrigin } from '../contract/messages.ts';
import type { Database } from './database.ts';
import { isOfTheStorage } from './errors.ts';
import { messageSearch } from './message_search.ts';
import { IS_OWNED, ownedBy } from './owner_scope.ts';
import type { Sync } from './sync.ts';
import type { Recipients } from './meeting_recipients.ts';
import {
  ANSWERED_CHAIN,
  ANSWERS,
  BEYOND_SCAN,
  briefOf,
  type BriefRow,
  FOUND_COLUMNS,
  foundMessageOf,
  type FoundRow,
  type HeadRow,
  pageOfHeads,
  PAGED_COLUMNS,
  type PagedRow,
  pageOfMessages,
  SCANNED,
  type Scanned,
} from '../rows/messages.ts';
import { reportDamaged, storedResult } from '../rows/stored_values.ts';

/**
 * The previous version stored idempotency keys without their senders. Such a key counts for every sender, until it is a
 * day old.
 */
const FIND_KEY = `
  SELECT fingerprint, result FROM idempotency_keys WHERE meeting_id = ? AND key IN (?, ?) AND created_at > ?
  ORDER BY created_at DESC LIMIT 1`;

const KEEP_KEY = `
  INSERT INTO idempotency_keys (meeting_id, key, fingerprint, result, created_at) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (meeting_id, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, result = excluded.result, created_at = excluded.created_at`;

const NEXT_SEQ = `
  INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at) VALUES (?1, 1, ?2, ?2)
  ON CONFLICT (meeting_id) DO UPDATE SET last_seq = last_seq + 1, last_activity_at = ?2
  RETURNING last_seq`;

const INSERT_MESSAGE = `
  INSERT INTO messages (message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, timestamp, message,
    from_agent, in_reply_to, hops, trace)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;

/** Whether an instance in the meeting has the agent, and the sender owns or names that instance. */
const SPEAKS_FOR = `
  SELECT 1 FROM memberships m
  WHERE m.meeting_id = $meeting_id AND m.left_at IS NULL
    AND m.instance_id = coalesce($owner_limit, m.instance_id)
    AND m.instance_id IN (SELECT instance_id FROM instances WHERE ${IS_OWNED})
    AND EXISTS (SELECT 1 FROM json_each(m.agent_ids) WHERE value = $from_agent) LIMIT 1`;

const ANSWERED = 'SELECT hops FROM messages WHERE message_no = ? AND meeting_id = ?';

const BY_SEQ = 'SELECT hops, accepted_at FROM messages WHERE meeting_id = ? AND seq = ?';

const INSERT_DELIVERY = `
  INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, target_agents, expires_at, created_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)`;

/** The numbers of a message's deliveries follow its own number. */
const HEADS_SINCE = `
  SELECT message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, from_agent, in_reply_to, hops
  FROM messages m
  WHERE message_no > $after AND message_no < $below
    AND ($meeting_ids IS NULL OR meeting_id IN (SELECT value FROM json_each($meeting_ids)))
    AND ($instance_id IS NULL OR EXISTS (SELECT 1 FROM deliveries
      WHERE delivery_no > m.message_no AND delivery_no <= m.message_no + m.deliveries_queued AND instance_id = $instance_id))
  ORDER BY message_no LIMIT $limit`;

const FIND = `SELECT ${FOUND_COLUMNS.join(', ')} FROM messages WHERE message_no = ?`;

export function messageOperations(
  db: Database,
  numbers: NumberSource,
  ids: IdCodec,
  recipients: Recipients,
): Sync<MessageStore> {
  const numberOf = (message_id: string): number => ids.decode('msg', message_id) ?? 0;

  /**
   * Returns the field because of which the message is refused. Otherwise returns the number and the hops of the
   * answered message; null: the message answers none.
   */
  function answeredBy(
    { from_agent, in_reply_to, speaks_for }: NewOrigin,
    meeting_id: string,
  ): RefusedField | { message_no: number; hops: number } | null {
    if (from_agent !== null && speaks_for !== null) {
      const owned = { meeting_id, from_agent, ...ownedBy(speaks_for) };
      if (db.prepare(SPEAKS_FOR).get(owned) === undefined) return 'from_agent';
    }
    if (in_reply_to === null) return null;
    const message_no = ids.decode('msg', in_reply_to);
    const row = message_no === null ? undefined : db.prepare(ANSWERED).get(message_no, meeting_id);
    return message_no === null || row === undefined ? 'in_reply_to' : { message_no, hops: row['hops'] as number };
  }

  function accept(message: NewMessage): Accepted {
    const { meeting_id, idempotency, wall_ms, origin: given } = message;
    // A line feed separates the sender from the key, because no key contains a line feed.
    const key = idempotency === null ? '' : `${idempotency.sender}\n${idempotency.key}`;
    if (idempotency !== null) {
      const existing = db.prepare(FIND_KEY).get(meeting_id, key, idempotency.key, wall_ms - IDEMPOTENCY_MS);
      if (existing !== undefined) {
        if (existing['fingerprint'] !== idempotency.fingerprint) return { kind: 'key_reused' };
        const row = JSON.stringify([meeting_id, idempotency.key]);
        const result = storedResult(existing['result'] as string, row);
        // The first result is damaged. Storing the message again could deliver it twice.
        return result === null ? { kind: 'damaged' } : { kind: 'repeated', message: result };
      }
    }
    const answered = given === null ? null : answeredBy(given, meeting_id);
    if (typeof answered === 'string') return { kind: 'refused', field: answered };
    const { last_seq: seq } = db.prepare(NEXT_SEQ).get(meeting_id, wall_ms) as { last_seq: number };
    let origin: MessageOrigin | null = null;
    if (given !== null) {
      const { from_agent, in_reply_to } = given;
      const before = db.prepare(BY_SEQ).get(meeting_id, seq - 1) as { hops: number; accepted_at: number } | undefined;
      const hops = hopsOf(from_agent, answered?.hops ?? null, before ?? null, wall_ms);
      origin = { from_agent, in_reply_to, hops };
    }
    const targets = message.target_agents === null ? null : new Set(message.target_agents);
    const queued: { instance_id: string; target_agents: string }[] = [];
    for (const { instance_id, agent_ids, wake } of recipients.of(meeting_id)) {
      const agents = agentsToNotify(agent_ids, targets, given?.from_agent ?? null, wake);
      if (agents.length > 0) queued.push({ instance_id, target_agents: JSON.stringify(agents) });
    }

    const message_no = numbers.take(1 + queued.length);
    db.prepare(INSERT_MESSAGE).run(
      message_no,
      meeting_id,
      seq,
      wall_ms,
      queued.length,
      message.target_agents === null ? null : JSON.stringify(message.target_agents),
      message.timestamp,
      message.message,
      origin?.from_agent ?? null,
      answered?.message_no ?? null,
      origin?.hops ?? 0,
      message.trace,
    );
    const insert = db.prepare(INSERT_DELIVERY);
    const deliveries = queued.map(({ instance_id, target_agents }, i) => {
      const delivery_no = message_no + 1 + i;
      insert.run(delivery_no, message_no, meeting_id, seq, instance_id, target_agents, message.expires_at, wall_ms);
      return { delivery_id: ids.encode('dlv', delivery_no), instance_id, target_agents };
    });
    const accepted = {
      message_id: ids.encode('msg', message_no),
      meeting_id,
      seq,
      accepted_at: wall_ms,
      deliveries_queued: deliveries.length,
    };
    if (idempotency !== null) {
      db.prepare(KEEP_KEY).run(meeting_id, key, idempotency.fingerprint, JSON.stringify(accepted), wall_ms);
    }
    return { kind: 'accepted', message: accepted, origin, deliveries };
  }

  function acceptAlone(message: NewMessage): Accepted {
    db.prepare('SAVEPOINT message').run();
    try {
      const accepted = accept(message);
      db.prepare('RELEASE message').run();
      return accepted;
    } catch (error) {
      if (isOfTheStorage(error)) throw error;
      reportDamaged('meetings', `what a message needs: ${(error as Error).message}`, message.meeting_id);
      recipients.forgetAll();
      db.prepare('ROLLBACK TO message').run();
      db.prepare('RELEASE message').run();
      return { kind: 'damaged' };
    }
  }

  return {
    accept(batch: NewMessage[]) {
      try {
        return batch.map(accept);
      } catch (error) {
        if (isOfTheStorage(error)) throw error;
        // A row is damaged. Stores the messages one by one, so that only the messages that need this row are not
        // stored.
        db.prepare('ROLLBACK TO call').run();
        recipients.forgetAll();
        return batch.map(acceptAlone);
      }
    },
    list(meeting_id, { after_seq, before_seq, limit, chars_max }) {
      if (db.prepare('SELECT 1 FROM meetings WHERE meeting_id = ?').get(meeting_id) === undefined) return null;
      const forward = after_seq !== undefined;
      const rows = db
        .prepare(
          forward
            ? `SELECT ${PAGED_COLUMNS} FROM messages WHERE meeting_id = ? AND seq > ? AND seq < ? ORDER BY seq LIMIT ?`
            : `SELECT ${PAGED_COLUMNS} FROM messages WHERE meeting_id = ? AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?`,
        )
        .iterate(meeting_id, after_seq ?? 0, before_seq ?? Number.MAX_SAFE_INTEGER, limit + 1);
      return pageOfMessages(rows as Iterable<PagedRow>, { limit, chars_max, forward }, ids);
    },
    get(message_id) {
      const row = db.prepare(FIND).get(numberOf(message_id)) as unknown as FoundRow | undefined;
      return row === undefined ? null : foundMessageOf(row, ids);
    },
    ...messageSearch(db, ids),
    answeredBy(message_id, limit) {
      const rows = db.prepare(ANSWERED_CHAIN).all({ message_no: numberOf(message_id), limit });
      return (rows as unknown as BriefRow[]).map((row) => briefOf(row, ids));
    },
    answersTo(message_id, meeting_id, after_seq, scan) {
      const { scanned, last_seq } = db.prepare(SCANNED).get({ meeting_id, after_seq, scan }) as unknown as Scanned;
      if (last_seq === null) return { data: [], next_seq: null };
      const values = { meeting_id, after_seq, last_seq, message_no: numberOf(message_id) };
      const rows = db.prepare(ANSWERS).all(values) as unknown as BriefRow[];
      return { data: rows.map((row) => briefOf(row, ids)), next_seq: scanned < scan ? null : last_seq };
    },
    last() {
      const { last } = db.prepare('SELECT max(message_no) AS last FROM messages').get() as { last: number | null };
      return last === null ? null : ids.encode('msg', last);
    },
    since(after_id, { meeting_ids, instance_id, scan, limit, chars_max }) {
      // A message_id of other data has no place in the order of these messages: all of them count as later.
      const after = after_id === null ? 0 : numberOf(after_id);
      const beyond = db.prepare(BEYOND_SCAN).get({ after, scan }) as { message_no: number } | undefined;
      const rows = db.prepare(HEADS_SINCE).iterate({
        after,
        below: beyond?.message_no ?? Number.MAX_SAFE_INTEGER,
        meeting_ids: meeting_ids === undefined ? null : JSON.stringify(meeting_ids),
        instance_id: instance_id ?? null,
        limit: limit + 1,
      });
      return pageOfHeads(rows as Iterable<HeadRow>, { limit, chars_max, is_cut: beyond !== undefined }, ids);
    },
  };
}
