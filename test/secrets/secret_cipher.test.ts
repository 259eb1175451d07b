/** The cipher of stored secrets: a value that was changed, moved, or encrypted with another key cannot be decrypted. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseDataKey } from '../../src/domain/data_key.ts';
import {
  dataKeyOf,
  isEncrypted,
  makeDataKey,
  decrypt,
  encrypt,
  type SecretPlace,
} from '../../src/store/secrets/secret_cipher.ts';

const KEY = makeDataKey();
const PLACE: SecretPlace = { table: 'instances', column: 'webhook_secret', row: 'laptop-anna' };

const UNREADABLE = { name: 'StoreError', code: 'SECRET_UNREADABLE' };

test('what was encrypted can be decrypted at its place, whatever the text', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.string(), (secret, row) => {
      const encrypted = encrypt(KEY, secret, { ...PLACE, row });
      assert.ok(isEncrypted(encrypted));
      assert.equal(decrypt([makeDataKey(), KEY], encrypted, { ...PLACE, row }), secret);
    }),
  );
});

test('what was moved to another row, column or table cannot be decrypted', () => {
  const encrypted = encrypt(KEY, 'secret', PLACE);
  for (const elsewhere of [{ row: 'laptop-anna2' }, { column: 'previous_secret' }, { table: 'api_keys' }]) {
    assert.throws(() => decrypt([KEY], encrypted, { ...PLACE, ...elsewhere }), UNREADABLE);
  }
  assert.equal(decrypt([KEY], encrypted, PLACE), 'secret', 'control: at its own place it does');
});

test('no two places are the same to the tag, however table, column and row are cut', () => {
  const encrypted = encrypt(KEY, 'secret', { table: 'a', column: 'b,c', row: 'd' });
  for (const place of [
    { table: 'a', column: 'b', row: 'c,d' },
    { table: 'a,b', column: 'c', row: 'd' },
    { table: 'a","b', column: 'c', row: 'd' },
  ]) {
    assert.throws(() => decrypt([KEY], encrypted, place), UNREADABLE);
  }
});

test('a change of any one bit is noticed: of nonce, ciphertext, tag, and of the id of the key', () => {
  const encrypted = encrypt(KEY, 'secret', PLACE);
  const head = encrypted.slice(0, encrypted.lastIndexOf('.') + 1);
  const bytes = Buffer.from(encrypted.slice(head.length), 'base64url');
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3]! ^= 1 << (bit & 7);
    assert.throws(() => decrypt([KEY], head + changed.toString('base64url'), PLACE), UNREADABLE, `bit ${bit}`);
  }
  for (let length = 0; length < bytes.length; length++) {
    assert.throws(() => decrypt([KEY], head + bytes.subarray(0, length).toString('base64url'), PLACE), UNREADABLE);
  }
  const other_id = head.replace(KEY.key_id, makeDataKey().key_id);
  assert.throws(() => decrypt([KEY], other_id + encrypted.slice(head.length), PLACE), UNREADABLE);
  assert.equal(
    decrypt([KEY], head + bytes.toString('base64url'), PLACE),
    'secret',
    'control: unchanged, it can be decrypted',
  );
});

test('under another key it cannot be decrypted, nor can plain text', () => {
  const encrypted = encrypt(KEY, 'secret', PLACE);
  const other = makeDataKey();
  assert.throws(() => decrypt([other], encrypted, PLACE), UNREADABLE);
  // Another key with the same id does not help.
  assert.throws(() => decrypt([{ ...other, key_id: KEY.key_id }], encrypted, PLACE), UNREADABLE);
  for (const plain of ['', 'secret', '{}', `v1.${KEY.key_id}.`])
    assert.throws(() => decrypt([KEY], plain, PLACE), UNREADABLE);
});

test('the same secret is encrypted differently each time, and its error does not contain it', () => {
  const encrypted = Array.from({ length: 1_000 }, () => encrypt(KEY, 'secret', PLACE));
  assert.equal(new Set(encrypted).size, 1_000);
  const nonces = encrypted.map((text) => Buffer.from(text.split('.')[2]!, 'base64url').toString('hex', 0, 12));
  assert.equal(new Set(nonces).size, 1_000, 'no nonce twice under one key');
  try {
    decrypt([makeDataKey()], encrypted[0]!, PLACE);
    assert.fail('it must not be decrypted');
  } catch (error) {
    assert.doesNotMatch((error as Error).message, /secret"|v1\./);
    assert.match((error as Error).message, /webhook_secret of "laptop-anna" in instances cannot be decrypted/);
  }
});

test('a key is known by its id, and its bytes are not shown', () => {
  const bytes = Buffer.alloc(32, 7);
  const key = dataKeyOf(createSecretKey(bytes));
  assert.equal(key.key_id, dataKeyOf(createSecretKey(bytes)).key_id);
  assert.notEqual(key.key_id, KEY.key_id);
  assert.ok(!JSON.stringify(key).includes(bytes.toString('base64').slice(0, 8)));
  assert.throws(() => dataKeyOf(createSecretKey(Buffer.alloc(16))), RangeError);
});

test('a data key is read from padded base64 of 32 bytes and from nothing else', () => {
  const text = Buffer.alloc(32, 0xfb).toString('base64');
  assert.deepEqual(parseDataKey(text)?.export(), Buffer.alloc(32, 0xfb));
  for (const wrong of [
    '',
    text.slice(0, -1),
    `${text}\n`,
    `${text}=`,
    text.replaceAll('+', '-'),
    'A'.repeat(44),
    text.slice(4),
  ]) {
    assert.equal(parseDataKey(wrong), null, wrong);
  }
});
