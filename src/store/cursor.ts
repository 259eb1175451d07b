import { invalidField } from '../domain/problem.ts';

/** Where a page ended: the values of its order in the last row. Opaque to callers. */
export type CursorKey = (string | number)[];

export function encodeCursor(key: CursorKey): string {
  return Buffer.from(JSON.stringify(key)).toString('base64url');
}

/**
 * @param types what the key must consist of
 * @throws Problem `invalid_fields` for what this service did not make
 */
export function decodeCursor(cursor: string, types: ('string' | 'number')[]): CursorKey {
  let key: unknown;
  try {
    key = JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    key = null;
  }
  const is_key = Array.isArray(key) && key.length === types.length && key.every((part, i) => typeof part === types[i]);
  // 1e400 and trailing spaces are JSON, and nothing that was ever answered.
  if (is_key && encodeCursor(key as CursorKey) === cursor) return key as CursorKey;
  throw invalidField('cursor', 'must be the next_cursor of a page made with the same filters');
}

/** Cuts a page out of `limit + 1` rows. */
export function pageOf<Row, Item>(
  rows: Row[],
  limit: number,
  keyOf: (row: Row) => CursorKey,
  itemOf: (row: Row) => Item,
): { data: Item[]; next_cursor: string | null } {
  const page = rows.length > limit ? rows.slice(0, limit) : rows;
  const last = page.at(-1);
  return {
    data: page.map(itemOf),
    next_cursor: rows.length > limit && last !== undefined ? encodeCursor(keyOf(last)) : null,
  };
}
