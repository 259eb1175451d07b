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
import type { Database } from './database.ts';
import { OF_MESSAGE } from './delivery_lists.ts';
import type { Sync } from './sync.ts';

/** How many rows are removed before the clock is read again. */
const REMOVED_AT_ONCE = 25;

const DELIVERIES = {
  remove: `
    DELETE FROM deliveries WHERE delivery_no IN (
      SELECT delivery_no FROM (
        SELECT delivery_no, state, settled_at FROM deliveries WHERE delivery_no > $after_no ORDER BY delivery_no LIMIT ${PRUNE_WINDOW})
      WHERE state <> 'pending' AND settled_at < $before_ms LIMIT $limit)`,
  end: `
    SELECT delivery_no AS last_no, created_at AS made_at FROM deliveries WHERE delivery_no > $after_no
    ORDER BY delivery_no LIMIT 1 OFFSET $rows`,
};
const MESSAGES = {
  remove: `
    DELETE FROM messages WHERE message_no IN (
      SELECT message_no FROM (
        SELECT message_no, deliveries_queued, accepted_at FROM messages WHERE message_no > $after_no ORDER BY message_no LIMIT ${PRUNE_WINDOW}) m
      WHERE accepted_at < $before_ms AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE ${OF_MESSAGE}) LIMIT $limit)`,
  end: `
    SELECT message_no AS last_no, accepted_at AS made_at FROM messages WHERE message_no > $after_no
    ORDER BY message_no LIMIT 1 OFFSET $rows`,
};
const KEYS = {
  remove: `
    DELETE FROM idempotency_keys WHERE id IN (
      SELECT id FROM (
        SELECT id, created_at FROM idempotency_keys WHERE id > $after_no ORDER BY id LIMIT ${PRUNE_WINDOW})
      WHERE created_at < $before_ms LIMIT $limit)`,
  end: `
    SELECT id AS last_no, created_at AS made_at FROM idempotency_keys WHERE id > $after_no
    ORDER BY id LIMIT 1 OFFSET $rows`,
};

export function pruning(db: Database, ids: IdCodec): Pick<Sync<DeliveryStore>, 'prune'> {
  /** Removes rows until `limit` is reached or the time is over. `last` is how many the last statement removed. */
  function remove(text: string, values: Record<string, number>, limit: number, until_ms: number) {
    let removed = 0;
    let last: number;
    do {
      const at_once = Math.min(REMOVED_AT_ONCE, limit - removed);
      last = Number(db.prepare(text).run({ ...values, limit: at_once }).changes);
      removed += last;
    } while (last === REMOVED_AT_ONCE && removed < limit && performance.now() < until_ms);
    return { removed, last };
  }

  function pruneTable(
    table: typeof DELIVERIES,
    after_no: number,
    times: { before_ms: number; future_ms: number },
    limit: number,
    until_ms: number,
  ): PrunedTable {
    const { before_ms } = times;
    const { removed, last } = remove(table.remove, { after_no, before_ms }, limit, until_ms);
    const is_full = last === REMOVED_AT_ONCE || removed === limit;
    const end = is_full ? null : db.prepare(table.end).get({ after_no, rows: PRUNE_WINDOW - 1 - last });
    return prunedTable(removed, after_no, end as unknown as WindowEnd | null | undefined, times);
  }

  return {
    prune({ deliveries_ms, messages_ms, idempotency_ms, future_ms }, limit, ms_max, after) {
      const until_ms = performance.now() + ms_max;
      const { delivery_no, message_no, key_no } = numbersOfPlace(after, ids);
      const deliveries = pruneTable(DELIVERIES, delivery_no, { before_ms: deliveries_ms, future_ms }, limit, until_ms);
      const messages = pruneTable(MESSAGES, message_no, { before_ms: messages_ms, future_ms }, limit, until_ms);
      const keys = pruneTable(KEYS, key_no, { before_ms: idempotency_ms, future_ms }, limit, until_ms);
      const step = prunedStep(deliveries, messages, keys, ids);
      // Old rows are in many pages of the indexes. If one checkpoint wrote the pages of many steps, a commit would wait
      // long for it. So each step asks for a checkpoint.
      if (step.removed > 0) db.checkpointAfterCommit();
      return step;
    },
  };
}
