/** Everything that depends on a token ends with it: see end_of_trust.ts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
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
