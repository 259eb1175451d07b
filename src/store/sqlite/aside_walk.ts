/**
 * Reads deliveries aside in the order of their index, in bounded steps: all calls of this engine share one thread, and
 * an instance may have a million deliveries aside.
 */
import type { PendingAside } from '../contract/deliveries.ts';
import {
  ASIDE_READ_MAX,
  type AsideRow,
  type DueAside,
  type numberedPlace,
  type PlacedRow,
} from '../rows/deliveries.ts';
import type { Database } from './database.ts';

type NumberedPlace = ReturnType<typeof numberedPlace>;

/** Whether the meeting of the delivery `d` is paused. */
const IS_PAUSED = 'EXISTS (SELECT 1 FROM meeting_settings t WHERE t.meeting_id = d.meeting_id AND t.paused = 1)';

/**
 * The deliveries that follow a place, in three parts: those of the same instance that are due at the same time, the
 * others of this instance, and those of other instances. With one condition on all three columns, SQLite would read all
 * deliveries that are due at the same time, and these may be very many.
 */
const SAME_TIME = 'd.instance_id = ?1 AND d.next_attempt_at = ?2 AND d.delivery_no > ?3';
const LATER = 'd.instance_id = ?1 AND d.next_attempt_at > ?2';
const OTHERS = 'd.instance_id > ?1';

const following = (columns: string) => (behind: string) => `
  SELECT d.delivery_no, d.instance_id, d.next_attempt_at, ${columns} FROM deliveries d
  WHERE d.state = 'pending' AND d.aside = 1 AND ${behind}
  ORDER BY d.instance_id, d.next_attempt_at, d.delivery_no LIMIT ?4`;

const OF_ALL = [SAME_TIME, LATER, OTHERS].map(following('d.meeting_id, d.message_no, d.expires_at'));
const OF_INSTANCE = [SAME_TIME, LATER].map(following(`${IS_PAUSED} AS paused`));

const NEXT_INSTANCE = `
  SELECT instance_id, next_attempt_at AS next_at FROM deliveries
  WHERE instance_id > ? AND state = 'pending' AND aside = 1 ORDER BY instance_id, next_attempt_at LIMIT 1`;

/** Reads no more rows than the caller takes. */
function* rowsBehind<Row>(
  db: Database,
  texts: readonly string[],
  { instance_id, next_attempt_at, delivery_no }: NumberedPlace,
  limit: number,
): Generator<Row> {
  let left = limit;
  for (const text of texts) {
    if (left === 0) return;
    for (const row of db.prepare(text).iterate(instance_id, next_attempt_at, delivery_no, left)) {
      left--;
      yield row as Row;
    }
  }
}

/** A page of the deliveries aside of all instances that follow a place. */
export function asidePage(db: Database, place: NumberedPlace, limit: number): AsideRow[] {
  return [...rowsBehind<AsideRow>(db, OF_ALL, place, limit)];
}

/** The next due deliveries of the instance of a place. */
export function dueAside(db: Database, place: NumberedPlace, now_ms: number, limit: number): DueAside {
  const due: PlacedRow[] = [];
  let ended_at: PlacedRow | null = null;
  let read = 0;
  for (const row of rowsBehind<PlacedRow & { paused: number }>(db, OF_INSTANCE, place, ASIDE_READ_MAX)) {
    if (++read === ASIDE_READ_MAX) ended_at = row;
    if (row.paused === 1) continue;
    if (row.next_attempt_at > now_ms || due.length === limit) return { due, following: row, ended_at: null };
    due.push(row);
  }
  return { due, following: null, ended_at };
}

/** Instances with deliveries aside. Jumps from instance to instance in the index, and does not read every row. */
export function pendingAside(db: Database, after: string | null, limit: number): PendingAside[] {
  const next = db.prepare(NEXT_INSTANCE);
  const found: PendingAside[] = [];
  while (found.length < limit) {
    const row = next.get(found.at(-1)?.instance_id ?? after ?? '') as unknown as PendingAside | undefined;
    if (row === undefined) break;
    found.push({ instance_id: row.instance_id, next_at: row.next_at });
  }
  return found;
}
