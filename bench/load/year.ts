/**
 * A year of data: instances that were registered a year ago, and messages with settled deliveries from the whole year.
 * The instances are registered through the store. This module writes messages and deliveries with SQL, because ten
 * million messages through the store would take an hour. The rows are equal to rows that the store writes:
 * `test/store/year.test.ts` checks that on both engines.
 *
 * Messages are counted from 0. The time of message n follows from n, and `message_no` follows from the time. Messages
 * with an even n are in one of ten large meetings, messages with an odd n in one of the other meetings. Each message
 * has three targets. Every second message of a meeting is an agent's answer to the previous message.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { numberAt, NUMBERS_PER_MS } from '../../src/domain/id.ts';
import { OUTCOMES } from '../../src/domain/outcome.ts';
import { importDataFile } from '../../src/store/postgres/import.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { agentId, type Fleet, ID_DIGITS, instanceId, meetingId } from './fleet.ts';
import { registerFleet } from './register.ts';

export interface Year {
  messages: number;
  /** More than `LARGE_MEETINGS` meetings, each with `YEAR_MEMBERS` members who are in no other meeting. */
  fleet: Fleet;
  /** The end of the year: all messages were accepted before. In milliseconds since the epoch. */
  until_ms: number;
}

/** Half of all messages are in this many meetings. */
export const LARGE_MEETINGS = 10;
export const YEAR_MEMBERS = 10;
/** How many members of its meeting get a message. */
export const TARGETS = 3;

const YEAR_MS = 365 * 86_400_000;
/** The instances were registered this long before the first message. */
const BEFORE_MS = 86_400_000;
const EXPIRE_AFTER_MS = 72 * 3_600_000;
/** How long after the acceptance of a message its deliveries are settled. */
const SETTLED_AFTER_MS = 40;
const MESSAGES_PER_STEP = 250_000;
/** Each message contains one of this many words. So a search for one of them finds one message in a thousand. */
const TOPICS = 1_000;
const COUNT_DIGITS = 9;
const TEXT = 'The quick brown fox jumps over the lazy dog, and nobody in the meeting objects. '.repeat(3);

/** The parts of SQL that differ between SQLite and PostgreSQL. */
interface Dialect {
  /** The numbers from `from` to below `to`, as a relation `series (n)`. */
  series: (from: number, to: number) => string;
  /** A number with leading zeros, as in an id of the fleet. */
  digits: (expression: string, digits: number) => string;
  /** A time in RFC 3339, from milliseconds. */
  iso: (ms: string) => string;
  timestamp: (iso: string) => string;
  /** Columns of a delivery that only PostgreSQL has. */
  also: { columns: string; values: string; join: string };
}

const SQLITE: Dialect = {
  series: (from, to) =>
    `(WITH RECURSIVE counted (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < ${to}) SELECT n FROM counted) series`,
  digits: (expression, digits) => `printf('%0${digits}d', ${expression})`,
  iso: (ms) => `(strftime('%Y-%m-%dT%H:%M:%S', ${ms} / 1000, 'unixepoch') || printf('.%03dZ', ${ms} % 1000))`,
  timestamp: (iso) => iso,
  also: { columns: '', values: '', join: '' },
};

const POSTGRES: Dialect = {
  series: (from, to) => `generate_series(${from}::bigint, ${to - 1}) AS series (n)`,
  digits: (expression, digits) => `lpad((${expression})::text, ${digits}, '0')`,
  iso: (ms) =>
    `(to_char(to_timestamp(${ms} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '.' || lpad((${ms} % 1000)::text, 3, '0') || 'Z')`,
  timestamp: (iso) => `'"' || ${iso} || '"'`,
  also: {
    columns: ', partition_no, failed_at',
    values: `, i.partition_no, CASE WHEN m.kind = 0 THEN m.at + ${SETTLED_AFTER_MS} END`,
    join: 'JOIN instances i ON i.instance_id = m.instance_id',
  },
};

