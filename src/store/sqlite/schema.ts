import type { SchemaState } from '../contract/schema_state.ts';
import { storeErrorOf } from './errors.ts';
import { StoreError } from '../store_error.ts';
import { lookAt } from './file/reading.ts';
import { MIGRATIONS } from './migrations.ts';

/**
 * How many schema steps a data file has taken, and how many this version knows. Changes nothing.
 *
 * @throws StoreError when the file is in use or is not a data file
 */
export function schemaOfFile(file: string): SchemaState {
  try {
    const user_version = lookAt(file, (db) => db.prepare('PRAGMA user_version').get());
    const { user_version: present } = user_version as { user_version: number };
    const wanted = MIGRATIONS.length;
    return { present, wanted, may_start: present <= wanted, upgrade_waits_for: [] };
  } catch (error) {
    const known = storeErrorOf(error);
    if (known === error || !(known instanceof StoreError)) throw known;
    throw new StoreError(known.code, `${file} cannot be read: ${known.message}`);
  }
}
