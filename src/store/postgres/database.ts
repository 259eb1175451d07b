import {
  type Compilable,
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import { partitionOf } from '../../domain/partition.ts';
import { StoreError } from '../store_error.ts';
import type { Tables } from '../rows/tables.ts';
import { Connection, ConnectionLost, type Result, type Values } from './connection/connection.ts';
import type { Message } from './cluster/notifications.ts';
import { withRetry } from './connection/retry.ts';

export interface DatabaseLimits {
  /** The most connections. Further calls wait until one is free. */
  connections_max: number;
  /** How long a statement may take. Then its connection counts as lost. */
  answer_ms_max?: number;
}

/**
 * The tables for the queries that `build` makes: those of both engines. Here instances and deliveries also have the
 * column of their partition.
 */
interface PostgresTables extends Omit<Tables, 'instances' | 'deliveries'> {
  instances: Tables['instances'] & { partition_no: number };
  deliveries: Tables['deliveries'] & { partition_no: number };
}

/** Makes the queries whose shape depends on filters, and knows their types. It never runs a query. */
export const build: Kysely<PostgresTables> = new Kysely<PostgresTables>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
});

/**
 * SQL whose values have numbers (`$1`) in `text`. `names` has the names of the values, in the order of these numbers.
 * `statement` makes it from SQL whose values have names (`$name`).
 */
export interface Statement {
  text: string;
  names: string[];
}

/**
 * Replaces the names of values (`$name`) by the numbers (`$1`) that PostgreSQL requires. Use it only for SQL that is
 * the same in every call, because each connection keeps every text that it has run as a prepared statement.
 */
export function statement(sql: string): Statement {
  const found: string[] = [];
  const text = sql.replaceAll(/\$([a-z_]+)/g, (_, name: string) => {
    if (!found.includes(name)) found.push(name);
    return `$${found.indexOf(name) + 1}`;
  });
  return { text, names: found };
}

/** Runs the statements of one call, all on the same connection. */
export class Session {
  readonly #connection: Connection;
  readonly #answer_ms_max: number | undefined;
  /** Notifications that other nodes receive when the transaction is committed. */
  readonly messages: Message[] = [];

  constructor(connection: Connection, answer_ms_max?: number) {
    this.#connection = connection;
    this.#answer_ms_max = answer_ms_max;
  }

  async all<Row>({ text, names }: Statement, values: Record<string, unknown> = {}): Promise<Row[]> {
    return (
      await this.query<Row>(
        text,
        names.map((name) => values[name]),
      )
    ).rows;
  }

  async one<Row>(statement: Statement, values: Record<string, unknown> = {}): Promise<Row | undefined> {
    return (await this.all<Row>(statement, values))[0];
  }

  /** @returns the number of rows that were written */
  async run({ text, names }: Statement, values: Record<string, unknown> = {}): Promise<number> {
    return (
      await this.query(
        text,
        names.map((name) => values[name]),
      )
    ).changes;
  }

  async built<Row>(query: Compilable<Row>): Promise<Row[]> {
    const { sql, parameters } = query.compile();
    return (await this.query<Row>(sql, parameters)).rows;
  }

  query<Row>(text: string, values: Values = []): Promise<Result<Row>> {
    return this.#connection.query<Row>(text, values, this.#answer_ms_max);
  }
}

interface Waiter {
  resolve: (connection: Connection) => void;
  reject: (error: unknown) => void;
}

/** The connections that calls share. A connection is opened when it is needed, and again after it was lost. */
export class Database {
  readonly #url: string;
  readonly #limits: DatabaseLimits;
  readonly #idle: Connection[] = [];
  readonly #waiting: Waiter[] = [];
  #open = 0;
  #closed = false;

  constructor(url: string, limits: DatabaseLimits) {
    this.#url = url;
    this.#limits = limits;
  }

  /**
   * Runs statements that are safe to run twice, each in a transaction of its own. When the connection is lost, all of
   * them run again on another connection.
   */
  read<T>(run: (session: Session) => Promise<T>): Promise<T> {
    return this.#withRetry(async () => {
      const connection = await this.#take();
      try {
        return await run(new Session(connection, this.#limits.answer_ms_max));
      } finally {
        this.#giveBack(connection);
      }
    });
  }

  /**
   * Runs a transaction. When the connection is lost, or two transactions collided, runs it again, provided that it
   * certainly wrote nothing.
   *
   * @param notify writes the notifications for other nodes, within the transaction
   * @throws StoreError; IN_DOUBT when the connection was lost during the commit
   */
  write<T>(run: (session: Session) => Promise<T>, notify: (session: Session) => Promise<void>): Promise<T> {
    return this.#withRetry(async () => {
      const connection = await this.#take();
      let is_committing = false;
      try {
        const session = new Session(connection, this.#limits.answer_ms_max);
        await connection.query('BEGIN');
        const result = await run(session);
        await notify(session);
        is_committing = true;
        await connection.query('COMMIT');
        return result;
      } catch (error) {
        if (!(error instanceof ConnectionLost)) await connection.query('ROLLBACK').catch(() => connection.destroy());
        else if (is_committing) {
          throw new StoreError('IN_DOUBT', `the connection was lost while the change was committed: ${error.message}`);
        }
        throw error;
      } finally {
        this.#giveBack(connection);
      }
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { reject } of this.#waiting.splice(0)) reject(new StoreError('STORE_CLOSED', 'the store is closed'));
    await Promise.all(this.#idle.splice(0).map((connection) => connection.close()));
  }

  #withRetry<T>(run: () => Promise<T>): Promise<T> {
    return withRetry(run, () => this.#closed);
  }

  async #take(): Promise<Connection> {
    for (;;) {
      const idle = this.#idle.pop();
      if (idle === undefined) break;
      if (!idle.is_lost) return idle;
      this.#open--;
    }
    if (this.#closed) throw new StoreError('STORE_CLOSED', 'the store is closed');
    if (this.#open >= this.#limits.connections_max) {
      return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
    }
    this.#open++;
    try {
      return await Connection.open(this.#url);
    } catch (error) {
      this.#open--;
      // If each of them tried in turn, the last would wait for the sum of their times.
      for (const { reject } of this.#waiting.splice(0)) reject(error);
      throw error;
    }
  }

  #giveBack(connection: Connection): void {
    if (connection.is_lost || this.#closed) {
      this.#open--;
      // The unused connections are probably lost too, although `is_lost` may not show it yet.
      for (const idle of this.#idle.splice(0)) {
        this.#open--;
        idle.destroy();
      }
      if (!connection.is_lost) void connection.close().catch(() => {});
      this.#serveNext();
      return;
    }
    const waiter = this.#waiting.shift();
    if (waiter === undefined) this.#idle.push(connection);
    else waiter.resolve(connection);
  }

  /** One connection less is open, so the next waiting call may open one. */
  #serveNext(): void {
    const waiter = this.#waiting.shift();
    if (waiter !== undefined) this.#take().then(waiter.resolve, waiter.reject);
  }
}

/**
 * The values for a statement that finds rows by their instance. It needs the partition of the instance too, because the
 * indexes begin with the partition.
 */
export function withPartition(instance_id: string): { instance_id: string; partition_no: number } {
  return { instance_id, partition_no: partitionOf(instance_id) };
}
