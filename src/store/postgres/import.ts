/**
 * Moves everything from a data file of SQLite into an empty database of PostgreSQL, in one transaction: a failure
 * half-way leaves nothing behind.
 *
 * Everything that clients know stays the same: the ids of messages and deliveries, seq, the keys, the invites, the
 * audit log. Sessions of browsers are not moved: people sign in again. Secrets are encrypted again under the data key
 * of the database.
 */
import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { KEY_FILE } from '../../domain/data_directory.ts';
import type { AuditHead } from '../../domain/audit.ts';
import { IdCodec } from '../../domain/id.ts';
import { partitionOf } from '../../domain/partition.ts';
import type { GivenKeys, KeySource } from '../secrets/data_keys.ts';
import { SECRET_COLUMNS, passesCheck, secretPlace } from '../secrets/instance_secrets.ts';
import { readKeyFile } from '../secrets/key_file.ts';
import { type DataKey, dataKeyOf, decrypt, type SecretPlace } from '../secrets/secret_cipher.ts';
import { inspectCopy } from '../sqlite/file/copy.ts';
import { Database as DataFile } from '../sqlite/database.ts';
import { schemaOfFile } from '../sqlite/schema.ts';
import { storedTimestamp } from '../sqlite/timestamp.ts';
import type { AcceptedMessage } from '../contract/messages.ts';
import type { MessagesTable } from '../rows/tables.ts';
import { StoreError } from '../store_error.ts';
import { auditOperations } from './audit.ts';
import { type Connection, ConnectionLost } from './connection/connection.ts';
import { Session } from './database.ts';
import { openDataKeys } from './encryption.ts';
import { timestampText } from './timestamp.ts';
import { openingFailure } from './connection/opening_failure.ts';
import { exclusively, migrate } from './schema.ts';

/** The limits of a batch. Memory holds one batch at a time. */
const ROWS_MAX = 2_000;
const CHARS_MAX = 4 << 20;

/** How long one statement may take on a slow disk. */
const STATEMENT_MS_MAX = 600_000;

type Row = Record<string, string | number | null>;

/** The tables that are moved. They have the same names in both databases. */
const MOVED_TABLES = [
  'meetings',
  'meeting_settings',
  'instances',
  'memberships',
  'messages',
  'deliveries',
  'idempotency_keys',
  'api_keys',
  'invites',
  'audit_log',
] as const;
type MovedTable = (typeof MOVED_TABLES)[number];

interface Move {
  /** The columns by which the rows of the file are read. An index has this order, so nothing is sorted. */
  in_order_of: string;
  /** Makes a row of PostgreSQL from a row of SQLite; absent when the columns are the same. */
  made?: (row: Row) => Row;
}

/** How many rows of each table were moved. */
type ImportCounts = Record<MovedTable, number>;

export interface Imported {
  counts: ImportCounts;
  pending_deliveries: number;
  /** The data key that encrypts the secrets now. */
  key_id: string;
  audit_head: AuditHead;
}

export interface ImportOptions {
  /** The path of a data file of this version. No service may have it open. */
  from: string;
  /** The URL of the database. */
  url: string;
  /** The directory of this node, for the file with the data key. The file is made when there is none. */
  data: string;
  /** The keys to encrypt secrets with, the same on every node; null: the key in `data`. */
  keys: GivenKeys | null;
  onProgress: (progress: { table: string; rows: number }) => void;
  wall_ms: number;
}

/**
 * Moves all rows, compares the database with the file, and commits.
 *
 * @throws StoreError that says what to do; the database is then as empty as before
 */
