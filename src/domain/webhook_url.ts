import { contains, judgeAddress, LOOPBACK_ADDRESSES, parseAddress } from './address.ts';
import type { AddressBytes, Denial, EgressPolicy } from './address.ts';

export const WEBHOOK_URL_BYTES_MAX = 2048;

const NEEDS_HTTPS =
  'must start with https:// under the egress policy "public"; CONVOKE_EGRESS_ALLOW_HTTP=true would allow http:// too';

/** The destination of a push, parsed once. */
export interface WebhookTarget {
  /** As the client wrote it. */
  url: string;
  /** `scheme://host[:port]`, normalised: the key under which connections are kept. */
  origin: string;
  /** Path and query, as in the request line. */
  path: string;
  /**
   * The name that is resolved, and that TLS verifies: lower case, ASCII, without brackets and without a trailing dot.
   */
  hostname: string;
  port: number;
  tls: boolean;
  /** Present when the host is an IP address and not a name. */
  address?: AddressBytes;
}

export interface WebhookUrlRefusal {
  /** The reason in words, for the client that registers the instance. */
  message: string;
  /** True when the URL is well formed and only the egress policy forbids it. */
  policy_denied: boolean;
}

/**
 * Parses a webhook_url. Judges what needs no network: the form of the URL, its port, and its host (a name or an IP
 * address). When the host is a name, the addresses of that name are judged at each connection.
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
  const port = url.port === '' ? (tls ? 443 : 80) : Number(url.port);
  const denial =
    (address !== null ? judgeAddress(address, policy) : judgeName(hostname, policy)) ??
    judgePort(port, address, policy);
  if (denial !== null) return { message: describeDenial(denial), policy_denied: true };
  return {
    url: text,
    origin: url.origin,
    path: url.pathname + url.search,
    hostname,
    port,
    tls,
    ...(address !== null && { address }),
  };
}

/** Whether parseWebhookUrl refused the URL. */
export function isRefusal(parsed: WebhookTarget | WebhookUrlRefusal): parsed is WebhookUrlRefusal {
  return 'policy_denied' in parsed;
}

/** A part of a sentence that says why a push may not go to an address, and which setting would allow it. */
export function describeDenial(denial: Denial): string {
  return `is not allowed: ${denial.reason}; ${denial.allowed_by} would allow it`;
}

/** RFC 6761: these names always mean the local host, whatever a name server returns. */
export function isLocalhostName(hostname: string): boolean {
  return hostname === 'localhost' || hostname.endsWith('.localhost');
}

/**
 * Refuses URLs that the URL parser would correct without an error, because another parser may correct them differently.
 */
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
  // The URL parser turns a host that ends in a number into an IPv4 address. A name that still ends in a number is
  // refused.
  if (/^(?:[0-9]+|0x[0-9a-f]*)$/i.test(labels.at(-1)!)) return 'names a host that is neither an address nor a name';
  return null;
}

/**
 * A name with one of these endings never resolves to a public address. Some endings are from RFC 6762 and RFC 8375, one
 * is ICANN's .internal, and some are in use by routers and Kubernetes. ICANN does not delegate the others, because
 * private networks use them.
 */
const PRIVATE_SUFFIXES = 'local internal home.arpa svc localdomain lan home corp intranet private'.split(' ');
/** The names of metadata services of clouds. All these services have the same fixed address. */
const METADATA_NAMES = new Set(['metadata.google.internal', 'metadata.goog', 'instance-data.ec2.internal']);
const METADATA_ADDRESS = Uint8Array.of(169, 254, 169, 254);

/** Judges only the name; its addresses are judged when a connection is made. */
function judgeName(hostname: string, policy: EgressPolicy): Denial | null {
  if (METADATA_NAMES.has(hostname)) {
    const denial = judgeAddress(METADATA_ADDRESS, policy);
    return denial === null ? null : { ...denial, reason: `${hostname} is a cloud metadata service` };
  }
  if (isLocalhostName(hostname)) {
    for (const address of LOOPBACK_ADDRESSES) {
      const denial = judgeAddress(address, policy);
      if (denial !== null) return { ...denial, reason: `${hostname} is this machine` };
    }
    return null;
  }
  // When there is an allow-list, the name may resolve to an address in the list.
  if (policy.mode !== 'public' || policy.allow.length > 0) return null;
  const is_private = !hostname.includes('.') || PRIVATE_SUFFIXES.some((suffix) => hostname.endsWith(`.${suffix}`));
  if (!is_private) return null;
  return {
    reason: `${hostname} is a name of a private network`,
    allowed_by: 'the range of its addresses in CONVOKE_EGRESS_ALLOW, or CONVOKE_EGRESS=lan',
  };
}

/**
 * The bad ports of the fetch standard (https://fetch.spec.whatwg.org/#port-blocking): a server of another protocol may
 * read HTTP as commands of its own protocol.
 */
const BAD_PORTS = new Set(
  (
    '1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 ' +
    '110 111 113 115 117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 ' +
    '556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 ' +
    '10080 '
  )
    .trim()
    .split(' ')
    .map(Number),
);

function judgePort(port: number, address: AddressBytes | null, policy: EgressPolicy): Denial | null {
  if (policy.mode !== 'public' || !BAD_PORTS.has(port)) return null;
  if (address !== null && policy.allow.some((cidr) => contains(cidr, address))) return null;
  return {
    reason: `port ${port} is one of another protocol, which the fetch standard blocks`,
    allowed_by: 'another port, the address itself as host and in CONVOKE_EGRESS_ALLOW, or CONVOKE_EGRESS=lan',
  };
}

/** Whether two URLs belong to the same server, so that credentials for the one URL may go to the other. */
export function isSameOrigin(a: string, b: string): boolean {
  return URL.parse(a)?.origin === URL.parse(b)?.origin;
}
