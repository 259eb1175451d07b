/** During the upgrade of a cluster, nodes of the previous version also deliver, without the new features. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { attemptsText } from '../../src/domain/attempts_text.ts';
import { partitionOf } from '../../src/domain/partition.ts';
import { Connection } from '../../src/store/postgres/connection/connection.ts';
import { openPostgresHere } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { assertProblem, startService } from '../support/service.ts';
import { lane, meeting, messages, settled, WALL } from '../support/store_contents.ts';

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

  // A node of the previous version renews its lease with this function.
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

test('the first attempt of a delivery is stored in the short form once every node knows it, and in full before', async (t) => {
  const database_url = await makeDatabase();
  const connection = await Connection.open(database_url);
  t.after(() => connection.close());
  const stored = async (): Promise<string[]> =>
    (await connection.query<{ attempts: string }>('SELECT attempts FROM deliveries ORDER BY delivery_no')).rows.map(
      ({ attempts }) => attempts,
    );
  const store = await openPostgresHere(database_url);
  t.after(() => store.close());
  const attempts = [
    {
      attempt: 1,
      started_at: new Date(WALL).toISOString(),
      duration_ms: 3,
      outcome: 'ok',
      status_code: 200,
      detail: '',
      response_excerpt: 'hello',
    } as const,
  ];
  const short = `[${WALL},3,200,"hello"]`;
  const renew = () =>
    store.cluster!.renew({ node_id: 'here', version: '0', address: 'http://127.0.0.1:1', stopping: false }, []);
  const epochOf = async (): Promise<number> =>
    (await renew()).partitions.find(({ partition_no }) => partition_no === partitionOf('i'))!.epoch;
  const settleOne = async (epoch: number): Promise<string> => {
    const [accepted] = await store.messages.accept(messages('m', 1));
    assert.equal(accepted?.kind, 'accepted');
    const [delivery] = await lane(store, 'i', 'm');
    await store.deliveries.settle([settled(delivery!, { attempts: attemptsText(attempts), epoch })], []);
    const row = await store.deliveries.get(delivery!.delivery_id, WALL);
    assert.equal(row!.state, 'delivered');
    assert.deepEqual(row!.attempts, attempts, 'both forms are read alike');
    return (await stored()).at(-1)!;
  };
  await meeting(store, 'm', 'i');

  assert.equal(await settleOne(0), JSON.stringify(attempts), 'a node without a lease does not know the others');
  const epoch = await epochOf();
  assert.equal(await settleOne(epoch), short);
  // A node of the previous version renews its lease with this function.
  await connection.query("SELECT renew_lease_2('before', '0', 'http://127.0.0.1:1', 0::smallint, '{}')");
  await renew();
  assert.equal(await settleOne(epoch), JSON.stringify(attempts));
  await connection.query("DELETE FROM nodes WHERE node_id = 'before'");
  await renew();
  assert.equal(await settleOne(epoch), short);
});
