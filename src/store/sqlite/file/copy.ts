/** Makes and verifies copies of a data file. */
import { closeSync, fdatasync, fsyncSync, openSync, rmSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { promisify } from 'node:util';
import { type AuditEntry, type AuditHead, CHAIN_START, type ChainFault, ChainVerifier } from '../../../domain/audit.ts';
import { syncDirectory } from '../../secrets/key_file.ts';
import type { BackupProgress } from '../../contract/backups.ts';
import { StoreError } from '../../store_error.ts';
import { entryOf } from '../../rows/audit.ts';
import { errcodeOf, isBusy, storeErrorOf } from '../errors.ts';
import { assertNoFormerLog } from './former_log.ts';
import { lookAt } from './reading.ts';
import type { AuditLogTable } from '../../rows/tables.ts';

/** The pages of one step of a copy: 1 MiB. Writes wait some 2 ms for each step. */
const PAGES_PER_STEP = 256;

/**
 * The copy is synced to the disk piece by piece. Sends wait while the last step syncs the rest, so the rest must be
 * small.
 */
const BYTES_PER_SYNC = 32 << 20;

/** The audit entries in one read. */
const ENTRIES_PER_PAGE = 1_000;

/** The last rows of the file at the moment when a copy begins. The copy must hold these rows. */
interface CopyFloor {
  last_message: { meeting_id: string; seq: number } | null;
  audit_head: AuditHead;
}

/** The figures of a whole copy. */
export interface CopyFacts {
  bytes: number;
  /** How many schema steps the copied file has taken. */
  schema: number;
  /** The data keys that encrypt the secrets of the copy; empty in a file of 0.1.0, whose secrets are plain. */
  key_ids: string[];
  instances: number;
  meetings: number;
  memberships: number;
  messages: number;
  deliveries: number;
  pending_deliveries: number;
  api_keys: number;
  /** Only the entries that were not removed. */
  audit_entries: number;
  audit_head: AuditHead;
}

/**
 * Copies an open data file into a new one while it is in use: SQLite's online backup (https://sqlite.org/backup.html).
 * Writes of the same connection go into both files meanwhile, so the copy has these too.
 *
 * @param to must not exist
 * @param onProgress is called after each step; when it throws, copying ends with that error
 * @param floor the rows that the copy must contain
 * @throws StoreError; nothing is left of the copy then
 */
export async function copyDatabase(
  db: DatabaseSync,
  to: string,
  onProgress: (progress: BackupProgress) => void = () => {},
  floor: CopyFloor = floorOf(db),
): Promise<void> {
  const file = openSync(to, 'wx', 0o600);
  const sync = syncEvery(file, BYTES_PER_SYNC);
  try {
    await copyPages(db, to, (progress) => {
      sync.onProgress(progress);
      onProgress(progress);
    });
    finishCopy(to, floor);
  } catch (error) {
    for (const path of [to, `${to}-journal`]) rmSync(path, { force: true });
    throw storeErrorOf(error);
  } finally {
    await sync.end();
    closeSync(file);
  }
}

async function copyPages(db: DatabaseSync, to: string, onProgress: (progress: BackupProgress) => void): Promise<void> {
  for (;;) {
    let has_begun = false;
    try {
      await backup(db, to, {
        rate: PAGES_PER_STEP,
        progress: ({ totalPages: pages_total, remainingPages: pages_left }) => {
          has_begun = true;
          onProgress({ pages_total, pages_left });
        },
      });
      return;
    } catch (error) {
      // When a step meets a transaction of this process, Node repeats the step. It does not repeat the first step:
      // there Node asks the wrong connection for the error code, and finds none. So this loop begins the copy again.
      if (has_begun || (!isBusy(error) && errcodeOf(error) !== 0)) throw error;
    }
  }
}

/** Copies a data file that no service has open. Its schema stays as it is. */
export async function copyDataFile(
  file: string,
  to: string,
  onProgress: (progress: BackupProgress) => void = () => {},
): Promise<void> {
  try {
    assertNoFormerLog(file);
    const db = new DatabaseSync(file);
    try {
      // Locks the file as the service does: a service that starts meanwhile is refused.
      db.exec('PRAGMA locking_mode = EXCLUSIVE');
      db.exec('BEGIN IMMEDIATE');
      db.exec('COMMIT');
      await copyDatabase(db, to, onProgress);
    } finally {
      db.close();
    }
  } catch (error) {
    throw storeErrorOf(error);
  }
}

/** Turns the copy into a single file without a log, and checks that it holds the rows of `floor`. */
function finishCopy(path: string, floor: CopyFloor): void {
  const db = new DatabaseSync(path);
  try {
    db.exec('PRAGMA journal_mode = DELETE');
    const { last_message, audit_head } = floor;
    const is_there =
      last_message === null ||
      db
        .prepare('SELECT 1 FROM meetings WHERE meeting_id = ? AND last_seq >= ?')
        .get(last_message.meeting_id, last_message.seq) !== undefined;
    const is_logged =
      audit_head.seq === 0 ||
      db.prepare('SELECT 1 FROM audit_log WHERE seq = ? AND hash = ?').get(audit_head.seq, audit_head.hash) !==
        undefined;
    if (!is_there || !is_logged) throw damaged(path, 'something is missing that was stored before it was begun');
  } finally {
    db.close();
  }
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  syncDirectory(dirname(path));
}

function floorOf(db: DatabaseSync): CopyFloor {
  const last_message = hasTable(db, 'messages')
    ? db.prepare('SELECT meeting_id, seq FROM messages ORDER BY message_no DESC LIMIT 1').get()
    : undefined;
  const audit_head = hasTable(db, 'audit_log')
    ? db.prepare('SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1').get()
    : undefined;
  return {
    last_message: (last_message as CopyFloor['last_message'] | undefined) ?? null,
    audit_head: (audit_head as AuditHead | undefined) ?? { seq: 0, hash: CHAIN_START },
  };
}

/**
 * Checks the whole copy: every page and index, whether every pending delivery has its message, and the chain of the
 * audit log.
 *
 * @throws StoreError BACKUP_DAMAGED with the fault
 */
export function inspectCopy(path: string): CopyFacts {
  try {
    return lookAt(path, (db) => factsOf(db, path));
  } catch (error) {
    const known = storeErrorOf(error);
    if (known instanceof StoreError && known.code !== 'BACKUP_DAMAGED') throw damaged(path, known.message);
    throw known;
  }
}

function factsOf(db: DatabaseSync, path: string): CopyFacts {
  const faults = db.prepare('PRAGMA integrity_check(1)').all() as { integrity_check: string }[];
  if (faults[0]?.integrity_check !== 'ok') throw damaged(path, String(faults[0]?.integrity_check));
  const schema = numberOf(db, 'PRAGMA user_version');
  if (schema === 0) throw damaged(path, 'it is no data file of Convoke');
  const without_message = numberOf(
    db,
    `SELECT count(*) FROM deliveries d WHERE state = 'pending'
      AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_no = d.message_no)`,
  );
  if (without_message > 0) throw damaged(path, `${without_message} pending deliveries have no message`);
  const count = (what: string): number => numberOf(db, `SELECT count(*) FROM ${what}`);
  return {
    bytes: statSync(path).size,
    schema,
    key_ids: hasTable(db, 'encryption_keys')
      ? (db.prepare('SELECT key_id FROM encryption_keys ORDER BY created_at').all() as { key_id: string }[]).map(
          ({ key_id }) => key_id,
        )
      : [],
    instances: count('instances'),
    meetings: count('meetings'),
    memberships: count('memberships'),
    messages: count('messages'),
    deliveries: count('deliveries'),
    pending_deliveries: count(`deliveries WHERE state = 'pending'`),
    api_keys: hasTable(db, 'api_keys') ? count('api_keys') : 0,
    audit_entries: hasTable(db, 'audit_log') ? count('audit_log') : 0,
    audit_head: hasTable(db, 'audit_log') ? headOf(db, path) : { seq: 0, hash: CHAIN_START },
  };
}

function headOf(db: DatabaseSync, path: string): AuditHead {
  const verifier = new ChainVerifier();
  const next = db.prepare('SELECT * FROM audit_log WHERE seq > ? ORDER BY seq LIMIT ?');
  for (;;) {
    const rows = next.all(verifier.head.seq, ENTRIES_PER_PAGE) as unknown as AuditLogTable[];
    for (const entry of rows.map<AuditEntry>(entryOf)) assertWhole(path, verifier.next(entry));
    if (rows.length < ENTRIES_PER_PAGE) break;
  }
  assertWhole(path, verifier.end());
  return verifier.head;
}

function assertWhole(path: string, fault: ChainFault | null): void {
  if (fault !== null) throw damaged(path, `its audit log is not whole: entry ${fault.seq}: ${fault.reason}`);
}

/** A file of an older Convoke does not have all tables. */
function hasTable(db: DatabaseSync, name: string): boolean {
  return db.prepare(`SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?`).get(name) !== undefined;
}

function numberOf(db: DatabaseSync, sql: string): number {
  return Number(Object.values(db.prepare(sql).get()!)[0]);
}

function damaged(path: string, why: string): StoreError {
  return new StoreError('BACKUP_DAMAGED', `${path} is not a whole copy of a data file: ${why}`);
}

/** Syncs the copied pages to the disk from time to time, while the copy is made. */
function syncEvery(
  file: number,
  bytes: number,
): { onProgress: (progress: BackupProgress) => void; end: () => Promise<void> } {
  const pages = bytes / 4096;
  let synced_pages = 0;
  let syncing: Promise<void> | null = null;
  return {
    onProgress({ pages_total, pages_left }) {
      const copied_pages = pages_total - pages_left;
      if (syncing !== null || copied_pages - synced_pages < pages) return;
      synced_pages = copied_pages;
      // When this sync fails, the last step fails too, and reports that.
      syncing = promisify(fdatasync)(file)
        .catch(() => {})
        .then(() => void (syncing = null));
    },
    end: async () => void (await syncing),
  };
}
