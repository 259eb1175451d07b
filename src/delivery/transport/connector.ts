import { connect as connectTcp } from 'node:net';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { SecureContext } from 'node:tls';
import { formatAddress, judgeAddress, parseAddress } from '../../domain/address.ts';
import type { AddressBytes, EgressPolicy } from '../../domain/address.ts';
import type { Outcome } from '../../domain/outcome.ts';
import { describeDenial } from '../../domain/webhook_url.ts';
import type { WebhookTarget } from '../../domain/webhook_url.ts';
import { describeConnectError, describeLookup, describeTlsError } from './failures.ts';
import type { HostResolver } from './resolver.ts';
import type { Stage } from './transport.ts';

/**
 * The connector is the only place that opens sockets to receivers. It resolves a name once for each connection, and
 * judges every address of the name. The socket connects to one of the judged addresses, so a later response of the name
 * server changes nothing.
 */
export interface ConnectorOptions {
  policy: EgressPolicy;
  resolver: HostResolver;
  secure_context: () => SecureContext;
}

/**
 * Follows a connection while it is made. Exactly one of `onConnected` and `onConnectFailed` is called, unless the
 * attempt is cancelled.
 */
export interface ConnectionObserver {
  beginStage(stage: Stage): void;
  endStage(ok: boolean, detail: string): void;
  onConnected(socket: Socket): void;
  onConnectFailed(outcome: Outcome, detail: string): void;
}

/** How long an attempt waits for one address before it also tries the next address (RFC 8305, section 5). */
const NEXT_ADDRESS_WAIT_MS = 250;
const ADDRESSES_TRIED_MAX = 6;
/** The most addresses of a name that a diagnosis lists. */
const ADDRESSES_SHOWN_MAX = 8;

/** Makes one connection: DNS, then TCP, then TLS. The caller bounds it in time with `cancel`. */
export class ConnectAttempt {
  readonly #target: WebhookTarget;
  readonly #options: ConnectorOptions;
  readonly #observer: ConnectionObserver;
  #addresses: AddressBytes[] = [];
  #addresses_tried = 0;
  #next_address: NodeJS.Timeout | undefined;
  /** The sockets that this attempt still owns. */
  readonly #sockets = new Set<Socket>();
  #error: NodeJS.ErrnoException | null = null;
  #abandon_lookup: (() => void) | undefined;
  #ended = false;

  constructor(target: WebhookTarget, options: ConnectorOptions, observer: ConnectionObserver) {
    this.#target = target;
    this.#options = options;
    this.#observer = observer;
  }

