/** The data keys of the file: each opening checks them, and a key can be changed while the file is in use. */
import { Problem } from '../../domain/problem.ts';
import {
  checkValueOf,
  encryptedAgain,
  passesCheck,
  SECRET_COLUMNS,
  type SecretColumn,
  type SecretRow,
  type SecretTexts,
  secretPlace,
} from '../secrets/instance_secrets.ts';
import { type DataKey, derivedKey, encryptedPrefix, isEncrypted } from '../secrets/secret_cipher.ts';
import { DataKeys, type KeySource } from '../secrets/data_keys.ts';
import type { EncryptionStore } from '../contract/encryption.ts';
import { StoreError } from '../store_error.ts';
import type { Database } from './database.ts';
import { storeErrorOf } from './errors.ts';
import type { Sync } from './sync.ts';

const ROWS_PER_PAGE = 1_000;

/**
 * Finds the data key, or makes it for a new file, and compares it with the check value in the file. Encrypts secrets
 * that an older Convoke wrote in plain text, and leaves no plain text in the file.
 *
 * @throws StoreError when the key is missing, does not fit, or may be read by other users
 */
export function openDataKeys(db: Database, source: KeySource, wall_ms: number): DataKeys {
  const key_ids = checkedKeyIds(db);
  const keys = DataKeys.load(source, key_ids.length > 0);
  for (const { key_id, check_value } of key_ids) {
    const key = keys.keyOf(key_id);
    if (key === undefined || !passesCheck(key, check_value)) throw keys.misfit(key_ids.map((each) => each.key_id));
  }
  if (key_ids.length === 0) {
    transaction(db, () => {
      encryptPlainTexts(db, keys);
      noteKey(db, keys.current, wall_ms);
    });
  } else if (key_ids.every(({ key_id }) => key_id !== keys.current.key_id)) {
    noteKey(db, keys.current, wall_ms);
  } else if (key_ids.length === 1) {
    // A crash may have stopped a change of the key before its last step. This call does that step.
    keys.forgetPrevious();
  }
  removePlainText(db);
  return keys;
}

export function encryptionOperations(db: Database, keys: DataKeys): Sync<EncryptionStore> {
  function keyIds(): { key_id: string; previous_key_ids: string[] } {
    const { key_id } = keys.current;
    const previous_key_ids = checkedKeyIds(db).flatMap((row) => (row.key_id === key_id ? [] : [row.key_id]));
    return { key_id, previous_key_ids };
  }

  return {
    keyIds,
    changeKey(wall_ms: number) {
      const known = checkedKeyIds(db);
      const is_noted = known.some(({ key_id }) => key_id === keys.current.key_id);
      if (is_noted && known.length === 1 && keys.change() === null) throw new Problem('encryption_key_given');
      // An earlier call may have made the key, and its transaction was then rolled back. So the key file holds the key,
      // and only its row in the table is missing.
      noteKey(db, keys.current, wall_ms);
      return keyIds();
    },
    reencrypt(after: string | null, limit: number) {
      const rows = db
        .prepare(
          `SELECT instance_id, ${SECRET_COLUMNS.join(', ')} FROM instances
          WHERE instance_id > ? AND (${UNDER_ANOTHER_KEY}) ORDER BY instance_id LIMIT ?`,
        )
        .all(after ?? '', ...otherKeyParameters(keys), limit) as unknown as SecretRow[];
      const unreadable: string[] = [];
      for (const row of rows) {
        const again = encryptedAgain(keys, row);
        if (again === null) unreadable.push(row.instance_id);
        else rewriteRow(db, row.instance_id, again);
      }
      const next = rows.length < limit ? null : rows.at(-1)!.instance_id;
      return { rewritten: rows.length - unreadable.length, unreadable, next };
    },
    endChange() {
      const left = db
        .prepare(`SELECT 1 FROM instances WHERE ${UNDER_ANOTHER_KEY} LIMIT 1`)
        .get(...otherKeyParameters(keys));
      if (left !== undefined) throw new Error('a row is still under the previous key');
      db.prepare('DELETE FROM encryption_keys WHERE key_id <> ?').run(keys.current.key_id);
    },
    derivedKeys: (purpose: string) => keys.all.map((key) => derivedKey(key, purpose)),
    forgetPreviousKey() {
      const [noted, ...others] = checkedKeyIds(db);
      // Another call may have made a newer key, and failed before it noted the key in the table. Then the rows are
      // encrypted under the previous key.
      if (others.length === 0 && noted?.key_id === keys.current.key_id) keys.forgetPrevious();
    },
  };
}

