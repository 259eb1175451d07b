import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { formatAddress, judgeAddress, parseAddress, parseCidr } from '../../src/domain/address.ts';
import type { EgressMode, EgressPolicy } from '../../src/domain/address.ts';

const policyOf = (mode: EgressMode, ...allow: string[]): EgressPolicy => ({
  mode,
  allow: allow.map((text) => parseCidr(text)!),
  allow_http: false,
});

const isDenied = (text: string, policy: EgressPolicy) => judgeAddress(parseAddress(text)!, policy) !== null;

/** Each range with its first and last address, and public addresses directly outside of the range. */
const RANGES: { range: string; inside: string[]; outside: string[]; opened_by: EgressMode | 'range' | 'exact' }[] = [
  { range: '0/8', inside: ['0.0.0.0', '0.255.255.255'], outside: ['1.0.0.0'], opened_by: 'range' },
  { range: '10/8', inside: ['10.0.0.0', '10.255.255.255'], outside: ['9.255.255.255', '11.0.0.0'], opened_by: 'lan' },
  {
    range: '100.64/10',
    inside: ['100.64.0.0', '100.127.255.255'],
    outside: ['100.63.255.255', '100.128.0.0'],
    opened_by: 'lan',
  },
  {
    range: '127/8',
    inside: ['127.0.0.0', '127.255.255.255'],
    outside: ['126.255.255.255', '128.0.0.0'],
    opened_by: 'local',
  },
  {
    range: '168.63.129.16',
    inside: ['168.63.129.16'],
    outside: ['168.63.129.15', '168.63.129.17'],
    opened_by: 'exact',
  },
  {
    range: '169.254/16',
    inside: ['169.254.0.0', '169.254.169.254', '169.254.255.255'],
    outside: ['169.253.255.255', '169.255.0.0'],
    opened_by: 'exact',
  },
  {
    range: '172.16/12',
    inside: ['172.16.0.0', '172.31.255.255'],
    outside: ['172.15.255.255', '172.32.0.0'],
    opened_by: 'lan',
  },
  {
    range: '192.0.0/24',
    inside: ['192.0.0.0', '192.0.0.255'],
    outside: ['191.255.255.255', '192.0.1.0'],
    opened_by: 'range',
  },
  {
    range: '192.0.2/24',
    inside: ['192.0.2.0', '192.0.2.255'],
    outside: ['192.0.1.255', '192.0.3.0'],
    opened_by: 'range',
  },
  {
    range: '192.31.196/24',
    inside: ['192.31.196.0', '192.31.196.255'],
    outside: ['192.31.195.255', '192.31.197.0'],
    opened_by: 'range',
  },
  {
    range: '192.52.193/24',
    inside: ['192.52.193.0', '192.52.193.255'],
    outside: ['192.52.192.255', '192.52.194.0'],
    opened_by: 'range',
  },
  {
    range: '192.88.99/24',
    inside: ['192.88.99.0', '192.88.99.255'],
    outside: ['192.88.98.255', '192.88.100.0'],
    opened_by: 'range',
  },
  {
    range: '192.168/16',
    inside: ['192.168.0.0', '192.168.255.255'],
    outside: ['192.167.255.255', '192.169.0.0'],
    opened_by: 'lan',
  },
  {
    range: '192.175.48/24',
    inside: ['192.175.48.0', '192.175.48.255'],
    outside: ['192.175.47.255', '192.175.49.0'],
    opened_by: 'range',
  },
  {
    range: '198.18/15',
    inside: ['198.18.0.0', '198.19.255.255'],
    outside: ['198.17.255.255', '198.20.0.0'],
    opened_by: 'range',
  },
  {
    range: '198.51.100/24',
    inside: ['198.51.100.0', '198.51.100.255'],
    outside: ['198.51.99.255', '198.51.101.0'],
    opened_by: 'range',
  },
  {
    range: '203.0.113/24',
    inside: ['203.0.113.0', '203.0.113.255'],
    outside: ['203.0.112.255', '203.0.114.0'],
    opened_by: 'range',
  },
  { range: '224/4', inside: ['224.0.0.0', '239.255.255.255'], outside: ['223.255.255.255'], opened_by: 'range' },
  { range: '240/4', inside: ['240.0.0.0', '255.255.255.255'], outside: [], opened_by: 'range' },
  { range: '::', inside: ['::'], outside: [], opened_by: 'range' },
  { range: '::1', inside: ['::1'], outside: [], opened_by: 'local' },
  { range: 'IPv4-compatible', inside: ['::127.0.0.1', '::8.8.8.8'], outside: [], opened_by: 'range' },
  { range: '64:ff9b::/96', inside: ['64:ff9b::7f00:1', '64:ff9b::808:808'], outside: [], opened_by: 'range' },
  {
    range: 'below 2000::/3',
    inside: ['1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    outside: ['2000::'],
    opened_by: 'range',
  },
  { range: 'above 2000::/3', inside: ['4000::'], outside: ['3fff:1000::'], opened_by: 'range' },
  { range: '2001::/23', inside: ['2001::', '2001:1ff:ffff::'], outside: ['2001:200::'], opened_by: 'range' },
  {
    range: '2001:db8::/32',
    inside: ['2001:db8::', '2001:db8:ffff::'],
    outside: ['2001:db7::', '2001:db9::'],
    opened_by: 'range',
  },
  { range: '2002::/16', inside: ['2002::', '2002:7f00:1::'], outside: ['2003::'], opened_by: 'range' },
  {
    range: '2620:4f:8000::/48',
    inside: ['2620:4f:8000::', '2620:4f:8000:ffff::'],
    outside: ['2620:4f:7fff::', '2620:4f:8001::'],
    opened_by: 'range',
  },
  { range: '3ffe::/16', inside: ['3ffe::', '3ffe:ffff::'], outside: ['3ffd::'], opened_by: 'range' },
  { range: '3fff::/20', inside: ['3fff::', '3fff:fff::'], outside: ['3fff:1000::'], opened_by: 'range' },
  { range: 'fc00::/7', inside: ['fc00::', 'fdff:ffff::'], outside: [], opened_by: 'lan' },
  { range: 'fd00:ec2::254', inside: ['fd00:ec2::254'], outside: [], opened_by: 'exact' },
  { range: 'fd20:ce::254', inside: ['fd20:ce::254'], outside: [], opened_by: 'exact' },
  {
    range: 'cloud metadata in private ranges',
    inside: [
      ['100.100.100.200', '192.0.0.192', 'fd00:ec2::23', 'fd00:c1::a9fe:a9fe', 'fd00:100::100:200', 'fd00:42::42'],
      ['fd00:a9fe:a9fe::1'],
    ].flat(),
    outside: [],
    opened_by: 'exact',
  },
  {
    range: 'cloud metadata behind a translator',
    inside: [
      ['64:ff9b::a9fe:a9fe', '64:ff9b::a83f:8110', '::a9fe:a9fe', '2002:a9fe:a9fe::', '2002:6464:64c8:1::1'],
      // NAT64 for local use, in each of its lengths; SIIT; Teredo by its server and by its client.
      ['64:ff9b:1:a9fe:a9:fe00::', '64:ff9b:1:a9:fe:a9fe::', '64:ff9b:1:0:a9:fea9:fe00:0', '64:ff9b:1::a9fe:a9fe'],
      ['::ffff:0:a9fe:a9fe', '2001:0:a9fe:a9fe::', '2001::5601:5601', '2001:0:1:2:3:4:5601:5601'],
    ].flat(),
    outside: [],
    opened_by: 'exact',
  },
  {
    range: 'cloud metadata behind a prefix of some network, or through ISATAP',
    inside: ['2001:470:64::a9fe:a9fe', '2001:470::5efe:a9fe:a9fe', '2001:470::200:5efe:a83f:8110'],
    outside: ['2001:470:64::1:a9fe:a9fe', '2001:470:64::a9ff:a9fe', '2001:470::5eff:a9fe:a9fe'],
    opened_by: 'exact',
  },
  { range: 'fe80::/10', inside: ['fe80::', 'fe80::1', 'febf:ffff::'], outside: [], opened_by: 'exact' },
  { range: 'fec0::/10', inside: ['fec0::'], outside: [], opened_by: 'range' },
  { range: 'ff00::/8', inside: ['ff00::', 'ff02::1'], outside: [], opened_by: 'range' },
];

for (const { range, inside, outside, opened_by } of RANGES) {
  test(`${range} is out of reach under public, and what lies beside it is not`, () => {
    for (const text of inside) assert.ok(isDenied(text, policyOf('public')), text);
    for (const text of outside) assert.ok(!isDenied(text, policyOf('public')), text);
  });

  test(`${range} is opened by ${opened_by} and by nothing less`, () => {
    for (const text of inside) {
      const bits = parseAddress(text)!.length * 8;
      assert.equal(isDenied(text, policyOf('lan')), opened_by !== 'lan', `${text} under lan`);
      assert.equal(
        isDenied(text, policyOf('local')),
        opened_by !== 'lan' && opened_by !== 'local',
        `${text} under local`,
      );
      assert.equal(
        isDenied(text, policyOf('public', '0.0.0.0/0', '::/0')),
        opened_by === 'exact',
        `${text} by a wide entry`,
      );
      assert.ok(!isDenied(text, policyOf('public', `${text}/${bits}`)), `${text} by an exact entry`);
      if (bits === 32) {
        assert.ok(isDenied(`::ffff:${text}`, policyOf('public')), `${text} mapped`);
        assert.ok(!isDenied(`::ffff:${text}`, policyOf('public', `${text}/32`)), `${text} mapped, by an exact entry`);
      }
    }
  });
}

test('a denial names the setting that would allow the address, and that setting does', () => {
  for (const { inside } of RANGES) {
    for (const text of inside) {
      const denial = judgeAddress(parseAddress(text)!, policyOf('public'))!;
      const [name, value] = denial.allowed_by.split('=') as [string, string];
      const widened = name === 'CONVOKE_EGRESS' ? policyOf(value as EgressMode) : policyOf('public', value);
      assert.ok(!isDenied(text, widened), `${text}: ${denial.allowed_by}`);
      assert.match(denial.reason, /^\S+ is an? /);
    }
  }
});

test('under every policy, the judgement of an address does not depend on how it is spelled', () => {
  const address = fc.oneof(
    fc.uint8Array({ minLength: 4, maxLength: 4 }),
    fc.uint8Array({ minLength: 16, maxLength: 16 }),
    fc
      .constantFrom(...RANGES.flatMap(({ inside, outside }) => [...inside, ...outside]))
      .map((text) => parseAddress(text)!),
  );
  fc.assert(
    fc.property(address, fc.constantFrom<EgressMode>('public', 'lan', 'local'), (bytes, mode) => {
      const judged = judgeAddress(bytes, policyOf(mode)) !== null;
      for (const text of spellings(bytes)) {
        const parsed = parseAddress(text);
        assert.ok(parsed !== null, text);
        assert.equal(judgeAddress(parsed, policyOf(mode)) !== null, judged, text);
      }
    }),
    { numRuns: 2000 },
  );
});

test('what is printed parses to the same bytes', () => {
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (text) => {
      const bytes = parseAddress(text)!;
      assert.deepEqual(parseAddress(formatAddress(bytes)), bytes);
    }),
  );
  assert.equal(formatAddress(parseAddress('2001:0db8:0:0:1:0:0:1')!), '2001:db8::1:0:0:1');
  assert.equal(formatAddress(parseAddress('1:0:2:3:4:5:6:7')!), '1:0:2:3:4:5:6:7');
});

