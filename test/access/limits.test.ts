/** Limits of how often clients may do something, and quotas of how much they may have. Most tests use virtual time. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { describe, test, type TestContext } from 'node:test';
import { parseCidr, type Cidr } from '../../src/domain/address.ts';
import { addressGroup, clientAddress } from '../../src/domain/client_address.ts';
import { BUCKETS_MAX, TokenBuckets } from '../../src/domain/token_bucket.ts';
import type { Principal } from '../../src/domain/access.ts';
import { EVERYTHING_ALLOWED } from '../../src/domain/access.ts';
import { type ApiKey, digestOf, makeKeyId, makeToken, type Scope } from '../../src/domain/api_key.ts';
import { Problem } from '../../src/domain/problem.ts';
import { Keyring } from '../../src/http/auth/keyring.ts';
import { Limits, type LimitSettings } from '../../src/http/auth/limits.ts';
import { PortalLinks } from '../../src/http/auth/portal_links.ts';
import { NO_QUOTAS, type Quotas } from '../../src/store/contract/quotas.ts';
import { openStoreHere, SECRET } from '../support/node.ts';
import { assertProblem, messagesPath, startService } from '../support/service.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const OFF: LimitSettings = {
  send_rate: null,
  send_rate_per_address: null,
  register_rate: null,
  register_rate_per_address: null,
  change_rate: null,
  auth_failure_rate: null,
  trust_proxy: [],
};

type Request = Parameters<Limits['identify']>[1];
const from = (remoteAddress: string, authorization?: string): Request =>
  ({ socket: { remoteAddress }, headers: { authorization } }) as unknown as Request;
const key = (key_id: string): Principal => ({ ...EVERYTHING_ALLOWED, key_id });

/** The result of a call: `done`, or the code with Retry-After. */
function outcome(run: () => unknown): string {
  try {
    run();
    return 'done';
  } catch (error) {
    assert.ok(error instanceof Problem);
    return error.retry_after_s === undefined ? error.code : `${error.code} ${error.retry_after_s}`;
  }
}

describe('a token bucket', () => {
  test('gives its burst, says to the millisecond when there is more, and has it then', () => {
    const buckets = new TokenBuckets({ per_second: 2, burst: 3 });
    for (let i = 0; i < 3; i++) assert.equal(buckets.take('a', 1_000), 0);
    assert.equal(buckets.take('a', 1_000), 500);
    assert.equal(buckets.take('a', 1_499), 1);
    assert.equal(buckets.take('a', 1_500), 0);
    assert.equal(buckets.take('b', 1_000), 0, 'another name has its own');
    assert.equal(buckets.wait('a', 1_000_000), 0);
    for (let i = 0; i < 3; i++) assert.equal(buckets.take('a', 1_000_000), 0);
    assert.ok(buckets.take('a', 1_000_000) > 0, 'no more than the burst is saved up');
  });

  test('is not kept when it is full again, and there are never more than a bounded number', () => {
    const buckets = new TokenBuckets({ per_second: 1, burst: 1 });
    for (let i = 0; i < 1_000_000; i++) buckets.take(`2001:db8:${i}`, 0);
    assert.ok(buckets.size > BUCKETS_MAX / 2 && buckets.size <= BUCKETS_MAX, `${buckets.size} are kept`);
    for (let i = 0; i < 3; i++) buckets.take(`new ${i}`, 10_000 + i * 1_000);
    assert.ok(buckets.size < 10, `${buckets.size} are kept`);
    const unbounded = new TokenBuckets({ per_second: 1, burst: 1 }, Number.POSITIVE_INFINITY);
    for (let i = 0; i < BUCKETS_MAX + 10; i++) unbounded.take(String(i), 0);
    assert.equal(unbounded.size, BUCKETS_MAX + 10, 'control: without the bound they grow');
  });
});

