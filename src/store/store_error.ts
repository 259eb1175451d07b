/**
 * The storage failed (disk full, I/O error, connection lost), and nothing was written. With the code IN_DOUBT, nobody
 * knows whether something was written.
 */
export class StoreError extends Error {
  /** The engine's own code, such as SQLITE_FULL, or a code of Convoke, such as STORE_CLOSED. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = 'StoreError';
    this.code = code;
  }
}
