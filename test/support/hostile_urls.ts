/**
 * URLs with an address that a push must not reach, in every notation that some parser accepts. This file has its own
 * ranges, arithmetic and parser, and imports none of them from the tested code.
 */
import type { Random } from '../simulation/random.ts';

/** An address as a number. An IPv4 address that is written as ::ffff:a.b.c.d counts as IPv4. */
export interface Address {
  bits: 32 | 128;
  value: bigint;
}

/**
 * What permits an address: a mode of the policy (`lan`, `local`); an entry of the allow-list (`range`); only an entry
 * for this address itself (`exact`). `open` addresses are always permitted.
 */
export type OpenedBy = 'lan' | 'local' | 'range' | 'exact' | 'open';

export interface NamedUrl {
  url: string;
  address: Address;
  opened_by: OpenedBy;
}

const IPV4_DENIED: Record<string, OpenedBy> = {
  '0.0.0.0/8': 'range',
  '10.0.0.0/8': 'lan',
  '100.64.0.0/10': 'lan',
  '127.0.0.0/8': 'local',
  '168.63.129.16/32': 'exact',
  '169.254.0.0/16': 'exact',
  '172.16.0.0/12': 'lan',
  '192.0.0.0/24': 'range',
  '192.0.2.0/24': 'range',
  '192.31.196.0/24': 'range',
  '192.52.193.0/24': 'range',
  '192.88.99.0/24': 'range',
  '192.168.0.0/16': 'lan',
  '192.175.48.0/24': 'range',
  '198.18.0.0/15': 'range',
  '198.51.100.0/24': 'range',
  '203.0.113.0/24': 'range',
  '224.0.0.0/4': 'range',
  '240.0.0.0/4': 'range',
};

const IPV6_DENIED: Record<string, OpenedBy> = {
  '::1/128': 'local',
  'fd00:ec2::254/128': 'exact',
  'fd20:ce::254/128': 'exact',
  'fe80::/10': 'exact',
  'fc00::/7': 'lan',
  '2001::/32': 'range',
  '2001::/23': 'range',
  '2001:db8::/32': 'range',
  '2002::/16': 'range',
  '2620:4f:8000::/48': 'range',
  '3ffe::/16': 'range',
  '3fff::/20': 'range',
  // Everything outside 2000::/3 is denied. These ranges cover all of it; some of them have a name.
  '::/96': 'range',
  '64:ff9b::/96': 'range',
  '64:ff9b:1::/48': 'range',
  '100::/64': 'range',
  '::/3': 'range',
  '4000::/2': 'range',
  '8000::/2': 'range',
  'c000::/3': 'range',
  'e000::/3': 'range',
  '5f00::/16': 'range',
  'fec0::/10': 'range',
  'ff00::/8': 'range',
};

const MAPPED = 0xffff_0000_0000n;
const IPV4_MASK = 0xffff_ffffn;

interface Range {
  bits: 32 | 128;
  first: bigint;
  last: bigint;
  opened_by: OpenedBy;
}

const RANGES: Range[] = [...Object.entries(IPV4_DENIED), ...Object.entries(IPV6_DENIED)].map(([cidr, opened_by]) => {
  const [text, prefix] = cidr.split('/') as [string, string];
  const { bits, value } = addressOf(text);
  return { bits, first: value, last: value + (1n << BigInt(bits - Number(prefix))) - 1n, opened_by };
});

/** Parses the canonical notation of an address. */
export function addressOf(text: string): Address {
  if (!text.includes(':'))
    return { bits: 32, value: BigInt(`0x${Buffer.from(text.split('.').map(Number)).toString('hex')}`) };
  const [head = '', tail] = text.split('::').map((half) => half.split(':').filter((group) => group !== ''));
  const groups =
    tail === undefined ? [...head] : [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail];
  return unmapped(groups.reduce((sum, group) => (sum << 16n) | BigInt(`0x${group}`), 0n));
}

