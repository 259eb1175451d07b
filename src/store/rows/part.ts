/** The part of a list of ids that one call reads, when no index has the rows of the filter. */
import { type Expression, type RawBuilder, sql } from 'kysely';
import type { Page } from '../contract/page.ts';
import type { Reads, SearchPage } from '../contract/search.ts';
import { encodeCursor } from './page.ts';

/** A list in the order of its ids, with the size of the long columns of each row. */
export interface IdList {
  limit(rows: number): Expression<{ id: string; row_bytes: number }>;
}

/** Each time that the rows of a part are too long, the next part has this many times fewer rows. */
const FEWER = 4;

/** The first rows of a list: how many there are, how long they are, and the id of the last one. */
interface Part {
  rows: number;
  /** Null when there are no rows. */
  bytes: number | null;
  last: string | null;
}

export const partOf = (list: IdList, rows_max: number): RawBuilder<Part> =>
  sql`(SELECT count(*) AS rows, sum(row_bytes) AS bytes, max(id) AS last FROM (${list.limit(rows_max)}) part)`;

/**
 * Where the call ends. `rows_max`: the part is too long, and the next one may have so many rows; the first row is always
 * read. `last`: the last id that the call reads; null when the list has no more rows.
 */
export function endOf({ rows, bytes, last }: Part, rows_max: number, reads: Reads) {
  if (rows > 1 && (bytes ?? 0) > reads.bytes) return { rows_max: Math.ceil(rows / FEWER) };
  return { last: rows < rows_max ? null : last };
}

/**
 * @param page the rows of the filter in the part that the call read
 * @param last the last id of that part; null when the call read the whole list
 */
export function searchedUpTo<T>(page: Page<T>, last: string | null): SearchPage<T, string> {
  if (page.next_cursor !== null || last === null) return { ...page, searched_to: null };
  return { data: page.data, next_cursor: encodeCursor([last]), searched_to: last };
}
