/** While a cluster is upgraded, nodes of the previous version deliver too, and know no runtimes. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { Connection } from '../../src/store/postgres/connection/connection.ts';
import { makeDatabase } from '../support/postgres.ts';
import { assertProblem, startService } from '../support/service.ts';

test('an instance with a runtime is refused while a node of the previous version is there, and taken when it has left', async (t) => {
  const database_url = await makeDatabase();
  const service = await startService(t, { database_url, encryption_key: randomBytes(32).toString('base64') });
  const register = (instance_id: string, more: object) =>
    service.post('/api/v1/instances/register/', {
      instance_id,
      instance_name: 'i',
      agent_ids: ['a'],
      webhook_url: 'http://127.0.0.1:9/v1',
      ...more,
    });
  const runtime = { runtime: 'openai', runtime_options: { model: 'x' } };
  const connection = await Connection.open(database_url);
  t.after(() => connection.close());

  // The function by which a node of the previous version renews its lease.
  await connection.query("SELECT renew_lease('before', '0.1.0', 'http://127.0.0.1:1', 0::smallint, '{}')");
  const refused = await register('shaped', runtime);
  const { detail } = assertProblem(refused, 503, 'overloaded');
  assert.match(detail, /A node of the previous version still runs, and knows no runtimes/);
  assert.equal(refused.headers['retry-after'], '10');
  assert.equal((await service.get('/api/v1/instances/shaped/')).status, 404);
  assert.equal((await register('plain', {})).status, 201, 'the pushes of the specification need no such node to leave');

  await connection.query("DELETE FROM nodes WHERE node_id = 'before'");
  assert.equal((await register('shaped', runtime)).status, 201);
});