export function openedBy({ bits, value }: Address): OpenedBy {
  const found = RANGES.filter((range) => range.bits === bits && range.first <= value && value <= range.last);
  // The narrowest range decides: a metadata address, for example, is also in a private range.
  const narrowest = found.toSorted((a, b) => (a.last - a.first < b.last - b.first ? -1 : 1))[0];
  return narrowest?.opened_by ?? 'open';
}

/** Whether a mode denies an address that needs `opened_by` to be permitted. */
export function isDeniedUnder(mode: 'local' | 'lan' | 'public', opened_by: OpenedBy): boolean {
  if (opened_by === 'open') return false;
  if (opened_by === 'lan') return mode === 'public';
  if (opened_by === 'local') return mode !== 'local';
  return true;
}

/**
 * URLs of the first, the last and some other members of every denied range, each in every notation, without repeats.
 *
 * @param port the port of all URLs, so that a test can listen there
 */
export function hostileUrls(random: Random, members_per_range: number, port: number): NamedUrl[] {
  const urls = new Map<string, NamedUrl>();
  const add = (host: string, address: Address): void => {
    const url = `${random.pick(['http', 'https', 'HTTP'])}://${host}:${port}/hook?n=${urls.size}`;
    if (!urls.has(host)) urls.set(host, { url, address, opened_by: openedBy(address) });
  };
  for (const range of RANGES) {
    for (const value of membersOf(range, members_per_range, random)) {
      const address = range.bits === 32 ? ({ bits: 32, value } as const) : unmapped(value);
      for (const host of range.bits === 32 ? ipv4Notations(value) : ipv6Notations(value)) add(host, address);
      if (range.bits === 128) continue;
      for (const host of ipv6Notations(MAPPED | value)) add(host, address);
      for (const carrier of carriersOf(value)) {
        for (const host of ipv6Notations(carrier).slice(0, 3)) add(host, unmapped(carrier));
      }
    }
  }
  return [...urls.values()];
}

/** URLs with one address, in every notation. */
export function urlsOf(text: string, port: number): string[] {
  const address = addressOf(text);
  const { bits, value } = address;
  const hosts = bits === 32 ? [...ipv4Notations(value), ...ipv6Notations(MAPPED | value)] : ipv6Notations(value);
  return [...new Set(hosts)].map((host) => `http://${host}:${port}/hook`);
}

/** Some open addresses: those directly beside denied ranges, and random ones. */
export function openAddresses(random: Random, count: number): Address[] {
  const open: Address[] = [];
  const add = (address: Address): void => {
    if (openedBy(address) === 'open' && open.length < count) open.push(address);
  };
  for (const { bits, first, last } of RANGES) {
    const beside = [first > 0n ? first - 1n : first, last + 1n].filter((value) => value >> BigInt(bits) === 0n);
    for (const value of beside) add({ bits, value });
  }
  while (open.length < count) {
    add({ bits: 32, value: randomBits(random, 32) });
    add({ bits: 128, value: (1n << 125n) | randomBits(random, 125) });
  }
  return open;
}

/** Some addresses in the ranges that `opened_by` permits. */
export function openedMembers(random: Random, opened_by: OpenedBy, members_per_range: number): Address[] {
  return RANGES.filter((range) => range.opened_by === opened_by).flatMap((range) =>
    membersOf(range, members_per_range, random)
      .map((value) => ({ bits: range.bits, value }))
      .filter((address) => openedBy(address) === opened_by),
  );
}

/** The notations that people use. */
export function goodHosts({ bits, value }: Address): string[] {
  if (bits === 32) return [dotted(value), `${dotted(value)}.`];
  const [compressed = '', padded = '', ...others] = ipv6Notations(value);
  return [compressed, padded, ...others.slice(0, 1)];
}

/** The address in its canonical notation. A socket parses it to the same address. */
export function canonical({ bits, value }: Address): string {
  return bits === 32 ? dotted(value) : compressions(groupsOf(value))[0]!;
}

export function bytesOf({ bits, value }: Address): Uint8Array {
  return Buffer.from(value.toString(16).padStart(bits / 4, '0'), 'hex');
}

function unmapped(value: bigint): Address {
  return value >> 32n === 0xffffn ? { bits: 32, value: value & IPV4_MASK } : { bits: 128, value };
}

