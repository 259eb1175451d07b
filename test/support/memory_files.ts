/** The files of tests in memory, where this machine has room for them. */
import { mkdirSync, readdirSync, rmSync, statfsSync } from 'node:fs';

/** Linux keeps the files of this directory in memory. */
const IN_MEMORY = '/dev/shm';
/** A whole run of `npm test` has at most 0.6 GiB of files at a time. */
const ROOM_BYTES_MIN = 2 * 2 ** 30;
const FREE_BYTES_MIN = 8 * 2 ** 30;
/** The name has the id of the process that runs the tests. */
const NAME = /^convoke-tests-(\d+)$/;

/**
 * Makes the processes that start from now on keep their temporary files in memory, until this process ends. Tests commit
 * thousands of transactions, and on a disk each commit waits for it. A TMPDIR that is given stays as it is.
 */
export function keepFilesInMemory(): void {
  if (process.env['TMPDIR'] !== undefined || !hasRoom()) return;
  removeLeftOver();
  const directory = `${IN_MEMORY}/convoke-tests-${process.pid}`;
  // PostgreSQL reads here as another user when root starts the tests.
  mkdirSync(directory, { mode: 0o755 });
  process.env['TMPDIR'] = directory;
  process.once('exit', () => rmSync(directory, { recursive: true, force: true }));
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(IN_MEMORY);
    return bavail * bsize >= ROOM_BYTES_MIN && process.availableMemory() >= FREE_BYTES_MIN;
  } catch {
    return false;
  }
}

/** Removes the files of runs that were killed: they would take memory until the machine restarts. */
function removeLeftOver(): void {
  for (const name of readdirSync(IN_MEMORY)) {
    const pid = NAME.exec(name)?.[1];
    if (pid !== undefined && !isRunning(Number(pid))) rmSync(`${IN_MEMORY}/${name}`, { recursive: true, force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