/**
 * Makes a year of data. Without a `url` it is in a data file in the directory `data`. With the `url` of an empty
 * database it is in that database, and the directory holds only the key.
 */
export async function yearInto({
  data,
  url,
  messages,
  instances,
  origin,
  onProgress,
}: {
  data: string;
  url: string | null;
  messages: number;
  instances: number;
  origin: string;
  onProgress: (messages: number) => void;
}): Promise<void> {
  const until_ms = Date.now();
  const fleet = { meetings: Math.ceil(instances / YEAR_MEMBERS), members: YEAR_MEMBERS, origin };
  const year: Year = { messages, fleet, until_ms };
  await mkdir(data, { recursive: true, mode: 0o700 });
  const file = join(data, DATABASE_FILE);
  if (url === null) return fillSqlite(file, year, onProgress);
  await fillPostgres({ url, data }, year, onProgress);
}

/** Makes a data file with a year of data. */
export async function fillSqlite(file: string, year: Year, onProgress: (messages: number) => void): Promise<void> {
  await seedFleet(file, year);
  const db = new DatabaseSync(file);
  // Writes without syncing, because nothing reads the file before it is complete.
  db.exec(
    `PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; PRAGMA locking_mode = EXCLUSIVE`,
  );
  // Drops this index, and makes it again after all rows are inserted: then SQLite sorts the rows once, and does not add
  // each row to the index.
  const { sql: index } = db.prepare(`SELECT sql FROM sqlite_schema WHERE name = 'deliveries_of_instance'`).get() as {
    sql: string;
  };
  db.exec('DROP INDEX deliveries_of_instance');
  for (const { from, to } of steps(year)) {
    for (const text of insertsOf(SQLITE, year, from, to)) db.exec(text);
    onProgress(to);
  }
  for (const text of endsOf(year)) db.exec(text);
  db.exec(index);
  db.exec('PRAGMA journal_mode = WAL');
  db.close();
}

/**
 * Makes a year of data in an empty database.
 *
 * @param data the directory of a node, where its key is stored
 */
export async function fillPostgres(
  { url, data }: { url: string; data: string },
  year: Year,
  onProgress: (messages: number) => void,
): Promise<void> {
  const from = join(data, 'fleet.db');
  await seedFleet(from, year);
  await importDataFile({ from, url, data, keys: null, onProgress() {}, wall_ms: startOf(year) - BEFORE_MS });
  await rm(from);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`SET synchronous_commit = off; SET maintenance_work_mem = '512MB'`);
  const { rows } = await client.query<{ indexdef: string }>(
    `SELECT indexdef FROM pg_indexes WHERE indexname = 'deliveries_of_instance'`,
  );
  await client.query('DROP INDEX deliveries_of_instance');
  for (const { from, to } of steps(year)) {
    for (const text of insertsOf(POSTGRES, year, from, to)) await client.query(text);
    onProgress(to);
  }
  for (const text of endsOf(year)) await client.query(text);
  for (const { indexdef } of rows) await client.query(indexdef);
  await client.query(`SELECT setval('numbers', (SELECT max(delivery_no) FROM deliveries))`);
  // Marks all deliveries as swept, because all are settled: see src/store/postgres/pending/pending_deliveries.ts.
  await client.query('UPDATE sweeps SET swept_to = (SELECT last_value FROM numbers)');
  // In a database that was in use for a year, autovacuum has done this.
  await client.query('VACUUM (ANALYZE) messages');
  await client.query('VACUUM (ANALYZE) deliveries');
  await client.query('VACUUM (ANALYZE) meetings');
  await client.end();
}

