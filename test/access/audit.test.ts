/** The audit log: every change leaves an entry, nobody can change an entry unnoticed, and no entry has a secret. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { all, type AuditEntry, ConvokeClient, type ListAuditQuery } from '@convoke/sdk';
import { CHAIN_START, ChainVerifier, hashOf, type NewAuditEntry } from '../../src/domain/audit.ts';
import type { Store } from '../../src/store/store.ts';
import { DAY_MS, entryOf, faultIn } from '../support/audit.ts';
import { ENGINES } from '../support/engines.ts';
import { HOUR, MINUTE, openStoreHere, startNode } from '../support/node.ts';
import { messagesPath, refusalByStore, type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const WEBHOOK_URL = 'http://127.0.0.1:1/';

function clientOf(service: Service): ConvokeClient {
  return new ConvokeClient({ base_url: service.url, ...(service.token === null ? {} : { api_key: service.token }) });
}

async function entriesOf(client: ConvokeClient, query: ListAuditQuery = {}): Promise<AuditEntry[]> {
  const entries: AuditEntry[] = [];
  for await (const entry of all((start) => client.listAudit({ order: 'oldest', limit: 7, ...query, ...start })))
    entries.push(entry);
  return entries;
}

/**
 * The entries after one, the newest first, when there are this many. A response does not wait for the entry of its
 * refusal.
 */
function entriesAfter(client: ConvokeClient, seq: number, count: number): Promise<AuditEntry[]> {
  return until(
    `${count} entries`,
    async () => (await client.listAudit({ limit: 10 })).data.filter((entry) => entry.seq > seq),
    ({ length }) => length >= count,
  );
}

