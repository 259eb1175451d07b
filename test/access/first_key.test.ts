/**
 * The first key ends the open API. When several clients create a first key at the same time, only one succeeds. Nobody
 * is locked out, and nobody has a second key that others do not know of.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test, type TestContext } from 'node:test';
import type { ApiKeyWithToken } from '@convoke/sdk';
import { digestOf, isActive, type Scope } from '../../src/domain/api_key.ts';
import type { Problem } from '../../src/domain/problem.ts';
import type { NewApiKey } from '../../src/store/contract/api_keys.ts';
import { ENGINES } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const NOW = 1_000_000;

function newKey(n: number, scopes: Scope[], expires_at: number | null = null): NewApiKey {
  const key_id = `key${String(n).padStart(9, '0')}`;
  return {
    key_id,
    name: null,
    scopes,
    meeting_ids: null,
    instance_id: null,
    digest: digestOf(key_id),
    created_at: NOW,
    expires_at,
  };
}

for (const engine of ENGINES) {
  describe(`first keys that are made at once, on ${engine.name}:`, () => {
    async function outcomes(t: TestContext, keys: NewApiKey[]) {
      const store = await engine.openThread(t);
      const answers = await Promise.all(
        keys.map((key) =>
          store.api_keys.create(key).then(
            () => 'made',
            ({ code }: Problem) => code,
          ),
        ),
      );
      const stored = (await store.api_keys.list({ limit: 100 })).data;
      return { answers, stored };
    }

    test('of admins every one is made', async (t) => {
      const { answers, stored } = await outcomes(
        t,
        Array.from({ length: 8 }, (_, n) => newKey(n, ['admin'])),
      );
      assert.deepEqual(new Set(answers), new Set(['made']));
      assert.equal(stored.length, 8);
    });

    test('of others none is made, as long as no admin is: the service stays open', async (t) => {
      const others = Array.from({ length: 8 }, (_, n) =>
        n % 2 === 0 ? newKey(n, ['read']) : newKey(n, ['admin'], NOW * 2),
      );
      const { answers, stored } = await outcomes(t, others);
      assert.deepEqual(new Set(answers), new Set(['first_key_not_admin']));
      assert.deepEqual(stored, []);
    });

    test('of several keys, with and without the scope admin, those that are made stay, and one of them has it', async (t) => {
      const mixed = Array.from({ length: 16 }, (_, n) => newKey(n, n % 4 === 3 ? ['admin'] : ['send']));
      const { answers, stored } = await outcomes(t, mixed);
      const made = mixed.filter((_, n) => answers[n] === 'made').map(({ key_id }) => key_id);
      assert.deepEqual(stored.map(({ key_id }) => key_id).toSorted(), made.toSorted());
      assert.ok(mixed.every(({ scopes }, n) => !scopes.includes('admin') || answers[n] === 'made'));
      assert.ok(stored.some((key) => key.scopes.includes('admin') && isActive(key, NOW)));
    });
  });
}

/** Requests a first key four times from each service, all at the same time. */
async function assertOneIsMade(services: Service[]): Promise<void> {
  const asked = services.flatMap((service) =>
    Array.from({ length: 4 }, () =>
      service.post<ApiKeyWithToken & { code?: string }>('/api/v1/keys/', { scopes: ['admin'] }),
    ),
  );
  const answers = await Promise.all(asked);
  const [first, ...others] = answers.filter(({ status }) => status === 201).map(({ body }) => body);
  assert.ok(first !== undefined);
  assert.deepEqual(others, []);
  for (const { status, body } of answers) assert.ok(status === 201 || body.code === 'api_key_missing', String(status));
  const headers = { authorization: `Bearer ${first.token}` };
  for (const service of services) {
    await until(
      'the key to be taken, and no request without one',
      async () => [
        (await service.get('/api/v1/keys/')).status,
        (await service.request('GET', '/api/v1/keys/', { headers })).status,
      ],
      (statuses) => statuses.join() === '401,200',
    );
    const keys = await service.request<{ data: { key_id: string }[] }>('GET', '/api/v1/keys/', { headers });
    assert.deepEqual(
      keys.body.data.map(({ key_id }) => key_id),
      [first.key_id],
    );
    const audit = await service.request<{ data: { target_id: string; outcome: string }[] }>(
      'GET',
      '/api/v1/audit/?action=key.create&limit=100',
      { headers },
    );
    assert.deepEqual(
      audit.body.data.filter(({ outcome }) => outcome === 'done').map(({ target_id }) => target_id),
      [first.key_id],
      'nobody got a key unseen',
    );
  }
}

test('of requests that make the first key at once one succeeds', async (t) => {
  await assertOneIsMade([await startService(t)]);
});

test('of requests that make the first key at once on two nodes one succeeds', async (t) => {
  const encryption_key = randomBytes(32).toString('base64');
  const settings = { database_url: await makeDatabase(), encryption_key };
  const first = await startService(t, settings);
  await assertOneIsMade([first, await startService(t, settings)]);
});