/** Makes a data file with the instances and their memberships, without messages. */
async function seedFleet(file: string, year: Year): Promise<void> {
  if (year.fleet.meetings <= LARGE_MEETINGS || year.fleet.members !== YEAR_MEMBERS)
    throw new Error(`a year needs more than ${LARGE_MEETINGS} meetings of ${YEAR_MEMBERS}`);
  const registered_ms = startOf(year) - BEFORE_MS;
  const { store, opened } = openSqliteStore(file, null);
  await opened;
  const made = { principal: 'open', address: '127.0.0.1', target_kind: 'instance', details: {} } as const;
  await registerFleet(
    (action, target_id) => store.audited({ subject: { ...made, action, target_id }, wall_ms: registered_ms }),
    year.fleet,
    registered_ms,
  );
  await store.close();
  const db = new DatabaseSync(file);
  // The store gave the instances numbers of today. This gives them numbers of the time when they were registered.
  db.exec(
    `UPDATE instances SET first_no = first_no - (SELECT min(first_no) FROM instances) + ${numberAt(registered_ms)}`,
  );
  db.close();
}

function startOf({ until_ms }: Year): number {
  return until_ms - YEAR_MS;
}

function* steps({ messages }: Year): Generator<{ from: number; to: number }> {
  for (let from = 0; from < messages; from += MESSAGES_PER_STEP)
    yield { from, to: Math.min(messages, from + MESSAGES_PER_STEP) };
}

/** When message n was accepted. */
const acceptedAt = (year: Year, n: string): string => `(${startOf(year)} + ${n} * ${YEAR_MS} / ${year.messages})`;
const numberOf = (year: Year, n: string): string =>
  `((${acceptedAt(year, n)} - ${startOf(year)}) * ${NUMBERS_PER_MS} + ${numberAt(startOf(year))})`;

/** The messages from `from` to below `to`, with the number of their meeting and their `seq`. */
function placed(dialect: Dialect, year: Year, from: number, to: number): string {
  const others = year.fleet.meetings - LARGE_MEETINGS;
  return `(
    SELECT n, ${acceptedAt(year, 'n')} AS at, ${numberOf(year, 'n')} AS message_no,
      CASE WHEN n % 2 = 0 THEN (n / 2) % ${LARGE_MEETINGS} ELSE ${LARGE_MEETINGS} + (n / 2) % ${others} END AS meeting,
      CASE WHEN n % 2 = 0 THEN (n / 2) / ${LARGE_MEETINGS} + 1 ELSE (n / 2) / ${others} + 1 END AS seq,
      n - 2 * CASE WHEN n % 2 = 0 THEN ${LARGE_MEETINGS} ELSE ${others} END AS before_n
    FROM ${dialect.series(from, to)}) m`;
}

/** The number of the first member that gets a message. The other two members have this number + 3 and + 6. */
const FIRST_TARGET = 'm.seq % 4';
/** Every second message is an answer. Its sender is a member who does not get the message. */
const IS_ANSWER = 'm.seq % 2 = 0';
const SENDER = 'm.seq % 4 + 1';

