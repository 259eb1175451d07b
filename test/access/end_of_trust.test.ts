/** Everything that depends on a token ends with it: see end_of_trust.ts. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import pg from 'pg';
import { digestOf, ID_BYTES, makeKeyId, makeToken, SECRET_BYTES } from '../../src/domain/api_key.ts';
import { bearer, endOpenMode, endsWithItsToken, startHouseFor, Things } from './end_of_trust.ts';

endsWithItsToken('SQLite');

test('a node that receives no notification reads by itself which keys changed', async (t) => {
  const house = await startHouseFor(t, 'PostgreSQL');
  await endOpenMode(house);
  const { here } = house;
  const key = await here.createKey({ scopes: ['admin'] });
  const things = await Things.of(t, here, bearer(key.token));
  const database = new pg.Client(house.database_url);
  await database.connect();
  // Changes the row as another node does, but without the NOTIFY, which may be lost.
  await database.query(
    'UPDATE api_keys SET revoked_at = 1, change_no = (SELECT max(change_no) + 1 FROM api_keys) WHERE key_id = $1',
    [key.key_id],
  );
  await database.end();
  assert.deepEqual(await things.feedsEnded(), { key: 'api_key_revoked', session: 'api_key_revoked' });
  assert.deepEqual(await things.asked(), { key: 'api_key_revoked', session: 'api_key_revoked' });
});

test('a node that receives no notification accepts a token that another node has just made', async (t) => {
  const house = await startHouseFor(t, 'PostgreSQL');
  await endOpenMode(house);
  const { here, there } = house;
  const database = new pg.Client(house.database_url);
  await database.connect();
  t.after(() => database.end());
  const next = '(SELECT max(change_no) + 1 FROM api_keys)';
  const statusOf = async (method: string, path: string, token: string) =>
    (await there.request(method, path, { headers: bearer(token) })).status;
  const { key_id } = await here.createKey({ scopes: ['read'] });
  // Write the rows as another node does, but without the NOTIFY, which may be lost.
  for (let n = 0; n < 3; n++) {
    const new_id = makeKeyId(randomBytes(ID_BYTES));
    const of_new_key = makeToken(new_id, randomBytes(SECRET_BYTES));
    await database.query(
      `INSERT INTO api_keys (key_id, scopes, digest, created_at, change_no)
       SELECT $1, scopes, $2, created_at, ${next} FROM api_keys WHERE key_id = $3`,
      [new_id, digestOf(of_new_key), key_id],
    );
    assert.equal(await statusOf('GET', '/api/v1/instances/', of_new_key), 200);
    const rotated = makeToken(key_id, randomBytes(SECRET_BYTES));
    await database.query(`UPDATE api_keys SET digest = $1, change_no = ${next} WHERE key_id = $2`, [
      digestOf(rotated),
      key_id,
    ]);
    assert.equal(await statusOf('POST', '/api/v1/session/', rotated), 201);
  }
});
