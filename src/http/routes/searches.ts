import type { Clock } from '../../delivery/clock.ts';
import { isoTime } from '../../domain/time.ts';
import type { SearchPage } from '../../store/contract/search.ts';

/** How long one request searches. A read that has begun by then is finished. */
const SEARCH_MS_MAX = 400;
/** How many calls of the store it makes at most. */
const CALLS_MAX = 40;
/** The page ends when its items have this many characters. */
const PAGE_CHARS_MAX = 1 << 20;

/**
 * Searches until the page is full, the end is reached, or the request has taken long enough. Makes one call after the other, so that the
 * store can do other work meanwhile.
 */
export async function searchOn<T>(
  { limit, cursor }: { limit: number; cursor?: string | undefined },
  clock: Pick<Clock, 'now'>,
  charsOf: (item: T) => number,
  search: (page: { limit: number; cursor: string | undefined }) => Promise<SearchPage<T>>,
): Promise<SearchPage<T>> {
  const end = clock.now() + SEARCH_MS_MAX;
  const data: T[] = [];
  let chars = 0;
  let next = cursor;
  for (let calls = 1; ; calls++) {
    const page = await search({ limit: limit - data.length, cursor: next });
    for (const item of page.data) {
      data.push(item);
      chars += charsOf(item);
    }
    const { next_cursor, searched_to } = page;
    const is_full = data.length >= limit || chars >= PAGE_CHARS_MAX;
    if (next_cursor === null || is_full || calls === CALLS_MAX || clock.now() >= end)
      return { data, next_cursor, searched_to };
    next = next_cursor;
  }
}

/** The fields of a response that say how far a search came. */
export const wireSearched = ({ next_cursor, searched_to }: SearchPage<unknown>) => ({
  next_cursor,
  ...(searched_to !== null && { searched_to: isoTime(searched_to) }),
});
