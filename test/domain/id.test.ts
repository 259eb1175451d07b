import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'node:test';
import { IdCodec, makeTag } from '../../src/domain/id.ts';

const TAG = 'a0v9kkkk';
const ids = new IdCodec(TAG);
const numbers = fc.oneof(
  fc.maxSafeNat(),
  fc.constantFrom(0, 1, 31, 32, 2 ** 30 - 1, 2 ** 30, 2 ** 52, Number.MAX_SAFE_INTEGER),
);

test('an id is its prefix, the tag, and eleven digits of base 32, as it always was', () => {
  fc.assert(
    fc.property(numbers, (number) => {
      assert.equal(ids.encode('msg', number), `msg_${TAG}${number.toString(32).padStart(11, '0')}`);
    }),
    { numRuns: 2_000 },
  );
});

test('an id stands for the number that it was made of', () => {
  fc.assert(
    fc.property(numbers, (number) => assert.equal(ids.decode('dlv', ids.encode('dlv', number)), number)),
    { numRuns: 2_000 },
  );
});

test('ids rise with their numbers', () => {
  fc.assert(
    fc.property(numbers, numbers, (a, b) => assert.equal(a < b, ids.encode('msg', a) < ids.encode('msg', b))),
    { numRuns: 2_000 },
  );
});

test('what is changed in any character is no id', () => {
  fc.assert(
    fc.property(numbers, fc.nat(22), fc.string({ unit: 'binary', maxLength: 3 }), (number, at, other) => {
      const id = ids.encode('msg', number);
      const changed = id.slice(0, at) + other + id.slice(at + 1);
      const decoded = ids.decode('msg', changed);
      if (decoded !== null) assert.equal(ids.encode('msg', decoded), changed);
    }),
    { numRuns: 5_000 },
  );
  for (const id of [
    '',
    'msg_',
    ids.encode('dlv', 5),
    `${ids.encode('msg', 5)}0`,
    ids.encode('msg', 5).slice(1),
    ids.encode('msg', 5).toUpperCase(),
    new IdCodec('00000000').encode('msg', 5),
    // From 2^53 on, numbers are not exact.
    `msg_${TAG}80000000000`,
    `msg_${TAG}vvvvvvvvvvv`,
    `msg_${TAG}0000000000w`,
    `msg_${TAG}000000000 0`,
    `msg_${TAG}0000000000\u0660`,
    `msg_${TAG}0000000000\u{1d7d8}`.slice(0, 23),
  ]) {
    assert.equal(ids.decode('msg', id), null, id);
  }
});

test('a tag has eight digits, whatever random gives', () => {
  for (const random of [0, 0.5, 0.999_999_999])
    assert.match(
      makeTag(() => random),
      /^[0-9a-v]{8}$/,
    );
});