describe('the address of a client', () => {
  const trusted = ['10.0.0.0/8', '::1/128'].map((text) => parseCidr(text) as Cidr);
  const cases: [string, string | undefined, string | null][] = [
    ['192.0.2.1', undefined, '192.0.2.1'],
    ['::ffff:192.0.2.1', undefined, '192.0.2.1'],
    // The header of a client that is no trusted proxy does not count: it can contain anything.
    ['192.0.2.1', '198.51.100.7', '192.0.2.1'],
    ['10.0.0.1', '198.51.100.7', '198.51.100.7'],
    // Addresses that the client itself wrote into the header, before those of the proxies, have no effect.
    ['10.0.0.1', '203.0.113.9, 198.51.100.7', '198.51.100.7'],
    ['10.0.0.1', '10.9.9.9, 198.51.100.7, 10.0.0.2', '198.51.100.7'],
    ['10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'],
    ['10.0.0.1', 'unknown', '10.0.0.1'],
    ['10.0.0.1', '198.51.100.7, <script>', '10.0.0.1'],
    ['10.0.0.1', '', '10.0.0.1'],
    ['10.0.0.1', '198.51.100.7:4711', '198.51.100.7'],
    ['::1', '[2001:db8::7]:4711', '2001:db8::7'],
    ['::1', '2001:db8::7', '2001:db8::7'],
    ['', '198.51.100.7', null],
  ];
  for (const [connected, forwarded_for, address] of cases) {
    test(`${connected || 'nothing'} with ${forwarded_for ?? 'no header'} is ${address}`, () =>
      assert.equal(clientAddress(connected, forwarded_for, trusted), address));
  }

  test('is that of the connection where no proxy is trusted', () =>
    assert.equal(clientAddress('10.0.0.1', '198.51.100.7', []), '10.0.0.1'));

  test('of IPv6 is limited together with its /64, of IPv4 alone', () => {
    assert.equal(addressGroup('2001:db8:1:2::1'), addressGroup('2001:db8:1:2:ffff::2'));
    assert.notEqual(addressGroup('2001:db8:1:2::1'), addressGroup('2001:db8:1:3::1'));
    assert.notEqual(addressGroup('192.0.2.1'), addressGroup('192.0.2.2'));
  });
});

describe('a limit', () => {
  test('applies to each key and each address by itself, says when to come back, and then allows requests', async () => {
    const clock = new VirtualClock();
    const rate = { per_second: 0.4, burst: 2 };
    const limits = new Limits({ ...OFF, send_rate: rate, register_rate_per_address: rate }, clock);
    const send = (key_id: string, address: string) =>
      outcome(() => limits.assertWithinRate(['send'], key(key_id), from(address)));
    const register = (key_id: string, address: string) =>
      outcome(() => limits.assertWithinRate(['register'], key(key_id), from(address)));
    assert.deepEqual([send('a', '::1'), send('a', '::2'), send('a', '::3')], ['done', 'done', 'rate_limited 3']);
    assert.equal(send('b', '::1'), 'done');
    assert.deepEqual([register('a', '::1'), register('b', '::2')], ['done', 'done']);
    assert.equal(register('c', '::3'), 'rate_limited 3', 'the same /64');
    assert.equal(register('c', '192.0.2.1'), 'done');
    await clock.advance(2_499);
    assert.equal(send('a', '::1'), 'rate_limited 1', 'rounded up');
    await clock.advance(1);
    assert.equal(send('a', '::1'), 'done');
    const off = new Limits(OFF, clock);
    for (let i = 0; i < 1_000; i++) off.assertWithinRate(['send'], key('a'), from('::1'));
  });

  test('that refuses a request leaves the other limits as they were', () => {
    const rate = (burst: number) => ({ per_second: 0.4, burst });
    const limits = new Limits({ ...OFF, change_rate: rate(2), register_rate_per_address: rate(3) }, new VirtualClock());
    const register = (key_id: string) =>
      outcome(() => limits.assertWithinRate(['register', 'change'], key(key_id), from('::1')));
    assert.deepEqual(
      [1, 2, 3, 4].map(() => register('a')),
      ['done', 'done', 'rate_limited 3', 'rate_limited 3'],
    );
    assert.deepEqual([register('b'), register('b')], ['done', 'rate_limited 3']);
  });

  test('responds with 429 and Retry-After, and the defaults are above normal use', async (t) => {
    const settings = { send_rate_per_address: '1/m:2', register_rate_per_address: '1/m:2' };
    const [limited, usual] = await Promise.all([startService(t, settings), startService(t)]);
    const send = (service: typeof limited) => service.post(messagesPath('m'), { message: {} });
    const began_ms = performance.now();
    for (let i = 0; i < 2; i++) assert.equal((await send(limited)).status, 201);
    const refused = await send(limited);
    assertProblem(refused, 429, 'rate_limited');
    // The minute began with the first request.
    const retry_after_s = Number(refused.headers['retry-after']);
    const gone_s = (performance.now() - began_ms) / 1_000;
    assert.ok(retry_after_s >= Math.floor(60 - gone_s) && retry_after_s <= 60, String(retry_after_s));
    for (let i = 0; i < 50; i++) assert.equal((await send(usual)).status, 201);
    const of_header = { 'x-forwarded-for': '198.51.100.7' };
    const spoofed = await limited.post(messagesPath('m'), { message: {} }, of_header);
    assertProblem(spoofed, 429, 'rate_limited');
    const behind = await startService(t, { ...settings, trust_proxy: '127.0.0.0/8' });
    for (const last of ['7', '7', '8']) {
      const headers = { 'x-forwarded-for': `203.0.113.${last}, 198.51.100.${last}` };
      assert.equal((await behind.post(messagesPath('m'), { message: {} }, headers)).status, 201);
    }
    const spoof = { 'x-forwarded-for': '203.0.113.99, 198.51.100.7' };
    assertProblem(await behind.post(messagesPath('m'), { message: {} }, spoof), 429, 'rate_limited');
  });
});

