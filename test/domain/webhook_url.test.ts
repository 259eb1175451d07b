import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import fc from 'fast-check';
import { judgeAddress, parseCidr } from '../../src/domain/address.ts';
import type { EgressMode, EgressPolicy } from '../../src/domain/address.ts';
import { isRefusal, parseWebhookUrl } from '../../src/domain/webhook_url.ts';
import type { WebhookTarget, WebhookUrlRefusal } from '../../src/domain/webhook_url.ts';

const policyOf = (mode: EgressMode, allow_http = true, ...allow: string[]): EgressPolicy => ({
  mode,
  allow: allow.map((text) => parseCidr(text)!),
  allow_http,
});

function accepted(text: string, policy = policyOf('local')): WebhookTarget {
  const parsed = parseWebhookUrl(text, policy);
  assert.ok(!isRefusal(parsed), `${text}: ${'message' in parsed ? parsed.message : ''}`);
  return parsed;
}

function refused(text: string, policy = policyOf('local')): WebhookUrlRefusal {
  const parsed = parseWebhookUrl(text, policy);
  assert.ok(isRefusal(parsed), `${text} was accepted`);
  return parsed;
}

/** A loopback address in every notation that some parser reads as this address. */
const LOOPBACK_HOSTS = [
  ['127.0.0.1', '2130706433', '0x7f000001', '0177.0.0.1', '017700000001', '127.1', '127.0.1', '0x7f.1', '0X7F.0.0.0x1'],
  ['①②⑦.0.0.1', '127。0。0。1', '127．0．0．1', '%31%32%37.0.0.1', '127%2e0%2e0%2e1', '127.0.0.1.', '１２７.0.0.1'],
  [
    '[::1]',
    '[0:0:0:0:0:0:0:1]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    '[::FFFF:7F00:0001]',
    '[0:0:0:0:0:ffff:127.0.0.1]',
  ],
  ['localhost', 'LOCALHOST', 'localhost.', 'a.localhost', 'a.b.LocalHost.', 'ｌｏｃａｌｈｏｓｔ', '%6cocalhost'],
].flat();

for (const host of LOOPBACK_HOSTS) {
  test(`http://${host}/ is this machine: refused under public and lan, reachable under local`, () => {
    for (const mode of ['public', 'lan'] as const) {
      const refusal = refused(`http://${host}/hook`, policyOf(mode));
      assert.equal(refusal.policy_denied, true);
      assert.match(refusal.message, /CONVOKE_EGRESS=local would allow it/);
    }
    accepted(`http://${host}/hook`);
  });
}

const DENIED_HOSTS = {
  'cloud metadata': [
    '169.254.169.254',
    '2852039166',
    '0xa9fea9fe',
    '0251.0376.0251.0376',
    '169.254.43518',
    '[::ffff:a9fe:a9fe]',
  ],
  'private networks': [
    '10.0.0.1',
    '167772161',
    '012.0.0.1',
    '192.168.257',
    '0xac.0x10.1',
    '[fd12::1]',
    '[::ffff:c0a8:1]',
  ],
  'nothing at all': ['0', '0.0.0.0', '0x0', '[::]', '255.255.255.255', '4294967295'],
  'translated addresses': ['[64:ff9b::7f00:1]', '[2002:7f00:1::]', '[::7f00:1]', '[2001::1]'],
};

for (const [what, hosts] of Object.entries(DENIED_HOSTS)) {
  test(`${what} are refused under public in every notation, before any connection`, () => {
    for (const host of hosts) assert.equal(refused(`https://${host}/`, policyOf('public')).policy_denied, true, host);
  });
}

test('an exact entry of the allow-list opens an address in every notation', () => {
  for (const host of DENIED_HOSTS['cloud metadata']) {
    refused(`https://${host}/`, policyOf('public', true, '169.254.0.0/16'));
    accepted(`https://${host}/`, policyOf('public', true, '169.254.169.254/32'));
  }
});

