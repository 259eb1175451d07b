import { storeErrorOf } from './errors.ts';
import { openForReading } from './file/reading.ts';
import { MIGRATIONS } from './migrations.ts';

/**
 * How many schema steps a data file has taken, and how many this version knows. Changes nothing.
 *
 * @throws StoreError when the file is in use or is not a data file
 */
export function schemaOfFile(file: string): { present: number; wanted: number } {
  try {
    const db = openForReading(file);
    try {
      const { user_version: present } = db.prepare('PRAGMA user_version').get() as { user_version: number };
      return { present, wanted: MIGRATIONS.length };
    } finally {
      db.close();
    }
  } catch (error) {
    throw storeErrorOf(error);
  }
}