export async function importDataFile({
  from,
  url,
  data,
  keys: given,
  onProgress,
  wall_ms,
}: ImportOptions): Promise<Imported> {
  const { pending_deliveries } = wholeFile(from);
  const file = new DataFile(from, 'read');
  try {
    const keys_of_file = keysOf(file, from, given);
    const key_source: KeySource =
      given === null ? { kind: 'file', path: join(data, KEY_FILE) } : { kind: 'given', keys: given };
    return await exclusively(url, async (connection) => {
      await migrate(connection);
      return inTransaction(connection, async () => {
        const session = new Session(connection);
        await assertUnused(connection);
        const keys = await openDataKeys(session, key_source, wall_ms);
        const moves = movesOf(file, (encrypted, place) =>
          keys.encrypt(secretOf(keys_of_file, encrypted, place), place),
        );
        const counts = {} as ImportCounts;
        await connection.query('ALTER TABLE instances DISABLE TRIGGER instance_added');
        for (const table of MOVED_TABLES)
          counts[table] = await moveRows(connection, file, table, moves[table], onProgress);
        await connection.query('ALTER TABLE instances ENABLE TRIGGER instance_added');
        await moveRest(connection, file);
        await assertAlike(connection, file);
        const { instances, messages, deliveries } = counts;
        const subject = {
          principal: 'local command',
          address: null,
          action: 'service.import',
          target_kind: 'service',
        } as const;
        const details = { instances, messages, deliveries, pending_deliveries };
        const entry = { ...subject, target_id: null, outcome: 'done', code: null, details } as const;
        const audit_head = await auditOperations(session).append(entry, wall_ms);
        return { counts, pending_deliveries, key_id: keys.current.key_id, audit_head };
      });
    });
  } catch (error) {
    throw openingFailure(error, url);
  } finally {
    file.close();
  }
}

/**
 * Checks the file before anything is moved: its schema, every page and index, the chain of the audit log, and that each
 * pending delivery has its message.
 */
function wholeFile(from: string) {
  const { present, wanted } = schemaOfFile(from);
  if (present < wanted) {
    throw new StoreError(
      'IMPORT_SCHEMA',
      `${from} has schema ${present}, and this Convoke moves schema ${wanted}: bring it up to date first, with \`convoke migrate\` and --data of its directory.`,
    );
  }
  if (present > wanted) {
    throw new StoreError(
      'SCHEMA_NEWER',
      `${from} has schema ${present}, and this Convoke knows up to ${wanted}: import it with the newer version.`,
    );
  }
  return inspectCopy(from);
}

/** The keys under which the secrets of the file may be encrypted: those in the key file beside it, and those given. */
function keysOf(file: DataFile, from: string, given: GivenKeys | null): DataKey[] {
  const beside = readKeyFile(join(dirname(from), KEY_FILE));
  const keys = [
    ...[beside?.current, beside?.previous].filter((key) => key !== undefined && key !== null),
    ...[given?.current, given?.previous].filter((key) => key !== undefined && key !== null).map(dataKeyOf),
  ];
  const checked = file.prepare('SELECT key_id, check_value FROM encryption_keys').all();
  for (const { key_id, check_value } of checked as { key_id: string; check_value: string }[]) {
    if (keys.some((key) => key.key_id === key_id && passesCheck(key, check_value))) continue;
    throw new StoreError(
      'ENCRYPTION_KEY_WRONG',
      `Webhook secrets in ${from} are encrypted under the key ${key_id}: put its ${KEY_FILE} beside it, or give that key as CONVOKE_ENCRYPTION_KEY, or as CONVOKE_ENCRYPTION_KEY_PREVIOUS beside the one that the nodes have.`,
    );
  }
  return keys;
}

/** @throws StoreError IMPORT_SECRET that says what to do about a secret that no key decrypts */
function secretOf(keys: readonly DataKey[], encrypted: string, place: SecretPlace): string {
  try {
    return decrypt(keys, encrypted, place);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    throw new StoreError(
      'IMPORT_SECRET',
      `${error.message}. Start a service on the file, register that instance with a new secret and its headers, or delete it, stop the service, and import again.`,
    );
  }
}

const inDoubt = (): StoreError =>
  new StoreError(
    'IMPORT_IN_DOUBT',
    'The connection to PostgreSQL ended during the commit, so either everything is in the database, or nothing. Import again: if the database is not empty then, everything is there.',
  );