test('a URL that parsers read differently is refused outright', () => {
  const malformed = [
    [
      'http://user@example.com/',
      'http://user:pass@example.com/',
      'http://@example.com/',
      'http://example.com@127.0.0.1/',
    ],
    [
      'http://exa mple.com/',
      ' http://example.com/',
      'http://example.com/ ',
      'http://example.com/a b',
      'http://example.com/\t',
    ],
    [
      'http://example.com/\n',
      'ht\ntp://example.com/',
      'http://example.com/\0',
      'http://example.com/\u007f',
      'http://example.com/\u0085',
    ],
    [
      'http://example.com/\u00a0',
      'http://example.com/\u2028',
      'http://example.com/\u3000',
      '\ufeffhttp://example.com/',
    ],
    ['http:\\\\example.com\\', 'http://example.com\\@127.0.0.1/', 'http://example.com/\\'],
    [
      'ftp://example.com/',
      'file:///etc/passwd',
      'gopher://example.com/',
      'data:text/plain,x',
      'javascript:alert(1)',
      'ws://example.com/',
    ],
    [
      'http:example.com',
      'http:/example.com',
      '//example.com/',
      'example.com',
      '',
      'http://',
      'https:///hook',
      'http://?x',
      'http://#x',
    ],
    [
      'http://example.com:0/',
      'http://example.com:65536/',
      'http://example.com:-1/',
      'http://example.com:80a/',
      'http://:80/',
    ],
    [
      'http://[::1%25eth0]/',
      'http://[fe80::1%eth0]/',
      'http://[::1/',
      'http://::1/',
      'http://[127.0.0.1]/',
      'http://1.2.3.4.5/',
    ],
    [
      'http://256.0.0.1/',
      'http://0x100000000/',
      'http://example.com../',
      'http://.example.com/',
      'http://a..b/',
      'http://./',
      'http://../',
    ],
    [
      'http://exa%00mple.com/',
      'http://exa%20mple.com/',
      'http://exa<mple.com/',
      `http://${'a'.repeat(64)}.com/`,
      'http://\ud800.com/',
    ],
    `http://${'a.'.repeat(130)}com/`,
  ].flat();
  for (const text of malformed) assert.equal(refused(text).policy_denied, false, JSON.stringify(text));
});

test('a URL has at most 2,048 bytes, counted as UTF-8', () => {
  const base = 'http://example.com/';
  accepted(base + 'a'.repeat(2048 - base.length));
  refused(base + 'a'.repeat(2049 - base.length));
  refused(base + 'é'.repeat(1020));
});

test('under public a push needs https unless http was allowed', () => {
  const refusal = refused('http://example.com/', policyOf('public', false));
  assert.deepEqual(refusal, { message: refusal.message, policy_denied: true });
  accepted('https://example.com/', policyOf('public', false));
  accepted('http://example.com/', policyOf('public', true));
  accepted('http://example.com/', policyOf('lan', false));
});

test('a target says what to connect to, in one spelling', () => {
  assert.deepEqual(accepted('HTTPS://Example.COM./a/../hook?x=1&y=%20#part'), {
    url: 'HTTPS://Example.COM./a/../hook?x=1&y=%20#part',
    origin: 'https://example.com.',
    path: '/hook?x=1&y=%20',
    hostname: 'example.com',
    port: 443,
    tls: true,
  });
  assert.deepEqual(accepted('http://bücher.example:8080'), {
    url: 'http://bücher.example:8080',
    origin: 'http://xn--bcher-kva.example:8080',
    path: '/',
    hostname: 'xn--bcher-kva.example',
    port: 8080,
    tls: false,
  });
  assert.deepEqual(accepted('http://[::ffff:7f00:1]:9/').address, Uint8Array.of(127, 0, 0, 1));
});

