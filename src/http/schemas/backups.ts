import Type from 'typebox';
import { madeId, named } from './fields.ts';

export const BackupSchema = Type.Object(
  { backup_id: Type.String({ description: 'The id of the copy.' }) },
  named('Backup', 'A copy of all data that is being made.'),
);

export const BackupProgressSchema = Type.Object(
  {
    pages_total: Type.Integer({ description: 'Pages of the data file; 0 while nothing is copied.' }),
    pages_left: Type.Integer({ description: 'Pages that are not copied yet.' }),
  },
  named('BackupProgress', 'The progress of a copy.'),
);

export const BackupParams = Type.Object({
  backup_id: madeId('The id of a copy.'),
});

/** A SQLite file. Its own type, application/vnd.sqlite3, would make openapi-python-client leave the response out. */
export const BACKUP_TYPE = 'application/octet-stream';

export const BackupFile = Type.Unsafe<string>({
  content: { [BACKUP_TYPE]: { schema: { type: 'string', format: 'binary', description: 'A SQLite file.' } } },
});
