/** The parts of a search that SQLite and PostgreSQL share. */
import { type RawBuilder, sql } from 'kysely';
import { numberAt } from '../../domain/id.ts';
import { formsOf, lowerCase } from '../../domain/search_text.ts';
import type { Page } from '../contract/page.ts';
import type { DeliveryRow } from '../contract/deliveries.ts';
import {
  type DeliverySearch,
  type MadeWithin,
  type MessageSearch,
  type Reads,
  SEARCH_READS,
  type SearchPage,
} from '../contract/search.ts';
import { encodeCursor } from './page.ts';

/** The rows whose number is at least `from`, and less than `below`. */
export interface Numbers {
  from: number;
  below: number;
}

/**
 * How far the time in the number of a row and the time in its column may be apart. The two come from two clocks that
 * are read one after the other. With PostgreSQL the two clocks are on two machines.
 */
export const CLOCKS_APART_MS = 60_000;

/** The lowest number of a row that was made at or after a time. */
export function numberSince(since_ms: number | undefined): number {
  return since_ms === undefined ? 0 : numberAt(since_ms - CLOCKS_APART_MS);
}

/** The row at which a call of a search stops: the call does not read this row or the rows behind it. */
export interface Beyond {
  number: number;
  made_at: number;
}

/** A row that a search is to read, without its long columns. */
export interface ToRead extends Beyond {
  row_bytes: number;
}

/** Finds the row at which a call stops, among at most `reads.rows + 1` rows to read. The first row is always read. */
export function beyondOf(rows: Iterable<ToRead>, reads: Reads): Beyond | null {
  let read = 0;
  let bytes = 0;
  for (const { number, made_at, row_bytes } of rows) {
    bytes += row_bytes;
    if (read === reads.rows || (read > 0 && bytes > reads.bytes)) return { number, made_at };
    read++;
  }
  return null;
}

/** How much one call of a list may read: enough for a page, when one index has exactly the rows of the list. */
export function listReads({ limit }: { limit: number }): Reads {
  return { rows: Math.max(limit + 1, SEARCH_READS.rows), bytes: SEARCH_READS.bytes };
}

/** The rows that one call of a search reads, newest first, and the first row that it does not read. */
export interface Walked {
  numbers: number[];
  beyond: Beyond | null;
}

/**
 * How many rows a call reads from each source. All sources together have at most about `SEARCH_READS.rows`, and none
 * has more than the call may read.
 */
export function rowsOfEach(sources: number, { rows }: Reads): number {
  return Math.min(rows, Math.ceil(SEARCH_READS.rows / sources));
}

/**
 * Merges the rows of some sources. A source may have more rows than the call took from it. Then its rows after the last
 * one that was taken are missing. So the result ends before the newest missing row of all sources: all older rows are
 * left out, also those of other sources.
 *
 * @param sources the rows of each source, newest first: at most `of_each + 1`
 */
export function merged(sources: readonly ToRead[][], of_each: number, reads: Reads): Walked {
  let missing: Beyond | null = null;
  for (const { [of_each]: next } of sources)
    if (next !== undefined && next.number > (missing?.number ?? 0)) missing = next;
  const rows = new Map<number, ToRead>();
  for (const source of sources)
    for (const row of source) if (row.number > (missing?.number ?? 0)) rows.set(row.number, row);
  const newest_first = [...rows.values()].toSorted((a, b) => b.number - a.number);
  const beyond = beyondOf(newest_first, reads) ?? missing;
  const last = beyond?.number ?? 0;
  return { numbers: newest_first.flatMap(({ number }) => (number > last ? [number] : [])), beyond };
}

/** Chooses the walk that has come furthest. Each of the walks finds all results in the end. */
export function furthest(walks: readonly Walked[]): Walked {
  return walks.reduce((a, b) => ((b.beyond?.number ?? 0) < (a.beyond?.number ?? 0) ? b : a));
}

/** @param page the results among the rows that were read */
export function searched<T>(page: Page<T>, beyond: Beyond | null): SearchPage<T> {
  if (page.next_cursor !== null || beyond === null) return { ...page, searched_to: null };
  return { data: page.data, next_cursor: encodeCursor([beyond.number + 1]), searched_to: beyond.made_at };
}

/** The parts of a condition that engines write differently. */
export interface Dialect {
  contains(column: RawBuilder<string>, text: string): RawBuilder<boolean>;
  /** Turns ASCII letters into lower case, and no others. */
  lower(column: RawBuilder<string>): RawBuilder<string>;
  isOneOf(column: RawBuilder<string>, texts: string[]): RawBuilder<boolean>;
}

