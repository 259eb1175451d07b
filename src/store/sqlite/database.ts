import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { type Compilable, DummyDriver, Kysely, SqliteAdapter, SqliteIntrospector, SqliteQueryCompiler } from 'kysely';
import { makeTag } from '../../domain/id.ts';
import type { BackupProgress } from '../contract/backups.ts';
import { StoreError } from '../store_error.ts';
import { copyDatabase } from './file/copy.ts';
import { isBusy, storeErrorOf } from './errors.ts';
import { MIGRATIONS } from './migrations.ts';
import type { Tables } from '../rows/tables.ts';
import { Statement } from './statement.ts';

/** With a WAL file, older versions of SQLite can lose a commit when a reader makes a checkpoint at the wrong moment. */
const SQLITE_VERSION_MIN = [3, 51, 3] as const;

/** SQLite cuts the WAL file to this size when it begins to overwrite the file. */
const WAL_BYTES_MAX = 32 << 20;

/** How long a start waits for a process that is stopping and still holds the file. */
const LOCK_WAIT_MS = 2_000;

/**
 * Every message and every delivery has a number, and its id contains the number. The numbers grow with the time, and
 * reach this number in 2058 (src/domain/id.ts). So a row with a higher number is damaged. `last_number` ignores such a
 * row: otherwise all new numbers would be higher than the damaged number.
 */
const NUMBER_MAX = 2 ** 52;
const DELIVERIES_OF_MESSAGE_MAX = 2 ** 24;

const TERM_BYTES = 6;

/** One open file. All access is synchronous; the owner decides in which thread. */
export class Database {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, Statement>();
  /**
   * A number that is different each time the file is opened. The store notes it with each machine that pulls, and the
   * note counts only while the number is the same.
   */
  readonly term = randomBytes(TERM_BYTES).readUIntBE(0, TERM_BYTES);
  #copies = 0;
  #is_checkpoint_due = false;
  /** Makes the queries whose shape depends on filters, and knows their types. It never runs a query. */
  readonly build: Kysely<Tables> = new Kysely<Tables>({
    dialect: {
      createAdapter: () => new SqliteAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (db) => new SqliteIntrospector(db),
      createQueryCompiler: () => new SqliteQueryCompiler(),
    },
  });

  /**
   * Opens or creates the file and brings its schema up to date.
   *
   * @param use `read` locks the file too, and changes nothing in it: the file may be a backup
   * @throws StoreError when another process holds the file, or when it was written by a newer Convoke
   */
  constructor(file: string, use: 'serve' | 'read' = 'serve') {
    assertVersion();
    try {
      if (use === 'serve' && file !== ':memory:') createFile(file);
      this.#db = new DatabaseSync(file, { timeout: LOCK_WAIT_MS });
    } catch (error) {
      throw storeErrorOf(error);
    }
    try {
      if (use === 'read') {
        this.#db.exec('PRAGMA locking_mode = EXCLUSIVE');
        // Takes the lock now. Nothing is written, so not even the header changes.
        this.#db.exec('BEGIN IMMEDIATE');
        this.#db.exec('COMMIT');
        return;
      }
      // This setting takes effect only before the file has any page. An older file gets it with its next VACUUM
      // (src/store/sqlite/file/compact.ts).
      this.#db.exec('PRAGMA auto_vacuum = INCREMENTAL');
      // Exclusive: a second process fails at once, and cannot write at the same time. SQLite then needs no shared
      // memory.
      this.#db.exec('PRAGMA locking_mode = EXCLUSIVE');
      this.#db.exec('PRAGMA journal_mode = WAL');
      // FULL: a commit is on disk when it returns; NORMAL could lose accepted messages in a power cut.
      this.#db.exec('PRAGMA synchronous = FULL');
      this.#db.exec('PRAGMA cache_size = -16384');
      this.#db.exec('PRAGMA wal_autocheckpoint = 4000');
      // Twice the amount that is written between two checkpoints. Only a large transaction makes the log longer.
      // Afterwards SQLite cuts the log to this length.
      this.#db.exec(`PRAGMA journal_size_limit = ${WAL_BYTES_MAX}`);
      this.#migrate();
      // Without this setting, SQLite may make a temporary file in the middle of a commit. Then the commit fails when no
      // descriptor is left. Or the file takes the descriptor that libuv keeps for refusing connections, and new
      // connections hang. The migrations run before this setting, because they may sort more than fits into memory.
      this.#db.exec('PRAGMA temp_store = MEMORY');
    } catch (error) {
      // Frees the file for the next start.
      this.#db.close();
      if (isBusy(error)) {
        throw new StoreError(
          'SQLITE_BUSY',
          `${file} is in use by another process: stop that one, or give this one its own directory with --data.`,
        );
      }
      throw storeErrorOf(error);
    }
  }

