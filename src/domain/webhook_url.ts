import { judgeAddress, LOOPBACK_ADDRESSES, parseAddress } from './address.ts';
import type { AddressBytes, Denial, EgressPolicy } from './address.ts';

export const WEBHOOK_URL_BYTES_MAX = 2048;

const NEEDS_HTTPS =
  'must start with https:// under the egress policy "public"; CONVOKE_EGRESS_ALLOW_HTTP=true would allow http:// too';

/** Where a push goes, parsed once. */
export interface WebhookTarget {
  /** As it was given. */
  url: string;
  /** `scheme://host[:port]`, normalised: connections are kept by it. */
  origin: string;
  /** Path and query, as they go on the request line. */
  path: string;
  /** Lower case, ASCII, without brackets and without a trailing dot: what is resolved and what TLS verifies. */
  hostname: string;
  port: number;
  tls: boolean;
  /** Present when the host is an IP address and not a name. */
  address?: AddressBytes;
}

export interface WebhookUrlRefusal {
  /** In words, for whoever registers the instance. */
  message: string;
  /** True when the URL is well formed and only the egress policy stands against it. */
  policy_denied: boolean;
}

/**
 * Parses a webhook_url and judges what can be judged without the network: its form, and its host where that is
 * an address. A host name is judged again, by its addresses, whenever a connection is made.
 */
export function parseWebhookUrl(text: string, policy: EgressPolicy): WebhookTarget | WebhookUrlRefusal {
  const malformed = faultOfForm(text);
  if (malformed !== null) return { message: malformed, policy_denied: false };
  const url = URL.parse(text);
  if (url === null) return { message: 'is not a valid URL', policy_denied: false };
  if (url.port === '0') return { message: 'names port 0, which nothing can listen on', policy_denied: false };

  const hostname = bareHostname(url.hostname);
  const address = parseAddress(hostname);
  const malformed_name = address === null ? faultOfName(hostname) : null;
  if (malformed_name !== null) return { message: malformed_name, policy_denied: false };

  const tls = url.protocol === 'https:';
  if (!tls && policy.mode === 'public' && !policy.allow_http) {
    return { message: NEEDS_HTTPS, policy_denied: true };
  }
  const denial = address !== null ? judgeAddress(address, policy) : judgeName(hostname, policy);
  if (denial !== null) return { message: sayDenial(denial), policy_denied: true };
  return {
    url: text,
    origin: url.origin,
    path: url.pathname + url.search,
    hostname,
    port: url.port === '' ? (tls ? 443 : 80) : Number(url.port),
    tls,
    ...(address !== null && { address }),
  };
}

/** Whether parseWebhookUrl refused. */
export function isRefusal(parsed: WebhookTarget | WebhookUrlRefusal): parsed is WebhookUrlRefusal {
  return 'policy_denied' in parsed;
}

/** One sentence that says why a push may not go there and what would change that. */
export function sayDenial(denial: Denial): string {
  return `is not allowed: ${denial.reason}; ${denial.allowed_by} would allow it`;
}

/** RFC 6761: these names mean this machine, whatever a name server says. */
export function isLocalhostName(hostname: string): boolean {
  return hostname === 'localhost' || hostname.endsWith('.localhost');
}

/** What the URL parser would mend silently is refused: another parser may mend it differently. */
function faultOfForm(text: string): string | null {
  if (Buffer.byteLength(text) > WEBHOOK_URL_BYTES_MAX) return `is over ${WEBHOOK_URL_BYTES_MAX} bytes`;
  if (!text.isWellFormed()) return 'is not well-formed Unicode';
  if (/[\p{Cc}\p{Z}\uFEFF]/u.test(text)) return 'contains a space or a control character';
  if (text.includes('\\')) return 'contains a backslash';
  const match = /^https?:\/\/([^/?#]*)/i.exec(text);
  if (match === null) return 'must start with http:// or https://';
  if (match[1] === '') return 'names no host';
  if (match[1]!.includes('@')) return 'carries a user name or password; use webhook_headers for credentials';
  return null;
}

function bareHostname(hostname: string): string {
  if (hostname.startsWith('[')) return hostname.slice(1, -1);
  return hostname.endsWith('.') ? hostname.slice(0, -1) : hostname;
}

function faultOfName(hostname: string): string | null {
  if (hostname.length > 253) return 'names a host of over 253 characters';
  const labels = hostname.split('.');
  if (labels.some((label) => label === '' || label.length > 63)) return 'names a host with an empty or overlong part';
  // The URL parser makes an IPv4 address of every host that ends in a number: one that is left is not to be trusted.
  if (/^(?:[0-9]+|0x[0-9a-f]*)$/i.test(labels.at(-1)!)) return 'names a host that is neither an address nor a name';
  return null;
}

function judgeName(hostname: string, policy: EgressPolicy): Denial | null {
  if (!isLocalhostName(hostname)) return null;
  for (const address of LOOPBACK_ADDRESSES) {
    const denial = judgeAddress(address, policy);
    if (denial !== null) return { ...denial, reason: `${hostname} is this machine` };
  }
  return null;
}
