/** Secrets at rest, the cipher: what was changed, moved or sealed under another key does not open. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseDataKey } from '../../src/domain/data_key.ts';
import {
  dataKeyOf,
  isSealed,
  makeDataKey,
  open,
  seal,
  type SecretPlace,
} from '../../src/store/secrets/secret_cipher.ts';

const KEY = makeDataKey();
const PLACE: SecretPlace = { table: 'instances', column: 'webhook_secret', row: 'laptop-anna' };

const UNREADABLE = { name: 'StoreError', code: 'SECRET_UNREADABLE' };

test('what was sealed opens at its place, whatever the text', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.string(), (secret, row) => {
      const sealed = seal(KEY, secret, { ...PLACE, row });
      assert.ok(isSealed(sealed));
      assert.equal(open([makeDataKey(), KEY], sealed, { ...PLACE, row }), secret);
    }),
  );
});

test('what was moved to another row, column or table does not open', () => {
  const sealed = seal(KEY, 'secret', PLACE);
  for (const elsewhere of [{ row: 'laptop-anna2' }, { column: 'previous_secret' }, { table: 'api_keys' }]) {
    assert.throws(() => open([KEY], sealed, { ...PLACE, ...elsewhere }), UNREADABLE);
  }
  assert.equal(open([KEY], sealed, PLACE), 'secret', 'control: at its own place it does');
});

test('no two places are the same to the tag, however table, column and row are cut', () => {
  const sealed = seal(KEY, 'secret', { table: 'a', column: 'b,c', row: 'd' });
  for (const place of [
    { table: 'a', column: 'b', row: 'c,d' },
    { table: 'a,b', column: 'c', row: 'd' },
    { table: 'a","b', column: 'c', row: 'd' },
  ]) {
    assert.throws(() => open([KEY], sealed, place), UNREADABLE);
  }
});

test('a change of any one bit is noticed: of nonce, ciphertext, tag, and of the id of the key', () => {
  const sealed = seal(KEY, 'secret', PLACE);
  const head = sealed.slice(0, sealed.lastIndexOf('.') + 1);
  const bytes = Buffer.from(sealed.slice(head.length), 'base64url');
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3]! ^= 1 << (bit & 7);
    assert.throws(() => open([KEY], head + changed.toString('base64url'), PLACE), UNREADABLE, `bit ${bit}`);
  }
  for (let length = 0; length < bytes.length; length++) {
    assert.throws(() => open([KEY], head + bytes.subarray(0, length).toString('base64url'), PLACE), UNREADABLE);
  }
  const other_id = head.replace(KEY.key_id, makeDataKey().key_id);
  assert.throws(() => open([KEY], other_id + sealed.slice(head.length), PLACE), UNREADABLE);
  assert.equal(open([KEY], head + bytes.toString('base64url'), PLACE), 'secret', 'control: unchanged, it opens');
});

test('under another key it does not open, nor does plain text', () => {
  const sealed = seal(KEY, 'secret', PLACE);
  const other = makeDataKey();
  assert.throws(() => open([other], sealed, PLACE), UNREADABLE);
  // A key that claims the id does not help.
  assert.throws(() => open([{ ...other, key_id: KEY.key_id }], sealed, PLACE), UNREADABLE);
  for (const plain of ['', 'secret', '{}', `v1.${KEY.key_id}.`])
    assert.throws(() => open([KEY], plain, PLACE), UNREADABLE);
});

test('the same secret is sealed differently each time, and its error says nothing of it', () => {
  const sealed = Array.from({ length: 1_000 }, () => seal(KEY, 'secret', PLACE));
  assert.equal(new Set(sealed).size, 1_000);
  const nonces = sealed.map((text) => Buffer.from(text.split('.')[2]!, 'base64url').toString('hex', 0, 12));
  assert.equal(new Set(nonces).size, 1_000, 'no nonce twice under one key');
  try {
    open([makeDataKey()], sealed[0]!, PLACE);
    assert.fail('it must not open');
  } catch (error) {
    assert.doesNotMatch((error as Error).message, /secret"|v1\./);
    assert.match((error as Error).message, /webhook_secret of "laptop-anna" in instances does not open/);
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
