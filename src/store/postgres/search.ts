/** Functions that the searches of this engine share. */
import { type Compilable, sql } from 'kysely';
import { numberAt } from '../../domain/id.ts';
import type { MadeWithin, Reads } from '../contract/search.ts';
import { type Beyond, CLOCKS_APART_MS, type Dialect, type Numbers, numberSince } from '../rows/search.ts';
import { type Session, statement } from './database.ts';

/**
 * The number of the last delivery of the message `m`: its deliveries have the numbers after its own. The bounds keep the sum of a damaged row within bigint, otherwise
 * the statement would fail.
 */
export const LAST_OF_MESSAGE = `least(m.message_no, ${2 ** 60}) + least(m.deliveries_queued, ${2 ** 30})`;

/** Byte by byte (COLLATE "C"), so `lower` changes only ASCII letters. */
export const DIALECT: Dialect = {
  contains: (column, text) => sql<boolean>`strpos(${column}, ${text}::text) > 0`,
  lower: (column) => sql<string>`lower(${column} COLLATE "C")`,
  isOneOf: (column, texts) => sql<boolean>`${column} = ANY (${texts}::text[])`,
};

/**
 * The first row that a search does not read any more; see `beyondOf` in rows/search.ts. Reads none of the long columns to find it.
 *
 * @param to_read at most `reads.rows + 1` rows, in the order of their numbers, the highest first
 */
export async function beyondOf(
  session: Session,
  to_read: Compilable<{ number: number; made_at: number; row_bytes: number }>,
  reads: Reads,
): Promise<Beyond | null> {
  const { sql: text, parameters } = to_read.compile();
  const counted = `SELECT number, made_at, row_number() OVER (ORDER BY number DESC) AS place, sum(row_bytes) OVER (ORDER BY number DESC) AS bytes FROM (${text}) to_read`;
  const { rows } = await session.query<Beyond>(
    `SELECT number, made_at FROM (${counted}) counted WHERE place > ${reads.rows} OR (place > 1 AND bytes > ${reads.bytes}) ORDER BY place LIMIT 1`,
    parameters,
  );
  return rows[0] ?? null;
}

const FIRST_FROM = statement(
  'SELECT message_no, accepted_at FROM messages WHERE message_no >= $number ORDER BY message_no LIMIT 1',
);

/** @param before the cursor: every row of this page has a number below it */
export async function numbersOf(
  session: Session,
  { since_ms, until_ms }: MadeWithin,
  before: number,
): Promise<Numbers> {
  const below =
    until_ms === undefined ? Number.MAX_SAFE_INTEGER : await numberUntil(session, until_ms + CLOCKS_APART_MS);
  return { from: numberSince(since_ms), below: Math.min(below, before) };
}

/**
 * A number above those of all rows that were made before a time, unless a clock was set back. Numbers follow the clock.
 * When they are ahead of it, the search halves the range until it finds the place, because times rise with the numbers.
 */
async function numberUntil(session: Session, until_ms: number): Promise<number> {
  const firstFrom = (number: number) =>
    session.one<{ message_no: number; accepted_at: number }>(FIRST_FROM, { number });
  const guess = numberAt(until_ms);
  let low = guess;
  let high = Number.MAX_SAFE_INTEGER;
  for (let number = guess; low < high;) {
    const row = await firstFrom(number);
    if (row !== undefined && row.accepted_at < until_ms) low = row.message_no + 1;
    else if (number === guess) return guess;
    else high = number;
    number = low + Math.floor((high - low) / 2);
  }
  return (await firstFrom(low))?.message_no ?? Number.MAX_SAFE_INTEGER;
}

const LAST_SEQ = statement('SELECT coalesce(max(seq), 0) AS last_seq FROM messages WHERE meeting_id = $meeting_id');
const PROBE = statement(
  'SELECT seq, message_no FROM messages WHERE meeting_id = $meeting_id AND seq >= $seq ORDER BY seq LIMIT 1',
);

/**
 * The seqs of the messages of a meeting that have these numbers: seqs rise with the numbers. Halves the range until it
 * finds them, because no index has both.
 */
export async function seqsOf(
  session: Session,
  meeting_id: string,
  { from, below }: Numbers,
): Promise<{ above: number; up_to: number }> {
  const { last_seq } = (await session.one<{ last_seq: number }>(LAST_SEQ, { meeting_id }))!;
  const lastBelow = async (number: number): Promise<number> => {
    let [low, high] = [0, last_seq];
    while (low < high) {
      const seq = Math.ceil((low + high) / 2);
      const row = await session.one<{ seq: number; message_no: number }>(PROBE, { meeting_id, seq });
      if (row !== undefined && row.message_no < number) low = row.seq;
      else high = seq - 1;
    }
    return low;
  };
  return {
    above: from === 0 ? 0 : await lastBelow(from),
    up_to: below === Number.MAX_SAFE_INTEGER ? last_seq : await lastBelow(below),
  };
}