describe('every route that changes something', () => {
  /** Operations that this test leaves out, with the reason. */
  const EXEMPT: Record<string, string> = {
    heartbeat: 'a machine says it every minute',
    pull: 'a machine does it all the time',
    sendMessage: 'the history tells of it',
    sendMessages: 'the same',
    sendReply: 'the same',
    // test/access/sessions.test.ts tests the entries of the next two.
    signIn: 'every key may, so that it cannot be refused here',
    signInByLink: 'nobody is asked for a key',
    redeemInvite: 'nobody is asked for a key: test/access/invites.test.ts',
    startDemo: 'each of its instances leaves entries as well: test/pages/demo.test.ts',
    stopDemo: 'the same',
    signOut: 'without a session there is nothing to end',
  };

  interface Ids {
    instance_id: string;
    delivery_id: string;
    key_id: string;
    session_id: string;
    invite_id: string;
    meeting_id: string;
  }

  /** For each operation, the path and the body of a request that succeeds, and of a request that is refused. */
  const instance = { instance_name: 'n', agent_ids: ['a'], webhook_url: WEBHOOK_URL };
  const ASKS: Record<string, (ids: Ids) => [body: object | undefined, action: string]> = {
    register: ({ instance_id }) => [{ ...instance, instance_id }, 'instance.register'],
    updateInstance: () => [{ owner_key_id: null }, 'instance.hand_over'],
    deleteInstance: () => [undefined, 'instance.delete'],
    rotateSecret: () => [undefined, 'instance.rotate_secret'],
    recover: () => [{ since: '2026-01-01T00:00:00Z' }, 'instance.recover'],
    testWebhook: ({ instance_id }) => [{ instance_id }, 'instance.webhook_test'],
    joinMeeting: ({ instance_id }) => [{ instance_id, meeting_id: 'm', agent_ids: ['a'] }, 'meeting.join'],
    leaveMeeting: ({ instance_id }) => [{ instance_id, meeting_id: 'm' }, 'meeting.leave'],
    updateMembership: () => [{ wake: 'people' }, 'membership.update'],
    updateMeeting: () => [{ paused: true }, 'meeting.update'],
    dropDeliveries: ({ instance_id }) => [{ instance_id }, 'delivery.drop'],
    retryDelivery: () => [undefined, 'delivery.retry'],
    createKey: () => [{ scopes: ['read'] }, 'key.create'],
    revokeKey: () => [undefined, 'key.revoke'],
    rotateKey: () => [undefined, 'key.rotate'],
    createPortalLink: () => [undefined, 'portal_link.create'],
    createInvite: () => [{ meeting_ids: ['m'], agent_ids: ['a'] }, 'invite.create'],
    revokeInvite: () => [undefined, 'invite.revoke'],
    endSession: () => [undefined, 'session.end'],
    reencrypt: () => [undefined, 'encryption.reencrypt'],
    beginBackup: () => [undefined, 'service.backup'],
  };

  test('leaves an entry when it is done and when it is refused, or is named as exempt', async (t) => {
    const service = await startService(t);
    const { key_id: admin } = await service.endOpenMode();
    const client = clientOf(service);
    const reader = (await service.createKey({ scopes: ['read'] })).token;
    const { body } = await service.get<{ paths: Record<string, Record<string, { operationId: string }>> }>(
      '/openapi.json',
    );
    const operations = Object.entries(body.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => ({ path, method: method.toUpperCase(), operationId })),
    );
    const changing = operations.filter(({ method, operationId }) => method !== 'GET' && !(operationId in EXEMPT));
    assert.deepEqual(changing.map(({ operationId }) => operationId).toSorted(), Object.keys(ASKS).toSorted());
    for (const { path, method, operationId } of changing) {
      const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
      await service.join('m', instance_id, ['a']);
      const sent = await service.send('m', {}, ['a']);
      const deliveries = await service.deliveriesOf(sent);
      const { delivery_id } = deliveries.find((each) => each.instance_id === instance_id) ?? { delivery_id: '' };
      const { key_id } = await service.createKey({ scopes: ['instance'] });
      await service.post('/api/v1/session/');
      const { session_id } = (await client.listSessions({ limit: 1 })).data[0]!;
      const { invite_id } = await client.createInvite({ meeting_ids: ['m'], agent_ids: ['a'] });
      const ids: Ids = { instance_id, delivery_id, key_id, session_id, invite_id, meeting_id: 'm' };
      const [asked, action] = ASKS[operationId]!(ids);
      const at = path.replaceAll(/\{(\w+)\}/g, (_, name: keyof Ids) => ids[name]);
      const last = (await client.listAudit({ limit: 1 })).data[0]!.seq;
      const headers = { authorization: `Bearer ${reader}` };
      const refused = await service.request(method, at, { headers, ...(asked && { body: asked }) });
      assert.equal(refused.status, 403, `${operationId}: ${refused.text}`);
      await entriesAfter(client, last, 1);
      const done = await service.request<{ code?: string }>(method, at, asked === undefined ? {} : { body: asked });
      const by_store = refusalByStore(operationId);
      assert.ok(done.status < 300 || done.body.code === by_store, `${operationId}: ${done.text}`);
      const [entry, refusal, ...others] = await entriesAfter(client, last, 2);
      assert.equal(others.length, 0, `${operationId} leaves two entries`);
      assert.deepEqual(
        [entry!.principal, entry!.action, entry!.outcome, entry!.code, entry!.address],
        [admin, action, by_store === null ? 'done' : 'refused', by_store, '127.0.0.1'],
      );
      assert.deepEqual([refusal!.outcome, refusal!.code], ['refused', 'not_permitted']);
      assert.equal(refusal!.principal, reader.slice(4, 16));
      if (operationId === 'updateInstance')
        assert.deepEqual(entry!.details, { fields: ['owner_key_id'], owner_key_id: null });
    }
    const entries = await entriesOf(client);
    assert.equal(faultIn(entries), null);
    assert.deepEqual(
      new Set((await entriesOf(client, { key_id: admin })).map(({ principal }) => principal)),
      new Set([admin]),
    );
    assert.ok((await entriesOf(client, { action: 'key.rotate' })).every(({ action }) => action === 'key.rotate'));
  });

  test('that is refused by its body, by the store or by a wrong key leaves one too, and a flood of them few', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const client = clientOf(service);
    const { seq: last } = (await client.listAudit({ limit: 1 })).data[0]!;
    await service.post('/api/v1/instances/register/', { instance_id: 'i' });
    await entriesAfter(client, last, 1);
    await service.request('DELETE', '/api/v1/instances/nobody/');
    await entriesAfter(client, last, 2);
    for (let i = 0; i < 60; i++)
      await service.post(messagesPath('m'), { message: {} }, { authorization: 'Bearer cvk_x' });
    const entries = await entriesAfter(client, last, 3);
    assert.deepEqual(
      entries.toReversed().map(({ principal, action, code, target_id }) => [principal.length, action, code, target_id]),
      [
        [12, 'instance.register', 'invalid_fields', 'i'],
        [12, 'instance.delete', 'instance_does_not_exist', 'nobody'],
        [7, 'authenticate', 'api_key_malformed', null],
      ],
    );
  });
});