  #migrate(): void {
    this.#db.exec('BEGIN IMMEDIATE');
    const { user_version } = this.#db.prepare('PRAGMA user_version').get() as { user_version: number };
    if (user_version > MIGRATIONS.length) {
      throw new StoreError(
        'SCHEMA_NEWER',
        `The data file has schema ${user_version}, this Convoke knows up to ${MIGRATIONS.length}: start the newer version.`,
      );
    }
    for (const step of MIGRATIONS.slice(user_version)) this.#db.exec(step);
    this.#db.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
    const random = (): number => randomBytes(4).readUInt32BE() / 2 ** 32;
    this.#db
      .prepare('INSERT INTO this_file (tag) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM this_file)')
      .run(makeTag(random));
    this.#db.exec('COMMIT');
  }

  /** The tag in every id that this file makes. */
  get tag(): string {
    return (this.prepare('SELECT tag FROM this_file').get() as { tag: string }).tag;
  }

  /** The highest number that a message, a delivery or the beginning of an instance (`first_no`) has taken. */
  get last_number(): number {
    const { last } = this.prepare(
      `SELECT max((SELECT coalesce(max(message_no + max(0, min(deliveries_queued, ${DELIVERIES_OF_MESSAGE_MAX}))), 0) FROM messages
           WHERE message_no = (SELECT max(message_no) FROM messages WHERE message_no <= ${NUMBER_MAX})),
         (SELECT coalesce(max(delivery_no), 0) FROM deliveries WHERE delivery_no <= ${NUMBER_MAX}),
         (SELECT coalesce(max(first_no), 0) FROM instances WHERE first_no <= ${NUMBER_MAX})) AS last`,
    ).get() as { last: number };
    return last;
  }

  /** Prepares a statement once. Use it for text that is the same in every call. */
  prepare(sql: string): Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = new Statement(this.#db.prepare(sql), sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  /** Runs a query made with `build`. */
  all<Row>(query: Compilable<Row>): Row[] {
    const { sql, parameters } = query.compile();
    return this.prepare(sql).all(...(parameters as SQLInputValue[])) as Row[];
  }

  /** Runs a query made with `build`, and returns its rows one by one, for callers that may not need all of them. */
  each<Row>(query: Compilable<Row>): Iterable<Row> {
    const { sql, parameters } = query.compile();
    return this.prepare(sql).iterate(...(parameters as SQLInputValue[])) as Iterable<Row>;
  }

  exec(sql: string): void {
    this.#db.exec(sql);
  }

  get inTransaction(): boolean {
    return this.#db.isTransaction;
  }

  /** Call it within a transaction: a checkpoint follows the commit. */
  checkpointAfterCommit(): void {
    this.#is_checkpoint_due = true;
  }

  commit(): void {
    this.prepare('COMMIT').run();
    if (!this.#is_checkpoint_due) return;
    this.#is_checkpoint_due = false;
    try {
      this.#db.exec('PRAGMA wal_checkpoint(PASSIVE)');
    } catch {
      // The commit itself succeeded, and the next checkpoint happens anyway.
    }
  }

  get is_copied(): boolean {
    return this.#copies > 0;
  }

  /** See `copyDatabase`. */
  async copyTo(path: string, onProgress: (progress: BackupProgress) => void): Promise<void> {
    this.#copies++;
    try {
      await copyDatabase(this.#db, path, onProgress);
    } finally {
      this.#copies--;
    }
  }

  close(): void {
    this.#statements.clear();
    this.#db.close();
  }
}

function assertVersion(): void {
  const version = process.versions.sqlite ?? '0';
  const parts = version.split('.').map(Number);
  for (const [i, minimum] of SQLITE_VERSION_MIN.entries()) {
    const part = parts[i] ?? 0;
    if (part > minimum) return;
    if (part < minimum) {
      throw new StoreError(
        'SQLITE_TOO_OLD',
        `This Node carries SQLite ${version}; Convoke needs ${SQLITE_VERSION_MIN.join('.')} or later: use Node 24.15 or later.`,
      );
    }
  }
}

/**
 * The file holds secrets of instances. So no other user of the host may read the file, or the files that SQLite puts
 * beside it.
 */
function createFile(file: string): void {
  if (existsSync(file)) return;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, 'a', 0o600));
}
