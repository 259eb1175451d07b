/** Rewrites a data file without its free pages. No service may have the file open. */
import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { StoreError } from '../../store_error.ts';
import { storeErrorOf } from '../errors.ts';
import { assertNoFormerLog } from './former_log.ts';

/** The space that must stay free on the disk beside the file. */
const FREE_BYTES_MIN = 64 << 20;

/** The used pages are written twice: into a temporary file, and into the WAL file. */
const TIMES = 2;

/**
 * Rewrites the file in its place. The file is whole at every moment, even after a crash. Afterwards the file can give
 * free pages back while it is in use.
 *
 * @throws StoreError SQLITE_BUSY when a service has the file open, NO_ROOM when the disk has too little space. Then
 * nothing is changed
 */
export function compactDataFile(file: string): { bytes_before: number; bytes: number } {
  try {
    assertNoFormerLog(file);
    const bytes_before = statSync(file).size;
    const db = new DatabaseSync(file);
    try {
      // Locks the file as the service does: a service that starts meanwhile is refused.
      db.exec('PRAGMA locking_mode = EXCLUSIVE');
      db.exec('BEGIN IMMEDIATE');
      const number = (pragma: string): number => Number(Object.values(db.prepare(`PRAGMA ${pragma}`).get()!)[0]);
      const schema = number('user_version');
      const used_bytes = (number('page_count') - number('freelist_count')) * number('page_size');
      db.exec('COMMIT');
      if (schema === 0) throw new StoreError('SQLITE_NOTADB', `${file} is not a data file of Convoke`);
      assertRoom(file, used_bytes);
      db.exec('PRAGMA auto_vacuum = INCREMENTAL');
      db.exec('VACUUM');
      db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } finally {
      db.close();
    }
    return { bytes_before, bytes: statSync(file).size };
  } catch (error) {
    throw storeErrorOf(error);
  }
}

function assertRoom(file: string, used_bytes: number): void {
  const { bavail, bsize } = statfsSync(dirname(file));
  const needed_bytes = TIMES * used_bytes + FREE_BYTES_MIN;
  if (bavail * bsize >= needed_bytes) return;
  throw new StoreError(
    'NO_ROOM',
    `rewriting ${file} takes ${Math.ceil(needed_bytes / 2 ** 20)} MiB of free space in its directory for a moment, and there are ${Math.floor((bavail * bsize) / 2 ** 20)}`,
  );
}