function membersOf({ bits, first, last }: Range, count: number, random: Random): bigint[] {
  const others = Array.from({ length: count }, () => first + (randomBits(random, bits) % (last - first + 1n)));
  return [...new Set([first, last, ...others])];
}

function randomBits(random: Random, bits: number): bigint {
  let value = 0n;
  for (let have = 0; have < bits; have += 16) value = (value << 16n) | BigInt(random.below(65_536));
  return value & ((1n << BigInt(bits)) - 1n);
}

function dotted(value: bigint): string {
  return partsOf(value).join('.');
}

function partsOf(value: bigint): number[] {
  return [24n, 16n, 8n, 0n].map((shift) => Number((value >> shift) & 255n));
}

/** IPv6 addresses through which translators and tunnels reach an IPv4 address. The policy denies each of them too. */
function carriersOf(value: bigint): bigint[] {
  return [
    // NAT64 (RFC 6052, RFC 8215), SIIT (RFC 2765), IPv4-compatible, ISATAP (RFC 5214).
    (0x64ff9bn << 96n) | value,
    (0x64ff9b0001n << 80n) | value,
    (0xffffn << 48n) | value,
    value,
    (0xfe80n << 112n) | (0x5efen << 32n) | value,
    // 6to4 (RFC 3056); Teredo (RFC 4380), as the server, and as the client with inverted bits.
    (0x2002n << 112n) | (value << 80n),
    (0x2002n << 112n) | (value << 80n) | 1n,
    (0x20010000n << 96n) | (value << 64n),
    (0x20010000n << 96n) | (value ^ IPV4_MASK),
  ];
}