test('only a plain address is one: no octal, hexadecimal, short forms, zone ids, stray characters', () => {
  const malformed = [
    ['', ' ', '1', '1.2.3', '1.2.3.4.5', '256.0.0.1', '01.2.3.4', '0177.0.0.1', '0x7f.0.0.1', '127.1', '2130706433'],
    [
      '1.2.3.4 ',
      ' 1.2.3.4',
      '1.2.3.4.',
      '1.2.3.-4',
      '１.2.3.4',
      '1.2.3.4\0',
      '::1%lo',
      'fe80::1%eth0',
      '[::1]',
      ':::',
      '1::2::3',
    ],
    [
      ':1',
      '1:',
      '1:2:3:4:5:6:7',
      '1:2:3:4:5:6:7:8:9',
      '1:2:3:4:5:6:7:8::',
      '::12345',
      '::g',
      '1.2.3.4::',
      '::1.2.3',
      '::01.2.3.4',
    ],
    '0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:1',
  ].flat();
  for (const text of malformed) assert.equal(parseAddress(text), null, JSON.stringify(text));
});

test('parsing never throws and yields 4 or 16 bytes or nothing, whatever the text', () => {
  const text = fc.oneof(
    fc.string(),
    fc.string({ unit: fc.constantFrom(...'0123456789abcdef:.x%/') }),
    fc.ipV6(),
    fc.ipV4(),
    fc.ipV4Extended(),
  );
  fc.assert(
    fc.property(text, (given) => {
      assert.ok([4, 16, undefined].includes(parseAddress(given)?.length));
      const cidr = parseCidr(given);
      assert.ok(cidr === null || cidr.prefix_bits <= cidr.bytes.length * 8);
    }),
    { numRuns: 5000 },
  );
});

