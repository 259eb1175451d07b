/** The places of the secrets of instances, and the check value by which a store recognizes its data key. */
import type { DataKeys } from './data_keys.ts';
import { type DataKey, decrypt, encrypt, type SecretPlace } from './secret_cipher.ts';
import { StoreError } from '../store_error.ts';
import type { InstancesTable } from '../rows/tables.ts';

export const SECRET_COLUMNS = [
  'webhook_headers',
  'webhook_secret',
  'previous_secret',
  'earlier_secrets',
  'runtime',
] as const;

export type SecretColumn = (typeof SECRET_COLUMNS)[number];
export type SecretTexts = Pick<InstancesTable, SecretColumn>;
export type SecretRow = SecretTexts & Pick<InstancesTable, 'instance_id'>;

/** The text that is encrypted with a key and stored beside the id of the key, to recognize the key later. */
const CHECK_TEXT = 'convoke';

/** The place of a secret, which binds the secret to its row and column. */
export function secretPlace(column: SecretColumn, instance_id: string): SecretPlace {
  return { table: 'instances', column, row: instance_id };
}

/** Encrypts the secrets of a row with the current key. Null: a secret of the row cannot be decrypted. */
export function encryptedAgain(keys: DataKeys, row: SecretRow): SecretTexts | null {
  const again = (column: SecretColumn): string | null => {
    const text = row[column];
    const place = secretPlace(column, row.instance_id);
    return text === null ? null : keys.encrypt(keys.decrypt(text, place), place);
  };
  try {
    return Object.fromEntries(SECRET_COLUMNS.map((column) => [column, again(column)])) as unknown as SecretTexts;
  } catch (error) {
    if (error instanceof StoreError && error.code === 'SECRET_UNREADABLE') return null;
    throw error;
  }
}

/** A value that shows later whether a key encrypted the secrets of a store. */
export function checkValueOf(key: DataKey): string {
  return encrypt(key, CHECK_TEXT, checkPlace(key.key_id));
}

/** Whether the key made this check value. */
export function passesCheck(key: DataKey, check_value: string): boolean {
  try {
    return decrypt([key], check_value, checkPlace(key.key_id)) === CHECK_TEXT;
  } catch {
    return false;
  }
}

function checkPlace(key_id: string): SecretPlace {
  return { table: 'encryption_keys', column: 'check_value', row: key_id };
}
