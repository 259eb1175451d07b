/**
 * A schema that became older while nodes work, because somebody restored a backup of an earlier version. A node that
 * meets a missing table, column or function does what a node does at its start: it brings the schema up to date, under
 * the lock that only one node at a time can hold. A step of the schema may always run while nodes work.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { StoreError } from '../store_error.ts';
import { isOfOtherSchema } from './connection/connection.ts';
import { exclusively, migrate, versionOf } from './schema.ts';

/** How long a call waits for the steps of the schema. They may wait for a table that somebody uses. */
const UPDATE_MS_MAX = 5_000;

const underWay = (): StoreError =>
  new StoreError(
    'SCHEMA_OLDER',
    'The database was restored to an older schema. A node brings it up to date now, and may wait for somebody who uses a table, such as pg_dump: try again.',
  );

const noSchema = (): StoreError =>
  new StoreError(
    'SCHEMA_MISSING',
    'The tables of Convoke are missing in the database: restore a backup, or, if a restore is running, wait for its end. Convoke makes no new tables while it runs.',
  );

export class RestoredSchema {
  readonly #url: string;
  readonly #onRestored: () => void;
  #updating: Promise<{ from: number; to: number }> | null = null;

  /** @param onRestored is called when the database was found to be older, and its schema is up to date again */
  constructor(url: string, onRestored: () => void) {
    this.#url = url;
    this.#onRestored = onRestored;
  }

  /**
   * Runs a call. When a part of the schema is missing, brings the schema up to date.
   *
   * @param run is safe to run again when the database refused one of its statements
   * @throws StoreError SCHEMA_OLDER when this node has brought the schema up to date: the next try succeeds; also
   * SCHEMA_OLDER when this takes longer than a call waits; SCHEMA_MISSING when there is no schema; the errors of `migrate`
   */
  async watch<T>(run: () => Promise<T>): Promise<T> {
    try {
      return await run();
    } catch (error) {
      if (!isOfOtherSchema(error)) throw error;
      this.#updating ??= this.#update().finally(() => (this.#updating = null));
      const { from, to } = await withinTime(this.#updating);
      if (from < to) {
        throw new StoreError(
          'SCHEMA_OLDER',
          `The database was restored to the older schema ${from}. This node has brought it up to schema ${to}, and reads everything again: try again.`,
        );
      }
      // Another node has brought the schema up to date, or the statement is wrong. Then it fails again.
      const value = await run();
      this.#onRestored();
      return value;
    }
  }

  async #update(): Promise<{ from: number; to: number }> {
    const steps = await exclusively(this.#url, async (connection) => {
      const { rows } = await connection.query<{ exists: boolean }>(
        "SELECT to_regclass('schema_version') IS NOT NULL AS exists",
      );
      // A start would make a new database here, with another tag in its ids.
      if (!rows[0]!.exists || (await versionOf(connection)).version === 0) throw noSchema();
      return migrate(connection);
    });
    if (steps.from < steps.to) this.#onRestored();
    return steps;
  }
}

/** @throws StoreError SCHEMA_OLDER when the steps take longer than a call waits; then they go on */
async function withinTime<T>(steps: Promise<T>): Promise<T> {
  const over = new AbortController();
  const late = pause(UPDATE_MS_MAX, undefined, { signal: over.signal }).then(() => {
    throw underWay();
  });
  try {
    return await Promise.race([steps, late]);
  } finally {
    over.abort();
    // Nobody waits for the other promise any more.
    for (const promise of [steps, late]) promise.catch(() => {});
  }
}
