import type { Clock } from '../../delivery/clock.ts';
import { isoTime } from '../../domain/time.ts';
import { type Reads, SEARCH_READS, type SearchPage } from '../../store/contract/search.ts';

/** How long one request searches. A read that has begun by then is finished. */
export const SEARCH_MS_MAX = 400;
/** How long one request reads a list. An index finds the rows of the list, but other rows may lie between them. */
export const LIST_MS_MAX = 50;
/** The most calls of the store that one request makes. */
const CALLS_MAX = 40;
/** Each call may read this many times as many rows as the call before it. Most pages are full after the first call. */
const READS_FACTOR = 4;
/**
 * A request reads at least this many rows, however long that takes. On a busy service each call waits for its turn.
 * After few rows the reader would only have to wait again, with the next request.
 */
const ROWS_MIN = 1_000;
/** The page ends when its items have this many characters. */
const PAGE_CHARS_MAX = 1 << 20;

/**
 * Searches until the page is full, the end is reached, or the request has taken `ms_max`, but at least through
 * `ROWS_MIN` rows. Makes one call after the other, so that the store can do other work meanwhile.
 */
export async function searchOn<T, Place extends number | string = number>(
  { limit, cursor }: { limit: number; cursor?: string | undefined },
  { clock, ms_max }: { clock: Pick<Clock, 'now'>; ms_max: number },
  charsOf: (item: T) => number,
  search: (page: { limit: number; cursor: string | undefined }, reads: Reads) => Promise<SearchPage<T, Place>>,
): Promise<SearchPage<T, Place>> {
  const end = clock.now() + ms_max;
  const data: T[] = [];
  let chars = 0;
  let next = cursor;
  let rows = limit + 1;
  let rows_read = 0;
  for (let calls = 1; ; calls++) {
    rows = Math.min(rows, SEARCH_READS.rows);
    const page = await search({ limit: limit - data.length, cursor: next }, { ...SEARCH_READS, rows });
    rows_read += rows;
    for (const item of page.data) {
      data.push(item);
      chars += charsOf(item);
    }
    const { next_cursor, searched_to } = page;
    // A full page has no `searched_to`, even when the last call stopped at its limit.
    if (data.length >= limit) return { data, next_cursor, searched_to: null };
    const is_full = searched_to === null || chars >= PAGE_CHARS_MAX;
    const is_late = rows_read >= ROWS_MIN && clock.now() >= end;
    if (next_cursor === null || is_full || is_late || calls === CALLS_MAX) return { data, next_cursor, searched_to };
    next = next_cursor;
    rows *= READS_FACTOR;
  }
}

/** The fields of a response that say how far a search came. */
export const wireSearched = ({ next_cursor, searched_to }: SearchPage<unknown, number | string>) => ({
  next_cursor,
  ...(searched_to !== null && { searched_to: typeof searched_to === 'number' ? isoTime(searched_to) : searched_to }),
});
