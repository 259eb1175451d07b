/**
 * Responses of the service. The live feed keeps them up to date: an event says only that something changed, and the
 * page asks again.
 */
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ConvokeError, type SearchPage } from '@convoke/sdk';
import { type FeedEvent, feed } from './feed.ts';

/**
 * Earlier responses, shown at once when the user returns to a view. Each session has a map of its own, because a
 * response may arrive after the end of its session.
 */
let kept = new Map<string, unknown>();
const KEPT_MAX = 100;
/** The least time between two requests of a query, however many events arrive. */
const PAUSE_MS = 700;
const FIRST_PAGE = 100;
const PAGE_MAX = 500;
/** How many rows at the beginning of a list are read again after an event; later rows are not. */
const REFRESHED_ROWS_MAX = 1000;

function keep(into: Map<string, unknown>, key: string, value: unknown): void {
  into.delete(key);
  into.set(key, value);
  if (into.size > KEPT_MAX) into.delete(into.keys().next().value as string);
}

export function forgetResponses(): void {
  kept = new Map();
}

export function errorOf(error: unknown): ConvokeError {
  return error instanceof ConvokeError ? error : new ConvokeError('failed', String(error));
}

/**
 * Whether the service itself did not answer. A proxy before the service may have answered that the service was not
 * reached.
 */
export function isAway({ code, status }: Pick<ConvokeError, 'code' | 'status'>): boolean {
  return code === 'unreachable' || code === 'timeout' || (code === 'unexpected_response' && (status ?? 0) >= 500);
}

/** Whether a value must not be shown any more: it was removed, or this person may not see it now. */
function isGone({ status, code }: ConvokeError): boolean {
  // When a proxy before the service responds, its status says nothing about the value.
  return (status === 404 || status === 403) && code !== 'unexpected_response';
}

interface FeedOptions {
  /**
   * Whether the caller keeps something up to date that the title of the tab shows. Then the callback also comes while
   * the tab is hidden.
   */
  is_seen_hidden?: boolean;
}

/** Calls back after an event that concerns the caller: at most once every PAUSE_MS, and while the tab is visible. */
export function useFeed(
  concerns: (event: FeedEvent) => boolean,
  changed: () => void,
  { is_seen_hidden = false }: FeedOptions = {},
): void {
  const latest = useRef({ concerns, changed });
  latest.current = { concerns, changed };
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let called_at = 0;
    const call = (): void => {
      if (document.hidden && !is_seen_hidden)
        return document.addEventListener('visibilitychange', call, { once: true });
      timer = undefined;
      called_at = performance.now();
      latest.current.changed();
    };
    const stop = feed.listen((event) => {
      if (timer !== undefined || (event.name !== 'gap' && !latest.current.concerns(event))) return;
      const wait_ms = Math.max(60, called_at + PAUSE_MS - performance.now());
      timer = setTimeout(call, wait_ms);
    });
    return () => {
      stop();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', call);
    };
  }, []);
}

export interface Query<T> {
  /** Null until the first response. */
  value: T | null;
  /** Why the last request failed. */
  problem: ConvokeError | null;
  again: () => void;
}

interface QueryState<T> {
  key: string | null;
  value: T | null;
  problem: ConvokeError | null;
  is_busy: boolean;
  /** Whether something changed while a request was in flight; the query then asks again. */
  is_stale: boolean;
}

/**
 * Asks the service, and asks again after each event that concerns the query. An event during a request lets the request
 * end first. So the page shows every response, even when the service needs longer than the time between two events.
 *
 * @param key identifies the query; another key is another query. Null: no request is made
 */
