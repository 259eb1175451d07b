/**
 * The storage failed (disk full, I/O error, connection lost). Nothing was written. Only after a lost connection, nobody
 * knows whether something was written.
 */
export class StoreError extends Error {
  /** The engine's own code, such as SQLITE_FULL. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = 'StoreError';
    this.code = code;
  }
}