describe('a caller that guesses keys', () => {
  async function house(settings: Partial<LimitSettings> = { auth_failure_rate: { per_second: 1, burst: 5 } }) {
    const clock = new VirtualClock();
    const store = openStoreHere();
    const keyring = new Keyring(clock, store.api_keys, (error) => assert.fail(String(error)));
    const make = async (byte: number, scopes: Scope[]) => {
      const key_id = makeKeyId(new Uint8Array(8).fill(byte));
      const token = makeToken(key_id, new Uint8Array(32).fill(byte));
      const none = { name: null, meeting_ids: null, instance_id: null, expires_at: null };
      keyring.put(
        await store.api_keys.create({ ...none, key_id, scopes, digest: digestOf(token), created_at: clock.wall() }),
      );
      return { key_id, token };
    };
    const honest = await make(1, ['admin']);
    const other = await make(2, ['read']);
    const limits = new Limits({ ...OFF, ...settings }, clock);
    const come = (token: string, address = '192.0.2.1') =>
      outcome(() => limits.identify(keyring, from(address, `Bearer ${token}`)));
    return { clock, keyring, honest, other, make, come, store };
  }
  const guess = (n: number, key_id = makeKeyId(new Uint8Array(8).fill(9))) =>
    makeToken(key_id, new Uint8Array(32).fill(n));

  test('responds with 429 after some failures, before it computes a digest, until the bucket fills again', async () => {
    const { clock, come } = await house();
    for (let i = 0; i < 5; i++) assert.equal(come(guess(i)), 'api_key_unknown');
    for (let i = 5; i < 50; i++) assert.equal(come(guess(i)), 'rate_limited 1');
    assert.equal(come(guess(50), '192.0.2.2'), 'api_key_unknown', 'another address is not limited');
    await clock.advance(1_000);
    assert.deepEqual([come(guess(51)), come(guess(52))], ['api_key_unknown', 'rate_limited 1']);
    const off = await house({});
    for (let i = 0; i < 50; i++) assert.equal(off.come(guess(i)), 'api_key_unknown', 'control: without the limit');
  });

  test('from the same address does not keep honest keys out, used before or not', async () => {
    const { come, honest, other } = await house();
    assert.equal(come(honest.token), 'done');
    for (let i = 0; i < 50; i++) come(guess(i));
    assert.deepEqual([come(honest.token), come(other.token)], ['done', 'done']);
  });

  test('from the same address does not keep portal links out, used before or not, and gets few tries of its own', async (t) => {
    const { clock, keyring, honest, make, come } = await house();
    const { key_id } = await make(3, ['instance']);
    const secret = createSecretKey(Buffer.alloc(32, 7));
    const secrets = { newest: secret, all: [secret] } as unknown as ConstructorParameters<typeof PortalLinks>[0];
    const store = openStoreHere();
    t.after(() => store.close());
    const links = new PortalLinks(secrets, keyring, store.instances, clock);
    keyring.others = links;
    const linkUntil = (ms: number) =>
      links.make({ key_id, maker_id: honest.key_id, expires_at: clock.wall() + ms, instance_id: null });
    const [used, unused, late] = await Promise.all([3_600_000, 3_000_000, 2_000_000].map(linkUntil));
    assert.ok(used !== undefined && unused !== undefined && late !== undefined);
    assert.equal(come(used), 'done');
    for (let i = 0; i < 50; i++) come(guess(i));
    assert.deepEqual([come(used), come(unused)], ['done', 'done']);
    const wrong = Array.from({ length: 60 }, (_, i) => come(used.slice(0, -8) + String(i).padStart(8, 'A')));
    assert.equal(wrong.filter((code) => code === 'api_key_unknown').length, 5);
    assert.deepEqual(new Set(wrong.slice(5)), new Set(['rate_limited 1']));
    assert.deepEqual([come(used), come(unused), come(late)], ['done', 'done', 'rate_limited 1']);
    assert.equal(come(makeToken(key_id, new Uint8Array(32).fill(3))), 'done', 'a key gets in in spite of wrong links');
  });

  test('and knows a key_id gets few tries, while a key that was used before gets in', async () => {
    const { come, honest } = await house();
    assert.equal(come(honest.token), 'done');
    const answers = Array.from({ length: 60 }, (_, i) => come(guess(i + 2, honest.key_id)));
    assert.equal(answers.filter((code) => code === 'api_key_unknown').length, 5);
    assert.deepEqual(new Set(answers.slice(10)), new Set(['rate_limited 1']));
    assert.equal(come(honest.token), 'done');
  });
});

