/**
 * The file that holds the data key: one line of base64, and a second with the previous key while the key is changed.
 */
import type { KeyObject } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, resolve } from 'node:path';
import { parseDataKey } from '../../domain/data_key.ts';
import { type DataKey, dataKeyOf } from './secret_cipher.ts';
import { StoreError } from '../store_error.ts';

/** The mode bits of group and others. None of them may be set. */
const OTHERS_MODE = 0o077;
const LINES_MAX = 2;

export interface FileKeys {
  current: DataKey;
  previous: DataKey | null;
}

/**
 * Reads the keys; null when there is no such file.
 *
 * @throws StoreError when other users may read the file, when this user may not read it, or when it holds no key
 */
export function readKeyFile(path: string): FileKeys | null {
  const text = readPrivate(path);
  if (text === null) return null;
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const [current, previous = null] = lines.map((line) => parseDataKey(line.trim()));
  if (
    current === undefined ||
    current === null ||
    lines.length > LINES_MAX ||
    (lines.length > 1 && previous === null)
  ) {
    throw new StoreError(
      'ENCRYPTION_KEY_MALFORMED',
      `${path} does not hold a data key (one line, the base64 of 32 bytes): put it back from its backup.`,
    );
  }
  return { current: dataKeyOf(current), previous: previous === null ? null : dataKeyOf(previous) };
}

function readPrivate(path: string): string | null {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    const { code = 'unknown' } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    throw new StoreError('ENCRYPTION_KEY_UNREADABLE', `${path} cannot be read (${code}): make this user its owner.`);
  }
  try {
    const stats = fstatSync(file);
    if (stats.isDirectory()) {
      throw new StoreError(
        'ENCRYPTION_KEY_MALFORMED',
        `${path} is a directory, and has to be the file with the data key: a container makes a directory when the file to mount there is missing.`,
      );
    }
    const mode = stats.mode & 0o777;
    // Refuses the file and does not repair its mode: the operator has to know that others could have read the key.
    // Windows has no modes.
    if ((mode & OTHERS_MODE) !== 0 && process.platform !== 'win32') {
      throw new StoreError(
        'ENCRYPTION_KEY_UNPROTECTED',
        `${path} may be read by others (mode ${mode.toString(8)}): run chmod 600 on it, and change the key with \`convoke keys reencrypt\` if somebody may have read it.`,
      );
    }
    return readFileSync(file, 'utf8');
  } finally {
    closeSync(file);
  }
}

/**
 * Replaces the file as a whole, and returns when it is on disk. A crash leaves the old keys or the new ones. A link
 * stays a link: the file that it points to is made or replaced.
 */
export function writeKeyFile(link: string, { current, previous }: FileKeys): void {
  const path = targetOf(link);
  const lines = [current, previous].flatMap((key) => (key === null ? [] : [`${base64Of(key.key)}\n`]));
  const next = `${path}.new`;
  removeIfThere(next);
  const file = openSync(next, 'wx', 0o600);
  try {
    try {
      writeFileSync(file, lines.join(''));
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(next, path);
  } catch (error) {
    // Without this, the temporary file with the key would stay, because nobody knows of it.
    removeIfThere(next);
    throw error;
  }
  syncDirectory(dirname(path));
}

/** Unlike `rmSync` with `force`, it throws errors that have a code. */
function removeIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** @throws StoreError when the directory of the file that a link points to is missing */
function targetOf(path: string): string {
  if (existsSync(path)) return realpathSync(path);
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) return path;
  const target = resolve(dirname(path), readlinkSync(path));
  if (!existsSync(dirname(target))) {
    throw new StoreError(
      'ENCRYPTION_KEY_UNREADABLE',
      `${path} is a link to ${target}, and there is no directory ${dirname(target)}: make it, or mount its disk.`,
    );
  }
  return targetOf(target);
}

/** Returns when the directory is on disk, with the names of all files that were made, renamed or removed in it. */
export function syncDirectory(path: string): void {
  const directory = openSync(path, 'r');
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

function base64Of(key: KeyObject): string {
  return key.export().toString('base64');
}
