import { readFileSync, statSync } from 'node:fs';
import { Resolver } from 'node:dns';
import { LOOPBACK_ADDRESSES, parseAddress } from '../../domain/address.ts';
import type { AddressBytes } from '../../domain/address.ts';
import { isLocalhostName } from '../../domain/webhook_url.ts';

/**
 * Resolves host names without `dns.lookup`, which runs only two lookups at a time, on libuv's threads. With
 * `dns.lookup`, eight lookups at a silent name server delayed all other lookups for 10 to 40 s. Here each lookup has a
 * c-ares channel of its own. It waits for no other lookup, and can be cancelled. So 200 lookups at a silent name server
 * ended together in 0.7 s.
 */
export interface HostResolver {
  /** Starts one lookup. `done` is called once, never synchronously, and never after the lookup was cancelled. */
  lookup(hostname: string, timeout_ms: number, done: (found: Resolution) => void): Lookup;
}

export interface Lookup {
  cancel(): void;
}

/** `addresses` alternate between the families, without repeats; at least one when `ok`. */
export type Resolution = { ok: true; addresses: AddressBytes[] } | { ok: false; code: string };

export interface ResolverOptions {
  /** `address:port` of the name servers to ask; the name servers of the system when absent. */
  name_servers?: readonly string[];
  /** The file in which names are looked up before a name server is asked. */
  hosts_path?: string;
}

/**
 * How long a lookup waits for one name server before it repeats the question. The wait doubles each time, up to the
 * maximum.
 */
const TRY_TIMEOUT_MS = 500;
const TRY_TIMEOUT_MAX_MS = 2000;
const TRIES_MAX = 5;
/**
 * How long the query for one address family may still take when the other query has found addresses (RFC 8305, section
 * 3, asks for a short delay).
 */
const OTHER_FAMILY_WAIT_MS = 250;

const HOSTS_PATH = process.platform === 'win32' ? 'C:\\Windows\\System32\\drivers\\etc\\hosts' : '/etc/hosts';
const HOSTS_CHECK_INTERVAL_MS = 1000;
const HOSTS_BYTES_MAX = 16 * 1024 * 1024;

export function createHostResolver({ name_servers, hosts_path = HOSTS_PATH }: ResolverOptions = {}): HostResolver {
  const hosts = new HostsFile(hosts_path);
  return {
    lookup(hostname, timeout_ms, done) {
      const known = isLocalhostName(hostname) ? [...LOOPBACK_ADDRESSES] : hosts.find(hostname);
      if (known !== undefined) return answerSoon({ ok: true, addresses: alternate(known) }, done);
      return new DnsLookup(hostname, timeout_ms, name_servers, done);
    },
  };
}

function answerSoon(found: Resolution, done: (found: Resolution) => void): Lookup {
  let cancelled = false;
  queueMicrotask(() => {
    if (!cancelled) done(found);
  });
  return {
    cancel() {
      cancelled = true;
    },
  };
}

/**
 * Looks up A and AAAA at the same time, on one channel. The lookup ends when both queries have ended, or at the
 * deadline. It also ends OTHER_FAMILY_WAIT_MS after the first query that found addresses.
 */
class DnsLookup implements Lookup {
  readonly #resolver: Resolver;
  readonly #done: (found: Resolution) => void;
  readonly #deadline: NodeJS.Timeout;
  #other_family: NodeJS.Timeout | undefined;
  #waiting_for = 2;
  #ended = false;
  readonly #addresses: AddressBytes[] = [];
  /** The error to report. "The name server failed" replaces "no such record", because it says more. */
  #code = 'ENODATA';

