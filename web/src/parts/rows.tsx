/**
 * A table of any length. Only the visible rows are in the document. All rows have the same height, so the position of a
 * row is a multiplication. With 10,000 rows it draws some forty.
 */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface Column<T> {
  head: string;
  /** Its cells are left out on a narrow screen. */
  is_wide?: boolean;
  is_number?: boolean;
  cell: (row: T) => ComponentChildren;
}

interface RowsProps<T> {
  label: string;
  /** The name of the column widths in the style sheet. */
  kind: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  idOf: (row: T) => string;
  /** Where a row leads. */
  href: (row: T) => string;
  /** The name of the row's link for screen readers. */
  nameOf: (row: T) => string;
  selected?: string | null;
  is_complete: boolean;
  /** Called when the end becomes visible. */
  more: () => void;
}

const ROW_PX = 38;
/** On a narrow screen, a row has two lines. */
const TALL_ROW_PX = 58;
const NARROW_PX = 620;
const SPARE_ROWS = 10;

export function Rows<T>(props: RowsProps<T>): JSX.Element {
  const { label, kind, rows, columns, idOf, href, nameOf, selected, is_complete, more } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [{ width, height }, setSize] = useState({ width: innerWidth, height: innerHeight });
  /** The row that gets the focus as soon as it is in the document. */
  const wanted = useRef<number | null>(null);
  const is_narrow = width < NARROW_PX;
  const row_px = is_narrow ? TALL_ROW_PX : ROW_PX;

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
  const is_end_near = !is_complete && to >= rows.length;
  useEffect(() => {
    if (is_end_near) more();
  }, [is_end_near, rows.length]);

  useLayoutEffect(() => {
    if (wanted.current === null) return;
    const link = scroller.current?.querySelector<HTMLElement>(`[data-row="${wanted.current}"] .row-link`);
    if (!link) return;
    wanted.current = null;
    link.focus({ preventScroll: true });
  });

  const onScroll = (event: { currentTarget: HTMLElement }): void =>
    setFirst(Math.floor(event.currentTarget.scrollTop / row_px));

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

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const current = (event.target as Element).closest('[data-row]');
    const at = current === null ? -1 : Number(current.getAttribute('data-row'));
    const page = Math.max(1, Math.floor(height / row_px) - 2);
    const steps: Record<string, number> = {
      ArrowDown: at + 1,
      j: at + 1,
      ArrowUp: at - 1,
      k: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: rows.length - 1,
    };
    const next = steps[event.key];
    if (next === undefined) return;
    event.preventDefault();
    focusRow(next);
  };

  const shown = is_narrow ? columns.filter(({ is_wide }) => !is_wide) : columns;
  return (
    <div
      ref={scroller}
      class={`rows rows-${kind}${is_narrow ? ' is-narrow' : ''}`}
      role="table"
      aria-label={label}
      aria-rowcount={is_complete ? rows.length + 1 : -1}
      onScroll={onScroll}
      onKeyDown={onKeyDown}
      style={{ '--row': `${row_px}px` }}
    >
      <div role="rowgroup" class="rows-head">
        <div role="row" class="row" aria-rowindex={1}>
          {shown.map(({ head, is_number }) => (
            <span key={head} role="columnheader" class={is_number ? 'cell number' : 'cell'}>
              {head}
            </span>
          ))}
        </div>
      </div>
      <div
        role="rowgroup"
        class="rows-body"
        style={{ paddingTop: `${from * row_px}px`, paddingBottom: `${(rows.length - to) * row_px}px` }}
      >
        {rows.slice(from, to).map((row, i) => {
          const id = idOf(row);
          const index = from + i;
          return (
            <div
              key={id}
              role="row"
              class={id === selected ? 'row is-selected' : 'row'}
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
  );
}