export function useQuery<T>(
  key: string | null,
  ask: () => Promise<T>,
  concerns: (event: FeedEvent) => boolean = () => false,
  options?: FeedOptions,
): Query<T> {
  const [, draw] = useState({});
  const state = useRef<QueryState<T>>(null!);
  if (state.current === null || state.current.key !== key) {
    const value = key === null ? null : ((kept.get(key) ?? null) as T | null);
    state.current = { key, value, problem: null, is_busy: false, is_stale: false };
  }
  const latest = useRef(ask);
  latest.current = ask;

  const is_left = useLeft();
  const again = useCallback(() => {
    const current = state.current;
    if (current.key === null || is_left.current) return;
    current.is_stale = current.is_busy;
    if (current.is_busy) return;
    current.is_busy = true;
    const into = kept;
    latest
      .current()
      .then((value) => {
        keep(into, current.key as string, value);
        Object.assign(current, { value, problem: null });
      })
      .catch((error: unknown) => {
        const problem = errorOf(error);
        current.problem = problem;
        if (!isGone(problem)) return;
        current.value = null;
        into.delete(current.key as string);
      })
      .finally(() => {
        current.is_busy = false;
        if (state.current !== current) return;
        draw({});
        if (current.is_stale) again();
      });
  }, []);
  useEffect(again, [key]);
  useFeed(concerns, again, options);
  return { value: state.current.value, problem: state.current.problem, again };
}

/** Whether the user has left the view. Then nobody waits for a response, and the session may have ended. */
function useLeft(): { readonly current: boolean } {
  const is_left = useRef(false);
  useLayoutEffect(() => () => void (is_left.current = true), []);
  return is_left;
}

/** Calls back from time to time while the tab is visible: for what changes without an event of the feed. */
export function usePoll(again: () => void, every_ms: number): void {
  const latest = useRef(again);
  latest.current = again;
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && latest.current(), every_ms);
    return () => clearInterval(timer);
  }, []);
}

export interface ListQuery<T> {
  /** Null until the first page arrived. */
  rows: T[] | null;
  problem: ConvokeError | null;
  /** Whether the list has no more rows after the last one. */
  is_complete: boolean;
  /**
   * How far the service searched when it stopped before the latest page was full; null when that page was full. A page
   * that is not full may even be empty. Then no new row makes the list load more, and somebody has to call `more`.
   */
  searched_to: string | null;
  /** Loads the next page, if there is one and it is not being loaded. */
  more: () => void;
  again: () => void;
}

/** The rows that are loaded, and where the next page begins. */
interface Loaded<T> {
  rows: T[] | null;
  cursor: string | null;
  searched_to: string | null;
}

interface ListState<T> extends Loaded<T> {
  key: string;
  problem: ConvokeError | null;
  is_busy: boolean;
  /** Whether something changed while the list was loading; the list is then read again. */
  is_stale: boolean;
  is_more_wanted: boolean;
}

export interface PageQuery {
  limit: number;
  cursor?: string;
}

/** The order of a list whose pages may have `searched_to`. */
interface Order<T> {
  placeOf: (row: T) => string;
  /** Whether a search that came to `searched_to` has read this place. */
  isRead: (place: string, searched_to: string) => boolean;
}

export const newestFirst = <T>(placeOf: (row: T) => string): Order<T> => ({
  placeOf,
  isRead: (place, searched_to) => place > searched_to,
});

export const inOrderOfIds = <T>(placeOf: (row: T) => string): Order<T> => ({
  placeOf,
  isRead: (place, searched_to) => place <= searched_to,
});

