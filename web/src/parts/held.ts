/** Keeps the rows of a list in their places while somebody aims at one of them. */
import { useRef, useState } from 'preact/hooks';

interface HeldProps<T> {
  /** Identifies the list; another list begins with its rows as they are. */
  list: string;
  /** The rows as they are now, in their order. */
  fresh: readonly T[];
  idOf: (row: T) => string;
  is_held: boolean;
  /** Whether known rows keep their places even while nobody aims at one. */
  is_order_kept?: boolean;
  /** Whether `fresh` has all rows. */
  is_complete: boolean;
}

interface Held<T> {
  rows: readonly T[];
  /** How many rows wait to be shown. */
  news: number;
  /** Whether the rows have another order now. */
  is_moved: boolean;
  /** Rows that are no longer in the list. */
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
  /** The handlers for the element whose rows are held. */
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
 * The known rows in their old order with their new contents, and the new rows at places where they move no other row.
 */
function placed<T>(
  known: readonly T[],
  fresh: readonly T[],
  idOf: (row: T) => string,
  { is_held, is_complete }: { is_held: boolean; is_complete: boolean },
): Omit<Held<T>, 'catchUp'> {
  const by_id = new Map(fresh.map((row) => [idOf(row), row]));
  const known_ids = new Set(known.map(idOf));
  /** New rows, by the known row before them. */
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
  // Rows behind the last row of `fresh` may still exist.
  const read_to = is_complete ? known.length : known.findLastIndex((row) => by_id.has(idOf(row)));
  const gone = known.slice(0, Math.max(0, read_to)).filter((row) => !by_id.has(idOf(row)));
  return {
    rows: [...known.map(latest), ...end],
    news: fresh.length - order.length - end.length,
    is_moved,
    gone: new Set(gone.map(idOf)),
  };
}