/** Notations that the URL parser of browsers (WHATWG) and inet_aton all read as this address. */
function ipv4Notations(value: bigint): string[] {
  const parts = partsOf(value);
  const [a, b, c, d] = parts as [number, number, number, number];
  const number = Number(value);
  const hex = (part: number): string => `0x${part.toString(16)}`;
  const octal = (part: number): string => `0${part.toString(8)}`;
  const text = parts.join('.');
  const percent = (plain: string): string =>
    [...Buffer.from(plain)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
  return [
    text,
    `${text}.`,
    [String(number), hex(number), `0X${number.toString(16).toUpperCase()}`, octal(number)],
    [`0x00000000${number.toString(16)}`, `00000000${number.toString(8)}`, `${number}.`, `${hex(number)}.`],
    [parts.map(hex).join('.'), parts.map(octal).join('.'), parts.map((part) => `0x0${part.toString(16)}`).join('.')],
    [parts.map((part) => `0000${part.toString(8)}`).join('.'), `${parts.map(hex).join('.')}.`],
    [`${hex(a)}.${b}.${octal(c)}.${d}`, `${a}.${octal(b)}.${c}.${hex(d)}`, `${octal(a)}.${hex(b)}.${c}.${d}`],
    [`${a}.${number % 2 ** 24}`, `${a}.${b}.${number % 2 ** 16}`, `${hex(a)}.${hex(number % 2 ** 24)}`],
    [
      `${octal(a)}.${octal(number % 2 ** 24)}`,
      `${a}.${b}.${hex(number % 2 ** 16)}`,
      `${hex(a)}.${b}.${octal(number % 2 ** 16)}`,
    ],
    [
      shifted(text, 0xff10),
      shifted(text, 0x1d7ce),
      shifted(text, 0x2080),
      circled(text),
      shifted(String(number), 0xff10),
    ],
    ['。', '．', '｡', '%E3%80%82', '%2e'].map((dot) => text.replaceAll('.', dot)),
    `${text.replaceAll('.', '。')}。`,
    [
      percent(text),
      percent(String(number)),
      percent(hex(number)),
      percent(shifted(text, 0xff10)),
      `%${text.charCodeAt(0).toString(16)}${text.slice(1)}`,
    ],
    // Characters that names ignore (UTS 46): a soft hyphen, a zero-width space, a variation selector.
    ['\u00ad', '\u200b', '\ufe0f', '%C2%AD'].map((nothing) => `${text.slice(0, 1)}${nothing}${text.slice(1)}`),
  ].flat();
}

/** Replaces the digits of a text by digits from another block of Unicode. */
function shifted(text: string, zero: number): string {
  return text.replaceAll(/[0-9]/g, (digit) => String.fromCodePoint(zero + Number(digit)));
}

function circled(text: string): string {
  return text.replaceAll(/[0-9]/g, (digit) => String.fromCodePoint(digit === '0' ? 0x24ea : 0x245f + Number(digit)));
}

function ipv6Notations(value: bigint): string[] {
  const groups = groupsOf(value);
  const padded = groups.map((group) => group.padStart(4, '0'));
  const ending = dotted(value & IPV4_MASK);
  const compressed = compressions(groups);
  const with_ending = compressions(groups.slice(0, 6)).map(
    (text) => `${text}${text.endsWith(':') ? '' : ':'}${ending}`,
  );
  const texts = [
    compressed[0]!,
    padded.join(':'),
    groups.join(':'),
    compressed[0]!.toUpperCase(),
    padded.join(':').toUpperCase(),
    ...compressed.slice(1, 4),
    `${groups.slice(0, 6).join(':')}:${ending}`,
    `${padded.slice(0, 6).join(':').toUpperCase()}:${ending}`,
    ...with_ending.slice(0, 2),
  ];
  return texts.map((text) => `[${text}]`);
}

function groupsOf(value: bigint): string[] {
  return Array.from({ length: 8 }, (_, i) => ((value >> BigInt(112 - 16 * i)) & 0xffffn).toString(16));
}

/** The notations with "::" in place of a run of zeros, the longest run first; without zeros, the plain notation. */
function compressions(groups: string[]): string[] {
  const runs: { start: number; length: number }[] = [];
  for (let i = 0; i < groups.length; i++) {
    if (groups[i] !== '0') continue;
    const run = runs.at(-1);
    if (run !== undefined && run.start + run.length === i) run.length++;
    else runs.push({ start: i, length: 1 });
  }
  const texts = runs
    .toSorted((a, b) => b.length - a.length || a.start - b.start)
    .map(({ start, length }) => `${groups.slice(0, start).join(':')}::${groups.slice(start + length).join(':')}`);
  return texts.length === 0 ? [groups.join(':')] : texts;
}

/** URLs that some parsers read as this address, and others read differently or refuse. No policy permits them. */
export function ambiguousUrls({ bits, value }: Address, port: number): string[] {
  const text = canonical({ bits, value });
  const host = bits === 32 ? text : `[${text}]`;
  const at = `${host}:${port}`;
  const common = [
    [`http://example.com@${at}/`, `http://user:secret@${at}/`, `http://@${at}/`, `http://example.com%2f@${at}/`],
    [`http://example.com\\@${at}/`, `http:\\\\${at}\\`, `http://${at}\\.example.com/`, `http://${at}/\\`],
    [`http:${at}/`, `http:/${at}/`, `http:///${at}/`, `//${at}/`, at, `ftp://${at}/`, `ws://${at}/`, `file://${at}/`],
    [
      ` http://${at}/`,
      `http://${at}/ `,
      `http://${at}/a b`,
      `ht\ttp://${at}/`,
      `http://${at}\n/`,
      `\ufeffhttp://${at}/`,
    ],
    [`http://${host.slice(0, 3)}\t${host.slice(3)}:${port}/`, `http://${host.slice(0, 3)}\u00a0${host.slice(3)}/`],
    [`http://${host}:0/`, `http://${host}:${port + 65_536}/`, `http://${at}/${'a'.repeat(2048)}`],
  ].flat();
  const of_family =
    bits === 32
      ? [`[${text}]`, `${text}..`, `.${text}`, `${text}.1`, `${text}%00`, `[::ffff:0${text}]`, `[::${text}%25lo]`]
      : [`[${text}%25eth0]`, `[${text}%eth0]`, `[${text}%251]`, `%5B${text}%5D`, text, `[${text}].`, `[${text}]..`];
  return [...common, ...of_family.map((other) => `http://${other}:${port}/`)];
}
