/** The counts and the history of a whole service, over HTTP, on both stores. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { Counts, CreateKeyInput, Delivery, Instance, InstanceHistory, Page, ServiceHistory } from '@convoke/sdk';
import { makeDatabase } from '../support/postgres.ts';
import { PullingMachine } from '../support/pulling.ts';
import { assertProblem, ON_A_FILE, type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const STORES = {
  SQLite: async () => ON_A_FILE,
  PostgreSQL: async () => ({
    database_url: await makeDatabase(),
    encryption_key: randomBytes(32).toString('base64'),
  }),
};

const countsOf = async (service: Service, token: string): Promise<Counts> => {
  const answer = await service.request<Counts>('GET', '/api/v1/counts/', {
    headers: { authorization: `Bearer ${token}` },
  });
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
};

/** Computes the counts from the lists that the key may read. */
async function listedBy(service: Service, token: string): Promise<Omit<Counts, 'counted_at'>> {
  const headers = { authorization: `Bearer ${token}` };
  const list = async <Row>(path: string): Promise<Row[]> =>
    (await service.request<Page<Row>>('GET', path, { headers })).body.data;
  const instances = { up: 0, failing: 0, down: 0, unknown: 0, off: 0, connected: 0 };
  for (const instance of await list<Instance>('/api/v1/instances/?limit=500')) {
    instances[instance.is_active && instance.webhook_enabled ? instance.health : 'off']++;
    if (instance.connected) instances.connected++;
  }
  const pending = await list<Delivery>('/api/v1/deliveries/?state=pending&limit=500');
  const oldest_pending_at = pending.map(({ created_at }) => created_at).toSorted()[0] ?? null;
  return { instances, deliveries: { pending: pending.length, oldest_pending_at } };
}

const history = async (service: Service, query = ''): Promise<ServiceHistory> => {
  const answer = await service.get<ServiceHistory>(`/api/v1/history/${query}`);
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
};

const sum = (counts: readonly number[]): number => counts.reduce((all, each) => all + each, 0);