  start(timeout_ms: number): void {
    const { address, hostname } = this.#target;
    if (address !== undefined) return this.#onAddresses([address]);
    this.#observer.beginStage('dns');
    const lookup = this.#options.resolver.lookup(hostname, timeout_ms, (found) => {
      this.#abandon_lookup = undefined;
      if (!found.ok) return this.#fail('dns_failed', describeLookup(found.code, hostname));
      this.#observer.endStage(true, describeAddresses(found.addresses));
      this.#onAddresses(found.addresses);
    });
    this.#abandon_lookup = () => lookup.cancel();
  }

  /** Closes every socket that this attempt opened. The observer is not called after that. */
  cancel(): void {
    this.#ended = true;
    this.#abandon_lookup?.();
    clearTimeout(this.#next_address);
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
  }

  #onAddresses(addresses: AddressBytes[]): void {
    this.#observer.beginStage('connect');
    // One denied address denies the name. Otherwise the order of the addresses would decide whether a connection to the
    // denied address is made.
    for (const bytes of addresses) {
      const denial = judgeAddress(bytes, this.#options.policy);
      if (denial !== null) return this.#fail('blocked', `address ${describeDenial(denial)}`);
    }
    this.#addresses = addresses.slice(0, ADDRESSES_TRIED_MAX);
    this.#tryNextAddress();
  }

  #tryNextAddress(): void {
    clearTimeout(this.#next_address);
    const bytes = this.#addresses[this.#addresses_tried];
    if (bytes === undefined) {
      if (this.#sockets.size === 0) this.#failToConnect();
      return;
    }
    this.#addresses_tried += 1;
    const host = formatAddress(bytes);
    const socket = connectTcp({ host, port: this.#target.port, noDelay: true });
    this.#sockets.add(socket);
    const onError = (error: Error): void => {
      if (this.#ended || !this.#sockets.delete(socket)) return;
      this.#keepError(error);
      this.#tryNextAddress();
    };
    socket.on('error', onError);
    socket.once('connect', () => {
      detach(socket, onError);
      this.#onConnect(socket, host);
    });
    if (this.#addresses_tried < this.#addresses.length) {
      this.#next_address = setTimeout(() => this.#tryNextAddress(), NEXT_ADDRESS_WAIT_MS);
    }
  }

  #onConnect(socket: Socket, host: string): void {
    if (this.#ended || !this.#sockets.delete(socket)) return;
    clearTimeout(this.#next_address);
    for (const other of this.#sockets) other.destroy();
    this.#sockets.clear();
    this.#sockets.add(socket);

    const remote = parseAddress(socket.remoteAddress ?? '');
    const denial = remote === null ? null : judgeAddress(remote, this.#options.policy);
    if (denial !== null) return this.#fail('blocked', `address ${describeDenial(denial)}`);
    if (remote === null) return this.#fail('broken_response', 'connection closed as soon as it was made');
    this.#observer.endStage(true, `${host} port ${this.#target.port}`);
    if (this.#target.tls) this.#secure(socket);
    else this.#succeed(socket);
  }

  #secure(socket: Socket): void {
    this.#observer.beginStage('tls');
    const { hostname, address } = this.#target;
    const secured = connectTls({
      socket,
      host: hostname,
      // RFC 6066, section 3: a server name is a name, never an address.
      servername: address === undefined ? hostname : '',
      ALPNProtocols: ['http/1.1'],
      secureContext: this.#options.secure_context(),
      // Explicit, so that NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment does not switch the check of certificates
      // off.
      rejectUnauthorized: true,
    });
    this.#sockets.delete(socket);
    this.#sockets.add(secured);
    const onError = (error: NodeJS.ErrnoException): void => {
      if (this.#sockets.has(secured)) this.#fail('tls_failed', describeTlsError(error, hostname));
    };
    secured.on('error', onError);
    secured.once('secureConnect', () => {
      detach(secured, onError);
      if (this.#ended) return;
      this.#observer.endStage(true, secured.getProtocol() ?? '');
      this.#succeed(secured);
    });
  }

  #succeed(socket: Socket): void {
    this.#ended = true;
    this.#sockets.delete(socket);
    this.#observer.onConnected(socket);
  }

  #fail(outcome: Outcome, detail: string): void {
    if (this.#ended) return;
    this.cancel();
    this.#observer.onConnectFailed(outcome, detail);
  }

  #failToConnect(): void {
    const { outcome, detail } = describeConnectError(this.#error?.code, this.#target.port);
    this.#fail(outcome, detail);
  }

  /** Keeps the error that says the most. A refusal says the most, because it shows that the host is there. */
  #keepError(error: NodeJS.ErrnoException): void {
    if (this.#error?.code !== 'ECONNREFUSED') this.#error = error;
  }
}

/**
 * Lets a connected socket forget the attempt. The socket may stay open for long. Through the attempt, it would keep in
 * memory the push that it was opened for, with the body of the push.
 */
function detach(socket: Socket, onError: (error: Error) => void): void {
  socket.on('error', ignore);
  socket.off('error', onError);
}

function ignore(): void {}

function describeAddresses(addresses: readonly AddressBytes[]): string {
  const shown = addresses.slice(0, ADDRESSES_SHOWN_MAX).map(formatAddress).join(', ');
  return addresses.length > ADDRESSES_SHOWN_MAX ? `${shown} and ${addresses.length - ADDRESSES_SHOWN_MAX} more` : shown;
}
