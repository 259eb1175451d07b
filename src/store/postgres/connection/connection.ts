/** Connections to PostgreSQL, and what their failures mean. */
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { parseDatabaseUrl } from '../../../domain/database_url.ts';
import { StoreError } from '../../store_error.ts';
import { BatchMessage, type BatchValue } from './batch_message.ts';

/** How long making a connection may take. */
const CONNECT_MS_MAX = 2_500;
/** How long a statement may take when its caller names no time. The server itself ends it after 30 s. */
const ANSWER_MS_MAX = 35_000;
/**
 * How often a node that waits for an answer asks the server, on a new connection, whether it still works on the
 * statement. A server that vanished closes no connection, and some statements take long: only the server can tell.
 */
const ASK_EVERY_MS = 3_000;
/** How long the answer may still be on its way when the server already says that it is idle. */
const ON_ITS_WAY_MS = 500;
const IS_WORKING = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state NOT LIKE 'idle%'";
/** The code of a server that has no free connection. */
const NO_CONNECTION_FREE = '53300';

/**
 * The settings of every session:
 *
 * - A commit is on disk when it returns.
 * - The server ends the transaction of a node that stalls.
 * - The server notices within half a minute when this host is gone.
 * - Plans that join whole tables or use several processes are switched off. Every statement finds at most a page of
 *   rows by an index, so PostgreSQL would choose such a plan only after a wrong estimate.
 */
const SESSION = `
  SET synchronous_commit = on;
  SET default_transaction_isolation = 'read committed';
  SET statement_timeout = '30s';
  SET idle_in_transaction_session_timeout = '5s';
  SET tcp_keepalives_idle = 10;
  SET tcp_keepalives_interval = 5;
  SET tcp_keepalives_count = 3;
  SET jit = off;
  SET max_parallel_workers_per_gather = 0;
  SET enable_hashjoin = off;
  SET enable_mergejoin = off;
  SET random_page_cost = 1.1;
`;

/**
 * More settings, for a session that runs only one statement: it accepts, settles or reads changes, with up to ten
 * thousand values. PostgreSQL keeps one plan, because planning each time would take as long as running. The plan may be
 * from a time when the tables were empty, and must still use the indexes when the tables are full. So sequential scans
 * and nested loops are off, and the plan joins values by hashes. It uses a nested loop only where LATERAL leaves no
 * other way.
 */
export const BATCH_SESSION = `
  SET plan_cache_mode = force_generic_plan;
  SET enable_seqscan = off;
  SET enable_hashjoin = on;
  SET enable_nestloop = off;
  SET work_mem = '32MB';
`;

/** int2, int4, int8, and numeric, the type of sums. */
const NUMBER_TYPES = new Set([21, 23, 20, 1700]);
const BOOLEAN_TYPE = 16;

const asIs = (text: string): string => text;

/** Keeps the number of a damaged row within the range that a statement accepts. */
function safeNumber(text: string): number {
  return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(Number(text), Number.MAX_SAFE_INTEGER));
}

/** Numbers become JavaScript numbers within 2^53, and booleans become booleans. Everything else stays text. */
const TYPES = {
  getTypeParser(type: number): (text: string) => unknown {
    if (NUMBER_TYPES.has(type)) return safeNumber;
    return type === BOOLEAN_TYPE ? (text) => text === 't' : asIs;
  },
};

export type Values = readonly unknown[];

export interface Result<Row> {
  rows: Row[];
  /** How many rows were written. */
  changes: number;
}

/** The connection broke, or the server cannot be reached: the result of the statement in progress is unknown. */
export class ConnectionLost extends StoreError {}

/** The name of each statement. All sessions use the same names, and a session parses a statement only once. */
const names = new Map<string, string>();

function nameOf(text: string): string {
  let name = names.get(text);
  if (name === undefined) names.set(text, (name = `convoke_${names.size + 1}`));
  return name;
}

/** The code of the error when none of several servers can be used. */
export const NO_SERVER = 'NO_SERVER';
/** The code that PostgreSQL itself gives for a write on a read-only server. */
const READS_ONLY = '25006';

/** For each connection string, the index of the server that was used last. */
const taken_last = new Map<string, number>();

/** One connection. After a ConnectionLost it cannot be used any more. */
export class Connection {
  readonly #client: pg.Client;
  readonly #url: string;
  #batch_message = new BatchMessage();
  /** Whether the socket has written the last message. Only then the next message may use the same memory. */
  #is_written = true;
  #lost: ConnectionLost | null = null;

