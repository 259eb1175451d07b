import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { TestContext } from 'node:test';
import { formatAddress } from '../../src/domain/address.ts';
import { createHostResolver, parseHosts } from '../../src/delivery/transport/resolver.ts';
import type { HostResolver, Resolution } from '../../src/delivery/transport/resolver.ts';
import { startScriptedDns, together } from '../support/scripted_dns.ts';
import type { DnsAnswer, DnsQuestion } from '../support/scripted_dns.ts';
import { beforeTimer, inTime, WAIT_MS_MAX } from '../support/wait.ts';

async function scripted(t: TestContext, script: (question: DnsQuestion) => DnsAnswer) {
  const dns = await startScriptedDns(script);
  t.after(() => dns.close());
  return { dns, resolver: createHostResolver({ name_servers: [dns.address], hosts_path: '/nonexistent' }) };
}

const lookup = (resolver: HostResolver, hostname: string, timeout_ms = WAIT_MS_MAX) =>
  new Promise<Resolution>((resolve) => resolver.lookup(hostname, timeout_ms, resolve));

async function addressesOf(resolver: HostResolver, hostname: string): Promise<string[]> {
  const found = await lookup(resolver, hostname);
  assert.ok(found.ok, 'code' in found ? found.code : '');
  return found.addresses.map(formatAddress);
}

const byType = (a: DnsAnswer, aaaa: DnsAnswer) => (question: DnsQuestion) => (question.type === 'A' ? a : aaaa);

describe('resolver', { concurrency: true }, () => {
  test('both families are asked side by side, and their addresses alternate', async (t) => {
    const { dns, resolver } = await scripted(t, together(['192.0.2.1', '192.0.2.2', '192.0.2.1'], ['2001:db8::1']));
    const found = await addressesOf(resolver, 'both.test');
    assert.equal(found.length, 3);
    assert.notEqual(found[0]!.includes(':'), found[1]!.includes(':'));
    assert.equal(dns.asked, 2);
  });

  test('a name with addresses of one family only has those, whatever the other question comes to', async (t) => {
    for (const other of [[], 'SERVFAIL', 'mute'] as DnsAnswer[]) {
      const { resolver } = await scripted(t, byType(['192.0.2.1'], other));
      assert.deepEqual(await addressesOf(resolver, 'v4.test'), ['192.0.2.1']);
    }
    const { resolver } = await scripted(t, byType([], ['2001:db8::1']));
    assert.deepEqual(await addressesOf(resolver, 'v6.test'), ['2001:db8::1']);
  });

  test('a lookup that finds nothing says why', async (t) => {
    const { resolver: unknown } = await scripted(t, () => 'NXDOMAIN');
    assert.deepEqual(await lookup(unknown, 'unknown.test'), { ok: false, code: 'ENOTFOUND' });
    const { resolver: empty } = await scripted(t, () => []);
    assert.deepEqual(await lookup(empty, 'empty.test'), { ok: false, code: 'ENODATA' });
    const { resolver: failing } = await scripted(t, byType('SERVFAIL', []));
    assert.deepEqual(await lookup(failing, 'failing.test'), {
      ok: false,
      code: 'ESERVFAIL',
    });
  });

  test('a mute name server is given up at the deadline of the call', async (t) => {
    const { resolver } = await scripted(t, () => 'mute');
    assert.deepEqual(await beforeTimer('the lookup', 400, lookup(resolver, 'mute.test', 150)), {
      ok: false,
      code: 'ETIMEOUT',
    });
  });

  test('a hundred lookups at a mute name server delay nobody else', async (t) => {
    const { dns, resolver } = await scripted(t, ({ name }) => (name === 'good.test' ? ['192.0.2.1'] : 'mute'));
    const lookups = Array.from({ length: 100 }, (_, i) =>
      resolver.lookup(`mute${i}.test`, 60_000, () => assert.fail()),
    );
    // None of the others has ended before.
    assert.deepEqual(await inTime('the lookup', addressesOf(resolver, 'good.test')), ['192.0.2.1']);
    for (const each of lookups) each.cancel();
    assert.ok(dns.questions.length > 100);
  });

  test('a cancelled lookup never returns anything', async (t) => {
    const { resolver } = await scripted(t, () => ['192.0.2.1']);
    resolver.lookup('cancelled.test', 1000, () => assert.fail()).cancel();
    resolver.lookup('localhost', 1000, () => assert.fail()).cancel();
    await addressesOf(resolver, 'other.test');
  });

  test('a name is asked for again each time: nothing is remembered between lookups', async (t) => {
    let round = 1;
    const { resolver } = await scripted(t, ({ type }) => (type === 'A' ? [`192.0.2.${round}`] : []));
    assert.deepEqual(await addressesOf(resolver, 'rebind.test'), ['192.0.2.1']);
    round = 2;
    assert.deepEqual(await addressesOf(resolver, 'rebind.test'), ['192.0.2.2']);
  });

  test('localhost is this machine, and no name server is asked about it', async (t) => {
    const { dns, resolver } = await scripted(t, () => ['192.0.2.1']);
    assert.deepEqual(await addressesOf(resolver, 'localhost'), ['127.0.0.1', '::1']);
    assert.deepEqual(await addressesOf(resolver, 'agent.localhost'), ['127.0.0.1', '::1']);
    assert.deepEqual(dns.questions, []);
  });

  test('a name that the resolver library refuses is a result, and no exception', async (t) => {
    const { resolver } = await scripted(t, () => 'NXDOMAIN');
    const found = await lookup(resolver, `${'a'.repeat(64)}.test`);
    assert.equal(found.ok, false);
  });

  test('the hosts file goes before DNS, and is read again when it has changed', async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'convoke-hosts-'));
    t.after(() => rmSync(folder, { recursive: true }));
    const hosts_path = join(folder, 'hosts');
    writeFileSync(hosts_path, '192.0.2.7 machine.lan # the one in the corner\n');
    const dns = await startScriptedDns(({ type }) => (type === 'A' ? ['192.0.2.99'] : []));
    t.after(() => dns.close());

    const clock = t.mock.method(performance, 'now');
    const resolver = createHostResolver({ name_servers: [dns.address], hosts_path });
    assert.deepEqual(await addressesOf(resolver, 'machine.lan'), ['192.0.2.7']);
    assert.deepEqual(dns.questions, []);

    writeFileSync(hosts_path, '192.0.2.8 machine.lan\n');
    utimesSync(hosts_path, 1, 1);
    const now_ms = performance.now();
    clock.mock.mockImplementation(() => now_ms + 1001);
    assert.deepEqual(await addressesOf(resolver, 'machine.lan'), ['192.0.2.8']);
    clock.mock.restore();
    assert.deepEqual(await addressesOf(resolver, 'elsewhere.lan'), ['192.0.2.99']);
  });
});

test('a hosts file is read with its comments, aliases and both families', () => {
  const names = parseHosts(
    '# comment\n127.0.0.1\tlocalhost\n192.0.2.1 One one.lan#x\r\n2001:db8::1 one\nfe80::1%eth0 zone\nnonsense here\n',
  );
  const found = Object.fromEntries([...names].map(([name, addresses]) => [name, addresses.map(formatAddress)]));
  assert.deepEqual(found, {
    localhost: ['127.0.0.1'],
    one: ['192.0.2.1', '2001:db8::1'],
    'one.lan': ['192.0.2.1'],
  });
});
