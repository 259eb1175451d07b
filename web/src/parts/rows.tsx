/**
 * A table of any length. Only the visible rows are in the document: of 10,000 rows the page draws some forty. All rows
 * have the same height, so the position of a row is its number times the height.
 *
 * Rows do not move while somebody points at a row, has the focus on a row, has scrolled, or has paused the list.
 */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ConvokeError } from '@convoke/sdk';
import { usePlace } from '../router.ts';
import { useHeld, usePointed } from './held.ts';
import { ListFoot } from './list_foot.tsx';
import { useListKeys } from './list_keys.ts';
import { SortHead, type SortValue, sortedBy } from './sort.tsx';

export interface Column<T> {
  head: string;
  /** The cells of this column are left out on a narrow screen. */
  is_wide?: boolean;
  is_number?: boolean;
  /** The value by which the list is sorted when somebody chooses this column. */
  sortBy?: (row: T) => SortValue;
  cell: (row: T) => ComponentChildren;
}

interface RowsProps<T> {
  label: string;
  /** The name of the column widths in the style sheet. */
  kind: string;
  /** Identifies the list, for example by its filters. */
  list: string;
  rows: readonly T[];
  /** Why the rows are not up to date. */
  problem: ConvokeError | null;
  /** Reads the rows again. */
  again: () => void;
  columns: readonly Column<T>[];
  idOf: (row: T) => string;
  /** The address to which a row leads. */
  href: (row: T) => string;
  /** The name of the row's link for screen readers. */
  nameOf: (row: T) => string;
  selected?: string | null;
  /** Whether the order of the rows changes all the time, so that known rows must keep their places. */
  is_order_kept?: boolean;
  /** How many lines a row has on a narrow screen. */
  narrow_lines?: 1 | 2;
  /** Sorts the rows that are loaded, and loads no further rows to sort. */
  is_sorted_as_loaded?: boolean;
  is_complete: boolean;
  /** Called when the end becomes visible. */
  more: () => void;
}

const ROW_PX = 38;
const TWO_LINES_PX = 54;
/** The width that the columns of the widest list need. */
const NARROW_PX = 800;
const SPARE_ROWS = 10;
/** The most rows that are loaded for sorting. */
const SORTED_ROWS_MAX = 5000;