  constructor(
    hostname: string,
    timeout_ms: number,
    name_servers: readonly string[] | undefined,
    done: (found: Resolution) => void,
  ) {
    this.#done = done;
    this.#resolver = new Resolver({ timeout: TRY_TIMEOUT_MS, tries: TRIES_MAX, maxTimeout: TRY_TIMEOUT_MAX_MS });
    if (name_servers !== undefined) this.#resolver.setServers(name_servers);
    this.#deadline = setTimeout(() => this.#end('ETIMEOUT'), Math.max(timeout_ms, 0));
    const answered = (error: NodeJS.ErrnoException | null, found: string[]) => this.#onAnswer(error, found);
    try {
      this.#resolver.resolve4(hostname, answered);
      this.#resolver.resolve6(hostname, answered);
    } catch (error) {
      // c-ares refuses some names before it asks a name server.
      const code = (error as NodeJS.ErrnoException).code ?? 'EUNKNOWN';
      queueMicrotask(() => this.#end(code));
    }
  }

  cancel(): void {
    if (this.#ended) return;
    this.#stop();
  }

  #onAnswer(error: NodeJS.ErrnoException | null, found: string[]): void {
    if (this.#ended) return;
    this.#waiting_for -= 1;
    if (error !== null) {
      if (!NO_RECORD_CODES.has(error.code ?? '') || this.#code === 'ENODATA') this.#code = error.code ?? 'EUNKNOWN';
    } else {
      // Takes all addresses, because even the last address may be a forbidden one. A DNS message has room for some
      // 4,000 addresses.
      for (const text of found) {
        const bytes = parseAddress(text);
        if (bytes !== null) this.#addresses.push(bytes);
      }
    }
    if (this.#waiting_for === 0) this.#end(this.#code);
    else if (this.#addresses.length > 0) {
      this.#other_family = setTimeout(() => this.#end(this.#code), OTHER_FAMILY_WAIT_MS);
    }
  }

  #end(code: string): void {
    if (this.#ended) return;
    this.#stop();
    this.#done(this.#addresses.length > 0 ? { ok: true, addresses: alternate(this.#addresses) } : { ok: false, code });
  }

  #stop(): void {
    this.#ended = true;
    clearTimeout(this.#deadline);
    clearTimeout(this.#other_family);
    if (this.#waiting_for > 0) this.#resolver.cancel();
  }
}

const NO_RECORD_CODES = new Set(['ENODATA', 'ENOTFOUND']);

/**
 * Makes a list that alternates between IPv6 and IPv4 (RFC 8305, section 4). The list starts with the family of the
 * first answer.
 */
function alternate(addresses: readonly AddressBytes[]): AddressBytes[] {
  const seen = new Set<string>();
  const distinct = addresses.filter((bytes) => {
    const key = bytes.join('.');
    return !seen.has(key) && seen.add(key);
  });
  const first_length = distinct[0]?.length;
  const first = distinct.filter((bytes) => bytes.length === first_length);
  const other = distinct.filter((bytes) => bytes.length !== first_length);
  const turns: AddressBytes[] = [];
  for (let i = 0; i < Math.max(first.length, other.length); i++) {
    if (first[i] !== undefined) turns.push(first[i]!);
    if (other[i] !== undefined) turns.push(other[i]!);
  }
  return turns;
}

/**
 * The names in the hosts file of the system, which c-ares does not read. The file is checked at most once a second, and
 * read again when it has changed.
 */
class HostsFile {
  readonly #path: string;
  #names = new Map<string, AddressBytes[]>();
  #version = '';
  #checked_at_ms = -Infinity;

  constructor(path: string) {
    this.#path = path;
  }

  find(hostname: string): AddressBytes[] | undefined {
    const now_ms = performance.now();
    if (now_ms - this.#checked_at_ms >= HOSTS_CHECK_INTERVAL_MS) {
      this.#checked_at_ms = now_ms;
      this.#refresh();
    }
    return this.#names.get(hostname);
  }

  #refresh(): void {
    try {
      const { mtimeMs, size, ino } = statSync(this.#path);
      const version = `${mtimeMs} ${size} ${ino}`;
      if (version === this.#version) return;
      this.#names = size <= HOSTS_BYTES_MAX ? parseHosts(readFileSync(this.#path, 'utf8')) : new Map();
      this.#version = version;
    } catch {
      // When the hosts file cannot be read, it counts as empty.
      this.#names = new Map();
      this.#version = '';
    }
  }
}

/** hosts(5): an address, then its names; `#` starts a comment. A name may be on several lines. */
export function parseHosts(text: string): Map<string, AddressBytes[]> {
  const names = new Map<string, AddressBytes[]>();
  for (const line of text.split('\n')) {
    const [address, ...aliases] = line.split('#', 1)[0]!.trim().split(/\s+/);
    const bytes = parseAddress(address!);
    if (bytes === null) continue;
    for (const alias of aliases) {
      const name = alias.toLowerCase();
      const listed = names.get(name);
      if (listed === undefined) names.set(name, [bytes]);
      else listed.push(bytes);
    }
  }
  return names;
}
