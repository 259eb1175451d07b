/** Functions that the searches of this engine share. */
import { sql } from 'kysely';
import { numberAt } from '../../domain/id.ts';
import type { MadeWithin } from '../contract/search.ts';
import { CLOCKS_APART_MS, type Dialect, type Numbers, numberSince } from '../rows/search.ts';
import type { Database } from './database.ts';

/** `lower` changes only ASCII letters, unless SQLite is built with ICU. */
export const DIALECT: Dialect = {
  contains: (column, text) => sql<boolean>`instr(${column}, ${text}) > 0`,
  lower: (column) => sql<string>`lower(${column})`,
  isOneOf: (column, texts) => sql<boolean>`${column} IN (SELECT value FROM json_each(${JSON.stringify(texts)}))`,
};

/** @param before the cursor: every row of this page has a number below it */
export function numbersOf(db: Database, { since_ms, until_ms }: MadeWithin, before: number): Numbers {
  const below = until_ms === undefined ? Number.MAX_SAFE_INTEGER : numberUntil(db, until_ms + CLOCKS_APART_MS);
  return { from: numberSince(since_ms), below: Math.min(below, before) };
}

/**
 * Returns a number above those of all rows that were made before a time, unless a clock was set back. The number of
 * that time is enough while numbers follow the clock. When numbers are ahead of the clock, the function finds the place
 * by binary search, because times rise with the numbers.
 */
function numberUntil(db: Database, until_ms: number): number {
  const select = db.prepare(
    'SELECT message_no, accepted_at FROM messages WHERE message_no >= ? ORDER BY message_no LIMIT 1',
  );
  const firstFrom = (number: number) => select.get(number) as { message_no: number; accepted_at: number } | undefined;
  const guess = numberAt(until_ms);
  let low = guess;
  let high = Number.MAX_SAFE_INTEGER;
  for (let number = guess; low < high;) {
    const row = firstFrom(number);
    if (row !== undefined && row.accepted_at < until_ms) low = row.message_no + 1;
    else if (number === guess) return guess;
    else high = number;
    number = low + Math.floor((high - low) / 2);
  }
  return firstFrom(low)?.message_no ?? Number.MAX_SAFE_INTEGER;
}

/**
 * The seqs of the messages of a meeting that have these numbers. No index has both seqs and numbers. But seqs rise with
 * the numbers, so the function finds the seqs by binary search.
 */
export function seqsOf(db: Database, meeting_id: string, { from, below }: Numbers): { above: number; up_to: number } {
  const { last_seq } = db
    .prepare('SELECT coalesce(max(seq), 0) AS last_seq FROM messages WHERE meeting_id = ?')
    .get(meeting_id) as { last_seq: number };
  const probe = db.prepare(
    'SELECT seq, message_no FROM messages WHERE meeting_id = ? AND seq >= ? ORDER BY seq LIMIT 1',
  );
  const lastBelow = (number: number): number => {
    let [low, high] = [0, last_seq];
    while (low < high) {
      const row = probe.get(meeting_id, Math.ceil((low + high) / 2)) as { seq: number; message_no: number } | undefined;
      if (row !== undefined && row.message_no < number) low = row.seq;
      else high = Math.ceil((low + high) / 2) - 1;
    }
    return low;
  };
  return {
    above: from === 0 ? 0 : lastBelow(from),
    up_to: below === Number.MAX_SAFE_INTEGER ? last_seq : lastBelow(below),
  };
}