test('an entry of the allow-list is a range without stray bits', () => {
  assert.deepEqual(parseCidr('10.0.0.0/8'), { bytes: Uint8Array.of(10, 0, 0, 0), prefix_bits: 8 });
  assert.deepEqual(parseCidr('10.1.2.3'), { bytes: Uint8Array.of(10, 1, 2, 3), prefix_bits: 32 });
  assert.deepEqual(parseCidr('::ffff:10.0.0.0/104'), parseCidr('10.0.0.0/8'));
  for (const text of [
    '10.1.2.3/8',
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/08',
    '10.0.0.0/-1',
    '::/129',
    'fe80::1/10',
    'ten',
    '::ffff:10.0.0.0/95',
  ]) {
    assert.equal(parseCidr(text), null, text);
  }
});

test('an entry of the allow-list opens what lies in it and nothing beside it', () => {
  const policy = policyOf('public', '10.20.0.0/15', 'fd12:3456::/33');
  for (const text of ['10.20.0.0', '10.21.255.255', 'fd12:3456::1', 'fd12:3456:7fff::'])
    assert.ok(!isDenied(text, policy), text);
  for (const text of ['10.19.255.255', '10.22.0.0', 'fd12:3456:8000::', 'fd12:3457::'])
    assert.ok(isDenied(text, policy), text);
});

function spellings(bytes: Uint8Array): string[] {
  if (bytes.length === 4) {
    const hex = Buffer.from(bytes).toString('hex');
    const groups = `${hex.slice(0, 4)}:${hex.slice(4)}`;
    return [bytes.join('.'), `::ffff:${bytes.join('.')}`, `::FFFF:${groups}`, `0:0:0:0:0:ffff:${groups}`];
  }
  const groups = Buffer.from(bytes).toString('hex').match(/.{4}/g)!;
  const ending = bytes.slice(12).join('.');
  return [
    formatAddress(bytes),
    groups.join(':'),
    groups.join(':').toUpperCase(),
    [...groups.slice(0, 6), ending].join(':'),
  ];
}
