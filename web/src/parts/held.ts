/**
 * Keeps the rows of a list in their places while somebody uses the list, so that nobody clicks a row that has just
 * moved under the mouse.
 */
import { useRef, useState } from 'preact/hooks';

interface HeldProps<T> {
  /** Identifies the list. When this changes, the page shows another list, with its rows in their present order. */
  list: string;
  /** The rows as they are now, in their order. */
  fresh: readonly T[];
  idOf: (row: T) => string;
  is_held: boolean;
  /**
   * Normally rows keep their places only while `is_held` is true. With this option the rows that the page already shows
   * keep their places at all times. A new row gets the place after the row that precedes it in `fresh`.
   */
  is_order_kept?: boolean;
  /** Whether `fresh` has all rows of the list, and not only those that are loaded so far. */
  is_complete: boolean;
}

interface Held<T> {
  rows: readonly T[];
  /** How many new rows are not shown yet, because they would move the other rows. */
  news: number;
  /** Whether the rows that are shown have another order in `fresh`. */
  is_moved: boolean;
  /** The ids of the rows that are still shown, but are no longer in the list. */
  gone: ReadonlySet<string>;
  /** Shows the rows as they are now. */
  catchUp: () => void;
}

export function useHeld<T>({ list, fresh, idOf, is_held, is_order_kept = false, is_complete }: HeldProps<T>): Held<T> {
  const [, draw] = useState({});
  const shown = useRef<{ list: string; rows: readonly T[] } | null>(null);
  const known = shown.current?.list === list ? shown.current.rows : null;
  const held =
    known === null || (!is_held && !is_order_kept)
      ? { rows: fresh, news: 0, is_moved: false, gone: NONE }
      : placed(known, fresh, idOf, { is_held, is_complete });
  shown.current = { list, rows: held.rows };
  const catchUp = (): void => {
    shown.current = null;
    draw({});
  };
  return { ...held, catchUp };
}

interface Pointed {
  is_pointed: boolean;
  /** The event handlers for the element that contains the rows. */
  pointing: { onPointerEnter: (event: PointerEvent) => void; onPointerLeave: () => void };
}

/** Whether somebody points into a list with a mouse. */
export function usePointed(): Pointed {
  const [is_pointed, setPointed] = useState(false);
  const onPointerEnter = ({ pointerType }: PointerEvent): void => setPointed(pointerType === 'mouse');
  return { is_pointed, pointing: { onPointerEnter, onPointerLeave: () => setPointed(false) } };
}

const NONE: ReadonlySet<string> = new Set();

/**
 * The rows that the page already shows (`known`), in their old order and with their new contents, and the new rows
 * among them. While the list is held, only those new rows are shown that follow the last known row, because they move
 * no other row. Otherwise each new row follows the row that precedes it in `fresh`.
 */
function placed<T>(
  known: readonly T[],
  fresh: readonly T[],
  idOf: (row: T) => string,
  { is_held, is_complete }: { is_held: boolean; is_complete: boolean },
): Omit<Held<T>, 'catchUp'> {
  const by_id = new Map(fresh.map((row) => [idOf(row), row]));
  const known_ids = new Set(known.map(idOf));
  /** The new rows, by the id of the known row before them; null: before all known rows. */
  const after = new Map<string | null, T[]>();
  const order: string[] = [];
  for (const row of fresh) {
    const id = idOf(row);
    if (known_ids.has(id)) order.push(id);
    else {
      const before = order.at(-1) ?? null;
      const rows = after.get(before);
      if (rows === undefined) after.set(before, [row]);
      else rows.push(row);
    }
  }
  const still = known.filter((row) => by_id.has(idOf(row)));
  const is_moved = still.some((row, i) => idOf(row) !== order[i]);
  const latest = (row: T): T => by_id.get(idOf(row)) ?? row;
  if (!is_held) {
    const following = (row: T): T[] => [latest(row), ...(after.get(idOf(row)) ?? [])];
    return { rows: [...(after.get(null) ?? []), ...still.flatMap(following)], news: 0, is_moved, gone: NONE };
  }
  const last = known.at(-1);
  const end = last === undefined ? [] : (after.get(idOf(last)) ?? []);
  // When `fresh` has only the rows that are loaded so far, the known rows behind its last row may still exist. So they
  // do not count as gone.
  const read_to = is_complete ? known.length : known.findLastIndex((row) => by_id.has(idOf(row)));
  const gone = known.slice(0, Math.max(0, read_to)).filter((row) => !by_id.has(idOf(row)));
  return {
    rows: [...known.map(latest), ...end],
    news: fresh.length - order.length - end.length,
    is_moved,
    gone: new Set(gone.map(idOf)),
  };
}
