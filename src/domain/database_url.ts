/**
 * The connection string of a PostgreSQL database. It may name several servers, as in libpq: their hosts, each with its
 * port, separated by commas. See https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-MULTIPLE-HOSTS.
 */

/** The most servers. If no server responds, a request waits for all of them, one after the other. */
export const DATABASE_SERVERS_MAX = 8;

/** The values of `target_session_attrs` that Convoke can use. True: the server must accept writes. */
const SESSION_ATTRS = new Map([
  ['any', false],
  ['read-write', true],
  ['primary', true],
]);

const PARTS = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/i;

export interface DatabaseServers {
  /** The connection string of each server, and a name for messages, without the password. */
  servers: { url: string; where: string }[];
  /**
   * Whether to skip a server that does not accept writes. Always true for several servers, because one of them should
   * accept writes.
   */
  must_write: boolean;
}

/** Null when the text is not a valid connection string. */
export function parseDatabaseUrl(text: string): DatabaseServers | null {
  const [, head, hosts, tail] = PARTS.exec(text) ?? [];
  if (head === undefined || hosts === undefined || tail === undefined || /\p{Cc}/u.test(text)) return null;
  const path = tail.replace(/\?.*/s, '');
  // A password with a slash that is not encoded ends the hosts too early: then a part of it counts as the port.
  if (path.includes('@') || !isEncoded(path)) return null;
  const names = hosts.split(',');
  if (names.length > DATABASE_SERVERS_MAX || (names.length > 1 && names.includes(''))) return null;
  const urls = names.map((name) => head + name + tail);
  if (!urls.every((url) => URL.canParse(url))) return null;
  const must_write = SESSION_ATTRS.get(new URL(urls[0]!).searchParams.get('target_session_attrs') ?? 'any');
  if (must_write === undefined) return null;
  return { servers: urls.map((url) => ({ url, where: whereOf(url) })), must_write: must_write || urls.length > 1 };
}

/** Whether each `%` begins an encoded character. */
function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

function whereOf(url: string): string {
  const { hostname, port } = new URL(url);
  return `${hostname || 'this machine'}:${port || '5432'}`;
}