for (const [store, settings] of Object.entries(STORES)) {
  describe(store, () => {
    test('counts are those of the lists, for every kind of key', async (t) => {
      const service = await startService(t, await settings());
      const { token: admin } = await service.endOpenMode();
      const keys = [admin];
      for (const input of [
        { scopes: ['read'] },
        { scopes: ['read'], meeting_ids: ['here'] },
        { scopes: ['read'], meeting_ids: ['here', 'there'] },
        { scopes: ['instance'] },
        { scopes: ['instance', 'read'], meeting_ids: ['here'] },
        { scopes: ['instance'], instance_id: 'mine' },
        { scopes: ['instance'] },
      ] as CreateKeyInput[])
        keys.push((await service.createKey(input)).token);

      const nobody = 'http://127.0.0.1:1/';
      const registered = async (instance_id: string, token: string, meetings: string[], url = nobody) => {
        service.token = token;
        await service.register({ instance_id, webhook_url: url });
        service.token = admin;
        for (const meeting_id of meetings) await service.join(meeting_id, instance_id, ['a']);
      };
      await service.member(t, 'here', { registration: { instance_id: 'well' } });
      await service.member(t, 'there', { behaviour: { status: 500 }, registration: { instance_id: 'ill' } });
      await registered('off', admin, ['here']);
      await registered('half-off', admin, ['there']);
      await registered('untried', admin, []);
      await registered('owned', keys[4]!, ['here', 'there']);
      await registered('owned-too', keys[5]!, ['there']);
      await registered('mine', keys[6]!, ['there']);
      await service.patch('off', { is_active: false });
      const sent = [await service.send('here', {}), await service.send('there', {}), await service.send('there', {})];
      await service.patch('half-off', { webhook_enabled: false });
      const puller = await PullingMachine.start(service, []);
      const pull = puller.ask({ wait_s: 60 });
      t.after(async () => {
        await service.close();
        await pull;
      });
      await until(
        'everything to be tried once',
        async () => [await countsOf(service, admin), await service.deliveriesOf(sent[1]!)] as const,
        ([{ instances }, deliveries]) =>
          instances.connected === 1 &&
          instances.up === 1 &&
          deliveries.every(({ attempt_count, state }) => attempt_count > 0 || state === 'pending'),
      );
      const all = await countsOf(service, admin);
      assert.equal(all.instances.off, 2);
      assert.ok(all.deliveries.pending >= 5);
      for (const [i, token] of keys.entries()) {
        // A retry between the requests may change the health of an instance, and the service keeps its counts 19 times as
        // long as it took to count.
        await until(
          `the counts of key ${i} to be those of its lists`,
          async () => [await countsOf(service, token), await listedBy(service, token)] as const,
          ([counted, listed]) => isDeepStrictEqual(counted, { counted_at: counted.counted_at, ...listed }),
        );
      }
      const none = await countsOf(service, keys.at(-1)!);
      assert.equal(sum(Object.values(none.instances)) + none.deliveries.pending, 0);
    });

    test('the history has what was accepted, delivered, and what failed, and another key does not get it', async (t) => {
      const service = await startService(t, await settings());
      const { receiver } = await service.member(t, 'm');
      await service.member(t, 'm', { behaviour: { status: 202 } });
      for (let i = 0; i < 5; i++) await service.send('m', { i });
      await receiver.count(5);
      const read = await until(
        'the second of the last attempt to end',
        () => history(service),
        ({ delivered, failed }) => sum(delivered) >= 5 && sum(failed) >= 5,
      );
      assert.equal(sum(read.accepted), 5);
      assert.equal(sum(read.delivered), 5);
      assert.equal(sum(read.failed_attempts), 5);
      assert.ok(read.p50_ms.some((ms) => ms !== null) && read.p95_ms.some((ms) => ms !== null));
      assert.equal(read.accepted.length * read.step_s * 1_000, Date.parse(read.ends_at) - Date.parse(read.starts_at));
      const later = await history(service, `?span=5m&since=${read.ends_at}`);
      assert.equal(sum(later.accepted), 0);
      assert.equal(later.starts_at, read.ends_at);
      for (const [span, step_s] of [
        ['1h', 10],
        ['24h', 60],
      ])
        assert.equal((await history(service, `?span=${span}`)).step_s, step_s);

      await service.endOpenMode();
      const { token } = await service.createKey({ scopes: ['read'], meeting_ids: ['m'] });
      const headers = { authorization: `Bearer ${token}` };
      assertProblem(await service.request('GET', '/api/v1/history/', { headers }), 403, 'not_permitted');
    });
  });
}

test('the history of an instance has its attempts, and every reader of the instance can read it', async (t) => {
  const service = await startService(t);
  const { instance_id } = await service.member(t, 'm', { behaviour: { status: 202 } });
  await service.settled(await service.send('m', {}));
  const path = `/api/v1/instances/${instance_id}/history/`;
  const read = async (): Promise<InstanceHistory> => (await service.get<InstanceHistory>(path)).body;
  const before = await read();
  assert.deepEqual([sum(before.failed), sum(before.failed_attempts), sum(before.delivered)], [1, 1, 0]);
  assert.equal(before.step_s, 600);
  const { created_at } = await service.instance(instance_id);
  assert.ok(before.counting_since <= created_at || Date.parse(before.counting_since) - Date.parse(created_at) < 1_000);
  assertProblem(await service.get('/api/v1/instances/nobody/history/'), 404, 'instance_does_not_exist');
});

test('a span and a time that are not valid are named', async (t) => {
  const service = await startService(t);
  for (const [query, path, message] of [
    ['span=2h', 'span', 'must be 5m, 1h or 24h'],
    ['since=yesterday', 'since', 'must be an RFC 3339 time such as 2026-03-01T09:30:00.000Z'],
    // A space in the place of the + is a + that nobody encoded.
    [
      'since=2026-01-01T00:00:00+01:00',
      'since',
      'must be an RFC 3339 time such as 2026-03-01T09:30:00.000Z; in a URL a + is a space: write it as %2B, or give the time in UTC with Z',
    ],
    ['since=2026-01-01T00:00:00+01:00+', 'since', 'must be an RFC 3339 time such as 2026-03-01T09:30:00.000Z'],
  ] as const) {
    const { errors } = assertProblem(await service.get(`/api/v1/history/?${query}`), 422, 'invalid_fields');
    assert.deepEqual(errors, [{ path, message }]);
  }
  assert.equal((await service.get('/api/v1/history/?since=2026-01-01T00:00:00%2B01:00')).status, 200);
});
