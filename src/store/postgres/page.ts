import { invalidField } from '../../domain/problem.ts';
import type { Compilable } from 'kysely';
import { type CursorKey, decodeCursor, PAGE_BYTES_MAX, type Weighed } from '../rows/page.ts';
import type { Session } from './database.ts';

/**
 * The rows of a page as far as they fit, and one beyond, which says that there is more. The others are not read: what is long
 * in them stays where it is.
 *
 * @param order how the query orders its rows, by names of its own columns
 */
export async function rowsOfPage<Row extends Weighed>(
  session: Session,
  query: Compilable<Row>,
  order: string,
): Promise<Row[]> {
  const { sql, parameters } = query.compile();
  const before = `coalesce(sum(page.row_bytes) OVER (ORDER BY ${order} ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING), 0)`;
  const weighed = `SELECT page.*, ${before} AS bytes_before FROM (${sql}) page`;
  const text = `SELECT cut.* FROM (${weighed}) cut WHERE cut.bytes_before <= ${PAGE_BYTES_MAX} ORDER BY ${order}`;
  return (await session.query<Row>(text, parameters)).rows;
}

/** As the cursor was made; what is no number of a row, and no text that PostgreSQL takes, was never in one. */
export function keyOf(cursor: string, types: ('string' | 'number')[]): CursorKey {
  const key = decodeCursor(cursor, types);
  if (key.every((part) => (typeof part === 'number' ? Number.isSafeInteger(part) : !part.includes('\0')))) return key;
  throw invalidField('cursor', 'must be the next_cursor of a page made with the same filters');
}
