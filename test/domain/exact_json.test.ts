/** Numbers that JavaScript would change keep the digits of the text. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseExactly } from '../../src/domain/exact_json.ts';

for (const number of [
  '12345678901234567890',
  '0.12345678901234567890',
  '1e400',
  '1E2',
  '1.10',
  '1.0',
  '0.000',
  '-0',
  '-0.0',
  '-0.50',
])
  test(`every digit of ${number} is kept, wherever it is`, () => {
    for (const text of [`{"n":${number}}`, `{"a":[1,${number},{"n":${number}}],"b":"x"}`, `[${number}]`, number])
      assert.equal(JSON.stringify(parseExactly(text)), text);
    const spaced = `{"n": ${number} \n, "b": [ ${number} ] }`;
    assert.equal(JSON.stringify(parseExactly(spaced)), `{"n":${number},"b":[${number}]}`);
  });

for (const text of ['{"n":1.1}', '{"n":-0.5,"m":100}', '{"at":"2026-03-01T09:30:00.000Z","version":"1.10"}'])
  test(`what JavaScript changes nothing of stays as it is: ${text}`, () =>
    assert.deepEqual(parseExactly(text), JSON.parse(text)));
