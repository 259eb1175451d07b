/** Lists are sorted by a column. The choice is part of the address: `sort=Pending`, or `sort=-Pending` downwards. */
import type { JSX } from 'preact';
import { filterBy } from '../router.ts';

export type SortValue = string | number | null;

interface Sortable<T> {
  head: string;
  is_number?: boolean;
  sortBy?: (row: T) => SortValue;
}

/** The rows in the chosen order, the empty values last; null when no column is chosen. */
export function sortedBy<T>(rows: readonly T[], columns: readonly Sortable<T>[], sort: string): T[] | null {
  const { name, is_down } = read(sort);
  const sortBy = columns.find(({ head }) => head === name)?.sortBy;
  if (sortBy === undefined) return null;
  return rows
    .map((row) => ({ row, value: sortBy(row) }))
    .toSorted((a, b) => compare(a.value, b.value, is_down))
    .map(({ row }) => row);
}

function read(sort: string): { name: string; is_down: boolean } {
  return sort.startsWith('-') ? { name: sort.slice(1), is_down: true } : { name: sort, is_down: false };
}

const ORDER = new Intl.Collator('en', { numeric: true });

function compare(a: SortValue, b: SortValue, is_down: boolean): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const order = typeof a === 'number' && typeof b === 'number' ? a - b : ORDER.compare(String(a), String(b));
  return is_down ? -order : order;
}

interface SortHeadProps<T> {
  column: Sortable<T>;
  sort: string;
  /** How many rows are sorted; null: all of them. */
  among: number | null;
  onSort: () => void;
}

/** The head of a column. A click sorts, a second click reverses the order, a third click ends the sorting. */
export function SortHead<T>({ column, sort, among, onSort }: SortHeadProps<T>): JSX.Element {
  const { head, is_number = false, sortBy } = column;
  const { name, is_down } = read(sort);
  const is_chosen = name === head;
  // A first click sorts numbers and times from the largest, and names from the first.
  const turns = is_number ? [`-${head}`, head, null] : [head, `-${head}`, null];
  const next = is_chosen ? turns[turns.indexOf(sort) + 1] : turns[0];
  return (
    <span
      role="columnheader"
      class={is_number ? 'cell number' : 'cell'}
      aria-sort={is_chosen ? (is_down ? 'descending' : 'ascending') : undefined}
    >
      {sortBy === undefined ? (
        head
      ) : (
        <button
          type="button"
          class="sort"
          title={`Sort ${among === null ? '' : `the first ${among.toLocaleString('en')} rows `}by ${head}`}
          onClick={() => {
            onSort();
            filterBy({ sort: next ?? null });
          }}
        >
          {head}
          <span class="sort-sign" aria-hidden="true">
            {is_chosen ? (is_down ? '↓' : '↑') : ''}
          </span>
        </button>
      )}
    </span>
  );
}
