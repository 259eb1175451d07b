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

/** How a person finds the session of PostgreSQL that has locked rows. */
export const WHO_LOCKS =
  "SELECT pid, state, query FROM pg_stat_activity WHERE xact_start < now() - interval '1 second' shows the session.";