export function Rows<T>(props: RowsProps<T>): JSX.Element {
  const {
    label,
    kind,
    columns,
    idOf,
    href,
    nameOf,
    selected,
    is_complete,
    more,
    narrow_lines = 2,
    is_sorted_as_loaded = false,
  } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [{ width, height }, setSize] = useState({ width: innerWidth, height: innerHeight });
  const { is_pointed, pointing } = usePointed();
  const [is_focused, setFocused] = useState(false);
  const [is_scrolled, setScrolled] = useState(false);
  const [is_paused, setPaused] = useState(false);
  /** The row that gets the focus as soon as it is in the document. */
  const wanted = useRef<number | null>(null);
  const is_narrow = width < NARROW_PX;
  const row_px = is_narrow && narrow_lines === 2 ? TWO_LINES_PX : ROW_PX;

  const sort = usePlace().query.get('sort') ?? '';
  const sorted = sortedBy(props.rows, columns, sort);
  const { rows, news, is_moved, gone, catchUp } = useHeld({
    list: `${props.list} ${sort}`,
    fresh: sorted ?? props.rows,
    idOf,
    is_held: is_pointed || is_focused || is_scrolled || is_paused || !CAN_HOVER,
    is_order_kept: sorted !== null || props.is_order_kept === true,
    is_complete,
  });

  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const measure = (): void => setSize({ width: element.clientWidth, height: element.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const from = Math.max(0, Math.min(first, rows.length - 1) - SPARE_ROWS);
  const to = Math.min(rows.length, first + Math.ceil(height / row_px) + SPARE_ROWS);
  const is_sorting_more = sorted !== null && !is_sorted_as_loaded && props.rows.length < SORTED_ROWS_MAX;
  const is_wanting = to >= rows.length || is_sorting_more;
  const is_partly_sorted = !is_complete && (is_sorted_as_loaded || props.rows.length >= SORTED_ROWS_MAX);
  const has_failed = props.problem !== null;
  useEffect(() => {
    if (!is_complete && is_wanting) more();
  }, [is_complete, is_wanting, props.rows.length, sort, has_failed]);

  useLayoutEffect(() => {
    if (wanted.current === null) return;
    const link = scroller.current?.querySelector<HTMLElement>(`[data-row="${wanted.current}"] .row-link`);
    if (!link) return;
    wanted.current = null;
    link.focus({ preventScroll: true });
  });

  const onScroll = (event: { currentTarget: HTMLElement }): void => {
    const { scrollTop } = event.currentTarget;
    setFirst(Math.floor(scrollTop / row_px));
    setScrolled(scrollTop > 0);
  };

  const focusRow = (index: number): void => {
    const element = scroller.current;
    if (element === null || rows.length === 0) return;
    const at = Math.max(0, Math.min(rows.length - 1, index));
    const top = at * row_px;
    const room = element.clientHeight - row_px * 2;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top > element.scrollTop + room) element.scrollTop = top - room;
    wanted.current = at;
    setFirst(Math.floor(element.scrollTop / row_px));
    const link = element.querySelector<HTMLElement>(`[data-row="${at}"] .row-link`);
    if (link !== null) {
      wanted.current = null;
      link.focus({ preventScroll: true });
    }
  };

  useListKeys({
    scroller,
    page: Math.max(1, Math.floor(height / row_px) - 2),
    count: rows.length,
    /** The row at which the keys begin while no row has the focus. */
    start: () => {
      const at = rows.findIndex((row) => idOf(row) === selected);
      return at === -1 ? Math.ceil((scroller.current?.scrollTop ?? 0) / row_px) : at;
    },
    focusRow,
  });

  const shown = is_narrow ? columns.filter(({ is_wide }) => !is_wide) : columns;
  return (
    <>
      <div
        ref={scroller}
        class={`rows rows-${kind}${is_narrow ? ' is-narrow' : ''}`}
        role="table"
        aria-label={label}
        aria-rowcount={is_complete ? rows.length + 1 : -1}
        onScroll={onScroll}
        style={{ '--row': `${row_px}px` }}
      >
        <div role="rowgroup" class="rows-head">
          <div role="row" class="row" aria-rowindex={1}>
            {shown.map((column) => (
              <SortHead
                key={column.head}
                column={column}
                sort={sort}
                among={is_partly_sorted ? props.rows.length : null}
                onSort={catchUp}
              />
            ))}
          </div>
        </div>
        <div
          role="rowgroup"
          class="rows-body"
          style={{ paddingTop: `${from * row_px}px`, paddingBottom: `${(rows.length - to) * row_px}px` }}
          {...pointing}
          onFocusIn={({ target }) => setFocused(target instanceof Element && target.matches(':focus-visible'))}
          onFocusOut={() => setFocused(false)}
        >
          {rows.slice(from, to).map((row, i) => {
            const id = idOf(row);
            const index = from + i;
            const states = [id === selected ? ' is-selected' : '', gone.has(id) ? ' is-gone' : ''];
            return (
              <div
                key={id}
                role="row"
                class={`row${states.join('')}`}
                title={gone.has(id) ? 'No longer in this list' : undefined}
                aria-rowindex={index + 2}
                data-row={index}
              >
                {shown.map(({ head, cell, is_number }, column) => (
                  <div key={head} role="cell" class={is_number ? 'cell number' : 'cell'}>
                    {column === 0 && (
                      <a class="row-link" href={href(row)} aria-current={id === selected ? 'true' : undefined}>
                        <span class="unseen">{nameOf(row)}</span>
                      </a>
                    )}
                    {cell(row)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
      <ListFoot
        count={rows.length}
        problem={props.problem}
        again={props.again}
        is_complete={is_complete}
        is_partly_sorted={sorted !== null && is_partly_sorted}
        news={news}
        is_moved={is_moved}
        is_paused={is_paused}
        onPause={() => setPaused(!is_paused)}
        onCatchUp={() => {
          scroller.current?.scrollTo(0, 0);
          catchUp();
        }}
      />
    </>
  );
}

/** Without a mouse nobody can point at a row before they touch it, so the rows never move by themselves. */
const CAN_HOVER = !matchMedia('(hover: none)').matches;
