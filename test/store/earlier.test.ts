/** The columns with the earlier tokens and secrets, as this version and the previous one write them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { columnsOfEarlier, storedEarlier } from '../../src/store/rows/earlier.ts';
import { type DamagedValue, onDamagedValue } from '../../src/store/rows/stored_values.ts';
import { type WebhookSecrets, webhookSecrets } from '../../src/store/rows/webhook_secrets.ts';
import { DataKeys } from '../../src/store/secrets/data_keys.ts';

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

const HOUR_MS = 3_600_000;

const NO_SECRETS = { webhook_secret: '', previous_secret: null, previous_secret_until: null, earlier_secrets: null };

/** The row of an instance with two earlier secrets. */
function rotatedTwice(keys: DataKeys): WebhookSecrets {
  const { secretsAfter } = webhookSecrets(keys);
  return ['first', 'second', 'third'].reduce<WebhookSecrets>(
    (row, new_secret, wall_ms) => secretsAfter('i', { row, new_secret }, HOUR_MS, wall_ms),
    NO_SECRETS,
  );
}

/** As after a change of the data key by a node that does not know the list. */
function rowWithListUnderAnotherKey(keys: DataKeys): WebhookSecrets {
  const { earlier_secrets } = rotatedTwice(DataKeys.load({ kind: 'memory' }, false));
  assert.notEqual(earlier_secrets, null);
  return { ...rotatedTwice(keys), earlier_secrets };
}

test('of a list of secrets under a key that is gone only the newest secret counts, and the damage is reported', () => {
  const keys = DataKeys.load({ kind: 'memory' }, false);
  const { secretOf, earlierSecretsOf, rotatedSecrets } = webhookSecrets(keys);
  const row = rowWithListUnderAnotherKey(keys);
  const damages: DamagedValue[] = [];
  onDamagedValue((damage) => damages.push(damage));
  assert.equal(secretOf('i', row.webhook_secret), 'third');
  assert.deepEqual(earlierSecretsOf('i', row), [{ value: 'second', until: HOUR_MS + 2 }]);
  assert.deepEqual(damages, [{ table: 'instances', column: 'earlier_secrets', row: 'i' }]);
  const change = { row, new_secret: 'fourth' };
  const repaired = earlierSecretsOf('i', rotatedSecrets('i', change, HOUR_MS, 3));
  assert.deepEqual(
    repaired.map(({ value }) => value),
    ['third', 'second'],
  );
});

test('a list of secrets under a key that is gone, beside no newest secret, is not read', () => {
  const keys = DataKeys.load({ kind: 'memory' }, false);
  const row = rowWithListUnderAnotherKey(keys);
  onDamagedValue((damaged) => assert.fail(JSON.stringify(damaged)));
  const dropped = { ...row, previous_secret: null, previous_secret_until: null };
  assert.deepEqual(webhookSecrets(keys).earlierSecretsOf('i', dropped), []);
});
