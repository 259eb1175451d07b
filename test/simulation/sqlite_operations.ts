import { IdCodec, NumberSource } from '../../src/domain/id.ts';
import { Database } from '../../src/store/sqlite/database.ts';
import { openDataKeys } from '../../src/store/sqlite/encryption.ts';
import { operationsOf } from '../../src/store/sqlite/operations.ts';
import { Recipients } from '../../src/store/sqlite/meeting_recipients.ts';
import type { StoreOperations } from './model_store.ts';

/** The operations of the SQLite store, in memory, with the ids that the model store makes. */
export function sqliteOperations(wall: () => number): StoreOperations {
  const db = new Database(':memory:');
  const keys = openDataKeys(db, { kind: 'memory' }, wall());
  return operationsOf(db, keys, new NumberSource(wall, 0), new IdCodec('modelled'), new Recipients(db));
}
