/** Turns errors of SQLite into StoreError, and says which of them are temporary. */
import { StoreError } from '../store_error.ts';

/** The names of the failures that happen in operation (https://sqlite.org/rescode.html). */
const NAMES: Record<number, string> = {
  5: 'SQLITE_BUSY',
  8: 'SQLITE_READONLY',
  10: 'SQLITE_IOERR',
  11: 'SQLITE_CORRUPT',
  13: 'SQLITE_FULL',
  14: 'SQLITE_CANTOPEN',
  26: 'SQLITE_NOTADB',
};

const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;

/** SQLite's primary code, without the extended part; undefined for other errors. */
export function errcodeOf(error: unknown): number | undefined {
  return error instanceof Error && 'errcode' in error ? Number(error.errcode) & 0xff : undefined;
}

/** Whether another connection, or another transaction of this connection, held a lock. */
export function isBusy(error: unknown): boolean {
  const errcode = errcodeOf(error);
  return errcode === SQLITE_BUSY || errcode === SQLITE_LOCKED;
}

/** SQLITE_ERROR, _TOOBIG, _CONSTRAINT, _MISMATCH: a value in a row is damaged. */
const OF_VALUES = new Set([1, 18, 19, 20]);

/** Whether the storage itself failed; false when a damaged value in it caused the error. */
export function isOfTheStorage(error: unknown): boolean {
  const errcode = errcodeOf(error);
  return errcode === undefined ? storeErrorOf(error) instanceof StoreError : !OF_VALUES.has(errcode);
}

/** Errors of SQLite and of the file system as StoreError. Any other error is a defect and stays as it is. */
export function storeErrorOf(error: unknown): unknown {
  if (error instanceof StoreError) return error;
  const errcode = errcodeOf(error);
  if (errcode !== undefined) return new StoreError(NAMES[errcode] ?? `SQLITE_${errcode}`, (error as Error).message);
  const { code, syscall } = error as NodeJS.ErrnoException;
  return code !== undefined && syscall !== undefined ? new StoreError(code, (error as Error).message) : error;
}
