/** The first key ends the open API. When several clients make it at once, nobody is locked out and nobody gets in unseen. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { ApiKeyWithToken } from '@convoke/sdk';
import { digestOf, isActive, type Scope } from '../../src/domain/api_key.ts';
import type { Problem } from '../../src/domain/problem.ts';
import type { NewApiKey } from '../../src/store/contract/api_keys.ts';
import { ENGINES } from '../support/engines.ts';
import { startService } from '../support/service.ts';

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

    test('of both, what is made beside an admin stays, and an admin is always among them', async (t) => {
      const mixed = Array.from({ length: 16 }, (_, n) => newKey(n, n % 4 === 3 ? ['admin'] : ['send']));
      const { answers, stored } = await outcomes(t, mixed);
      const made = mixed.filter((_, n) => answers[n] === 'made').map(({ key_id }) => key_id);
      assert.deepEqual(stored.map(({ key_id }) => key_id).toSorted(), made.toSorted());
      assert.ok(mixed.every(({ scopes }, n) => !scopes.includes('admin') || answers[n] === 'made'));
      assert.ok(stored.some((key) => key.scopes.includes('admin') && isActive(key, NOW)));
    });
  });
}

test('requests that make the first key at once: each that is answered 201 has a key that works and an entry in the audit log', async (t) => {
  const service = await startService(t);
  const answers = await Promise.all(
    Array.from({ length: 8 }, () =>
      service.post<ApiKeyWithToken & { code?: string }>('/api/v1/keys/', { scopes: ['admin'] }),
    ),
  );
  const made = answers.filter(({ status }) => status === 201).map(({ body }) => body);
  assert.ok(made.length >= 1);
  // Those that were read after the first was made need a key as every request does.
  for (const { status, body } of answers) assert.ok(status === 201 || body.code === 'api_key_missing', String(status));
  assert.equal((await service.get('/api/v1/keys/')).status, 401, 'it is open no longer');
  for (const { token, key_id } of made) {
    const headers = { authorization: `Bearer ${token}` };
    const keys = await service.request<{ data: { key_id: string }[] }>('GET', '/api/v1/keys/', { headers });
    assert.deepEqual(keys.body.data.map((key) => key.key_id).toSorted(), made.map((key) => key.key_id).toSorted());
    const audit = await service.request<{ data: { target_id: string; principal: string }[] }>(
      'GET',
      '/api/v1/audit/?action=key.create&limit=100',
      { headers },
    );
    assert.equal(audit.body.data.filter((entry) => entry.target_id === key_id).length, 1);
    assert.equal(audit.body.data.length, made.length, 'nobody got a key unseen');
  }
});