async function inTransaction<T>(connection: Connection, run: () => Promise<T>): Promise<T> {
  await connection.query('BEGIN');
  try {
    // No node joins, and no other import starts, until this transaction ends.
    await connection.query('LOCK TABLE nodes, this_database IN SHARE ROW EXCLUSIVE MODE');
    const result = await run();
    await connection.query('COMMIT', [], STATEMENT_MS_MAX).catch((error: unknown) => {
      throw error instanceof ConnectionLost ? inDoubt() : error;
    });
    return result;
  } catch (error) {
    await connection.query('ROLLBACK').catch(() => connection.destroy());
    throw error;
  }
}

function movesOf(
  file: DataFile,
  reencrypt: (encrypted: string, place: SecretPlace) => string,
): Record<MovedTable, Move> {
  const ids = new IdCodec(file.tag);
  const inPartition = (row: Row): Row => ({ ...row, partition_no: partitionOf(row['instance_id'] as string) });
  return {
    // Meetings refer to no run, so the import makes none: the first message on a node begins a run of that node.
    meetings: { in_order_of: 'meeting_id' },
    meeting_settings: { in_order_of: 'meeting_id' },
    instances: {
      in_order_of: 'instance_id',
      made(row) {
        const made = inPartition(row);
        for (const column of SECRET_COLUMNS) {
          const encrypted = row[column];
          if (typeof encrypted === 'string')
            made[column] = reencrypt(encrypted, secretPlace(column, row['instance_id'] as string));
        }
        return made;
      },
    },
    memberships: { in_order_of: 'meeting_id, instance_id' },
    messages: {
      in_order_of: 'message_no',
      made: (row) => ({ ...row, timestamp: timestampText(storedTimestamp(row as unknown as MessagesTable)) }),
    },
    deliveries: {
      in_order_of: 'delivery_no',
      // All pending deliveries are noted, so the mark can be the last number: see pending_deliveries.ts.
      made: (row) => ({
        ...inPartition(row),
        noted: row['state'] === 'pending' ? 1 : 0,
        failed_at: row['state'] === 'failed' ? row['settled_at']! : null,
      }),
    },
    idempotency_keys: {
      in_order_of: 'id',
      made({ meeting_id, key, fingerprint, result, created_at }) {
        const { message_id, ...stored } = JSON.parse(result as string) as AcceptedMessage;
        const { seq, accepted_at, deliveries_queued } = stored;
        const answer = { message_no: ids.decode('msg', message_id), seq, accepted_at, deliveries_queued };
        const [sender, ...rest] = (key as string).split('\n');
        return {
          meeting_id,
          key,
          fingerprint,
          ...answer,
          created_at,
          sender: rest.length === 0 ? null : sender,
        } as Row;
      },
    },
    api_keys: { in_order_of: 'key_id' },
    invites: { in_order_of: 'invite_id' },
    audit_log: { in_order_of: 'seq' },
  };
}

/** Refuses a database that has been used. */
async function assertUnused(connection: Connection): Promise<void> {
  const { rows: nodes } = await connection.query(
    'SELECT node_id FROM nodes WHERE lease_until > floor(extract(epoch FROM clock_timestamp()) * 1000)',
  );
  if (nodes.length > 0) {
    throw new StoreError(
      'IMPORT_IN_USE',
      'Nodes are at work on this database: import into one of its own, before the first of them starts.',
    );
  }
  for (const table of MOVED_TABLES) {
    const { rows } = await connection.query(`SELECT 1 FROM ${table} LIMIT 1`);
    if (rows.length === 0) continue;
    throw new StoreError(
      'IMPORT_NOT_EMPTY',
      `The database is not empty: there are rows in ${table}. An import mixes nothing: give an empty database.`,
    );
  }
}

