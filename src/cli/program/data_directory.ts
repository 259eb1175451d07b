import { statfsSync } from 'node:fs';
import { access, mkdir, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { DATABASE_FILE, KEY_FILE } from '../../domain/data_directory.ts';
import { isSystemError } from './system_error.ts';

/** The absolute path of the data file. */
export function dataFile(directory: string): string {
  return resolve(directory, DATABASE_FILE);
}

/** The path of the file that holds the data key, unless a setting gives the key. */
export function keyFile(directory: string): string {
  return resolve(directory, KEY_FILE);
}

/**
 * Makes a directory and the missing directories above it, one by one. The option `recursive` would do the same, but
 * with it Node 24 never returns when the system refuses with ENOENT, as under /proc.
 *
 * @throws the system's error, with its code
 */
export async function makeDirectory(directory: string): Promise<void> {
  const wanted = resolve(directory);
  const existing = await nearestThatExists(wanted);
  const missing: string[] = [];
  for (let at = wanted; at !== existing; at = dirname(at)) missing.unshift(at);
  for (const path of missing) {
    // Only this user may read the files in the directory. Another process may have made the directory meanwhile.
    await mkdir(path, { mode: 0o700 }).catch((error: unknown) => {
      if (!isSystemError(error) || error.code !== 'EEXIST') throw error;
    });
  }
  // Throws ENOTDIR when a file has this path.
  await stat(`${wanted}/`);
}

/** The directory itself, or the nearest existing one above it. */
export async function nearestThatExists(directory: string): Promise<string> {
  for (let at = directory; ; at = dirname(at)) {
    const exists = await access(at).then(
      () => true,
      () => false,
    );
    if (exists || dirname(at) === at) return at;
  }
}

/** A disk with less free space counts as full. A start writes less. */
const FREE_BYTES_MIN = 1 << 20;

/** Whether an error of the storage says that the disk is full. On a full disk SQLite may say only that I/O failed. */
export function isDiskFull(code: string, directory: string): boolean {
  if (code === 'ENOSPC' || code === 'SQLITE_FULL') return true;
  if (code !== 'SQLITE_IOERR') return false;
  const { bavail, bsize } = statfsSync(directory);
  return bavail * bsize < FREE_BYTES_MIN;
}
