import type { IdCodec } from '../../domain/id.ts';
import type { PrunePlace } from '../contract/deliveries.ts';

/**
 * How many rows a step of `prune` checks in a table. Rows that must stay may fill this window: the pending deliveries
 * of machines that are away, and their messages. So the next window begins behind these rows. Otherwise no row behind
 * them would be removed before the pending deliveries expire.
 */
export const PRUNE_WINDOW = 5_000;

/** What a step did in a table. */
export interface PrunedTable {
  removed: number;
  /** The number after which the next step begins. */
  after_no: number;
  /** Whether old rows may follow after that number. */
  has_more: boolean;
}

/** The last row of a window, after the old rows of the window were removed. */
export interface WindowEnd {
  last_no: number;
  made_at: number;
}

/**
 * @param removed how many rows the step removed after `after_no`
 * @param end null: the step may have left old rows in its window; undefined: its window reached the end of the table
 */
export function prunedTable(
  removed: number,
  after_no: number,
  end: WindowEnd | null | undefined,
  { before_ms, future_ms }: { before_ms: number; future_ms: number },
): PrunedTable {
  if (end === null) return { removed, after_no, has_more: true };
  // The rows behind a young row are young too.
  const is_young = end !== undefined && end.made_at >= before_ms && end.made_at <= future_ms;
  if (end === undefined || is_young) return { removed, after_no, has_more: false };
  return { removed, after_no: end.last_no, has_more: true };
}

/** The numbers of a place. */
export function numbersOfPlace(after: PrunePlace | null, ids: IdCodec) {
  return {
    delivery_no: ids.decode('dlv', after?.delivery_id ?? '') ?? 0,
    message_no: ids.decode('msg', after?.message_id ?? '') ?? 0,
    key_no: after?.key_no ?? 0,
  };
}

/** What a step did in the three tables. */
export function prunedStep(deliveries: PrunedTable, messages: PrunedTable, keys: PrunedTable, ids: IdCodec) {
  const place: PrunePlace = {
    delivery_id: deliveries.after_no === 0 ? null : ids.encode('dlv', deliveries.after_no),
    message_id: messages.after_no === 0 ? null : ids.encode('msg', messages.after_no),
    key_no: keys.after_no === 0 ? null : keys.after_no,
  };
  const has_more = deliveries.has_more || messages.has_more || keys.has_more;
  return { removed: deliveries.removed + messages.removed + keys.removed, next: has_more ? place : null };
}