const ANY_OF = sql` OR `;
const ALL_OF = sql` AND `;

/** The SQL text is the same in every call, because each different text becomes a prepared statement that is kept. */
function within(column: string, { since_ms, until_ms }: MadeWithin): RawBuilder<boolean> {
  const made_at = sql.ref<number>(column);
  return sql<boolean>`${made_at} >= ${since_ms ?? -Number.MAX_SAFE_INTEGER} AND ${made_at} < ${until_ms ?? Number.MAX_SAFE_INTEGER}`;
}

/** Whether the column of an id or a name contains a text, in capital or small ASCII letters. */
export function isPart(dialect: Dialect, column: string, text: string): RawBuilder<boolean> {
  return dialect.contains(dialect.lower(sql.ref<string>(column)), lowerCase(text));
}

function holds(dialect: Dialect, column: string, text: string): RawBuilder<boolean> {
  const lower = dialect.lower(sql.ref<string>(column));
  return sql<boolean>`(${sql.join(
    formsOf(text).map((form) => dialect.contains(lower, form)),
    ANY_OF,
  )})`;
}

/** The condition for the messages `m`. */
export function isMessageFound(
  { text, meeting_ids, seq, ...made }: Omit<MessageSearch, 'limit'>,
  dialect: Dialect,
): RawBuilder<boolean> {
  return all([
    within('m.accepted_at', made),
    ...(meeting_ids === undefined ? [] : [dialect.isOneOf(sql.ref('m.meeting_id'), meeting_ids)]),
    ...(seq === undefined ? [] : [sql<boolean>`m.seq = ${seq}`]),
    ...(text === undefined ? [] : [holds(dialect, 'm.message', text)]),
  ]);
}

/**
 * The condition for the deliveries `d`. To find attempts and agents, the condition looks for parts of stored JSON,
 * which Convoke wrote itself. Each part contains a text in quote marks, so it cannot be inside a string of that JSON:
 * there the quote marks would be escaped. Some other rows fit too, and `isFoundDelivery` leaves them out.
 */
export function isDeliveryFound(search: DeliverySearch, dialect: Dialect): RawBuilder<boolean> {
  const { state, status_code, outcome, agent_id, text } = search;
  return all([
    within('d.created_at', search),
    ...(state === undefined ? [] : [sql<boolean>`d.state = ${state}`]),
    ...(status_code === undefined ? [] : [attempted(dialect, `"status_code":${status_code}`, isSuccess(status_code))]),
    ...(outcome === undefined ? [] : [attempted(dialect, `"outcome":${JSON.stringify(outcome)}`, outcome === 'ok')]),
    ...(agent_id === undefined ? [] : [dialect.contains(sql.ref('d.target_agents'), JSON.stringify(agent_id))]),
    ...(text === undefined
      ? []
      : [
          sql<boolean>`EXISTS (SELECT 1 FROM messages x WHERE x.message_no = d.message_no AND ${holds(dialect, 'x.message', text)})`,
        ]),
  ]);
}

/**
 * A first attempt that succeeded is stored as a short text without the names of fields (attempts_text.ts). With
 * `may_be_short`, such a text fits too.
 */
function attempted(dialect: Dialect, part: string, may_be_short: boolean): RawBuilder<boolean> {
  const contains = dialect.contains(sql.ref('d.attempts'), part);
  if (!may_be_short) return contains;
  return sql<boolean>`(${contains} OR (d.attempts <> '[]' AND substr(d.attempts, 1, 2) <> '[{'))`;
}

const isSuccess = (status_code: number): boolean => status_code >= 200 && status_code < 300;

/** Whether a delivery that fits the condition of `isDeliveryFound` really has the searched values. */
export function isFoundDelivery(
  { attempts, target_agents }: DeliveryRow,
  { status_code, outcome, agent_id }: DeliverySearch,
): boolean {
  if (agent_id !== undefined && !target_agents.includes(agent_id)) return false;
  if (status_code === undefined && outcome === undefined) return true;
  return attempts.some(
    (attempt) =>
      (status_code === undefined || attempt.status_code === status_code) &&
      (outcome === undefined || attempt.outcome === outcome),
  );
}

function all(conditions: RawBuilder<boolean>[]): RawBuilder<boolean> {
  return sql<boolean>`(${sql.join(conditions, ALL_OF)})`;
}