test('a refused request with an id that is none leaves its entry without the id, and the chain whole', async (t) => {
  const service = await startService(t);
  await service.endOpenMode();
  const client = clientOf(service);
  const { seq: last } = (await client.listAudit({ limit: 1 })).data[0]!;
  const headers = { 'content-type': 'application/json' };
  for (const body of ['{"instance_id":"a\\ud800b"}', '{"instance_id":"a\\u0000b","meeting_id":"\\udfff"}'])
    await service.request('POST', '/api/v1/instances/register/', { body, headers });
  await service.request('DELETE', '/api/v1/instances/a%00b/');
  await entriesAfter(client, last, 2);
  await service.request('DELETE', '/api/v1/instances/nobody/');
  const entries = await entriesAfter(client, last, 3);
  assert.deepEqual(
    entries.toReversed().map(({ outcome, target_id }) => [outcome, target_id]),
    [
      // Two refusals that are alike are one entry.
      ['refused', null],
      ['refused', null],
      ['refused', 'nobody'],
    ],
  );
  assert.equal(faultIn(await entriesOf(client)), null);
});

describe('the chain', () => {
  const entry = (n: number): NewAuditEntry => ({ ...entryOf(n), details: { fields: ['b', 'a'] } });

  async function written(t: TestContext, count = 6): Promise<AuditEntry[]> {
    const store = openStoreHere();
    t.after(() => store.close());
    await Promise.all(Array.from({ length: count }, (_, n) => store.audit.append(entry(n), n)));
    return (await store.audit.list({ newest_first: false, limit: 500 }, 500)).data;
  }

  test('is whole as it was written, and begins with zeros', async (t) => {
    const entries = await written(t);
    assert.equal(entries[0]!.prev_hash, CHAIN_START);
    assert.equal(faultIn(entries), null);
    assert.equal(faultIn(entries, { seq: 6, hash: entries[5]!.hash }), null);
  });

  test('breaks where a row was changed, removed, inserted or moved, even where its hash was computed again', async (t) => {
    const entries = await written(t);
    const changed = (at: number, change: Partial<AuditEntry>): AuditEntry[] =>
      entries.map((each, i) => (i === at ? { ...each, ...change } : each));
    for (const change of [
      { principal: 'x' },
      { address: null },
      { at: '2026-01-01T00:00:00.000Z' },
      { action: 'key.create' },
      { target_id: 'x' },
      { outcome: 'refused' },
      { code: 'x' },
      { details: { fields: ['a'] } },
      { prev_hash: CHAIN_START },
    ] as Partial<AuditEntry>[])
      assert.equal(faultIn(changed(2, change)), 3, JSON.stringify(change));
    const { hash: _hash, ...third } = { ...entries[2]!, principal: 'x' };
    assert.equal(faultIn(changed(2, { principal: 'x', hash: hashOf(third) })), 4, 'the next one does not follow it');
    assert.equal(faultIn(entries.toSpliced(2, 1)), 3);
    assert.equal(faultIn(entries.toSpliced(2, 0, entries[1]!)), 3);
    assert.equal(faultIn(entries.toSpliced(2, 2, entries[3]!, entries[2]!)), 3);
    const moved = entries.toSpliced(2, 2, { ...entries[3]!, seq: 3 }, { ...entries[2]!, seq: 4 });
    assert.equal(faultIn(moved), 3);
  });

  test('that lost its tail is found by a head that was kept, and by nothing else', async (t) => {
    const entries = await written(t);
    const kept = { seq: 6, hash: entries[5]!.hash };
    assert.equal(faultIn(entries.slice(0, 4), kept), 5);
    assert.equal(faultIn(entries.slice(0, 4)), null, 'control');
    assert.equal(faultIn(entries, { ...kept, hash: CHAIN_START }), 6);
  });
});

