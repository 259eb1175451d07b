/** Brings a database to the schema of this version, and refuses a server that cannot keep our guarantees. */
import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { makeTag } from '../../domain/id.ts';
import type { SchemaState, WaitedNode } from '../contract/schema_state.ts';
import { StoreError } from '../store_error.ts';
import { Connection, isCollision, isLockTimeout } from './connection/connection.ts';
import { LOCK_TIMEOUT_MS, MIGRATION } from './locks.ts';
import { openingFailure } from './connection/opening_failure.ts';
import { MIGRATIONS, NOTED_STEPS, STEPS_KNOWN_MIN } from './migrations.ts';
import { OLD_INDEX } from './pending/pending_deliveries.ts';
import { OLD_NODES } from './pending/upgrade.ts';

const VERSION_MIN = 140_000;

/** How long the steps are tried while others use the tables. */
const PATIENCE_MS = 30_000;
/** The first pause between two tries; each further pause is twice as long. In the pauses the other nodes work on. */
const PAUSE_MS = 1_000;
const PAUSE_MS_MAX = 8_000;

const END_OF_UPGRADE = `
  SELECT (extract(epoch FROM upgrade_ends_at) * 1000)::bigint AS ends_at FROM this_database
  WHERE to_regclass('${OLD_INDEX}') IS NOT NULL`;

const NO_STEPS = { version: 0, steps_known_min: 0 };

const inUse = (patience_ms: number): StoreError =>
  new StoreError(
    'POSTGRES_TABLE_IN_USE',
    `The schema cannot be brought up to date, because somebody has used a table for more than ${patience_ms / 1000} s, such as pg_dump, a VACUUM by hand, or a session that is idle in a transaction. Nothing was changed: start again when that has ended.`,
  );

/** A random number from 0 to 1. */
const random = (): number => randomBytes(4).readUInt32BE() / 2 ** 32;

/**
 * Runs a function under a lock that only one node at a time can hold. Even the first look at the schema needs the lock.
 */
export async function exclusively<T>(url: string, run: (connection: Connection) => Promise<T>): Promise<T> {
  // A step may take long, and other nodes wait for it.
  const connection = await Connection.open(
    url,
    'SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;',
  );
  try {
    await connection.script(`SELECT pg_advisory_lock(${MIGRATION})`);
    return await run(connection);
  } finally {
    await connection.close().catch(() => {});
  }
}

/**
 * Takes the steps that are missing, all of them or none. When the schema has more steps than this version knows, the
 * schema stays as it is. This version works on such a schema if STEPS_KNOWN_MIN of the schema allows it.
 *
 * While others use the tables, the steps are tried again, with growing pauses.
 *
 * @param patience_ms for how long they are tried
 * @returns the versions before and after
 * @throws StoreError when the server may lose confirmed commits, when it is too old, when the schema is too new, or when
 * others used the tables for too long
 */
export async function migrate(
  connection: Connection,
  patience_ms = PATIENCE_MS,
): Promise<{ from: number; to: number }> {
  await assertServer(connection);
  const until_ms = performance.now() + patience_ms;
  for (let pause_ms = PAUSE_MS; ; pause_ms = Math.min(2 * pause_ms, PAUSE_MS_MAX)) {
    try {
      return await takeSteps(connection);
    } catch (error) {
      await connection.query('ROLLBACK').catch(() => connection.destroy());
      if (!isCollision(error) && !isLockTimeout(error)) throw error;
      if (performance.now() + pause_ms > until_ms) throw inUse(patience_ms);
      await pause(pause_ms * (1 + random() / 2));
    }
  }
}

async function takeSteps(connection: Connection): Promise<{ from: number; to: number }> {
  const to = MIGRATIONS.length;
  await connection.query('BEGIN');
  await connection.query(
    'CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL, steps_known_min integer NOT NULL)',
  );
  const { version: from, steps_known_min } = await versionOf(connection);
  if (from > to) {
    if (to < steps_known_min) {
      throw new StoreError(
        'SCHEMA_NEWER',
        `The database has schema ${from}, for nodes that know at least schema ${steps_known_min}; this Convoke knows up to ${to}: start the newer version.`,
      );
    }
    await connection.query('ROLLBACK');
    return { from, to: from };
  }
  if (from === 0) await connection.query('INSERT INTO schema_version (version, steps_known_min) VALUES (0, 0)');
  // A step that locks a table waits for every session that uses this table, and all other sessions wait behind the
  // step. So the step gives up after a short time.
  await connection.query(`SET LOCAL lock_timeout = '${LOCK_TIMEOUT_MS}ms'`);
  for (const step of MIGRATIONS.slice(from)) await connection.script(step);
  if (from < to) {
    // The end of an upgrade may have raised steps_known_min already: see pending/upgrade.ts.
    await connection.query(
      'UPDATE schema_version SET version = $1, steps_known_min = greatest(steps_known_min, $2::integer)',
      [to, STEPS_KNOWN_MIN],
    );
  }
  await connection.query('INSERT INTO this_database (tag) VALUES ($1) ON CONFLICT DO NOTHING', [makeTag(random)]);
  await connection.query('COMMIT');
  return { from, to };
}