  private constructor(client: pg.Client, url: string) {
    this.#client = client;
    this.#url = url;
  }

  /**
   * Tries the servers one after the other, beginning with the server that was used last. Each new connection does so.
   * So when another server becomes the primary, all connections follow.
   *
   * @throws StoreError with the reason; ConnectionLost when a later try may succeed
   */
  static async open(url: string, session = ''): Promise<Connection> {
    const { servers, must_write } = parseDatabaseUrl(url)!;
    const first = taken_last.get(url) ?? 0;
    const failures: string[] = [];
    for (let k = 0; ; k++) {
      const chosen = (first + k) % servers.length;
      const server = servers[chosen]!;
      try {
        const connection = await Connection.#openOne(server.url, session, must_write);
        taken_last.set(url, chosen);
        return connection;
      } catch (error) {
        if (!(error instanceof ConnectionLost) || servers.length === 1) throw error;
        failures.push(`${server.where}: ${error.message}`);
        if (failures.length === servers.length) throw new ConnectionLost(NO_SERVER, failures.join('; '));
      }
    }
  }

  static async #openOne(url: string, session: string, must_write: boolean): Promise<Connection> {
    const client = new pg.Client({
      connectionString: url,
      connectionTimeoutMillis: CONNECT_MS_MAX,
      keepAlive: true,
      application_name: 'convoke',
      types: TYPES,
    });
    const connection = new Connection(client, url);
    client.on('error', (error) => connection.#lose(error));
    client.on('end', () => connection.#lose(new Error('the connection was closed')));
    try {
      await client.connect();
      await connection.#within(CONNECT_MS_MAX, client.query(SESSION + session));
      if (must_write) await connection.#assertWrites();
    } catch (error) {
      connection.destroy();
      throw storeErrorOf(error);
    }
    return connection;
  }

  /** @throws ConnectionLost when the server only reads: it is a standby, or its settings make it read-only */
  async #assertWrites(): Promise<void> {
    const { rows } = await this.#within(CONNECT_MS_MAX, this.#client.query('SHOW transaction_read_only'));
    if ((rows[0] as { transaction_read_only: string }).transaction_read_only === 'off') return;
    throw new ConnectionLost(READS_ONLY, 'it only reads');
  }

  get is_lost(): boolean {
    return this.#lost !== null;
  }

  onNotification(listen: (text: string) => void): void {
    this.#client.on('notification', ({ payload }) => listen(payload ?? ''));
  }

  onLost(listen: () => void): void {
    this.#client.once('end', listen);
  }

  /** @throws StoreError, ConnectionLost; the server's own error when the statement is wrong */
  query<Row>(text: string, values: Values = [], ms_max = ANSWER_MS_MAX): Promise<Result<Row>> {
    return this.#run(ms_max, () => this.#client.query({ name: nameOf(text), text, values: values as unknown[] }));
  }

