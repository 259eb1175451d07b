import { existsSync, realpathSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';

/**
 * Opens a data file to look at it, and leaves nothing beside it. While a process has the file open, and after that
 * process was killed, a part of the data is in the log beside the file: then SQLite reads both, and refuses with
 * SQLITE_BUSY. Without a log nobody has the file open. SQLite would make an empty log all the same, and would not
 * remove it, because it may only read.
 */
export function openForReading(file: string): DatabaseSync {
  // SQLite puts the log beside the file itself, and not beside a link to it.
  const path = realpathSync(file);
  const url = pathToFileURL(path);
  if (!existsSync(`${path}-wal`)) url.searchParams.set('immutable', '1');
  return new DatabaseSync(url, { readOnly: true });
}
