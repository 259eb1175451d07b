/** The names of the files in the data directory. */

export const DATABASE_FILE = 'convoke.db';

export const KEY_FILE = 'encryption.key';
