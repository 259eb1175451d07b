/** The file with the data key: what a change of the key leaves in it. */
import assert from 'node:assert/strict';
import fs, { existsSync, lstatSync, mkdirSync, readFileSync, rmdirSync, symlinkSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Problem } from '../../src/domain/problem.ts';
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

/** Lets a function of node:fs fail from its call number `from` on, until the returned function is called. */
function failing(t: TestContext, name: 'renameSync' | 'fsyncSync', code: string, from = 1): () => void {
  const original = fs[name] as (...args: unknown[]) => void;
  let calls = 0;
  const mocked = t.mock.method(fs, name, (...args: unknown[]) => {
    if (++calls >= from) throw Object.assign(new Error(`${code}: ${name}`), { code });
    original(...args);
  });
  syncBuiltinESMExports();
  return () => {
    mocked.mock.restore();
    syncBuiltinESMExports();
  };
}

function openedFile(t: TestContext) {
  const file = temporaryFile(t);
  const path = join(dirname(file), 'encryption.key');
  const db = new Database(file);
  t.after(() => db.close());
  const open = () => openDataKeys(db, { kind: 'file', path }, 0);
  return { path, open, operations: encryptionOperations(db, open()) };
}

test('a key file that cannot be replaced is named with what to do, keeps the key, and leaves no other file', (t) => {
  const { path, operations, open } = openedFile(t);
  const before = operations.keyIds();
  const refused = (expected: RegExp) =>
    assert.throws(
      () => operations.changeKey(1),
      ({ code, message }: Problem) => {
        assert.equal(code, 'encryption_key_not_written');
        assert.ok(message.startsWith(path), message);
        assert.match(message, expected);
        return true;
      },
    );
  for (const [code, expected] of [
    [
      'EBUSY',
      /\(EBUSY\): it is mounted as a single file\. Stop the service and mount the directory of the file instead/,
    ],
    ['EROFS', /\(EROFS\): let the service write in the directory of this file/],
    ['ENOSPC', /\(ENOSPC\): make room on its disk\.$/],
  ] as const) {
    const mend = failing(t, 'renameSync', code);
    refused(expected);
    mend();
    assert.ok(!existsSync(`${path}.new`));
  }
  mkdirSync(`${path}.new`);
  refused(/cannot be replaced/);
  rmdirSync(`${path}.new`);
  assert.deepEqual(operations.keyIds(), before);
  assert.equal(open().current.key_id, before.key_id);
  assert.notEqual(operations.changeKey(1).key_id, before.key_id);
});

test('a change that fails when the new key is in the file already loses no key, and is made again', (t) => {
  const { path, operations, open } = openedFile(t);
  const { key_id } = operations.keyIds();
  const mend = failing(t, 'fsyncSync', 'EIO', 2);
  assert.throws(() => operations.changeKey(1), { code: 'encryption_key_not_written' });
  mend();
  assert.equal(readFileSync(path, 'utf8').trimEnd().split('\n').length, 2, 'the file has both keys');
  // Secrets that are stored now are under the key in use, and a start finds it.
  assert.deepEqual(operations.keyIds(), { key_id, previous_key_ids: [] });
  assert.ok(readKeyFile(path)?.previous?.key_id === key_id);
  const changed = operations.changeKey(2);
  assert.deepEqual(changed.previous_key_ids, [key_id]);
  assert.equal(open().current.key_id, changed.key_id);
});