describe('a token that a node of a cluster does not know', () => {
  const tokenOf = (byte: number, key_byte = byte): string =>
    makeToken(makeKeyId(new Uint8Array(8).fill(key_byte)), new Uint8Array(32).fill(byte));

  /** A node with one key. `stored` are the keys in the database, as other nodes change them. */
  async function node(settings: Partial<LimitSettings> = {}) {
    const clock = new VirtualClock();
    const stored: ApiKey[] = [];
    let reads = 0;
    let fails = false;
    const changedSince = async (change_no: number): Promise<ApiKey[]> => {
      reads++;
      if (fails) throw new Error('the store does not respond');
      return stored.filter((each) => each.change_no > change_no);
    };
    const keyring = new Keyring(clock, { changedSince } as never, (error) => assert.fail(String(error)));
    const store = (byte: number, key_byte = byte): void =>
      void stored.push({
        key_id: makeKeyId(new Uint8Array(8).fill(key_byte)),
        name: null,
        scopes: ['admin'],
        meeting_ids: null,
        instance_id: null,
        digest: digestOf(tokenOf(byte, key_byte)),
        earlier_tokens: [],
        created_at: 0,
        expires_at: null,
        revoked_at: null,
        last_used_at: clock.wall(),
        change_no: stored.length + 1,
      });
    store(1);
    await keyring.refresh();
    keyring.follow();
    reads = 0;
    const limits = new Limits({ ...OFF, ...settings }, clock);
    /** The outcomes of requests, in the order in which they come about. */
    const outcomes: string[] = [];
    const come = async (token: string): Promise<void> => {
      try {
        await limits.identify(keyring, from('192.0.2.1', `Bearer ${token}`));
        outcomes.push('done');
      } catch (error) {
        outcomes.push((error as Problem).code);
      }
    };
    return { clock, store, come, outcomes, reads: () => reads, fail: () => void (fails = true) };
  }

  test('is accepted when another node has just made it, and counts as no guess', async () => {
    const { clock, store, come, outcomes } = await node({ auth_failure_rate: { per_second: 0.001, burst: 1 } });
    for (const key_byte of [2, 1]) {
      store(key_byte + 10, key_byte);
      void come(tokenOf(key_byte + 10, key_byte));
      await clock.advance(100);
    }
    void come(tokenOf(99));
    await clock.advance(100);
    void come(tokenOf(98));
    await clock.settle();
    assert.deepEqual(outcomes, ['done', 'done', 'api_key_unknown', 'rate_limited']);
  });

  test('costs at most one read of the keys in 100 ms, however many there are', async () => {
    const { clock, come, outcomes, reads } = await node();
    for (let i = 0; i < 50; i++) void come(tokenOf(99));
    await clock.settle();
    assert.deepEqual([reads(), outcomes.length], [1, 1]);
    await clock.advance(99);
    for (let i = 0; i < 50; i++) void come(tokenOf(99));
    await clock.settle();
    assert.equal(reads(), 1);
    await clock.advance(1);
    assert.deepEqual([reads(), outcomes.length, new Set(outcomes)], [2, 100, new Set(['api_key_unknown'])]);
  });

  test('is refused at once when 200 others wait already', async () => {
    const { clock, come, outcomes } = await node();
    for (let i = 0; i < 300; i++) void come(tokenOf(99));
    await clock.settle();
    assert.equal(outcomes.length, 100, 'the keys were read for one, and 99 had no place');
    await clock.advance(100);
    assert.equal(outcomes.length, 300);
  });

  test('lets no more requests of an address wait than it may make guesses', async () => {
    const { clock, come, outcomes, reads } = await node({ auth_failure_rate: { per_second: 0.001, burst: 5 } });
    for (let i = 0; i < 20; i++) void come(tokenOf(99));
    await clock.settle();
    assert.deepEqual(outcomes.toSorted(), ['api_key_unknown', ...Array.from({ length: 15 }, () => 'rate_limited')]);
    await clock.advance(100);
    assert.deepEqual([outcomes.length, reads()], [20, 2]);
  });

  test('is refused when the keys cannot be read, and when it is no token of a key', async () => {
    const { clock, come, outcomes, reads, fail } = await node();
    void come(`${tokenOf(99).slice(0, -1)}_`);
    void come(`${tokenOf(99).slice(0, -6)}000000`);
    await clock.settle();
    assert.deepEqual([outcomes, reads()], [['api_key_malformed', 'api_key_malformed'], 0]);
    fail();
    void come(tokenOf(99));
    await clock.settle();
    assert.deepEqual([outcomes[2], reads()], ['api_key_unknown', 1]);
  });
});