test('whatever the text: no exception, and an accepted address is one that the policy lets through', () => {
  const host = fc.oneof(
    fc.ipV4Extended(),
    fc.ipV6().map((text) => `[${text}]`),
    fc.domain(),
    fc.string({ unit: fc.constantFrom(...'0123456789abcdefx.%[]:。①@') }),
    fc.string(),
  );
  const text = fc.oneof(
    fc.tuple(fc.constantFrom('http://', 'https://', 'HTTP://'), host, fc.webPath()).map((parts) => parts.join('')),
    fc.webUrl(),
    fc.string(),
  );
  fc.assert(
    fc.property(text, fc.constantFrom<EgressMode>('public', 'lan', 'local'), (given, mode) => {
      const parsed = parseWebhookUrl(given, policyOf(mode));
      if (isRefusal(parsed)) return;
      if (parsed.address !== undefined) assert.equal(judgeAddress(parsed.address, policyOf(mode)), null);
      // Only a name goes to a name server: nothing that the system would read as an address.
      else assert.doesNotMatch(parsed.hostname, /^[0-9.]+$|(^|\.)0x[0-9a-f]*$|[^\x21-\x7e]|[:/@[\]\\]/);
      assert.ok(parsed.path.startsWith('/'));
    }),
    { numRuns: 5000 },
  );
});

test('a name that can never be public is refused under public, with what to do; lan and an allow-list take it', () => {
  const names = [
    [
      'printer',
      'redis',
      'ip6-localhost',
      'xn--localhost-',
      'laptop.local',
      'LAPTOP.LOCAL.',
      'agent.internal',
      'a.home.arpa',
    ],
    [
      'agent.default.svc',
      'agent.default.svc.cluster.local',
      'localhost.localdomain',
      'nas.lan',
      'pc.home',
      'x.corp',
      'l\u00e5n.lan',
    ],
  ].flat();
  for (const name of names) {
    const { message, policy_denied } = refused(`https://${name}/`, policyOf('public'));
    assert.ok(policy_denied);
    assert.match(message, /is a name of a private network; the range .* CONVOKE_EGRESS=lan would allow it$/);
    for (const policy of [policyOf('lan'), policyOf('local'), policyOf('public', true, '10.0.0.0/8')]) {
      accepted(`https://${name}/`, policy);
    }
  }
  for (const name of ['example.com', 'local.example.com', 'internal.example', 'svc.dev', 'mylocal', 'corporate.com']) {
    if (name.includes('.')) accepted(`https://${name}/`, policyOf('public'));
  }
});

test('a name of a metadata service is refused everywhere, unless its one address is allowed', () => {
  for (const name of ['metadata.google.internal', 'METADATA.google.internal.', 'metadata.goog']) {
    for (const mode of ['public', 'lan', 'local'] as const) {
      assert.match(
        refused(`http://${name}/`, policyOf(mode)).message,
        /CONVOKE_EGRESS_ALLOW=169\.254\.169\.254\/32 would/,
      );
      refused(`http://${name}/`, policyOf(mode, true, '169.254.0.0/16'));
      accepted(`http://${name}/`, policyOf(mode, true, '169.254.169.254/32'));
    }
  }
});

test('the ports that the fetch standard blocks are refused under public, and no others', async () => {
  const standard = createRequire(import.meta.resolve('undici'))('./lib/web/fetch/constants.js') as {
    badPorts: string[];
  };
  const blocked = new Set(standard.badPorts.map(Number));
  assert.ok(blocked.size > 80);
  for (let port = 1; port <= 12_000; port++) {
    const url = `https://example.com:${port}/`;
    assert.equal(isRefusal(parseWebhookUrl(url, policyOf('public'))), blocked.has(port), url);
  }
  const { message } = refused('https://example.com:25/', policyOf('public'));
  assert.match(message, /^is not allowed: port 25 .*; another port, .* would allow it$/);
  for (const mode of ['lan', 'local'] as const) accepted('https://example.com:25/', policyOf(mode));
  accepted('https://93.184.216.34:25/', policyOf('public', true, '93.184.216.34/32'));
  refused('https://93.184.216.34:25/', policyOf('public'));
});
