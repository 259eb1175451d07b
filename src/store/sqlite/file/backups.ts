/**
 * Copies of the data file that are made while the service runs, one at a time.
 *
 * The thread that owns the file makes the copies. The lock of the file belongs to the connection of that thread. A copy
 * by another thread would open the file a second time and close it again. That would end the lock, because a lock ends
 * when its process closes any descriptor of the file (https://sqlite.org/howtocorrupt.html, section 2.2).
 */
import { randomUUID } from 'node:crypto';
import { openSync, rmSync, statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { MessagePort } from 'node:worker_threads';
import { Problem } from '../../../domain/problem.ts';
import type { BackupProgress, BackupStore } from '../../contract/backups.ts';
import { StoreError } from '../../store_error.ts';
import { errorOf, failureOf, type Reply } from '../../thread/thread_protocol.ts';
import { storeErrorOf } from '../errors.ts';
import type { GroupCommit } from '../group_commit.ts';

/** A copy is dropped when no call has asked for it for this long. */
const FORGOTTEN_MS = 60_000;

/** The space that must stay free on the disk after the copy, because sends fail on a full disk. */
const FREE_BYTES_MIN = 256 << 20;

/** The commands to the thread that owns the file. */
type Command = 'copy' | 'cancel';
/** The reports of the thread that owns the file. */
type Report = BackupProgress | 'whole' | Omit<Reply, 'id'>;

/**
 * The path of the copy. It is in the data directory, which has the right permissions. Nobody else gives a file this
 * name, because Convoke removes what has it.
 */
export function copyOf(file: string): string {
  return `${file}.being-copied-by-convoke`;
}

interface Copying extends BackupProgress {
  backup_id: string;
  is_whole: boolean;
  is_abandoned: boolean;
  has_failed: boolean;
  ended: PromiseWithResolvers<void>;
  forgotten: NodeJS.Timeout | null;
}

/** The part of backups that runs in the thread of the callers: it asks for copies, and waits until they are whole. */
export class Backups implements BackupStore {
  readonly #port: MessagePort;
  readonly #file: string;
  readonly #path: string;
  readonly #forgotten_ms: number;
  #copying: Copying | null = null;

  /** @param file the data file */
  constructor(port: MessagePort, file: string, forgotten_ms = FORGOTTEN_MS) {
    this.#port = port;
    this.#file = file;
    this.#path = copyOf(file);
    this.#forgotten_ms = forgotten_ms;
    port.on('message', (report: Report) => this.#onReport(report));
    port.on('close', () => this.#fail(new StoreError('STORE_CLOSED', 'the store is closed')));
    port.unref();
  }

  async begin(): Promise<{ backup_id: string }> {
    if (this.#copying?.has_failed) this.#forget();
    if (this.#copying !== null) throw new Problem('backup_under_way');
    assertRoom(this.#file);
    const backup_id = randomUUID();
    const ended = Promise.withResolvers<void>();
    // Only `wait` reports a failure. Without a call of `wait`, the rejection must not end the process.
    ended.promise.catch(() => {});
    this.#copying = {
      backup_id,
      pages_total: 0,
      pages_left: 0,
      is_whole: false,
      is_abandoned: false,
      has_failed: false,
      ended,
      forgotten: null,
    };
    this.#isAskedFor(this.#copying);
    this.#command('copy');
    return { backup_id };
  }

  async wait(backup_id: string, wait_ms: number): Promise<(BackupProgress & { is_whole: boolean }) | null> {
    const copying = this.#copying;
    if (copying?.backup_id !== backup_id) return null;
    this.#isAskedFor(copying);
    const abort = new AbortController();
    const late = pause(wait_ms, undefined, { signal: abort.signal }).catch(() => {});
    await Promise.race([copying.ended.promise, late]).finally(() => abort.abort());
    // Two calls may wait for the copy, and the other one may have taken it.
    if (this.#copying !== copying) return null;
    const { pages_total, pages_left, is_whole } = copying;
    return { pages_total, pages_left, is_whole };
  }

  take(backup_id: string): number | null {
    if (this.#copying?.backup_id !== backup_id || !this.#copying.is_whole) return null;
    // No other code may run between these calls: all copies have one path, and after `#remove` another copy may begin.
    const copy = openSync(this.#path, 'r');
    this.#remove();
    return copy;
  }

  #isAskedFor(copying: Copying): void {
    if (copying.forgotten !== null) clearTimeout(copying.forgotten);
    copying.forgotten = setTimeout(() => this.#abandon(copying), this.#forgotten_ms).unref();
  }

  #abandon(copying: Copying): void {
    copying.is_abandoned = true;
    if (copying.has_failed) this.#forget();
    else if (copying.is_whole) this.#remove();
    else this.#command('cancel');
  }

  #onReport(report: Report): void {
    if (this.#copying === null) return;
    if (report === 'whole') {
      this.#copying.is_whole = true;
      this.#copying.ended.resolve();
      // The copy was complete before the cancel arrived.
      if (this.#copying.is_abandoned) this.#remove();
    } else if ('pages_total' in report) {
      Object.assign(this.#copying, report);
    } else {
      this.#fail(errorOf(report) ?? new Error('the copy failed'));
    }
  }

  /** Keeps the failure for the calls of `wait` that follow, but not when nobody asks any more. */
  #fail(error: Error): void {
    if (this.#copying === null) return;
    this.#copying.has_failed = true;
    this.#copying.ended.reject(error);
    if (this.#copying.is_abandoned) this.#forget();
  }

  #remove(): void {
    rmSync(this.#path, { force: true });
    this.#forget();
  }

  #forget(): void {
    const forgotten = this.#copying?.forgotten ?? null;
    if (forgotten !== null) clearTimeout(forgotten);
    this.#copying = null;
  }

  #command(command: Command): void {
    this.#port.postMessage(command);
  }
}

/** The part of backups that runs in the thread of the engine: it makes the copy. */
export class CopyMaker {
  readonly #port: MessagePort;
  readonly #file: string;
  readonly #group_commit: GroupCommit;
  #making: Promise<void> = Promise.resolve();
  #is_cancelled = false;

  constructor(port: MessagePort, file: string, group_commit: GroupCommit) {
    this.#port = port;
    this.#file = file;
    this.#group_commit = group_commit;
    // Removes a copy that a crash left behind.
    rmSync(copyOf(file), { force: true });
    port.on('message', (command: Command) => {
      this.#is_cancelled = command === 'cancel';
      if (command === 'copy') this.#making = this.#make();
    });
    port.unref();
  }

  /** Ends a copy in progress: nothing may read the file when it is closed. */
  async close(): Promise<void> {
    this.#is_cancelled = true;
    await this.#making;
    // Nobody fetched the copy.
    rmSync(copyOf(this.#file), { force: true });
    this.#port.close();
  }

  async #make(): Promise<void> {
    const path = copyOf(this.#file);
    try {
      // Removes an earlier copy, if its caller could not do that.
      rmSync(path, { force: true });
      await this.#group_commit.copyTo(path, (progress) => {
        if (this.#is_cancelled) throw new StoreError('BACKUP_CANCELLED', 'the backup was cancelled');
        this.#report(progress);
      });
      this.#report('whole');
    } catch (error) {
      this.#report(failureOf(storeErrorOf(error)));
    }
  }

  #report(report: Report): void {
    this.#port.postMessage(report);
  }
}

/** Reads the size of the file without opening it. */
function assertRoom(file: string): void {
  const { bavail, bsize } = statfsSync(dirname(file));
  const needed_bytes = statSync(file).size + FREE_BYTES_MIN;
  if (bavail * bsize >= needed_bytes) return;
  throw new Problem(
    'backup_no_room',
    `A copy is made in ${dirname(file)} first, which takes ${Math.ceil(needed_bytes / 2 ** 20)} MiB of free space: make room, or stop the service and run \`convoke backup\` with --data.`,
  );
}
