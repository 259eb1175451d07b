/** Removes rows that are older than their retention. */
import type { IdCodec } from '../../domain/id.ts';
import type { DeliveryStore } from '../contract/deliveries.ts';
import {
  numbersOfPlace,
  PRUNE_WINDOW,
  prunedStep,
  prunedTable,
  type PrunedTable,
  type WindowEnd,
} from '../rows/pruning.ts';
import { type Session, statement } from './database.ts';
import { OF_MESSAGE } from './delivery_lists.ts';

const DELIVERIES = {
  remove: statement(`
    DELETE FROM deliveries WHERE delivery_no = ANY (ARRAY(
      SELECT delivery_no FROM (
        SELECT delivery_no, state, settled_at FROM deliveries WHERE delivery_no > $after_no ORDER BY delivery_no LIMIT ${PRUNE_WINDOW}) oldest
      WHERE state <> 'pending' AND settled_at < $before_ms LIMIT $limit)) AND state <> 'pending'`),
  end: statement(`
    SELECT delivery_no AS last_no, created_at AS made_at FROM deliveries WHERE delivery_no > $after_no
    ORDER BY delivery_no LIMIT 1 OFFSET $rows`),
};
const MESSAGES = {
  /** When the newest message of a meeting is removed, the row of the meeting keeps the last seq. */
  remove: statement(`
    WITH old AS MATERIALIZED (
      SELECT m.message_no, m.meeting_id, m.seq, m.accepted_at
      FROM (
        SELECT message_no, meeting_id, seq, deliveries_queued, accepted_at FROM messages WHERE message_no > $after_no
        ORDER BY message_no LIMIT ${PRUNE_WINDOW}) m
      WHERE m.accepted_at < $before_ms AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE ${OF_MESSAGE}) LIMIT $limit
    ), newest AS MATERIALIZED (
      SELECT old.* FROM old WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.meeting_id = old.meeting_id AND m.seq > old.seq)
      ORDER BY old.meeting_id
    ), remembered AS (
      UPDATE meetings g SET last_seq = newest.seq, last_activity_at = newest.accepted_at
      FROM newest WHERE g.meeting_id = newest.meeting_id AND g.last_seq < newest.seq
    )
    DELETE FROM messages WHERE message_no = ANY (ARRAY(SELECT message_no FROM old))`),
  end: statement(`
    SELECT message_no AS last_no, accepted_at AS made_at FROM messages WHERE message_no > $after_no
    ORDER BY message_no LIMIT 1 OFFSET $rows`),
};
const REMOVE_KEYS = statement(`
  DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency_keys WHERE created_at < $before_ms ORDER BY created_at LIMIT $limit)) AND created_at < $before_ms`);

export function pruning(session: Session, ids: IdCodec): Pick<DeliveryStore, 'prune'> {
  async function pruneTable(
    table: typeof DELIVERIES,
    after_no: number,
    times: { before_ms: number; future_ms: number },
    limit: number,
  ): Promise<PrunedTable> {
    const { before_ms } = times;
    const removed = await session.run(table.remove, { after_no, before_ms, limit });
    if (removed >= limit) return prunedTable(removed, after_no, null, times);
    const end = await session.one<WindowEnd>(table.end, { after_no, rows: Math.max(0, PRUNE_WINDOW - 1 - removed) });
    return prunedTable(removed, after_no, end, times);
  }

  return {
    async prune({ deliveries_ms, messages_ms, idempotency_ms, future_ms }, limit, _ms_max, after) {
      const { delivery_no, message_no } = numbersOfPlace(after, ids);
      const deliveries = await pruneTable(DELIVERIES, delivery_no, { before_ms: deliveries_ms, future_ms }, limit);
      const messages = await pruneTable(MESSAGES, message_no, { before_ms: messages_ms, future_ms }, limit);
      const removed = await session.run(REMOVE_KEYS, { before_ms: idempotency_ms, limit });
      return prunedStep(deliveries, messages, { removed, after_no: 0, has_more: removed >= limit }, ids);
    },
  };
}
