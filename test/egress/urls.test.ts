/**
 * No push goes to a denied range, in whatever notation its address is written. The real transport gets each URL, and
 * the test counts the sockets that it opens. The control for each: when the policy allows the address, the same URL
 * opens a connection.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { Random } from '../simulation/random.ts';
import {
  addressOf,
  ambiguousUrls,
  canonical,
  goodHosts,
  hostileUrls,
  type NamedUrl,
  openAddresses,
  openedMembers,
  urlsOf,
} from '../support/hostile_urls.ts';
import { tapSockets } from '../support/socket_tap.ts';
import {
  allowingOnly,
  hostileUrlsMakeNoConnection,
  listenEverywhere,
  MODES,
  policyOf,
  push,
  SEED,
  transportFor,
} from './urls.ts';

// urls.slow.ts names more addresses of each range.
hostileUrlsMakeNoConnection(1, 4_500);

test('control: under local, every notation of this machine reaches it, and the tap and the machine count alike', async (t) => {
  const machine = await listenEverywhere(t);
  const tap = tapSockets(t);
  const transport = transportFor(t, policyOf('local', '0.0.0.0/8'));
  const urls = ['127.0.0.1', '::1', '0.0.0.0'].flatMap((text) => urlsOf(text, machine.port));
  assert.ok(urls.length > 90, `${urls.length} notations`);
  for (const url of urls) {
    const { outcome, detail } = await push(transport, url);
    assert.equal(outcome, 'ok', `${url}: ${detail}`);
    // Otherwise the next push would reuse this connection, and would not open a connection that the test counts.
    transport.forget('machine');
  }
  assert.deepEqual([tap.dialled.length, tap.opened, machine.accepted()], [urls.length, urls.length, urls.length]);
});

test('a URL that parsers read differently makes no connection, whatever the policy and the allow-list say', async (t) => {
  const tap = tapSockets(t, () => 'refuse');
  const policies = MODES.map((mode) => policyOf(mode));
  const transports = policies.map((policy) => transportFor(t, policy));
  const named = new Map(
    hostileUrls(new Random(SEED), 0, 8080).map(({ address }: NamedUrl) => [canonical(address), address]),
  );
  let urls = 0;
  for (const address of named.values()) {
    for (const policy of policies) allowingOnly(policy, address);
    for (const url of ambiguousUrls(address, 8080)) {
      urls++;
      for (const transport of transports) assert.equal((await push(transport, url)).outcome, 'blocked', url);
    }
  }
  assert.ok(urls > 5_000, `${urls} URLs`);
  assert.deepEqual([tap.dialled, tap.opened, tap.lookups], [[], 0, 0]);
});

test('1,000 good URLs under every policy: none is refused, and each dials its address', async (t) => {
  const tap = tapSockets(t, () => 'refuse');
  const random = new Random(SEED);
  const open = openAddresses(random, 1_000);
  const reach = { public: open, lan: [...open], local: [...open] };
  reach.lan.push(...openedMembers(random, 'lan', 20));
  reach.local.push(...openedMembers(random, 'lan', 20), ...openedMembers(random, 'local', 20));
  for (const mode of MODES) {
    const transport = transportFor(t, policyOf(mode));
    for (const address of reach[mode]) {
      for (const host of goodHosts(address)) {
        const before = tap.dialled.length;
        const url = `${random.pick(['http', 'https'])}://${host}${random.pick(['', ':8080'])}/hook?key=a%20b`;
        const { outcome, detail } = await push(transport, url);
        assert.equal(outcome, 'connect_refused', `${url} under ${mode}: ${detail}`);
        assert.deepEqual(
          tap.dialled.slice(before).map(({ host }) => addressOf(host)),
          [address],
          url,
        );
      }
    }
  }
  // The control: the same loop sees a refusal where there must be one.
  const transport = transportFor(t, policyOf('public'));
  for (const address of openedMembers(random, 'lan', 20)) {
    const [host] = goodHosts(address);
    assert.equal((await push(transport, `https://${host}/hook`)).outcome, 'blocked', host);
  }
});

test('a connection that ends up elsewhere than it was told to is closed before a byte is sent', async (t) => {
  const seen: Buffer[] = [];
  const machine = createServer();
  machine.on('connection', (socket) => socket.on('data', (chunk) => seen.push(chunk)));
  machine.on('request', (_, response) => response.end());
  await once(machine.listen(0, '127.0.0.1'), 'listening');
  t.after(() => machine.close().closeAllConnections());
  const { port } = machine.address() as AddressInfo;
  // The tap redirects the connection, as a firewall rule, or a defect above the socket, would.
  const tap = tapSockets(t, ({ host }) => (host === '192.0.2.7' ? { host: '127.0.0.1', port } : 'pass'));
  const astray = await push(transportFor(t, policyOf('public', '192.0.2.7/32')), 'http://192.0.2.7:8080/');
  assert.equal(astray.outcome, 'blocked', astray.detail);
  assert.match(astray.detail, /127\.0\.0\.1 is a loopback address/);
  assert.deepEqual([tap.opened, seen.length], [1, 0]);
  // The control: where both addresses are allowed the push arrives, so only the second check stopped it.
  const both = policyOf('public', '192.0.2.7/32', '127.0.0.1/32');
  assert.equal((await push(transportFor(t, both), 'http://192.0.2.7:8080/')).outcome, 'ok');
  assert.deepEqual([tap.opened, seen.length], [2, 1]);
});