/** A list, loaded page by page as the user scrolls. Events refresh it from its beginning. */
export function useList<T>(
  key: string,
  list: (page: PageQuery) => Promise<SearchPage<T>>,
  idOf: (row: T) => string,
  concerns: (event: FeedEvent) => boolean,
  order?: Order<T>,
): ListQuery<T> {
  const [, draw] = useState({});
  const state = useRef<ListState<T>>(null!);
  if (state.current?.key !== key) {
    const earlier = (kept.get(key) as Loaded<T> | undefined) ?? { rows: null, cursor: null, searched_to: null };
    state.current = { ...earlier, key, problem: null, is_busy: false, is_stale: false, is_more_wanted: false };
  }
  const latest = useRef(list);
  latest.current = list;

  const run = useCallback((work: (current: ListState<T>) => Promise<void>) => {
    const current = state.current;
    current.is_busy = true;
    const into = kept;
    work(current)
      .then(() => {
        current.problem = null;
        const { rows, cursor, searched_to } = current;
        keep(into, current.key, { rows, cursor, searched_to });
      })
      .catch((error: unknown) => (current.problem = errorOf(error)))
      .finally(() => {
        current.is_busy = false;
        if (state.current !== current) return;
        draw({});
        const { is_more_wanted, cursor } = current;
        current.is_more_wanted = false;
        if (is_more_wanted && cursor !== null) more();
        else if (current.is_stale) again();
      });
  }, []);

  const is_left = useLeft();
  const again = useCallback(() => {
    state.current.is_stale = state.current.is_busy;
    if (state.current.is_busy || is_left.current) return;
    run(async (current) => {
      const wanted = Math.min(current.rows?.length ?? 0, REFRESHED_ROWS_MAX);
      const fresh: T[] = [];
      let cursor: string | null = null;
      let searched_to: string | null = null;
      do {
        const limit = Math.min(PAGE_MAX, Math.max(FIRST_PAGE, wanted - fresh.length));
        const page: SearchPage<T> = await latest.current(cursor === null ? { limit } : { limit, cursor });
        fresh.push(...page.data);
        cursor = page.next_cursor;
        searched_to = page.searched_to ?? null;
        // A page that ends early has read a part of the table, and so would each page after it.
        if (searched_to !== null || state.current !== current || is_left.current) break;
      } while (cursor !== null && fresh.length < wanted);
      Object.assign(current, joined(current, { rows: fresh, cursor, searched_to }, idOf, order));
    });
  }, []);

  const more = useCallback(() => {
    const { cursor, is_busy } = state.current;
    state.current.is_more_wanted = is_busy;
    if (cursor === null || is_busy || is_left.current) return;
    run(async (current) => {
      const page = await latest.current({ limit: PAGE_MAX, cursor });
      current.rows = [...(current.rows ?? []), ...page.data];
      current.cursor = page.next_cursor;
      current.searched_to = page.searched_to ?? null;
    });
  }, []);

  useEffect(again, [key]);
  useFeed(concerns, again);
  const { rows, cursor, searched_to, problem } = state.current;
  return { rows, problem, is_complete: cursor === null, searched_to, more, again };
}

/**
 * The rows that were read again, and after them the later rows, which are as they were loaded before. The next page
 * begins where it began before: the latest pages may have been empty, and need not be read again either.
 */
function joined<T>(
  loaded: Loaded<T>,
  fresh: Loaded<T> & { rows: T[] },
  idOf: (row: T) => string,
  order?: Order<T>,
): Loaded<T> {
  if (fresh.cursor === null || loaded.rows === null) return fresh;
  // The read ended early. A row that it did not find is gone only if it came to the place of that row.
  const read_to = fresh.searched_to;
  if (read_to !== null && order !== undefined) {
    const { placeOf, isRead } = order;
    const last = loaded.rows.at(-1);
    const loaded_to = loaded.searched_to ?? (last === undefined ? '' : placeOf(last));
    if (loaded.cursor !== null && isRead(loaded_to, read_to)) return fresh;
    const ids = new Set(fresh.rows.map(idOf));
    const later = loaded.rows.filter((row) => !isRead(placeOf(row), read_to) && !ids.has(idOf(row)));
    return { ...loaded, rows: [...fresh.rows, ...later] };
  }
  const last = fresh.rows.at(-1);
  const at = loaded.rows.findIndex((row) => last !== undefined && idOf(row) === idOf(last));
  const is_known = last === undefined ? loaded.rows.length === 0 : at !== -1;
  if (!is_known) return fresh;
  const { cursor, searched_to } = loaded;
  return { rows: [...fresh.rows, ...loaded.rows.slice(at + 1)], cursor, searched_to };
}