const UNDER_ANOTHER_KEY = SECRET_COLUMNS.map((column) => `substr(${column}, 1, ?) <> ?`).join(' OR ');

function otherKeyParameters(keys: DataKeys): (string | number)[] {
  const prefix = encryptedPrefix(keys.current.key_id);
  return SECRET_COLUMNS.flatMap(() => [prefix.length, prefix]);
}

function checkedKeyIds(db: Database): { key_id: string; check_value: string }[] {
  const rows = db.prepare('SELECT key_id, check_value FROM encryption_keys ORDER BY created_at').all();
  return rows as { key_id: string; check_value: string }[];
}

function noteKey(db: Database, key: DataKey, wall_ms: number): void {
  db.prepare(
    'INSERT INTO encryption_keys (key_id, check_value, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING',
  ).run(key.key_id, checkValueOf(key), wall_ms);
}

/** Encrypts every secret of the file, a thousand rows at a time, all within the transaction of the caller. */
function encryptPlainTexts(db: Database, keys: DataKeys): void {
  const encrypted = (row: SecretRow, column: SecretColumn): string | null => {
    const text = row[column];
    if (text === null) return null;
    if (isEncrypted(text)) throw new StoreError('SECRET_UNREADABLE', 'secrets are encrypted, and their key is unknown');
    return keys.encrypt(text, secretPlace(column, row.instance_id));
  };
  const next = db.prepare(
    `SELECT instance_id, ${SECRET_COLUMNS.join(', ')} FROM instances WHERE instance_id > ? ORDER BY instance_id LIMIT ?`,
  );
  for (let after = ''; ;) {
    const rows = next.all(after, ROWS_PER_PAGE) as unknown as SecretRow[];
    for (const row of rows) {
      const texts = Object.fromEntries(SECRET_COLUMNS.map((column) => [column, encrypted(row, column)]));
      rewriteRow(db, row.instance_id, texts as unknown as SecretTexts);
    }
    if (rows.length < ROWS_PER_PAGE) return;
    after = rows.at(-1)!.instance_id;
  }
}

function rewriteRow(db: Database, instance_id: string, texts: SecretTexts): void {
  db.prepare(
    `UPDATE instances SET ${SECRET_COLUMNS.map((column) => `${column} = ?`).join(', ')} WHERE instance_id = ?`,
  ).run(...SECRET_COLUMNS.map((column) => texts[column]), instance_id);
}

/**
 * Rewrites a file that once held secrets in plain text. Otherwise these secrets would stay legible in free pages and in
 * the WAL file.
 */
function removePlainText(db: Database): void {
  const { plain_text_left } = db.prepare('SELECT plain_text_left FROM this_file').get() as { plain_text_left: number };
  if (plain_text_left === 0) return;
  try {
    // VACUUM writes the whole file into a temporary database, which may be larger than the memory.
    db.exec('PRAGMA temp_store = FILE');
    db.exec('VACUUM');
    db.exec('PRAGMA temp_store = MEMORY');
    db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    db.exec('UPDATE this_file SET plain_text_left = 0');
  } catch (error) {
    const known = storeErrorOf(error);
    if (!(known instanceof StoreError)) throw error;
    throw new StoreError(
      'PLAIN_TEXT_LEFT',
      `The data file could not be rewritten (${known.code}), and webhook secrets of the previous version may be legible in it: make room for as much as the file takes, beside it and in the directory for temporary files, and start again.`,
    );
  }
}

function transaction(db: Database, run: () => void): void {
  db.exec('BEGIN IMMEDIATE');
  try {
    run();
    db.exec('COMMIT');
  } catch (error) {
    if (db.inTransaction) db.exec('ROLLBACK');
    throw error;
  }
}
