/**
 * IP addresses as bytes, and which of them a push may reach. An address is never judged as text, because the same
 * address has many spellings. This file does not use `net.BlockList`, which returns "not listed" when the caller gives
 * the wrong family.
 */

/** 4 bytes for IPv4 (and for IPv4 written as ::ffff:a.b.c.d), 16 for IPv6, in network order. */
export type AddressBytes = Uint8Array;

export interface Cidr {
  bytes: AddressBytes;
  prefix_bits: number;
}

/** How far from this host a push may go; the lists below say which addresses each mode allows. */
export type EgressMode = 'local' | 'lan' | 'public';

export interface EgressPolicy {
  mode: EgressMode;
  /**
   * Ranges that pushes may reach in every mode. An address in the list NEVER is an exception: only an entry for exactly
   * this address opens it, and no wider range does.
   */
  allow: readonly Cidr[];
  /** Whether pushes may use http:// in the mode `public` too. */
  allow_http: boolean;
}

/** Why a push may not go to an address, and the setting that would allow the address. */
export interface Denial {
  reason: string;
  allowed_by: string;
}

/**
 * Parses an address in the forms that the system and the WHATWG URL parser print. Null for any other form, such as an
 * address with a zone id or with octal numbers.
 */
export function parseAddress(text: string): AddressBytes | null {
  if (text.length > 45) return null;
  if (!text.includes(':')) return parseIPv4(text);
  const bytes = parseIPv6(text);
  return bytes !== null && isMappedIPv4(bytes) ? bytes.slice(12) : bytes;
}

/**
 * Parses `address/bits`, or an address alone as a range of one address. Null when the text is malformed, or when bits
 * beyond the prefix are set.
 */
export function parseCidr(text: string): Cidr | null {
  const match = /^([0-9a-f:.]+)(?:\/(0|[1-9][0-9]{0,2}))?$/i.exec(text.trim());
  if (match === null) return null;
  const bytes = parseAddress(match[1]!);
  if (bytes === null) return null;
  const bits_max = bytes.length * 8;
  // ::ffff:10.0.0.0/104 means 10.0.0.0/8.
  const unmapped_bits = bytes.length === 4 && match[1]!.includes(':') ? 96 : 0;
  const prefix_bits = match[2] === undefined ? bits_max : Number(match[2]) - unmapped_bits;
  if (prefix_bits < 0 || prefix_bits > bits_max) return null;
  for (let bit = prefix_bits; bit < bits_max; bit++) {
    if ((bytes[bit >> 3]! & (0x80 >> (bit & 7))) !== 0) return null;
  }
  return { bytes, prefix_bits };
}

/** Writes an address as RFC 5952 says, but never with an IPv4 address at its end. */
export function formatAddress(bytes: AddressBytes): string {
  if (bytes.length === 4) return bytes.join('.');
  const groups: string[] = [];
  for (let i = 0; i < 16; i += 2) groups.push(((bytes[i]! << 8) | bytes[i + 1]!).toString(16));
  let [start, length] = [-1, 1];
  for (let i = 0; i < 8; i++) {
    let run = 0;
    while (i + run < 8 && groups[i + run] === '0') run++;
    if (run > length) [start, length] = [i, run];
  }
  if (start === -1) return groups.join(':');
  return `${groups.slice(0, start).join(':')}::${groups.slice(start + length).join(':')}`;
}

/** Why a push may not reach the address; null when the policy lets it. */
export function judgeAddress(bytes: AddressBytes, policy: EgressPolicy): Denial | null {
  const exact_bits = bytes.length * 8;
  for (const cidr of policy.allow) {
    if (cidr.prefix_bits === exact_bits && contains(cidr, bytes)) return null;
  }
  const text = formatAddress(bytes);
  const meant = [bytes, ...carriedIPv4(bytes)];
  for (const { cidr, name } of NEVER) {
    if (meant.some((each) => contains(cidr, each))) {
      return {
        reason: `${text} is ${name}, which only an entry for this very address opens`,
        allowed_by: `CONVOKE_EGRESS_ALLOW=${text}/${exact_bits}`,
      };
    }
  }
  for (const cidr of policy.allow) {
    if (contains(cidr, bytes)) return null;
  }
  for (const { cidr, name } of LOOPBACK) {
    if (!contains(cidr, bytes)) continue;
    if (policy.mode === 'local') return null;
    return { reason: `${text} is ${name}`, allowed_by: 'CONVOKE_EGRESS=local' };
  }
  for (const { cidr, name } of PRIVATE) {
    if (!contains(cidr, bytes)) continue;
    if (policy.mode !== 'public') return null;
    return { reason: `${text} is ${name}`, allowed_by: 'CONVOKE_EGRESS=lan' };
  }
  for (const { cidr, name } of RESERVED) {
    if (contains(cidr, bytes)) return reserved(text, exact_bits, name);
  }
  if (bytes.length === 16 && !contains(GLOBAL_IPV6, bytes)) {
    return reserved(text, exact_bits, 'an IPv6 address outside global unicast (2000::/3)');
  }
  return null;
}