/** The times of a removal while no entry is dated ahead. */
const olderThan = (before_ms: number) => ({ before_ms, future_ms: Number.MAX_SAFE_INTEGER });

async function allOf(store: Store): Promise<AuditEntry[]> {
  return (await store.audit.list({ newest_first: false, limit: 500 }, 500)).data;
}

for (const engine of ENGINES) {
  describe(`the first entries of the log are removed, on ${engine.name}:`, () => {
    /** A store with twelve entries, one for each day. */
    async function twelveDays(t: TestContext): Promise<Store> {
      const store = await engine.open(t);
      for (let day = 1; day <= 12; day++) await store.audit.append(entryOf(day), day * DAY_MS);
      return store;
    }

    test('the chain stays whole, and says how many there were and until when', async (t) => {
      const store = await twelveDays(t);
      const before = await allOf(store);
      assert.equal(await store.audit.prune(olderThan(8 * DAY_MS), 500, 20 * DAY_MS), 7);
      const entries = await allOf(store);
      assert.deepEqual(
        entries.map(({ seq }) => seq),
        [8, 9, 10, 11, 12, 13],
      );
      const removal = { removed: 7, removed_to: 7, removed_hash: before[6]?.hash, removed_until: before[6]?.at };
      assert.deepEqual([entries[5]?.action, entries[5]?.details], ['audit.prune', removal]);
      assert.equal(faultIn(entries), null);
      const verifier = new ChainVerifier();
      for (const entry of entries) verifier.next(entry);
      assert.deepEqual(verifier.removed, { entries: 7, until: before[6]?.at });
      assert.equal(faultIn(entries, { seq: 13, hash: entries[5]!.hash }), null);
      assert.equal(faultIn(entries, { seq: 7, hash: before[6]!.hash }), null, 'the last one removed is still known');
      assert.equal(faultIn(entries, { seq: 7, hash: CHAIN_START }), 7);
      assert.equal(faultIn(entries, { seq: 6, hash: before[5]!.hash }), 6, 'of those before it nobody can say');

      assert.equal(await store.audit.prune(olderThan(8.5 * DAY_MS), 500, 20 * DAY_MS), 0, 'about once a day');
      assert.equal(await store.audit.prune(olderThan(11.5 * DAY_MS), 2, 21 * DAY_MS), 2, 'so many at a time');
      assert.equal(await store.audit.prune(olderThan(11.5 * DAY_MS), 2, 21 * DAY_MS), 2);
      assert.equal(await store.audit.prune(olderThan(11.5 * DAY_MS), 2, 21 * DAY_MS), 0);
      assert.equal(faultIn(await allOf(store)), null);
      assert.equal(await store.audit.prune(olderThan(1_000 * DAY_MS), 500, 1_001 * DAY_MS), 4, 'all but what says so');
      assert.deepEqual(
        (await allOf(store)).map(({ action }) => action),
        ['audit.prune'],
      );
      assert.equal(faultIn(await allOf(store)), null);
    });

    test('entries that a wrong clock dated ahead go with the old entries behind them, and stay with young ones', async (t) => {
      const store = await engine.open(t);
      const days = [1, 500, 2, 501, 502, 503, 3, 500, 13, 3];
      for (const day of days) await store.audit.append(entryOf(day), day * DAY_MS);
      const written = await allOf(store);
      const times = { before_ms: 10 * DAY_MS, future_ms: 21 * DAY_MS };
      assert.equal(await store.audit.prune(times, 2, 20 * DAY_MS), 3, 'the second of the two old ones is the third');
      assert.equal(await store.audit.prune(times, 2, 20 * DAY_MS), 4, 'up to the old one before the young one');
      assert.equal(await store.audit.prune(times, 2, 20 * DAY_MS), 0, 'the next one that is not ahead is young');
      const entries = await allOf(store);
      assert.deepEqual(
        entries.map(({ seq }) => seq),
        [8, 9, 10, 11, 12],
      );
      const removal = { removed: 4, removed_to: 7, removed_hash: written[6]?.hash, removed_until: written[6]?.at };
      assert.deepEqual(entries[4]?.details, removal);
      assert.equal(faultIn(entries), null);
    });

    test('what is removed in addition is found', async (t) => {
      const store = await twelveDays(t);
      await store.audit.prune(olderThan(8 * DAY_MS), 500, 20 * DAY_MS);
      const entries = await allOf(store);
      assert.equal(faultIn(entries.slice(1)), 1, 'one more from the beginning');
      assert.equal(faultIn(entries.slice(0, 5)), 1, 'the entry that says so');
      assert.equal(faultIn(entries.toSpliced(2, 1)), 10, 'one in the middle');
      const { hash: _hash, ...last } = { ...entries[5]!, details: { ...entries[5]!.details, removed_to: 8 } };
      const forged = { ...last, hash: hashOf(last) };
      assert.equal(faultIn([...entries.slice(1, 5), forged]), 1, 'an entry that names another one');
    });
  });
}

