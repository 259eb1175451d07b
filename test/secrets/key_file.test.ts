/** The file with the data key: what a change of the key leaves in it. */
import assert from 'node:assert/strict';
import { lstatSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { readKeyFile, writeKeyFile } from '../../src/store/secrets/key_file.ts';
import { makeDataKey } from '../../src/store/secrets/secret_cipher.ts';
import { Database } from '../../src/store/sqlite/database.ts';
import { encryptionOperations, openDataKeys } from '../../src/store/sqlite/encryption.ts';
import { temporaryFile } from '../support/node.ts';

test('a link to the key stays a link, and the file that it points to gets the new key', (t) => {
  const directory = dirname(temporaryFile(t));
  const [link, path] = [join(directory, 'encryption.key'), join(directory, 'kept_elsewhere.key')];
  writeKeyFile(path, { current: makeDataKey(), previous: null });
  symlinkSync(path, link);
  const next = makeDataKey();
  writeKeyFile(link, { current: next, previous: null });
  assert.ok(lstatSync(link).isSymbolicLink());
  assert.equal(readFileSync(path, 'utf8'), `${next.key.export().toString('base64')}\n`);
});

test('a link to a key that is not there yet stays a link, and the first key is made where it points to', (t) => {
  const directory = dirname(temporaryFile(t));
  const [link, path] = [join(directory, 'encryption.key'), join(directory, 'kept_elsewhere', 'convoke.key')];
  const key = makeDataKey();
  symlinkSync('kept_elsewhere/convoke.key', link);
  assert.throws(() => writeKeyFile(link, { current: key, previous: null }), {
    code: 'ENCRYPTION_KEY_UNREADABLE',
    message: /there is no directory \S+kept_elsewhere: make it, or mount its disk/,
  });
  mkdirSync(dirname(path));
  writeKeyFile(link, { current: key, previous: null });
  assert.ok(lstatSync(link).isSymbolicLink());
  assert.equal(readFileSync(path, 'utf8'), `${key.key.export().toString('base64')}\n`);
});

test('a directory in the place of the key is named as such', (t) => {
  const path = join(dirname(temporaryFile(t)), 'encryption.key');
  mkdirSync(path);
  assert.throws(() => readKeyFile(path), { code: 'ENCRYPTION_KEY_MALFORMED', message: /is a directory/ });
});

test('the key in use stays in the file when a second change of the key fails before the first one ends', (t) => {
  const file = temporaryFile(t);
  const source = { kind: 'file', path: join(dirname(file), 'encryption.key') } as const;
  const db = new Database(file);
  t.after(() => db.close());
  const operations = encryptionOperations(db, openDataKeys(db, source, 0));
  operations.changeKey(1);
  operations.endChange();
  const in_use = operations.keyIds().key_id;
  db.exec('BEGIN');
  operations.changeKey(2);
  db.exec('ROLLBACK');
  operations.forgetPreviousKey();
  assert.doesNotThrow(() => openDataKeys(db, source, 3), `the file has lost ${in_use}`);
});
