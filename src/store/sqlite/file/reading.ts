import { existsSync, realpathSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';

/**
 * Looks at a data file, and leaves nothing beside it. While a process has the file open, and after that process was
 * killed, a part of the data is in the log beside the file: then SQLite reads both, and refuses with SQLITE_BUSY. Without
 * a log nobody has the file open. SQLite would make an empty log all the same, and would not remove it, because it may
 * only read.
 */
export function lookAt<T>(file: string, look: (db: DatabaseSync) => T): T {
  // SQLite puts the log beside the file itself, and not beside a link to it.
  const path = realpathSync(file);
  const url = pathToFileURL(path);
  const has_log = existsSync(`${path}-wal`);
  if (!has_log) url.searchParams.set('immutable', '1');
  // SQLite makes the index of the log for readers, and may not remove it either. A process that writes locks the file
  // and keeps the index in its memory.
  const leaves_index = has_log && !existsSync(`${path}-shm`);
  const db = new DatabaseSync(url, { readOnly: true });
  try {
    return look(db);
  } finally {
    db.close();
    if (leaves_index) rmSync(`${path}-shm`, { force: true });
  }
}
