/** The columns with the earlier tokens and secrets, as this version and the previous one write them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { columnsOfEarlier, storedEarlier } from '../../src/store/rows/earlier.ts';
import { type DamagedValue, onDamagedValue } from '../../src/store/rows/stored_values.ts';

const THREE = ['c', 'b', 'a'].map((value, n) => ({ value, until: 30 - n }));

const read = (columns: ReturnType<typeof columnsOfEarlier>) =>
  storedEarlier(columns, 'api_keys', 'earlier_tokens', 'key');

test('any number of earlier values is read as it was written', () => {
  for (const earlier of [[], THREE.slice(2), THREE.slice(1), THREE])
    assert.deepEqual(read(columnsOfEarlier(earlier)), earlier);
});

test('a node of the previous version reads the newest one', () => {
  assert.deepEqual(columnsOfEarlier(THREE), { newest: 'c', until: 30, list: JSON.stringify(THREE) });
});

test('after a change by a node of the previous version only what that node wrote counts', () => {
  const { list } = columnsOfEarlier(THREE);
  assert.deepEqual(read({ newest: 'd', until: 40, list }), [{ value: 'd', until: 40 }]);
  assert.deepEqual(read({ newest: 'c', until: 0, list }), [{ value: 'c', until: 0 }]);
  assert.deepEqual(read({ newest: null, until: null, list }), [], 'it revoked the key');
});

test('of a damaged list only the newest value counts, and the damage is reported', () => {
  const damages: DamagedValue[] = [];
  onDamagedValue((damage) => damages.push(damage));
  for (const list of ['', '{}', 'null', '[{"value":"c"}]', '[{"value":"c","until":"30"}]', '[null]'])
    assert.deepEqual(read({ newest: 'c', until: 30, list }), [{ value: 'c', until: 30 }], list);
  assert.deepEqual(damages, [{ table: 'api_keys', column: 'earlier_tokens', row: 'key' }]);
});
