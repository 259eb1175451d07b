/** API keys from creation to revocation, in real services over HTTP. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { all, type ApiKeyWithToken, ConvokeClient, type ConvokeError, type CreateKeyInput } from '@convoke/sdk';
import fc from 'fast-check';
import { pino } from 'pino';
import { readConfig } from '../../src/config/read_config.ts';
import { type Convoke, createConvoke, NoKeyError } from '../../src/convoke.ts';
import type { Clock } from '../../src/delivery/clock.ts';
import { openKeys } from '../../src/offline.ts';
import { digestOf, ID_BYTES, isWhole, keyIdOf, makeKeyId, makeToken, SECRET_BYTES } from '../../src/domain/api_key.ts';
import { Keyring } from '../../src/http/auth/keyring.ts';
import type { NewApiKey } from '../../src/store/contract/api_keys.ts';
import { HOUR, MINUTE, openStoreHere, SECOND } from '../support/node.ts';
import { startReceiver } from '../support/receiver.ts';
import { assertProblem, type Service, startService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const log = pino({ level: 'silent' });

function temporaryData(t: TestContext): string {
  const data = mkdtempSync(join(tmpdir(), 'convoke-keys-'));
  t.after(() => rmSync(data, { recursive: true, force: true }));
  return data;
}

/** The response to a key: 200, or the code of the problem. */
async function answerTo({ url }: { url: string }, token: string, path = '/api/v1/instances/'): Promise<string> {
  const answer = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${token}` } });
  const { code } = (await answer.json()) as { code?: string };
  return code ?? String(answer.status);
}

describe('a token', () => {
  const TOKEN = /^cvk_[0-9a-v]{12}_[0-9A-Za-z]{49}$/;
  const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
  const tokens = fc.tuple(bytes(ID_BYTES), bytes(SECRET_BYTES)).map(([id, secret]) => makeToken(makeKeyId(id), secret));

  test('is found by the one pattern that the documents give to secret scanners', () => {
    const documented = /cvk_\[0-9a-v\]\S+/.exec(readFileSync(new URL('../../docs/keys.md', import.meta.url), 'utf8'));
    assert.equal(`^${documented?.[0].replaceAll('`', '')}$`, TOKEN.source);
    fc.assert(
      fc.property(tokens, (token) => TOKEN.test(token) && isWhole(token) && keyIdOf(token) === token.slice(4, 16)),
    );
  });

  test('differs from another in every bit of its secret', () => {
    const ends = [new Uint8Array(SECRET_BYTES), new Uint8Array(SECRET_BYTES).fill(255)];
    assert.notEqual(...(ends.map((end) => digestOf(makeToken('000000000000', end))) as [string, string]));
    for (let bit = 0; bit < SECRET_BYTES * 8; bit++) {
      const flipped = new Uint8Array(SECRET_BYTES);
      flipped[bit >> 3] = 1 << (bit & 7);
      assert.notEqual(makeToken('000000000000', flipped), makeToken('000000000000', ends[0]!));
    }
  });

  test('that was mistyped, cut short or pasted twice is known as such without asking anybody', () => {
    const LETTERS = [...'0123456789ABCXYZabcxyz_'];
    const is_taken = (token: string): boolean => keyIdOf(token) !== null && isWhole(token);
    fc.assert(
      fc.property(tokens, fc.nat(65), fc.constantFrom(...LETTERS), (token, at, letter) => {
        const mistyped = token.slice(0, at) + letter + token.slice(at + 1);
        assert.equal(is_taken(mistyped), mistyped === token);
        assert.ok(!is_taken(token.slice(0, at)));
        assert.ok(!is_taken(token + token));
        assert.ok(!is_taken(token + letter));
      }),
    );
  });
});

describe('open mode', () => {
  test('ends with the first key, at once and for good', async (t) => {
    const service = await startService(t);
    assert.equal((await service.get('/api/v1/instances/')).status, 200);
    const { token, key_id } = await service.createKey({ scopes: ['admin'] });
    assertProblem(await service.get('/api/v1/instances/'), 401, 'api_key_missing');
    service.token = token;
    assert.equal((await service.get('/api/v1/instances/')).status, 200);
    await service.createKey({ scopes: ['admin'] });
    await service.request('DELETE', `/api/v1/keys/${key_id}/`);
    service.token = null;
    assertProblem(await service.get('/api/v1/instances/'), 401, 'api_key_missing');
    assert.ok(service.log.some(({ msg }) => msg === 'the first key: every request needs one now'));
  });

  test('ends with an admin key that lasts, or not at all', async (t) => {
    const service = await startService(t);
    const expires_at = new Date(Date.now() + HOUR).toISOString();
    for (const input of [{ scopes: ['instance', 'send', 'read'] }, { scopes: ['admin'], expires_at }]) {
      assertProblem(await service.post('/api/v1/keys/', input), 409, 'first_key_not_admin');
    }
    assert.equal((await service.get('/api/v1/instances/')).status, 200);
    assert.deepEqual((await service.get<{ data: unknown[] }>('/api/v1/keys/')).body.data, []);
  });

  test('what was registered in it belongs to nobody: only admins touch it, until one hands it over', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:1/' });
    await service.endOpenMode();
    assert.equal((await service.instance(instance_id)).owner_key_id, null);
    const { key_id, token } = await service.createKey({ scopes: ['instance'] });
    const machine = new ConvokeClient({ base_url: service.url, api_key: token });
    const again = { instance_id, instance_name: 'n', agent_ids: [], webhook_url: 'http://127.0.0.1:1/' };
    await assert.rejects(machine.heartbeat(instance_id), { code: 'instance_does_not_exist' });
    await assert.rejects(machine.register(again), { code: 'instance_id_taken' });
    assert.equal((await service.patch(instance_id, { owner_key_id: key_id })).owner_key_id, key_id);
    await machine.heartbeat(instance_id);
    assert.equal((await machine.register(again)).owner_key_id, key_id);
  });

  test('needs the Host and Origin of this machine; keys do not', async (t) => {
    const service = await startService(t);
    const strange = { host: 'convoke.example', origin: 'https://convoke.example' };
    const refused = await service.request('GET', '/api/v1/instances/', { headers: strange });
    assertProblem(refused, 403, 'host_not_allowed');
    await service.endOpenMode();
    assert.equal((await service.request('GET', '/api/v1/instances/', { headers: strange })).status, 200);
    service.token = null;
    const outsider = await service.request('GET', '/api/v1/instances/', { headers: strange });
    assertProblem(outsider, 401, 'api_key_missing');
  });

  test('is only for loopback: a service that others can reach does not start without a key, and starts with one', async (t) => {
    const { config } = readConfig({ flags: { host: '0.0.0.0', port: '0', data: temporaryData(t) } });
    await assert.rejects(createConvoke(config, { log }), NoKeyError);
    const keys = await openKeys(config, { log });
    const client = new ConvokeClient({ base_url: keys.url, api_key: keys.token });
    assert.equal(await answerTo(keys, 'cvk_', '/api/v1/keys/'), 'api_key_unknown');
    assert.equal(await answerTo(keys, keys.token), 'route_does_not_exist', 'it has the keys and the audit log only');
    const { token } = await client.createKey({ scopes: ['admin'] });
    await keys.close();
    const convoke = await createConvoke(config, { log });
    t.after(() => convoke.close());
    assert.equal(convoke.is_open, false);
    const here = { url: convoke.url.replace('0.0.0.0', '127.0.0.1') };
    assert.equal(await answerTo(here, token), '200');
    assert.equal(await answerTo(here, 'cvk_'), 'api_key_malformed');
  });
});

describe('a key', () => {
  test('the token is in one response; neither the data file nor the log nor any later response has it', async (t) => {
    const data = temporaryData(t);
    const lines: string[] = [];
    const { config } = readConfig({ flags: { port: '0', data } });
    const convoke = await createConvoke(config, {
      log: pino({ level: 'trace' }, { write: (line) => void lines.push(line) }),
    });
    t.after(() => convoke.close());
    const open = new ConvokeClient({ base_url: convoke.url });
    const first = await open.createKey({ scopes: ['admin'], name: 'canary' });
    const client = new ConvokeClient({ base_url: convoke.url, api_key: first.token });
    const rotated = await client.rotateKey(first.key_id);
    await assert.rejects(new ConvokeClient({ base_url: convoke.url, api_key: `${first.token}x` }).listKeys());
    const { data: keys } = await client.listKeys();
    const returned = JSON.stringify([keys, await client.getKey(first.key_id), lines]);
    const files = readdirSync(data).map((file) => readFileSync(join(data, file), 'latin1'));
    assert.ok(
      files.some((bytes) => bytes.includes('canary')),
      'control: the key itself is there',
    );
    for (const token of [first.token, rotated.token]) {
      const secret = token.slice(17);
      for (const bytes of [returned, ...files]) assert.ok(!bytes.includes(secret));
      assert.ok(!returned.includes(digestOf(token)), "what is kept of it is nobody else's business either");
    }
  });

  test('that was revoked is refused from the answer on', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const { key_id, token } = await service.createKey({ scopes: ['read'] });
    assert.equal(await answerTo(service, token), '200');
    assert.equal((await service.request('DELETE', `/api/v1/keys/${key_id}/`)).status, 204);
    assert.equal(await answerTo(service, token), 'api_key_revoked');
    assert.equal((await service.request('DELETE', `/api/v1/keys/${key_id}/`)).status, 204, 'again is no error');
  });

  test('control: a node that was not notified of the revocation accepts it until it asks what changed', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const { key_id, token } = await service.createKey({ scopes: ['read'] });
    const put = t.mock.method(Keyring.prototype, 'put', () => {});
    const identify = t.mock.method(Keyring.prototype, 'identify');
    await service.request('DELETE', `/api/v1/keys/${key_id}/`);
    assert.equal(await answerTo(service, token), '200');
    put.mock.restore();
    const [call] = identify.mock.calls;
    assert.ok(call?.this instanceof Keyring);
    await call.this.refresh();
    assert.equal(await answerTo(service, token), 'api_key_revoked');
  });

  test('is known again after a restart, and so is that it was revoked', async (t) => {
    const { config } = readConfig({ flags: { port: '0', data: temporaryData(t) } });
    const first: Convoke = await createConvoke(config, { log });
    const open = new ConvokeClient({ base_url: first.url });
    const admin = await open.createKey({ scopes: ['admin'] });
    const client = new ConvokeClient({ base_url: first.url, api_key: admin.token });
    const revoked = await client.createKey({ scopes: ['read'] });
    await client.revokeKey(revoked.key_id);
    await first.close();
    const second = await createConvoke(config, { log });
    t.after(() => second.close());
    assert.equal(await answerTo(second, admin.token), '200');
    assert.equal(await answerTo(second, revoked.token), 'api_key_revoked');
    assert.equal(await answerTo(second, ''), 'api_key_missing');
  });

  test('that is the last with which keys can be made cannot be revoked', async (t) => {
    const service = await startService(t);
    const { key_id } = await service.endOpenMode();
    await service.createKey({ scopes: ['admin'], expires_at: new Date(Date.now() + HOUR).toISOString() });
    const revoke = () => service.request('DELETE', `/api/v1/keys/${key_id}/`);
    assertProblem(await revoke(), 409, 'last_admin_key');
    const { token } = await service.createKey({ scopes: ['admin'] });
    assert.equal((await revoke()).status, 204);
    assert.equal(await answerTo(service, token), '200');
  });

  test('that is limited where a limit would be in vain is refused', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    for (const input of [
      { scopes: ['admin'], meeting_ids: ['m'] },
      { scopes: ['admin', 'instance'], instance_id: 'i' },
      { scopes: ['send'], instance_id: 'i' },
      { scopes: [] },
      { scopes: ['root'] },
      { scopes: ['read'], meeting_ids: [] },
      { scopes: ['read'], expires_at: '2020-01-01T00:00:00Z' },
      { scopes: ['read'], expires_at: 'tomorrow' },
      { scopes: ['read'], scope: 'admin' },
    ]) {
      assertProblem(await service.post('/api/v1/keys/', input), 422, 'invalid_fields');
    }
  });

  test('is limited to as many meetings as the document promises', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    // 1,000 ids of 40 bytes, with characters that take six bytes each in JSON.
    const meeting_ids = Array.from({ length: 1000 }, (_, i) => `m${i}`.padEnd(40, '&'));
    const body = JSON.stringify({ scopes: ['read'], meeting_ids }).replaceAll('&', String.raw`\u0026`);
    const made = await service.post<ApiKeyWithToken>('/api/v1/keys/', body);
    assert.equal(made.status, 201, made.text);
    assert.deepEqual(made.body.meeting_ids, meeting_ids);
    const too_long = { scopes: ['read'], meeting_ids: ['m'.repeat(41), ...meeting_ids.slice(1)] };
    const { errors } = assertProblem(await service.post('/api/v1/keys/', too_long), 422, 'invalid_fields');
    const message = 'must be a list of 1 to 1000 meeting ids, of at most 40000 bytes in all';
    assert.deepEqual(errors, [{ path: 'meeting_ids', message }]);
  });

  test('that is limited to an instance registers and touches that one and no other', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const { token } = await service.createKey({ scopes: ['instance'], instance_id: 'mine' });
    const machine = new ConvokeClient({ base_url: service.url, api_key: token });
    const instance = { instance_name: 'n', agent_ids: ['a'], webhook_url: 'http://127.0.0.1:1/' };
    await machine.register({ ...instance, instance_id: 'mine' });
    await machine.joinMeeting({ instance_id: 'mine', meeting_id: 'm', agent_ids: ['a'] });
    await assert.rejects(machine.register({ ...instance, instance_id: 'another' }), { code: 'not_permitted' });
    assert.deepEqual(
      (await machine.listInstances()).data.map(({ instance_id }) => instance_id),
      ['mine'],
    );
  });
});

describe('a rotation', () => {
  async function rotated(
    t: TestContext,
    overlap_seconds: number,
    clock?: Clock,
  ): Promise<{ service: Service; key: ApiKeyWithToken; previous: string }> {
    const service = await startService(t, {}, clock);
    await service.endOpenMode();
    const { key_id, token } = await service.createKey({ scopes: ['read'] });
    const answer = await service.post<ApiKeyWithToken>(`/api/v1/keys/${key_id}/rotate/`, { overlap_seconds });
    assert.equal(answer.status, 200, answer.text);
    return { service, key: answer.body, previous: token };
  }

  test('leaves both tokens working while it overlaps, and says until when', async (t) => {
    const { service, key, previous } = await rotated(t, 3600);
    const left_ms = Date.parse(key.previous_token_expires_at ?? '') - Date.now();
    assert.ok(left_ms > HOUR - MINUTE && left_ms <= HOUR);
    assert.equal(await answerTo(service, previous), '200');
    assert.equal(await answerTo(service, key.token), '200');
  });

  test('without overlap ends the old token at once', async (t) => {
    const { service, key, previous } = await rotated(t, 0);
    assert.equal(await answerTo(service, previous), 'api_key_unknown');
    assert.equal(await answerTo(service, key.token), '200');
  });

  test('ends the old token when the overlap ends', async (t) => {
    const clock = new SetClock();
    const { service, key, previous } = await rotated(t, 3600, clock);
    clock.step(HOUR - MINUTE);
    assert.equal(await answerTo(service, previous), '200');
    clock.step(MINUTE);
    assert.equal(await answerTo(service, previous), 'api_key_unknown');
    assert.equal(await answerTo(service, key.token), '200');
  });

  const rotate = (service: Service, key_id: string, overlap_seconds: number) =>
    service.post<ApiKeyWithToken & { code: string; detail: string }>(`/api/v1/keys/${key_id}/rotate/`, {
      overlap_seconds,
    });

  test('within the overlap of another lets every earlier token work until its own end', async (t) => {
    const clock = new SetClock();
    const { service, key: second, previous: first } = await rotated(t, 3600, clock);
    clock.step(MINUTE);
    const { body: third } = await rotate(service, second.key_id, 1800);
    assert.deepEqual(third.earlier_tokens_expire_at, [second.previous_token_expires_at]);
    const works = () => Promise.all([first, second.token, third.token].map((token) => answerTo(service, token)));
    assert.deepEqual(await works(), ['200', '200', '200']);
    clock.step(30 * MINUTE);
    assert.deepEqual(await works(), ['200', 'api_key_unknown', '200']);
    clock.step(29 * MINUTE);
    assert.deepEqual(await works(), ['api_key_unknown', 'api_key_unknown', '200']);
  });

  test('is refused while four earlier tokens work, and without overlap ends them all', async (t) => {
    const { service, key, previous } = await rotated(t, 3600);
    const tokens = [previous, key.token];
    for (let n = 0; n < 3; n++) tokens.push((await rotate(service, key.key_id, 7200)).body.token);
    const refused = await rotate(service, key.key_id, 7200);
    assert.deepEqual([refused.status, refused.body.code], [409, 'overlaps_in_progress']);
    assert.match(refused.body.detail, new RegExp(key.previous_token_expires_at!.replace('.', String.raw`\.`)));
    const works = () => Promise.all(tokens.map((token) => answerTo(service, token)));
    assert.deepEqual(
      await works(),
      Array.from({ length: 5 }, () => '200'),
    );
    const { body: last } = await rotate(service, key.key_id, 0);
    assert.deepEqual(
      await works(),
      Array.from({ length: 5 }, () => 'api_key_unknown'),
    );
    assert.equal(await answerTo(service, last.token), '200');
  });

  test('leaves no token of a key that is revoked', async (t) => {
    const { service, key, previous } = await rotated(t, 3600);
    await service.request('DELETE', `/api/v1/keys/${key.key_id}/`);
    assert.deepEqual(
      [await answerTo(service, previous), await answerTo(service, key.token)],
      ['api_key_unknown', 'api_key_revoked'],
    );
  });
});

describe('the last use of a key', () => {
  test('is on record', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const { key_id, token } = await service.createKey({ scopes: ['read'] });
    const key = async () => (await service.get<{ last_used_at: string | null }>(`/api/v1/keys/${key_id}/`)).body;
    assert.equal((await key()).last_used_at, null);
    await answerTo(service, token);
    const { last_used_at } = await until('a last use', key, (found) => found.last_used_at !== null);
    assert.ok(Math.abs(Date.parse(String(last_used_at)) - Date.now()) < MINUTE);
  });

  test('is written at most once a minute, together with that of others, and on closing', async () => {
    const clock = new VirtualClock();
    const store = openStoreHere();
    const written: number[] = [];
    const keys = {
      ...({} as typeof store.api_keys),
      changedSince: (change_no: number) => clock.watch(store.api_keys.changedSince(change_no)),
      recordUse: async (uses: object[]) => void written.push(uses.length),
    } as typeof store.api_keys;
    const tokens: string[] = [];
    for (const key_id of ['00000000000a', '00000000000b']) {
      const token = makeToken(key_id, randomBytes(SECRET_BYTES));
      tokens.push(token);
      await clock.watch(store.api_keys.create(row({ key_id, digest: digestOf(token) })));
    }
    const keyring = new Keyring(clock, keys, (error) => assert.fail(String(error)));
    await keyring.refresh();
    const useAll = (): void => {
      for (const token of tokens) for (let i = 0; i < 100; i++) keyring.identify(`Bearer ${token}`);
    };
    useAll();
    assert.deepEqual(written, []);
    await clock.advance(30 * SECOND);
    useAll();
    await clock.advance(20 * SECOND);
    assert.deepEqual(written, [2]);
    await clock.advance(20 * SECOND);
    useAll();
    await keyring.close();
    assert.deepEqual(written, [2, 2]);
    await store.close();
  });

  test('of more than 500 keys is written in several calls of the store', async (t) => {
    const { keyring, tokens, written } = await keyringWith(t, 1_200);
    for (const token of tokens) keyring.identify(`Bearer ${token}`);
    await keyring.close();
    assert.deepEqual(written, [500, 500, 200]);
  });
});

describe('a change of keys that were read', () => {
  test('is reported once, however many changed, and not for new keys, which end nothing', async (t) => {
    const { keyring, keys } = await keyringWith(t, 1_000);
    const onChange = t.mock.fn();
    keyring.onChange = onChange;
    const change = (changes: (typeof keys)[number][]): Promise<void> => (
      keys.splice(0, keys.length, ...changes),
      keyring.refresh()
    );
    const former = [...keys];
    await change([{ ...former[0]!, key_id: '000000000new', change_no: 1_001 }]);
    assert.equal(onChange.mock.callCount(), 0);
    await change(former.map((key, i) => ({ ...key, revoked_at: 5, change_no: 1_002 + i })));
    assert.equal(onChange.mock.callCount(), 1);
    keyring.put({ ...former[0]!, revoked_at: 6, change_no: 5_000 });
    assert.equal(onChange.mock.callCount(), 2);
  });

  test('is reported for the first key, which ends the open mode', async (t) => {
    const { keyring, keys } = await keyringWith(t, 0);
    const onChange = t.mock.fn();
    keyring.onChange = onChange;
    const { keys: others } = await keyringWith(t, 1);
    keys.push(...others);
    await keyring.refresh();
    assert.equal(onChange.mock.callCount(), 1);
  });
});

/** A keyring that has read so many keys. It reads `keys`, of which the caller makes changes. */
async function keyringWith(t: TestContext, count: number) {
  const store = openStoreHere();
  t.after(() => store.close());
  const key = await store.api_keys.create(row({ key_id: '00000000000a' }));
  const made = Array.from({ length: count }, (_, i) => {
    const key_id = String(i).padStart(12, '0');
    const token = makeToken(key_id, randomBytes(SECRET_BYTES));
    return { token, key: { ...key, key_id, digest: digestOf(token), change_no: i + 1 } };
  });
  const keys = made.map((each) => each.key);
  const written: number[] = [];
  const api_keys = {
    changedSince: async (change_no: number) => keys.filter((each) => each.change_no > change_no),
    recordUse: async (uses: object[]) => void written.push(uses.length),
  } as unknown as typeof store.api_keys;
  const keyring = new Keyring(new VirtualClock(), api_keys, (error) => assert.fail(String(error)));
  t.after(() => keyring.close());
  await keyring.refresh();
  return { keyring, keys, tokens: made.map((each) => each.token), written };
}

describe('a reader of some meetings', () => {
  test('sees their deliveries and no others, newest first, page by page', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:1/' });
    const sent: Record<string, string[]> = { m1: [], m2: [], m3: [] };
    for (const meeting_id of Object.keys(sent)) await service.join(meeting_id, instance_id, ['a']);
    for (let i = 0; i < 9; i++) {
      const meeting_id = `m${1 + (i % 3)}`;
      const [delivery] = await service.deliveriesOf(await service.send(meeting_id, {}));
      sent[meeting_id]!.push(delivery!.delivery_id);
    }
    for (const meeting_ids of [['m1'], ['m3', 'm1'], ['m1', 'm2', 'm3']]) {
      const { token } = await service.createKey({ scopes: ['read'], meeting_ids });
      const client = new ConvokeClient({ base_url: service.url, api_key: token });
      const seen: string[] = [];
      for await (const { delivery_id } of all((page) => client.listDeliveries({ limit: 2, ...page })))
        seen.push(delivery_id);
      const expected = meeting_ids
        .flatMap((meeting_id) => sent[meeting_id]!)
        .toSorted()
        .toReversed();
      assert.deepEqual(seen, expected);
    }
  });
});

describe('an instance', () => {
  const webhook_url = 'http://127.0.0.1:1/';

  async function machine(service: Service, input: Partial<CreateKeyInput> = {}) {
    const { key_id, token } = await service.createKey({ scopes: ['instance'], ...input });
    return { key_id, client: new ConvokeClient({ base_url: service.url, api_key: token }) };
  }

  test('stays when the key that owns it is revoked, and an admin can hand it over', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const [first, second] = [await machine(service), await machine(service)];
    await first.client.register({ instance_id: 'i', instance_name: 'n', agent_ids: [], webhook_url });
    await service.request('DELETE', `/api/v1/keys/${first.key_id}/`);
    assert.equal((await service.instance('i')).owner_key_id, first.key_id);
    await assert.rejects(second.client.heartbeat('i'), { code: 'instance_does_not_exist' });
    for (const owner_key_id of [first.key_id, '0'.repeat(12)]) {
      const answer = await service.request('PATCH', '/api/v1/instances/i/', { body: { owner_key_id } });
      assertProblem(answer, 422, 'invalid_fields');
    }
    await service.patch('i', { owner_key_id: second.key_id });
    await second.client.heartbeat('i');
  });

  test('of two keys that register it at once belongs to one', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const machines = await Promise.all(Array.from({ length: 5 }, () => machine(service)));
    const ends = await Promise.allSettled(
      machines.map(({ client }) =>
        client.register({ instance_id: 'i', instance_name: 'n', agent_ids: [], webhook_url }),
      ),
    );
    const refused = ends.filter((end) => end.status === 'rejected');
    assert.deepEqual(
      refused.map(({ reason }) => (reason as ConvokeError).code),
      Array(4).fill('instance_id_taken'),
    );
  });

  test('that takes the id of one that was deleted gets none of the deliveries of that one', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const receiver = await startReceiver(t, { status: 410 });
    const [first, second] = [await machine(service), await machine(service)];
    const registration = { instance_id: 'i', instance_name: 'n', agent_ids: ['a'], webhook_url: receiver.url };
    await first.client.register(registration);
    await first.client.joinMeeting({ instance_id: 'i', meeting_id: 'm', agent_ids: ['a'] });
    const { delivery_id } = await service.settled(await service.send('m', { secret: 'for the first' }));
    await first.client.getDelivery(delivery_id);
    await first.client.deleteInstance('i');
    await second.client.register({ ...registration, webhook_url });

    assert.deepEqual((await second.client.listDeliveries({ instance_id: 'i' })).data, []);
    await assert.rejects(second.client.getDelivery(delivery_id), { code: 'delivery_does_not_exist' });
    await assert.rejects(second.client.retryDelivery(delivery_id), { code: 'delivery_does_not_exist' });
    assert.equal((await second.client.recover('i', { since: '2020-01-01T00:00:00Z' })).recovered, 0);
    const admin = new ConvokeClient({ base_url: service.url, api_key: service.token ?? '' });
    assert.equal((await admin.getDelivery(delivery_id)).state, 'failed', 'an admin sees it');
    assert.equal((await admin.recover('i', { since: '2020-01-01T00:00:00Z' })).recovered, 0);
    await assert.rejects(admin.retryDelivery(delivery_id), { code: 'delivery_not_retryable' });
    // Control: the instance gets its own failed deliveries again.
    await second.client.register({ ...registration, webhook_url: receiver.url });
    await second.client.joinMeeting({ instance_id: 'i', meeting_id: 'm', agent_ids: ['a'] });
    await service.settled(await service.send('m', { secret: 'for the second' }));
    assert.equal((await second.client.recover('i', { since: '2020-01-01T00:00:00Z' })).recovered, 1);
  });
});

describe('the keys of a database that went back while a node runs', () => {
  /** A node that knows three keys, and the earlier database: it has only the first two. */
  async function goBack(t: TestContext) {
    const stores = [openStoreHere(), openStoreHere(), openStoreHere()] as const;
    for (const store of stores) t.after(() => store.close());
    const [newer, earlier, empty] = stores;
    const tokens = Object.fromEntries(
      ['00000000000a', '00000000000b', '00000000000c', '00000000000d'].map((key_id) => [
        key_id.at(-1)!,
        makeToken(key_id, randomBytes(SECRET_BYTES)),
      ]),
    ) as Record<'a' | 'b' | 'c' | 'd', string>;
    const make = (store: typeof newer, name: 'a' | 'b' | 'c' | 'd') =>
      store.api_keys.create(row({ key_id: `00000000000${name}`, digest: digestOf(tokens[name]) }));
    for (const name of ['a', 'b', 'c'] as const) await make(newer, name);
    for (const name of ['a', 'b'] as const) await make(earlier, name);
    let store: (typeof stores)[number] = newer;
    const keys = {
      changedSince: (change_no: number) => store.api_keys.changedSince(change_no),
      recordUse: async () => {},
    } as unknown as typeof newer.api_keys;
    const keyring = new Keyring(new VirtualClock(), keys, (error) => assert.fail(String(error)));
    t.after(() => keyring.close());
    await keyring.refresh();
    const codeOf = (name: keyof typeof tokens): string => {
      try {
        keyring.identify(`Bearer ${tokens[name]}`);
        return 'known';
      } catch (error) {
        return (error as { code: string }).code;
      }
    };
    return { keyring, earlier, empty, make, codeOf, use: (other: typeof newer) => void (store = other) };
  }

  test('are read again: later changes take effect, and a key that is gone is unknown', async (t) => {
    const { keyring, earlier, make, codeOf, use } = await goBack(t);
    assert.deepEqual([codeOf('a'), codeOf('b'), codeOf('c')], ['known', 'known', 'known']);
    use(earlier);
    await keyring.refreshAll();
    assert.deepEqual([codeOf('a'), codeOf('b'), codeOf('c')], ['known', 'known', 'api_key_unknown']);
    await earlier.api_keys.revoke('00000000000b', 5);
    await make(earlier, 'd');
    await keyring.refresh();
    assert.deepEqual([codeOf('a'), codeOf('b'), codeOf('d')], ['known', 'api_key_revoked', 'known']);
  });

  test('never open the service, also when the database has none', async (t) => {
    const { keyring, empty, codeOf, use } = await goBack(t);
    use(empty);
    await keyring.refreshAll();
    assert.deepEqual([keyring.is_open, codeOf('a')], [false, 'known']);
  });

  test('are read again also when there are more of them than one call may have arguments', async (t) => {
    const store = openStoreHere();
    t.after(() => store.close());
    const key = await store.api_keys.create(row({ key_id: '00000000000a' }));
    const many = Array.from({ length: 200_000 }, (_, i) => ({ ...key, key_id: `key-${i}`, change_no: i + 1 }));
    const read_after: number[] = [];
    const keys = {
      changedSince: async (change_no: number) => (read_after.push(change_no), change_no === 0 ? many : []),
      recordUse: async () => {},
    } as unknown as typeof store.api_keys;
    const keyring = new Keyring(new VirtualClock(), keys, (error) => assert.fail(String(error)));
    t.after(() => keyring.close());
    await keyring.refreshAll();
    await keyring.refresh();
    assert.deepEqual(read_after, [0, 200_000]);
  });
});

function row(changes: Partial<NewApiKey>): NewApiKey {
  return {
    key_id: '',
    name: null,
    scopes: ['admin'],
    meeting_ids: null,
    instance_id: null,
    digest: '',
    created_at: 1,
    expires_at: null,
    ...changes,
  };
}
