import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { StoreError } from '../../store_error.ts';

/** Where the header says how the file is written (https://sqlite.org/fileformat.html, section 1.3.3). */
const WRITE_VERSION_AT = 18;
/** The file is written without a log beside it. */
const WITHOUT_LOG = 1;

/**
 * Refuses a data file beside the log of a former one: somebody has put a backup in the place of a file whose service
 * was killed. SQLite would write that log into the backup. The header of a backup says that it has no log.
 *
 * Call this function before this process opens the file: it closes a descriptor of the file, and that would end a lock
 * of this process on the file (see backups.ts).
 *
 * @throws StoreError LOG_OF_FORMER_FILE
 */
export function assertNoFormerLog(file: string): void {
  const log = `${file}-wal`;
  const { size } = statSync(log, { throwIfNoEntry: false }) ?? { size: 0 };
  if (size === 0 || writeVersionOf(file) !== WITHOUT_LOG) return;
  throw new StoreError(
    'LOG_OF_FORMER_FILE',
    `${log} belongs to the file that ${file} has replaced, and would be written into it: remove ${log}, and with it the last changes of the former file, or restore into an empty directory.`,
  );
}

/** Undefined for a file that is missing, empty, or not readable for this user: the later opening reports that. */
function writeVersionOf(path: string): number | undefined {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch {
    return undefined;
  }
  try {
    const byte = Buffer.alloc(1);
    return readSync(file, byte, 0, 1, WRITE_VERSION_AT) === 0 ? undefined : byte[0];
  } finally {
    closeSync(file);
  }
}