/** The addresses of `localhost`. */
export const LOOPBACK_ADDRESSES: readonly AddressBytes[] = [
  Uint8Array.of(127, 0, 0, 1),
  Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
];

interface NamedRange {
  cidr: Cidr;
  name: string;
}

/**
 * Link-local addresses and the metadata services of AWS, Azure, Google, Oracle, Alibaba, Scaleway and Akamai. Only an
 * entry for exactly one address opens that address. A wide entry in the allow-list must not open these addresses by
 * accident. `lan` must not open them either, although some of them are in a private range.
 */
const NEVER = named({
  '169.254.0.0/16': 'a link-local address (cloud metadata lives there)',
  'fe80::/10': 'a link-local address',
  '168.63.129.16/32': 'a cloud platform address',
  '100.100.100.200/32': 'a cloud metadata address',
  '192.0.0.192/32': 'a cloud metadata address',
  'fd00:ec2::23/128': 'a cloud metadata address',
  'fd00:ec2::254/128': 'a cloud metadata address',
  'fd20:ce::254/128': 'a cloud metadata address',
  'fd00:c1::a9fe:a9fe/128': 'a cloud metadata address',
  'fd00:100::100:200/128': 'a cloud metadata address',
  'fd00:42::42/128': 'a cloud metadata address',
  'fd00:a9fe:a9fe::1/128': 'a cloud metadata address',
});

/**
 * IPv6 ranges that a translator or a tunnel maps to IPv4, with the places of the bytes that hold the IPv4 address.
 *
 * A network may also choose a prefix of its own for its translator (RFC 6052). Convoke does not know these prefixes.
 * But it knows how such an address ends: see MIDDLES.
 */
const CARRIERS: readonly { cidr: Cidr; at: readonly [number, number, number, number]; inverted?: true }[] = [
  // NAT64 (RFC 6052), SIIT (RFC 2765), IPv4-compatible.
  { cidr: parseCidr('64:ff9b::/96')!, at: [12, 13, 14, 15] },
  { cidr: parseCidr('::ffff:0:0:0/96')!, at: [12, 13, 14, 15] },
  { cidr: parseCidr('::/96')!, at: [12, 13, 14, 15] },
  // NAT64 for local use (RFC 8215), with a prefix of 48, 56, 64 or 96 bits. Byte 8 is no part of the IPv4 address.
  { cidr: parseCidr('64:ff9b:1::/48')!, at: [6, 7, 9, 10] },
  { cidr: parseCidr('64:ff9b:1::/48')!, at: [7, 9, 10, 11] },
  { cidr: parseCidr('64:ff9b:1::/48')!, at: [9, 10, 11, 12] },
  { cidr: parseCidr('64:ff9b:1::/48')!, at: [12, 13, 14, 15] },
  // 6to4 (RFC 3056); Teredo (RFC 4380), its server and its client.
  { cidr: parseCidr('2002::/16')!, at: [2, 3, 4, 5] },
  { cidr: parseCidr('2001::/32')!, at: [4, 5, 6, 7] },
  { cidr: parseCidr('2001::/32')!, at: [12, 13, 14, 15], inverted: true },
];
/**
 * When the lower half of an IPv6 address begins with one of these groups of 4 bytes, the other 4 bytes may be an IPv4
 * address. A translator writes the zeros (RFC 6052), and ISATAP the other two groups (RFC 5214).
 */
const MIDDLES: readonly (readonly number[])[] = [
  [0, 0, 0, 0],
  [0, 0, 0x5e, 0xfe],
  [2, 0, 0x5e, 0xfe],
];

const LOOPBACK = named({
  '127.0.0.0/8': 'a loopback address',
  '::1/128': 'a loopback address',
});

const PRIVATE = named({
  '10.0.0.0/8': 'a private address',
  '100.64.0.0/10': 'a carrier-grade NAT address',
  '172.16.0.0/12': 'a private address',
  '192.168.0.0/16': 'a private address',
  'fc00::/7': 'a private address',
});