  /** Runs a statement with many values. */
  batch<Row>(text: string, values: readonly BatchValue[], ms_max: number): Promise<Result<Row>> {
    const name = nameOf(text);
    if (!this.#is_written) this.#batch_message = new BatchMessage();
    const message = this.#batch_message.of(name, values);
    this.#is_written = false;
    return this.#run(ms_max, () => {
      const { promise, resolve, reject } = Promise.withResolvers<{ rows: unknown[]; rowCount: number | null }>();
      const query = new pg.Query({ name, text }, (error, result) => (error ? reject(error) : resolve(result)));
      query.submit = (connection) => {
        // The driver keeps a list of the statements that the server has parsed. This query adds its own statement, as
        // queries of the driver do.
        const { parsedStatements } = connection as unknown as { parsedStatements: Record<string, string> };
        if (parsedStatements[name] === undefined) connection.parse({ name, text, types: [] }, true);
        connection.stream.write(message, () => (this.#is_written = true));
      };
      this.#client.query(query);
      return promise;
    });
  }

  async #run<Row>(
    ms_max: number,
    ask: () => Promise<{ rows: unknown[]; rowCount: number | null }>,
  ): Promise<Result<Row>> {
    if (this.#lost !== null) throw this.#lost;
    let is_answered = false;
    const asking = setInterval(() => void this.#loseUnlessWorking(() => is_answered), ASK_EVERY_MS);
    try {
      const { rows, rowCount } = await this.#within(ms_max, ask());
      return { rows: rows as Row[], changes: rowCount ?? 0 };
    } catch (error) {
      const failure = storeErrorOf(error);
      if (failure instanceof ConnectionLost) this.destroy();
      throw failure;
    } finally {
      clearInterval(asking);
      is_answered = true;
    }
  }

  async #loseUnlessWorking(isAnswered: () => boolean): Promise<void> {
    if (await this.#isWorking()) return;
    await pause(ON_ITS_WAY_MS);
    if (isAnswered()) return;
    this.#lose(new Error('the server does not answer, or no longer knows the statement'));
    this.destroy();
  }

  /** Whether the server still works on the statement of this connection, as far as the server can be asked. */
  async #isWorking(): Promise<boolean> {
    let other: Connection | null = null;
    try {
      other = await Connection.#openOne(this.#url, '', false);
      const { processID } = this.#client as unknown as { processID: number };
      const { rows } = await other.#within(CONNECT_MS_MAX, other.#client.query(IS_WORKING, [processID]));
      return rows.length > 0;
    } catch (error) {
      const failure = storeErrorOf(error);
      return !(failure instanceof ConnectionLost) || failure.code === NO_CONNECTION_FREE;
    } finally {
      other?.destroy();
    }
  }

  /**
   * Runs several statements that take no values.
   *
   * @throws as `query` does
   */
  async script(text: string): Promise<void> {
    try {
      await this.#client.query(text);
    } catch (error) {
      throw storeErrorOf(error);
    }
  }

  /** Closes the socket at once, without a message to the server. */
  destroy(): void {
    this.#lose(new Error('the connection was given up'));
    // The driver has no public method for this: end() waits for a server that may be gone.
    (this.#client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
  }

  async close(): Promise<void> {
    if (this.#lost !== null) return;
    this.#lose(new Error('the connection was closed'));
    await this.#client.end();
  }

  #lose(error: Error): void {
    this.#lost ??= new ConnectionLost('CONNECTION_LOST', error.message);
  }

  /** Waits for an answer, at most `ms_max`. Without an answer the connection may be dead, so it is destroyed. */
  async #within<T>(ms_max: number, answer: Promise<T>): Promise<T> {
    const timer = setTimeout(() => {
      this.#lose(new Error(`no answer for ${ms_max / 1000} s`));
      this.destroy();
    }, ms_max);
    try {
      return await answer;
    } finally {
      clearTimeout(timer);
    }
  }
}

/**
 * Classes and codes of https://www.postgresql.org/docs/current/errcodes-appendix.html. With 57P05, 25P03 and 25P04 a
 * timeout of the server ended the session.
 */
const GONE = /^(08...|57P0[1-5]|25P0[34]|25006|53300)$/;
const STORAGE = /^(53|54|55|57|58|40|25|XX)/;
const OF_THE_SETTING = /^(28...|3D000|42501)$/;

/**
 * Whether the server undid a transaction because of another transaction. Then the caller may run the transaction again.
 */
export function isCollision(error: unknown): boolean {
  return error instanceof StoreError && (error.code === '40P01' || error.code === '40001');
}

/** Whether a statement did nothing, because it waited for a lock for longer than `lock_timeout`. */
export function isLockTimeout(error: unknown): boolean {
  return error instanceof StoreError && error.code === '55P03';
}

/** Undefined table, column, function. */
const MISSING = new Set(['42P01', '42703', '42883']);

/** Whether a statement names a table, a column or a function that the database does not have. */
export function isOfOtherSchema(error: unknown): boolean {
  return error instanceof pg.DatabaseError && MISSING.has(error.code ?? '');
}

/** The detail of an error that one of our functions in the database raised with this code; null for any other error. */
export function raisedDetail(error: unknown, code: string): string | null {
  return error instanceof pg.DatabaseError && error.code === code ? (error.detail ?? '') : null;
}

/**
 * Converts errors of the server and of the network into StoreErrors. A wrong statement is a defect, and its error stays
 * as it is.
 */
export function storeErrorOf(error: unknown): unknown {
  if (error instanceof StoreError) return error;
  if (error instanceof pg.DatabaseError) {
    const code = error.code ?? 'XX000';
    if (GONE.test(code)) return new ConnectionLost(code, error.message);
    return STORAGE.test(code) || OF_THE_SETTING.test(code) ? new StoreError(code, error.message) : error;
  }
  const { code } = error as NodeJS.ErrnoException;
  return new ConnectionLost(code ?? 'CONNECTION_LOST', error instanceof Error ? error.message : String(error));
}
