/** The year of data that `npm run bench -- --only p` measures: the store could have written each of its rows. */
import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { dirname } from 'node:path';
import { test } from 'node:test';
import pg from 'pg';
import { fillPostgres, fillSqlite, type Year } from '../../bench/load/year.ts';
import { attemptsText } from '../../src/domain/attempts_text.ts';
import { IdCodec } from '../../src/domain/id.ts';
import { importDataFile } from '../../src/store/postgres/import.ts';
import { storedAttempts } from '../../src/store/rows/stored_values.ts';
import { inspectCopy } from '../../src/store/sqlite/file/copy.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { temporaryFile } from '../support/node.ts';
import { makeDatabase } from '../support/postgres.ts';

type Row = Record<string, string | number | null>;

const MESSAGES = 2_000;
const MEETINGS = 13;
const DAY_MS = 86_400_000;
const YEAR: Year = {
  messages: MESSAGES,
  fleet: { meetings: MEETINGS, members: 10, origin: 'http://127.0.0.1:1' },
  until_ms: Date.UTC(2026, 10, 1),
};

const rowsOf = (file: string, sql: string): Row[] => {
  const db = new DatabaseSync(file, { readOnly: true });
  const rows = db
    .prepare(sql)
    .all()
    .map((row) => ({ ...row }) as Row);
  db.close();
  return rows;
};

test('a year of data has the rows that the store writes for the same messages', async (t) => {
  const file = temporaryFile(t);
  await fillSqlite(file, YEAR, () => {});
  const empty = temporaryFile(t);
  await fillSqlite(empty, { ...YEAR, messages: 0 }, () => {});

  const { store, opened } = openSqliteStore(empty, null);
  await opened;
  const messages = rowsOf(file, 'SELECT * FROM messages ORDER BY message_no');
  const ids = new Map<number, string>();
  for (const row of messages) {
    const in_reply_to = row['in_reply_to'] === null ? null : ids.get(row['in_reply_to'] as number)!;
    const [accepted] = await store.messages.accept([
      {
        meeting_id: row['meeting_id'] as string,
        message: row['message'] as string,
        timestamp: (JSON.parse(row['message'] as string) as { created_at: string }).created_at,
        target_agents: JSON.parse(row['target_agents'] as string) as string[],
        origin: { from_agent: row['from_agent'] as string | null, in_reply_to, speaks_for: null },
        trace: null,
        idempotency: null,
        wall_ms: row['accepted_at'] as number,
        expires_at: (row['accepted_at'] as number) + 3 * DAY_MS,
      },
    ]);
    assert.equal(accepted?.kind, 'accepted');
    ids.set(row['message_no'] as number, accepted.message.message_id);
  }
  await store.close();

  const [{ tag }] = rowsOf(empty, 'SELECT tag FROM this_file') as [{ tag: string }];
  const numberOf = (id: string): number => new IdCodec(tag).decode('msg', id)!;
  const numbers = new Map([...ids].map(([number, id]) => [numberOf(id), number]));
  const as_in_year = (row: Row): Row => ({
    ...row,
    message_no: numbers.get(row['message_no'] as number)!,
    ...(row['in_reply_to'] && { in_reply_to: numbers.get(row['in_reply_to'] as number)! }),
  });
  assert.deepEqual(rowsOf(empty, 'SELECT * FROM messages ORDER BY message_no').map(as_in_year), messages);

  // The columns that a push changes are left out.
  const ACCEPTED = `message_no, delivery_no - message_no AS place, meeting_id, seq, instance_id, target_agents, aside,
    next_attempt_at, expires_at, created_at FROM deliveries ORDER BY delivery_no`;
  assert.deepEqual(rowsOf(empty, `SELECT ${ACCEPTED}`).map(as_in_year), rowsOf(file, `SELECT ${ACCEPTED}`));
  const MEETING = 'SELECT * FROM meetings ORDER BY meeting_id';
  assert.deepEqual(rowsOf(empty, MEETING), rowsOf(file, MEETING));
});

test('a year of data is whole: the store reads, checks and continues it', async (t) => {
  const file = temporaryFile(t);
  await fillSqlite(file, YEAR, () => {});
  const { messages, deliveries, pending_deliveries, instances, audit_entries } = inspectCopy(file);
  assert.deepEqual([messages, deliveries, pending_deliveries], [MESSAGES, 3 * MESSAGES, 0]);
  assert.deepEqual([instances, audit_entries], [10 * MEETINGS, 20 * MEETINGS]);

  for (const { attempts, attempt_count, state, reason } of rowsOf(file, 'SELECT * FROM deliveries')) {
    const read = storedAttempts(attempts as string, () => assert.fail(`damaged: ${String(attempts)}`));
    assert.equal(attemptsText(read), attempts);
    assert.equal(read.length, attempt_count);
    assert.equal(state === 'delivered', read.at(-1)?.outcome === 'ok');
    assert.equal(state === 'delivered', reason === null);
  }
  const [{ highest }] = rowsOf(file, 'SELECT max(delivery_no) AS highest FROM deliveries') as [{ highest: number }];
  const [{ first_no }] = rowsOf(file, 'SELECT max(first_no) AS first_no FROM instances') as [{ first_no: number }];
  const [{ lowest }] = rowsOf(file, 'SELECT min(message_no) AS lowest FROM messages') as [{ lowest: number }];
  assert.ok(first_no < lowest);
  const [{ tag }] = rowsOf(file, 'SELECT tag FROM this_file') as [{ tag: string }];

  const { store, opened } = openSqliteStore(file, null);
  t.after(() => store.close());
  await opened;
  const next = { meeting_id: 'm000000', message: '{}', timestamp: '', target_agents: null, origin: null, trace: null };
  const [accepted] = await store.messages.accept([
    { ...next, idempotency: null, wall_ms: YEAR.until_ms, expires_at: YEAR.until_ms + 3 * DAY_MS },
  ]);
  assert.equal(accepted?.kind, 'accepted');
  assert.equal(accepted.message.seq, MESSAGES / 20 + 1);
  assert.equal(accepted.deliveries.length, 10);
  assert.ok(new IdCodec(tag).decode('msg', accepted.message.message_id)! > highest);
});

test('a year of data in PostgreSQL is the one of SQLite, moved', async (t) => {
  const file = temporaryFile(t);
  await fillSqlite(file, YEAR, () => {});
  const [moved, made] = [await makeDatabase({ migrated: false }), await makeDatabase({ migrated: false })];
  const wall_ms = YEAR.until_ms;
  await importDataFile({ from: file, url: moved, data: dirname(file), keys: null, onProgress() {}, wall_ms });
  await fillPostgres({ url: made, data: dirname(temporaryFile(t)) }, YEAR, () => {});

  const rowsIn = async (url: string) => {
    const client = new pg.Client(url);
    await client.connect();
    const read = async (sql: string): Promise<unknown[]> => (await client.query(sql)).rows;
    const rows = {
      messages: await read('SELECT * FROM messages ORDER BY message_no'),
      deliveries: await read('SELECT * FROM deliveries ORDER BY delivery_no'),
      meetings: await read('SELECT * FROM meetings ORDER BY meeting_id'),
      indexes: await read(`SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname`),
      numbers: await read('SELECT last_value FROM numbers'),
    };
    await client.end();
    return rows;
  };
  assert.deepEqual(await rowsIn(made), await rowsIn(moved));
});
