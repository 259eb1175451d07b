/** The id of this node, and the URLs under which others reach it. */
import { randomBytes } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { hostname } from 'node:os';
import { isWildcardHost } from '../domain/host.ts';

const HOSTNAME_CHARS_MAX = 64;
const NODE_ID_BYTES = 6;

/** An id for this start of a node; the host name in it is for people. */
export function newNodeId(): string {
  return `${hostname().slice(0, HOSTNAME_CHARS_MAX)}-${randomBytes(NODE_ID_BYTES).toString('hex')}`;
}

export function urlOf({ family, address, port }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/** Replaces an address that stands for all addresses by the host name, which others can reach. */
export function reachableUrlOf(bound: AddressInfo): string {
  return isWildcardHost(bound.address) ? `http://${hostname()}:${bound.port}` : urlOf(bound);
}