function insertsOf(dialect: Dialect, year: Year, from: number, to: number): string[] {
  const { digits, iso, timestamp, also } = dialect;
  const id = (of: (index: number) => string, number: string): string =>
    `('${of(0).slice(0, -ID_DIGITS)}' || ${digits(number, ID_DIGITS)})`;
  const target = (k: string): string => `'"' || ${id(agentId, `${FIRST_TARGET} + 3 * ${k}`)} || '"'`;
  const targets = Array.from({ length: TARGETS }, (_, k) => target(String(k))).join(` || ',' || `);
  const text = [
    `'{"id":"msg-' || ${digits('m.n', COUNT_DIGITS)} || '","created_at":"' || ${iso('m.at')}`,
    `'","sender":"bench","text":"${TEXT}topic' || ${digits(`m.n % ${TOPICS}`, 4)} || '"}'`,
  ].join(' || ');
  const messages = placed(dialect, year, from, to);
  const deliveries = `(
    SELECT m.*, t.k, (m.n * ${TARGETS} + t.k) % 1000 AS kind,
      ${id(instanceId, `m.meeting * ${YEAR_MEMBERS} + ${FIRST_TARGET} + 3 * t.k`)} AS instance_id
    FROM ${messages} CROSS JOIN (SELECT 0 AS k UNION ALL SELECT 1 UNION ALL SELECT 2) t) m`;
  return [
    `INSERT INTO messages (message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, timestamp, message,
       from_agent, in_reply_to, hops)
     SELECT m.message_no, ${id(meetingId, 'm.meeting')}, m.seq, m.at, ${TARGETS}, '[' || ${targets} || ']',
       ${timestamp(iso('m.at'))}, ${text}, CASE WHEN ${IS_ANSWER} THEN ${id(agentId, SENDER)} END,
       CASE WHEN ${IS_ANSWER} THEN ${numberOf(year, 'm.before_n')} END, CASE WHEN ${IS_ANSWER} THEN 1 ELSE 0 END
     FROM ${messages} ORDER BY m.n`,
    `INSERT INTO deliveries (delivery_no, message_no, meeting_id, seq, instance_id, target_agents, state, reason,
       attempt_count, answered_badly, attempts, expires_at, created_at, settled_at${also.columns})
     SELECT m.message_no + 1 + m.k, m.message_no, ${id(meetingId, 'm.meeting')}, m.seq, m.instance_id,
       '[' || ${target('m.k')} || ']', ${resultOf(dialect)}, m.at + ${EXPIRE_AFTER_MS}, m.at,
       m.at + ${SETTLED_AFTER_MS}${also.values}
     FROM ${deliveries} ${also.join} ORDER BY m.n, m.k`,
  ];
}

/**
 * The columns from `state` to `attempts`. Of a thousand deliveries one fails, four need a second attempt, and two are
 * dropped.
 */
function resultOf({ iso }: Dialect): string {
  const attempt = (number: number, outcome: keyof typeof OUTCOMES, status_code: number, after_ms: number): string => {
    const detail = outcome === 'ok' ? '' : OUTCOMES[outcome].says;
    const rest = JSON.stringify({ duration_ms: 12, outcome, status_code, detail, response_excerpt: '' }).slice(1);
    return `'{"attempt":${number},"started_at":"' || ${iso(`(m.at + ${after_ms})`)} || '",${rest}'`;
  };
  const failed = `'[' || ${attempt(1, 'not_200', 204, 2)} || ']'`;
  const retried = `'[' || ${attempt(1, 'bad_status', 500, 2)} || ',' || ${attempt(2, 'ok', 200, 10)} || ']'`;
  const delivered = `'[' || (m.at + 2) || ',12,200]'`;
  return [
    [`'failed'`, `'delivered'`, `'cancelled'`, `'delivered'`],
    [`'not_200'`, 'NULL', `'dropped'`, 'NULL'],
    ['1', '2', '0', '1'],
    ['1', '1', '0', '0'],
    [failed, retried, `'[]'`, delivered],
  ]
    .map(
      ([a, b, c, d]) =>
        `CASE WHEN m.kind = 0 THEN ${a} WHEN m.kind < 5 THEN ${b} WHEN m.kind < 7 THEN ${c} ELSE ${d} END`,
    )
    .join(',\n       ');
}

/** Updates the columns of meetings and instances that the store updates with each message and each result. */
function endsOf({ messages, until_ms }: Year): string[] {
  if (messages === 0) return [];
  const newest = 'SELECT m.seq FROM messages m WHERE m.meeting_id = meetings.meeting_id ORDER BY m.seq DESC LIMIT 1';
  return [
    `UPDATE meetings SET last_seq = coalesce((${newest}), 0)`,
    `UPDATE meetings SET last_activity_at = (SELECT m.accepted_at FROM messages m WHERE m.meeting_id = meetings.meeting_id
       AND m.seq = meetings.last_seq) WHERE last_seq > 0`,
    `UPDATE instances SET last_success_at = ${until_ms - 1}`,
  ];
}
