import { agentsToNotify } from '../../domain/message.ts';
import type { IdSource } from '../../domain/id.ts';
import { IDEMPOTENCY_MS } from '../store.ts';
import type { Accepted, AcceptedMessage, MessageRow, MessageStore, NewMessage } from '../store.ts';
import type { Database } from './database.ts';
import type { Sync } from './operations.ts';

const FIND_KEY = 'SELECT fingerprint, result FROM idempotency_keys WHERE meeting_id = ? AND key = ? AND created_at > ?';

const KEEP_KEY = `
  INSERT INTO idempotency_keys (meeting_id, key, fingerprint, result, created_at) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (meeting_id, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, result = excluded.result, created_at = excluded.created_at`;

const NEXT_SEQ = `
  INSERT INTO meetings (meeting_id, last_seq, created_at, last_activity_at) VALUES (?1, 1, ?2, ?2)
  ON CONFLICT (meeting_id) DO UPDATE SET last_seq = last_seq + 1, last_activity_at = ?2
  RETURNING last_seq`;

const INSERT_MESSAGE = `
  INSERT INTO messages (message_id, meeting_id, seq, accepted_at, target_agents, timestamp, message)
  VALUES (?, ?, ?, ?, ?, ?, ?)`;

/** Spec section 4, step 1. */
const RECIPIENTS = `
  SELECT m.instance_id, m.agent_ids
  FROM memberships m JOIN instances i ON i.instance_id = m.instance_id
  WHERE m.meeting_id = ? AND m.left_at IS NULL AND i.is_active = 1 AND i.webhook_enabled = 1
  ORDER BY m.instance_id`;

const INSERT_DELIVERY = `
  INSERT INTO deliveries (delivery_id, message_id, meeting_id, seq, instance_id, target_agents, expires_at, created_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)`;

const MESSAGE_COLUMNS = 'message_id, seq, accepted_at, target_agents, message';

export function messageOperations(db: Database, ids: IdSource): Sync<MessageStore> {
  function accept(message: NewMessage, recipientsOf: (meeting_id: string) => Recipient[]): Accepted {
    const { meeting_id, idempotency, wall_ms } = message;
    if (idempotency !== null) {
      const former = db.prepare(FIND_KEY).get(meeting_id, idempotency.key, wall_ms - IDEMPOTENCY_MS);
      if (former !== undefined) {
        if (former['fingerprint'] !== idempotency.fingerprint) return { kind: 'key_reused' };
        return { kind: 'repeated', message: JSON.parse(former['result'] as string) as AcceptedMessage };
      }
    }
    const { last_seq: seq } = db.prepare(NEXT_SEQ).get(meeting_id, wall_ms) as { last_seq: number };
    const message_id = ids.next('msg');
    const target_agents = message.target_agents === null ? null : JSON.stringify(message.target_agents);
    db.prepare(INSERT_MESSAGE).run(
      message_id,
      meeting_id,
      seq,
      wall_ms,
      target_agents,
      message.timestamp,
      message.message,
    );

    const targets = message.target_agents === null ? null : new Set(message.target_agents);
    const insert = db.prepare(INSERT_DELIVERY);
    const deliveries = [];
    for (const recipient of recipientsOf(meeting_id)) {
      const agents = agentsToNotify(recipient.agent_ids, targets);
      if (agents.length === 0) continue;
      const delivery = {
        delivery_id: ids.next('dlv'),
        instance_id: recipient.instance_id,
        target_agents: JSON.stringify(agents),
      };
      insert.run(
        delivery.delivery_id,
        message_id,
        meeting_id,
        seq,
        delivery.instance_id,
        delivery.target_agents,
        message.expires_at,
        wall_ms,
      );
      deliveries.push(delivery);
    }
    const accepted = { message_id, meeting_id, seq, accepted_at: wall_ms, deliveries_queued: deliveries.length };
    if (idempotency !== null) {
      db.prepare(KEEP_KEY).run(meeting_id, idempotency.key, idempotency.fingerprint, JSON.stringify(accepted), wall_ms);
    }
    return { kind: 'accepted', message: accepted, deliveries };
  }

  return {
    accept(batch: NewMessage[]) {
      // Nothing else runs inside the transaction of a batch, so the recipients of a meeting are read once for it.
      const recipients = new Map<string, Recipient[]>();
      const recipientsOf = (meeting_id: string): Recipient[] => {
        let found = recipients.get(meeting_id);
        if (found === undefined) {
          found = recipientRowsOf(db, meeting_id);
          recipients.set(meeting_id, found);
        }
        return found;
      };
      return batch.map((message) => accept(message, recipientsOf));
    },
    list(meeting_id, { after_seq, before_seq, limit, bytes_max }) {
      if (db.prepare('SELECT 1 FROM meetings WHERE meeting_id = ?').get(meeting_id) === undefined) return null;
      const forward = after_seq !== undefined;
      const rows = db
        .prepare(
          forward
            ? `SELECT ${MESSAGE_COLUMNS} FROM messages WHERE meeting_id = ? AND seq > ? AND seq < ? ORDER BY seq LIMIT ?`
            : `SELECT ${MESSAGE_COLUMNS} FROM messages WHERE meeting_id = ? AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?`,
        )
        .iterate(meeting_id, after_seq ?? 0, before_seq ?? Number.MAX_SAFE_INTEGER, limit + 1);
      const data: MessageRow[] = [];
      let has_more = false;
      let bytes = 0;
      for (const row of rows as Iterable<Omit<MessageRow, 'target_agents'> & { target_agents: string | null }>) {
        bytes += row.message.byteLength;
        if (data.length === limit || (bytes > bytes_max && data.length > 0)) {
          has_more = true;
          break;
        }
        const { message_id, seq, accepted_at, target_agents, message } = row;
        data.push({
          message_id,
          seq,
          accepted_at,
          target_agents: target_agents === null ? null : (JSON.parse(target_agents) as string[]),
          message,
        });
      }
      if (!forward) data.reverse();
      return { data, has_more };
    },
  };
}

interface Recipient {
  instance_id: string;
  agent_ids: string[];
}

function recipientRowsOf(db: Database, meeting_id: string): Recipient[] {
  const rows = db.prepare(RECIPIENTS).all(meeting_id) as { instance_id: string; agent_ids: string }[];
  return rows.map((row) => ({ instance_id: row.instance_id, agent_ids: JSON.parse(row.agent_ids) as string[] }));
}
