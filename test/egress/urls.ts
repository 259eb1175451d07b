/** Pushes of the real transport to many URLs, and the tests of URLs that name denied addresses. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { type EgressMode, type EgressPolicy, parseCidr } from '../../src/domain/address.ts';
import type { PushResult } from '../../src/delivery/transport/transport.ts';
import { createWebhookTransport, type WebhookTransport } from '../../src/delivery/transport/webhook_transport.ts';
import { Random } from '../simulation/random.ts';
import { type Address, addressOf, bytesOf, hostileUrls, isDeniedUnder } from '../support/hostile_urls.ts';
import { tapSockets } from '../support/socket_tap.ts';

export const SEED = 20_261_121;
export const MODES: readonly EgressMode[] = ['public', 'lan', 'local'];

type MutablePolicy = { -readonly [Key in keyof EgressPolicy]: EgressPolicy[Key] };

export const policyOf = (mode: EgressMode, ...allow: string[]): MutablePolicy => ({
  mode,
  allow: allow.map((text) => parseCidr(text)!),
  // With this setting, only the address can be a reason to refuse an http:// URL.
  allow_http: true,
});

export function transportFor(t: TestContext, policy: EgressPolicy): WebhookTransport {
  // There is no name server at this address: a push that asked it would wait, and the test would see that.
  const transport = createWebhookTransport({ policy, name_servers: ['127.0.0.1:1'], hosts_path: '/nonexistent' });
  t.after(() => transport.close());
  return transport;
}

let pushes = 0;

/** Makes a push. Every second push uses a new connection, as a push of webhook-test does. */
export function push(transport: WebhookTransport, url: string): Promise<PushResult> {
  return transport.push({
    instance_id: 'machine',
    url,
    headers: {},
    body: Buffer.from('{}'),
    success_statuses: '200',
    fresh_connection: ++pushes % 2 === 0,
  });
}

/** Listens on every address of this machine, in both families, at one port. */
export async function listenEverywhere(t: TestContext): Promise<{ port: number; accepted: () => number }> {
  let accepted = 0;
  const listen = async (host: string, port: number): Promise<Server> => {
    const server = createServer((_, response) => response.end());
    server.on('connection', () => accepted++);
    await once(server.listen({ host, port, ipv6Only: host === '::' }), 'listening');
    t.after(() => server.close().closeAllConnections());
    return server;
  };
  const { port } = (await listen('0.0.0.0', 0)).address() as AddressInfo;
  await listen('::', port);
  return { port, accepted: () => accepted };
}

export function allowingOnly(policy: MutablePolicy, address: Address): void {
  policy.allow = [{ bytes: bytesOf(address), prefix_bits: address.bits }];
}

/**
 * Makes the tests of URLs that name denied addresses.
 *
 * @param members_per_range how many random addresses of each range are named
 * @param urls_min how many URLs there must be at least
 */
export function hostileUrlsMakeNoConnection(members_per_range: number, urls_min: number): void {
  test(`over ${urls_min} hostile URLs, every denied range in every notation, make no connection under any policy`, async (t) => {
    const machine = await listenEverywhere(t);
    const tap = tapSockets(t, ({ host }) => (host.startsWith('127.') || host === '::1' ? 'pass' : 'refuse'));
    const urls = hostileUrls(new Random(SEED), members_per_range, machine.port);
    assert.ok(urls.length > urls_min, `${urls.length} URLs`);
    const denied_under = { public: 0, lan: 0, local: 0 };
    for (const mode of MODES) {
      const transport = transportFor(t, policyOf(mode));
      for (const { url, opened_by } of urls) {
        if (!isDeniedUnder(mode, opened_by)) continue;
        denied_under[mode]++;
        const { outcome, status_code, detail } = await push(transport, url);
        assert.deepEqual([outcome, status_code], ['blocked', null], `${url} under ${mode}: ${detail}`);
        assert.match(detail, /CONVOKE_EGRESS(_ALLOW)?=\S+ would allow it$/);
      }
    }
    assert.equal(denied_under.public, urls.length);
    assert.ok(denied_under.local > urls_min / 2 && denied_under.lan > denied_under.local, JSON.stringify(denied_under));
    assert.deepEqual(tap.dialled, []);
    assert.deepEqual([tap.opened, tap.lookups, machine.accepted()], [0, 0, 0]);
  });

  test('control: with an entry for its one address, each of these URLs dials that address', async (t) => {
    const tap = tapSockets(t, () => 'refuse');
    const policy = policyOf('public');
    const transport = transportFor(t, policy);
    for (const [i, { url, address }] of hostileUrls(new Random(SEED), members_per_range, 8080).entries()) {
      allowingOnly(policy, address);
      const { outcome } = await push(transport, url);
      assert.equal(outcome, 'connect_refused', url);
      assert.equal(tap.dialled.length, i + 1, url);
      assert.deepEqual(addressOf(tap.dialled[i]!.host), address, url);
    }
    assert.equal(tap.opened, 0, 'the tap let nothing through');
  });
}
