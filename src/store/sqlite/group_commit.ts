import { IdCodec, NumberSource } from '../../domain/id.ts';
import { Problem } from '../../domain/problem.ts';
import type { DataKeys, KeySource } from '../secrets/data_keys.ts';
import { type Call, failureOf, hasChanged, type Reply } from '../thread/thread_protocol.ts';
import type { BackupProgress } from '../contract/backups.ts';
import { NO_QUOTAS, type Quotas } from '../contract/quotas.ts';
import { Database } from './database.ts';
import { openDataKeys } from './encryption.ts';
import { storeErrorOf } from './errors.ts';
import { type Operations, operationsOf } from './operations.ts';
import { Recipients } from './meeting_recipients.ts';

/**
 * Runs the calls that arrived together. They share one transaction, and so one wait for the disk. When a call fails
 * with a Problem, only the writes of this call are undone. When the transaction itself fails, nothing was written. Then
 * the calls run one by one, so that a failing call does not make the others fail.
 */
export class GroupCommit {
  readonly #db: Database;
  readonly #recipients: Recipients;
  readonly #operations: Operations;

  /** @param wall the wall clock, in milliseconds */
  constructor(file: string, key_source: KeySource, wall: () => number, quotas: Quotas = NO_QUOTAS) {
    this.#db = new Database(file);
    const keys = this.#openDataKeys(key_source, wall());
    this.#recipients = new Recipients(this.#db);
    const { tag, last_number } = this.#db;
    this.#operations = operationsOf(
      this.#db,
      keys,
      new NumberSource(wall, last_number),
      new IdCodec(tag),
      this.#recipients,
      quotas,
    );
  }

  #openDataKeys(source: KeySource, wall_ms: number): DataKeys {
    try {
      return openDataKeys(this.#db, source, wall_ms);
    } catch (error) {
      // Frees the file for the next start.
      this.#db.close();
      throw error;
    }
  }

  run(calls: Call[]): Reply[] {
    try {
      return this.#transaction(calls);
    } catch (error) {
      if (calls.length > 1) return calls.flatMap((call) => this.run([call]));
      return calls.map((call) => ({ id: call.id, ...failureOf(storeErrorOf(error)) }));
    }
  }

  #transaction(calls: Call[]): Reply[] {
    this.#db.prepare('BEGIN IMMEDIATE').run();
    try {
      const replies = calls.map((call) => this.#call(call));
      this.#db.commit();
      return replies;
    } catch (error) {
      this.#recipients.forgetAll();
      if (this.#db.inTransaction) this.#db.prepare('ROLLBACK').run();
      throw error;
    }
  }

  #call(call: Call): Reply {
    this.#db.prepare('SAVEPOINT call').run();
    try {
      const operations = this.#operations[call.store as keyof Operations] as unknown as Record<
        string,
        (...args: unknown[]) => unknown
      >;
      const method = operations[call.method];
      if (method === undefined) throw new Error(`the store has no ${call.store}.${call.method}`);
      const value = method(...call.args);
      if (call.audited !== undefined && hasChanged(value)) {
        this.#operations.audit.append({ ...call.audited.subject, outcome: 'done', code: null }, call.audited.wall_ms);
      }
      this.#db.prepare('RELEASE call').run();
      return { id: call.id, value };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      // Recipients in memory stay right: a call that changes memberships or instances reads no recipients.
      this.#db.prepare('ROLLBACK TO call').run();
      this.#db.prepare('RELEASE call').run();
      return { id: call.id, ...failureOf(error) };
    }
  }

  /** See `copyDatabase`. */
  copyTo(path: string, onProgress: (progress: BackupProgress) => void): Promise<void> {
    return this.#db.copyTo(path, onProgress);
  }

  close(): void {
    this.#db.close();
  }
}
