import { invalidField } from '../../domain/problem.ts';
import { type CursorKey, decodeCursor } from '../cursor.ts';

/** As the cursor was made; what is no number of a row, and no text that PostgreSQL takes, was never in one. */
export function keyOf(cursor: string, types: ('string' | 'number')[]): CursorKey {
  const key = decodeCursor(cursor, types);
  if (key.every((part) => (typeof part === 'number' ? Number.isSafeInteger(part) : !part.includes('\0')))) return key;
  throw invalidField('cursor', 'must be the next_cursor of a page made with the same filters');
}
