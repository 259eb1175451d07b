/** Who can reach a service that listens on a host. */
import { parseAddress } from './address.ts';
import { isLocalhostName } from './webhook_url.ts';

/** Whether only programs on this machine can reach a service that listens on this host. */
export function isLoopbackHost(host: string): boolean {
  const bytes = parseAddress(host);
  if (bytes === null) return isLocalhostName(host.toLowerCase());
  return bytes.length === 4 ? bytes[0] === 127 : bytes.every((byte, i) => byte === (i === 15 ? 1 : 0));
}

/** Whether a host means all addresses of the machine. Such a host is no address that other machines can connect to. */
export function isWildcardHost(host: string): boolean {
  return parseAddress(host)?.every((byte) => byte === 0) === true;
}