describe('a quota', () => {
  const register = (store: ReturnType<typeof openStoreHere>, instance_id: string, owner_key_id: string | null = null) =>
    store.instances.register(
      {
        instance_id,
        instance_name: 'n',
        agent_ids: [],
        webhook_url: 'http://127.0.0.1:1/',
        webhook_headers: undefined,
        webhook_secret: undefined,
        new_secret: SECRET,
        success_statuses: undefined,
        owner_key_id,
      },
      0,
    );
  const opened = (t: TestContext, quotas: Partial<Quotas>) => {
    const store = openStoreHere(':memory:', { ...NO_QUOTAS, ...quotas });
    t.after(() => store.close());
    return store;
  };
  const codes = async (calls: Promise<unknown>[]): Promise<string[]> =>
    (await Promise.allSettled(calls))
      .map((each) => (each.status === 'fulfilled' ? 'done' : each.reason.code))
      .toSorted((a: string, b: string) => (a < b ? -1 : 1));

  test('of instances gives the last place to one of two requests at once, and a place that becomes free can be used again', async (t) => {
    const store = opened(t, { max_instances: 2 });
    await register(store, 'a');
    assert.deepEqual(await codes([register(store, 'b'), register(store, 'c')]), ['done', 'quota_exceeded']);
    await register(store, 'a');
    await store.instances.remove('a', 10, 0);
    assert.deepEqual(await codes([register(store, 'd')]), ['done']);
    const free = opened(t, {});
    assert.deepEqual(await codes([register(free, 'a'), register(free, 'b'), register(free, 'c')]), [
      'done',
      'done',
      'done',
    ]);
  });

  test('of the instances of a key is of each key by itself, and the refusal names the setting', async (t) => {
    const store = opened(t, { max_instances_per_key: 1 });
    assert.deepEqual(await codes([register(store, 'a', 'k'), register(store, 'b', 'k')]), ['done', 'quota_exceeded']);
    assert.deepEqual(await codes([register(store, 'c', 'l'), register(store, 'd'), register(store, 'e')]), [
      'done',
      'done',
      'done',
    ]);
    await assert.rejects(register(store, 'f', 'k'), /CONVOKE_MAX_INSTANCES_PER_KEY permits: 1/);
  });

  test('of memberships counts present members: one that leaves makes room, one that is present may join again', async (t) => {
    const store = opened(t, { max_instances_per_meeting: 1, max_meetings_per_instance: 2 });
    await Promise.all(['a', 'b'].map((id) => register(store, id)));
    const join = (meeting_id: string, instance_id: string) => store.meetings.join(meeting_id, instance_id, [], 0);
    assert.deepEqual(await codes([join('m', 'a'), join('m', 'b')]), ['done', 'quota_exceeded']);
    await join('m', 'a');
    await store.meetings.leave('m', 'a', 0);
    await join('m', 'b');
    await assert.rejects(join('m', 'a'), /CONVOKE_MAX_INSTANCES_PER_MEETING permits: 1/);
    await join('n', 'b');
    await assert.rejects(join('o', 'b'), /CONVOKE_MAX_MEETINGS_PER_INSTANCE permits: 2/);
  });
});
