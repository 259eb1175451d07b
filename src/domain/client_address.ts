/** The address of a client. */
import { type AddressBytes, type Cidr, contains, formatAddress, parseAddress } from './address.ts';

/**
 * The length of the part of an IPv6 address that identifies one customer: the customer has all 2^64 addresses that
 * begin with this part.
 */
const NETWORK_BYTES = 8;

/** The most addresses that are read, from the end of the header: no chain of proxies is longer. */
const HOPS_MAX = 32;

/**
 * The address of the client. If the other end of the connection is not a trusted proxy, the address of that end counts.
 * Otherwise the function reads X-Forwarded-For from its end, until it finds an address that is not a trusted proxy. The
 * client could have written everything before that address. If the function finds no such address, or cannot read the
 * next one, the address that it read last counts.
 */
export function clientAddress(
  connected: string | undefined,
  forwarded_for: string | undefined,
  trusted: readonly Cidr[],
): string | null {
  let known = parsedHop(connected ?? '');
  if (known === null) return null;
  const hops = forwarded_for === undefined || trusted.length === 0 ? [] : forwarded_for.split(',').slice(-HOPS_MAX);
  while (hops.length > 0 && isTrusted(known, trusted)) {
    const hop = parsedHop(hops.pop() as string);
    if (hop === null) break;
    known = hop;
  }
  return formatAddress(known);
}

/**
 * Whether the client used https, as a trusted proxy says. With several proxies, the first value in the header is about
 * the connection of the client. A client that forges the header harms only itself: it gets a cookie for https, and its
 * browser does not send that cookie over http.
 */
export function isForwardedHttps(
  connected: string | undefined,
  forwarded_proto: string | string[] | undefined,
  trusted: readonly Cidr[],
): boolean {
  const address = parsedHop(connected ?? '');
  if (address === null || forwarded_proto === undefined || !isTrusted(address, trusted)) return false;
  const [first = ''] = [forwarded_proto].flat().join(',').split(',');
  return first.trim().toLowerCase() === 'https';
}

/**
 * The addresses that share one limit: an IPv4 address, or a /64 of IPv6, because one customer has all addresses in it.
 *
 * @param address an address that `clientAddress` returned
 */
export function addressGroup(address: string): string {
  const bytes = parseAddress(address);
  if (bytes === null || bytes.length === 4) return address;
  const network = Uint8Array.from(bytes, (byte, i) => (i < NETWORK_BYTES ? byte : 0));
  return `${formatAddress(network)}/${NETWORK_BYTES * 8}`;
}

function isTrusted(address: AddressBytes, trusted: readonly Cidr[]): boolean {
  return trusted.some((cidr) => contains(cidr, address));
}

/** Reads one address of the header. Some proxies write the port behind the address. */
function parsedHop(text: string): AddressBytes | null {
  const hop = text.trim();
  const [, bracketed, dotted] = /^\[([^\]]*)\](?::\d{1,5})?$|^(\d[\d.]*):\d{1,5}$/.exec(hop) ?? [];
  // Removes the name of an interface, as in fe80::1%eth0, because it is no part of the address.
  return parseAddress((bracketed ?? dotted ?? hop).replace(/%.*$/, ''));
}