async function moveRows(
  connection: Connection,
  file: DataFile,
  table: MovedTable,
  { in_order_of, made = (row) => row }: Move,
  onProgress: ImportOptions['onProgress'],
): Promise<number> {
  const columns = await columnsOf(connection, table);
  const names = columns.map(({ name }) => name);
  const arrays = columns.map(({ type }, i) => `$${i + 1}::${type}[]`);
  const insert = `INSERT INTO ${table} (${names.join(', ')}) SELECT * FROM unnest(${arrays.join(', ')})`;
  let moved = 0;
  let batch: Row[] = [];
  let chars = 0;
  const flush = async (): Promise<void> => {
    // Otherwise a column that only one of the databases has would be lost, and nobody would notice.
    assert.deepEqual(Object.keys(batch[0]!).toSorted(), names.toSorted(), `the columns of ${table}`);
    const values = names.map((name) => batch.map((row) => row[name]));
    moved += (await connection.query(insert, values, STATEMENT_MS_MAX)).changes;
    onProgress({ table, rows: moved });
    batch = [];
    chars = 0;
  };
  for (const read of file.prepare(`SELECT * FROM ${table} ORDER BY ${in_order_of}`).iterate() as Iterable<Row>) {
    const row = made(read);
    batch.push(row);
    for (const value of Object.values(row)) if (typeof value === 'string') chars += value.length;
    if (batch.length >= ROWS_MAX || chars >= CHARS_MAX) await flush();
  }
  if (batch.length > 0) await flush();
  return moved;
}

async function columnsOf(connection: Connection, table: MovedTable): Promise<{ name: string; type: string }[]> {
  const { rows } = await connection.query<{ name: string; type: string }>(
    'SELECT attname AS name, format_type(atttypid, NULL) AS type FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped',
    [table],
  );
  return rows;
}

/**
 * Moves the values that are not in MOVED_TABLES: the tag in every id, the time at which the service last ran, the
 * numbers that are taken, the counts, and the head of the audit log.
 */
async function moveRest(connection: Connection, file: DataFile): Promise<void> {
  // A node that starts on the database long afterwards compares its clock with this time: see delivery/expiry.ts.
  const noted = file.prepare('SELECT ran_until, held_ms, held_since, held_up_to FROM this_file').get() as object;
  await connection.query(
    'UPDATE this_database SET tag = $1, ran_until = $2, held_ms = $3, held_since = $4, held_up_to = $5',
    [file.tag, ...Object.values(noted)],
  );
  await connection.query("SELECT setval('numbers', greatest($1::int8, 1))", [file.last_number]);
  await connection.query('UPDATE sweeps SET swept_to = (SELECT last_value FROM numbers)');
  await connection.query('UPDATE instance_count SET instance_count = (SELECT count(*) FROM instances)');
  await connection.query(
    'INSERT INTO audit_head (seq, hash) SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1 ON CONFLICT (only_row) DO UPDATE SET seq = excluded.seq, hash = excluded.hash',
  );
  // Without this, the planner would make plans for empty tables until autovacuum has run.
  await connection.query(`ANALYZE ${MOVED_TABLES.join(', ')}`, [], STATEMENT_MS_MAX);
}

/** Figures that differ when a row was lost, doubled or cut, each as SQL that both engines run. */
const FIGURES: Record<string, string> = {
  instances: 'SELECT count(*) AS n FROM instances',
  memberships: 'SELECT count(*) AS n FROM memberships',
  meetings: 'SELECT count(*) AS n FROM meetings',
  'the last seq of all meetings': 'SELECT sum(last_seq) AS n FROM meetings',
  'settings of meetings': 'SELECT count(*) AS n FROM meeting_settings',
  messages: 'SELECT count(*) AS n FROM messages',
  'the length of all messages': 'SELECT sum(length(message)) AS n FROM messages',
  deliveries: 'SELECT count(*) AS n FROM deliveries',
  'pending deliveries': "SELECT count(*) AS n FROM deliveries WHERE state = 'pending'",
  attempts: 'SELECT sum(attempt_count) AS n FROM deliveries',
  'idempotency keys': 'SELECT count(*) AS n FROM idempotency_keys',
  'API keys': 'SELECT count(*) AS n FROM api_keys',
};

async function assertAlike(connection: Connection, file: DataFile): Promise<void> {
  for (const [what, sql] of Object.entries(FIGURES)) {
    const here = Number(file.prepare(sql).get()?.['n'] ?? 0);
    const { rows } = await connection.query<{ n: number | null }>(sql, [], STATEMENT_MS_MAX);
    const there = rows[0]?.n ?? 0;
    if (here === there) continue;
    throw new StoreError(
      'IMPORT_DIFFERS',
      `Nothing was imported: of ${what} there are ${here} in the file, and ${there} arrived. This is a defect of Convoke.`,
    );
  }
}