test('upkeep removes old entries behind one that is dated more than a day ahead, and waits for one that is less', async (t) => {
  const node = await startNode(t);
  const { clock, store } = node;
  const now = clock.wall();
  const times = [now + 25 * HOUR, now - 402 * DAY_MS, now + 23 * HOUR, now - 402 * DAY_MS];
  for (const at of times) await store.audit.append(entryOf(0), at);
  const done = node.maintenance().run();
  await clock.advance(MINUTE);
  await done;
  assert.deepEqual(
    (await allOf(store)).map(({ seq, action }) => `${seq} ${action}`),
    [`3 ${entryOf(0).action}`, `4 ${entryOf(0).action}`, '5 audit.prune'],
  );
});

test('no secret is in it, and the start names settings without their values', async (t) => {
  const encryption_key = Buffer.alloc(32, 7).toString('base64');
  const service = await startService(t, { encryption_key, max_message_bytes: '4096' });
  const { token } = await service.endOpenMode();
  const canaries = ['canary-in-a-header', `whsec_${Buffer.alloc(32, 5).toString('base64')}`, token, encryption_key];
  const { instance_id } = await service.register({
    webhook_url: WEBHOOK_URL,
    webhook_headers: { authorization: canaries[0] as string },
    webhook_secret: canaries[1],
  });
  await service.patch(instance_id, { webhook_headers: { authorization: canaries[0] as string } });
  await service.post('/api/v1/instances/register/', { instance_id, [canaries[0]!]: canaries[1] });
  await service.request('GET', '/api/v1/instances/', { headers: { authorization: `Bearer ${token}x` } });
  const entries = await entriesOf(clientOf(service));
  const text = JSON.stringify(entries);
  for (const canary of canaries) assert.ok(!text.includes(canary), canary);
  assert.ok(text.includes('webhook_headers'), 'control: the names are there');
  const start = entries.find(({ action }) => action === 'service.start');
  assert.ok(JSON.stringify(start?.details).includes('max_message_bytes'));
});

test('a change whose entry cannot be written is not made', async (t) => {
  const store = openStoreHere();
  t.after(() => store.close());
  const subject = { principal: 'open', address: null, action: 'meeting.leave', target_kind: 'instance' } as const;
  const unwritable = { ...subject, target_id: null, principal: null as never, details: {} };
  const registration = {
    instance_id: 'i',
    instance_name: 'n',
    agent_ids: [],
    webhook_url: WEBHOOK_URL,
    webhook_headers: undefined,
    webhook_secret: undefined,
    new_secret: 'whsec_',
    success_statuses: undefined,
  };
  const { instances } = store.audited({ subject: unwritable, wall_ms: 0 });
  await assert.rejects(instances.register(registration, 0));
  assert.equal(await store.instances.get('i'), null);
});