/** The ranges in the special-purpose registries of IANA (RFC 6890) that the lists above do not name. */
const RESERVED = named({
  '0.0.0.0/8': 'an address of "this network"',
  '192.0.0.0/24': 'a protocol assignment address',
  '192.0.2.0/24': 'a documentation address',
  '192.31.196.0/24': 'an AS112 address',
  '192.52.193.0/24': 'an AMT relay address',
  '192.88.99.0/24': 'a 6to4 relay address',
  '192.175.48.0/24': 'an AS112 address',
  '198.18.0.0/15': 'a benchmarking address',
  '198.51.100.0/24': 'a documentation address',
  '203.0.113.0/24': 'a documentation address',
  '224.0.0.0/4': 'a multicast address',
  '240.0.0.0/4': 'a reserved address',
  '2001::/23': 'a protocol assignment address',
  '2001:db8::/32': 'a documentation address',
  '2002::/16': 'a 6to4 address',
  '2620:4f:8000::/48': 'an AS112 address',
  '3ffe::/16': 'an address of the retired 6bone',
  '3fff::/20': 'a documentation address',
});

const GLOBAL_IPV6 = parseCidr('2000::/3')!;

function named(ranges: Record<string, string>): NamedRange[] {
  return Object.entries(ranges).map(([text, name]) => ({ cidr: parseCidr(text)!, name }));
}

function reserved(text: string, exact_bits: number, name: string): Denial {
  return { reason: `${text} is ${name}`, allowed_by: `CONVOKE_EGRESS_ALLOW=${text}/${exact_bits}` };
}

/**
 * The IPv4 addresses that an IPv6 address may be mapped to. An operator allows 64:ff9b::/96 because an IPv6-only
 * network reaches IPv4 through this range (RFC 6052). That entry must not open the IPv4 address of a metadata service.
 */
function carriedIPv4(bytes: AddressBytes): AddressBytes[] {
  if (bytes.length === 4) return [];
  const carried = CARRIERS.filter(({ cidr }) => contains(cidr, bytes)).map(({ at, inverted }) =>
    Uint8Array.from(at, (i) => bytes[i]! ^ (inverted ? 0xff : 0)),
  );
  if (MIDDLES.some((middle) => middle.every((byte, i) => bytes[8 + i] === byte))) carried.push(bytes.slice(12));
  return carried;
}

/** Whether an address lies in a range. */
export function contains({ bytes: range, prefix_bits }: Cidr, bytes: AddressBytes): boolean {
  if (range.length !== bytes.length) return false;
  const whole_bytes = prefix_bits >> 3;
  for (let i = 0; i < whole_bytes; i++) {
    if (range[i] !== bytes[i]) return false;
  }
  const rest_bits = prefix_bits & 7;
  return rest_bits === 0 || (range[whole_bytes]! ^ bytes[whole_bytes]!) >> (8 - rest_bits) === 0;
}

function parseIPv4(text: string): AddressBytes | null {
  const parts = text.split('.');
  if (parts.length !== 4) return null;
  const bytes = new Uint8Array(4);
  for (let i = 0; i < 4; i++) {
    // Refuses a leading zero: some parsers read such a number as octal, others do not.
    if (!/^(?:0|[1-9][0-9]{0,2})$/.test(parts[i]!)) return null;
    const value = Number(parts[i]);
    if (value > 255) return null;
    bytes[i] = value;
  }
  return bytes;
}

function parseIPv6(text: string): AddressBytes | null {
  const halves = text.split('::');
  if (halves.length > 2) return null;
  const head = parseGroups(halves[0]!, halves.length === 1);
  const tail = halves.length === 2 ? parseGroups(halves[1]!, true) : [];
  if (head === null || tail === null) return null;
  const missing = 16 - head.length - tail.length;
  // "::" replaces at least one group. Without it there are eight groups.
  if (halves.length === 1 ? missing !== 0 : missing < 2) return null;
  const bytes = new Uint8Array(16);
  bytes.set(head, 0);
  bytes.set(tail, 16 - tail.length);
  return bytes;
}

function parseGroups(text: string, may_end_in_ipv4: boolean): number[] | null {
  if (text === '') return [];
  const bytes: number[] = [];
  const groups = text.split(':');
  for (let i = 0; i < groups.length; i++) {
    const group = groups[i]!;
    if (/^[0-9a-f]{1,4}$/i.test(group)) {
      const value = parseInt(group, 16);
      bytes.push(value >> 8, value & 0xff);
      continue;
    }
    const ipv4 = may_end_in_ipv4 && i === groups.length - 1 ? parseIPv4(group) : null;
    if (ipv4 === null) return null;
    bytes.push(...ipv4);
  }
  return bytes;
}

function isMappedIPv4(bytes: AddressBytes): boolean {
  for (let i = 0; i < 10; i++) {
    if (bytes[i] !== 0) return false;
  }
  return bytes[10] === 0xff && bytes[11] === 0xff;
}
