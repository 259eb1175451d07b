import type { Compilable } from 'kysely';
import { PAGE_BYTES_MAX, type Weighed } from '../rows/page.ts';
import type { Session } from './database.ts';

/**
 * The rows that fit into a page, and up to two more: the page always has its first row, and a further row shows that
 * the list continues. Reads none of the long columns to find these rows.
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
