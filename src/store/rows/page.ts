import { invalidField } from '../../domain/problem.ts';

/** The end of a page: the values of its last row that decide the order of the list. Callers must not interpret them. */
export type CursorKey = (string | number)[];

export function encodeCursor(key: CursorKey): string {
  return Buffer.from(JSON.stringify(key)).toString('base64url');
}

/**
 * @param types the types of the parts of the key
 * @throws Problem `invalid_fields` for a cursor that this service did not make
 */
export function decodeCursor(cursor: string, types: ('string' | 'number')[]): CursorKey {
  let key: unknown;
  try {
    key = JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    key = null;
  }
  const is_key =
    Array.isArray(key) &&
    key.length === types.length &&
    key.every((part, i) => typeof part === types[i] && isOfRow(part));
  // Refuses 1e400 and trailing spaces: they are valid JSON, but no cursor of Convoke contains them.
  if (is_key && encodeCursor(key as CursorKey) === cursor) return key as CursorKey;
  throw invalidField('cursor', 'must be the next_cursor of a page made with the same filters');
}

/** Whether a row can have this value in its key. PostgreSQL fails with other values. */
function isOfRow(part: unknown): boolean {
  return typeof part === 'number' ? Number.isSafeInteger(part) : !String(part).includes('\0');
}

/** The size of a page. A page ends before the row that would exceed this size, but always has its first row. */
export const PAGE_BYTES_MAX = 512 << 10;

/** A row with the size of its long columns, in bytes. */
export interface Weighed {
  row_bytes: number;
}

/** Makes a page from `limit + 1` rows, and reads no more rows than it needs. */
export function pageOf<Row extends object, Item>(
  rows: Iterable<Row & Partial<Weighed>>,
  limit: number,
  keyOf: (row: Row) => CursorKey,
  itemOf: (row: Row) => Item,
): { data: Item[]; next_cursor: string | null } {
  const data: Item[] = [];
  let last: Row | null = null;
  let bytes = 0;
  for (const row of rows) {
    bytes += row.row_bytes ?? 0;
    if (last !== null && (data.length === limit || bytes > PAGE_BYTES_MAX))
      return { data, next_cursor: encodeCursor(keyOf(last)) };
    data.push(itemOf(row));
    last = row;
  }
  return { data, next_cursor: null };
}
