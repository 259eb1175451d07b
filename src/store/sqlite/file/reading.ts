import { existsSync, realpathSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { assertNoFormerLog } from './former_log.ts';

/**
 * Looks at a data file, and leaves nothing beside it.
 *
 * While a process has the file open, SQLite refuses with SQLITE_BUSY. When such a process was killed, a part of the
 * data is in the log beside the file, and SQLite reads both. Without a log no process has the file open. Then SQLite
 * would make an empty log, and could not remove it, because it may only read. `immutable` keeps SQLite from making a
 * log.
 */
export function lookAt<T>(file: string, look: (db: DatabaseSync) => T): T {
  // SQLite puts the log beside the file itself, and not beside a link to it.
  const path = realpathSync(file);
  assertNoFormerLog(path);
  const url = pathToFileURL(path);
  const has_log = existsSync(`${path}-wal`);
  if (!has_log) url.searchParams.set('immutable', '1');
  // To read a log, SQLite makes the file with the index of the log, and may not remove this file either. No other
  // process needs it: a process that writes locks the data file, and keeps the index in its memory.
  const leaves_index = has_log && !existsSync(`${path}-shm`);
  const db = new DatabaseSync(url, { readOnly: true });
  try {
    return look(db);
  } finally {
    db.close();
    if (leaves_index) rmSync(`${path}-shm`, { force: true });
  }
}
