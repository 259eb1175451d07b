/** Functions that the searches of this engine share. */
import { type Compilable, sql } from 'kysely';
import { numberAt } from '../../domain/id.ts';
import type { MadeWithin, Reads } from '../contract/search.ts';
import { type Beyond, CLOCKS_APART_MS, type Dialect, type Numbers, numberSince } from '../rows/search.ts';
import { type Session, statement } from './database.ts';

/**
 * The number of the last delivery of the message `m`: the numbers of its deliveries follow its own number. The bounds
 * keep the sum of a damaged row within bigint. Otherwise the statement would fail.
 */
export const LAST_OF_MESSAGE = `least(m.message_no, ${2 ** 60}) + least(m.deliveries_queued, ${2 ** 30})`;

/** Texts compare byte by byte (COLLATE "C"), so `lower` changes only ASCII letters. */
export const DIALECT: Dialect = {
  contains: (column, text) => sql<boolean>`strpos(${column}, ${text}::text) > 0`,
  lower: (column) => sql<string>`lower(${column} COLLATE "C")`,
  isOneOf: (column, texts) => sql<boolean>`${column} = ANY (${texts}::text[])`,
};

/**
 * The first row that a search does not read any more; see `beyondOf` in rows/search.ts. Reads none of the long columns
 * to find it.
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
 * Returns a number above the numbers of all rows that were made before a time, unless a clock was set back. Numbers
 * follow the clock, so the function first guesses the number of that time. When numbers are ahead of the clock, the
 * guess is too low. Then the function halves the range of numbers until it finds the place, because times rise with the
 * numbers.
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

const LAST_SEQS = statement(`
  SELECT coalesce((SELECT max(seq) FROM messages m WHERE m.meeting_id = s.meeting_id), 0) AS last_seq
  FROM unnest($meeting_ids::text[]) WITH ORDINALITY AS s (meeting_id, place) ORDER BY s.place`);
const PROBES = statement(`
  SELECT s.place, probe.seq, probe.message_no
  FROM unnest($meeting_ids::text[], $seqs::bigint[]) WITH ORDINALITY AS s (meeting_id, seq, place)
    CROSS JOIN LATERAL (
      SELECT m.seq, m.message_no FROM messages m
      WHERE m.meeting_id = s.meeting_id AND m.seq >= s.seq ORDER BY m.seq LIMIT 1) probe`);

/**
 * For each meeting: the seqs of its messages with these numbers, as those above `above` and not above `up_to`. No index
 * has both seqs and numbers. But seqs rise with the numbers, so the function halves ranges of seqs until it finds both
 * ends, for all meetings together.
 */
export async function seqsOf(
  session: Session,
  meeting_ids: readonly string[],
  { from, below }: Numbers,
): Promise<{ above: number; up_to: number }[]> {
  const last_seqs = (await session.all<{ last_seq: number }>(LAST_SEQS, { meeting_ids })).map(
    ({ last_seq }) => last_seq,
  );
  const aboves = from === 0 ? null : await lastBelow(session, meeting_ids, last_seqs, from);
  const up_tos =
    below === Number.MAX_SAFE_INTEGER ? last_seqs : await lastBelow(session, meeting_ids, last_seqs, below);
  return up_tos.map((up_to, i) => ({ above: aboves?.[i] ?? 0, up_to }));
}

/** For each meeting: the seq of its last message whose message_no is below `number`; 0 if it has no such message. */
async function lastBelow(
  session: Session,
  meeting_ids: readonly string[],
  last_seqs: readonly number[],
  number: number,
): Promise<number[]> {
  const ranges = meeting_ids.map((meeting_id, i) => ({ meeting_id, low: 0, high: last_seqs[i] ?? 0 }));
  for (;;) {
    const open = ranges.filter(({ low, high }) => low < high);
    if (open.length === 0) return ranges.map(({ low }) => low);
    const seqs = open.map(({ low, high }) => Math.ceil((low + high) / 2));
    const probes = await session.all<{ place: number; seq: number; message_no: number }>(PROBES, {
      meeting_ids: open.map(({ meeting_id }) => meeting_id),
      seqs,
    });
    const by_place = new Map(probes.map((probe) => [probe.place, probe]));
    for (const [i, range] of open.entries()) {
      const probe = by_place.get(i + 1);
      if (probe !== undefined && probe.message_no < number) range.low = probe.seq;
      else range.high = seqs[i]! - 1;
    }
  }
}