/** Brings a database to the schema of this version, as `migrate` does. Does nothing else. */
export async function migrateDatabase(url: string, patience_ms?: number): Promise<{ from: number; to: number }> {
  try {
    return await exclusively(url, (connection) => migrate(connection, patience_ms));
  } catch (error) {
    throw openingFailure(error, url);
  }
}

/**
 * The schema of a database, and when nodes end its upgrade (pending/upgrade.ts). Changes nothing.
 *
 * @throws StoreError when the database cannot be reached, or nodes cannot use it
 */
export async function schemaOfDatabase(url: string): Promise<SchemaState> {
  const connection = await Connection.open(url).catch((error: unknown) => {
    throw openingFailure(error, url);
  });
  try {
    await assertServer(connection);
    const { rows } = await connection.query<{ exists: boolean }>(
      "SELECT to_regclass('schema_version') IS NOT NULL AS exists",
    );
    const { version: present, steps_known_min } = rows[0]!.exists ? await versionOf(connection) : NO_STEPS;
    const wanted = MIGRATIONS.length;
    const ends_at = present >= NOTED_STEPS ? await endOfUpgrade(connection) : null;
    return {
      present,
      wanted,
      may_start: wanted >= steps_known_min,
      ...(ends_at !== null && { upgrade_ends_at: ends_at }),
      upgrade_waits_for: ends_at === null ? [] : (await connection.query<WaitedNode>(OLD_NODES)).rows,
    };
  } finally {
    await connection.close().catch(() => {});
  }
}

/** The steps that a database has taken; 0 when it has taken none. Its table `schema_version` must exist. */
export async function versionOf(connection: Connection): Promise<{ version: number; steps_known_min: number }> {
  const { rows } = await connection.query<{ version: number; steps_known_min: number }>(
    'SELECT version, steps_known_min FROM schema_version',
  );
  return rows[0] ?? NO_STEPS;
}

async function endOfUpgrade(connection: Connection): Promise<number | null> {
  const { rows } = await connection.query<{ ends_at: string | null }>(END_OF_UPGRADE);
  const ends_at = rows[0]?.ends_at ?? null;
  return ends_at === null ? null : Number(ends_at);
}

/** The tag in every id that this database makes. */
export async function tagOf(connection: Connection): Promise<string> {
  const { rows } = await connection.query<{ tag: string }>('SELECT tag FROM this_database');
  return rows[0]!.tag;
}

async function assertServer(connection: Connection): Promise<void> {
  const { rows } = await connection.query<{
    version: string;
    shown: string;
    fsync: string;
    encoding: string;
    recovers: boolean;
  }>(
    `SELECT current_setting('server_version_num') AS version, current_setting('server_version') AS shown, current_setting('fsync') AS fsync,
       current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS recovers`,
  );
  const { version, shown, fsync, encoding, recovers } = rows[0]!;
  if (Number(version) < VERSION_MIN) {
    throw new StoreError('POSTGRES_TOO_OLD', `This is PostgreSQL ${shown}; Convoke needs 14 or later.`);
  }
  if (fsync !== 'on') {
    throw new StoreError(
      'POSTGRES_FSYNC_OFF',
      'PostgreSQL runs with fsync=off: it would lose messages that were accepted when the power fails. Set fsync=on and start it again.',
    );
  }
  if (encoding !== 'UTF8') {
    throw new StoreError(
      'POSTGRES_ENCODING',
      `The database is encoded as ${encoding}, which does not hold every text: make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.`,
    );
  }
  if (recovers) {
    throw new StoreError(
      'POSTGRES_STANDBY',
      'This PostgreSQL is a standby, which only reads: give the address of the primary.',
    );
  }
}
