import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Dispatcher } from 'undici';
import errors from 'undici/lib/core/errors.js';
import Client from 'undici/lib/dispatcher/client.js';
import { ListNode } from '../intrusive_list.ts';
import { RESPONSE_HEADER_BYTES_MAX } from './failures.ts';

/** How long an unused connection stays open, unless the receiver's Keep-Alive header gives another time. */
const IDLE_MS = 10_000;
const IDLE_MS_MAX = 60_000;
/**
 * Convoke closes an unused connection this much earlier than the receiver would. Otherwise the receiver may close the
 * connection just when Convoke uses it for the next push.
 */
const IDLE_HINT_MARGIN_MS = 1000;
/** The memory that an unused connection takes in this process (bench/NOTES.md, "Wide meetings"). */
const PLAIN_BYTES = 20 << 10;
const TLS_BYTES = 65 << 10;

/** A connected socket and the undici client that speaks HTTP on it: one client per socket, never a second socket. */
export class PooledConnection extends ListNode {
  readonly socket: Socket;
  /** The memory that the connection takes while it is unused. */
  readonly idle_bytes: number;
  /** The pushes that got a response on this connection before the current one. */
  uses = 0;
  /** Whether a byte arrived since the current push was sent. */
  has_responded = false;
  /** True until all of the head of the final response has arrived. */
  head_expected = false;
  readonly #client: Client;
  #status_line_expected = false;
  /** The beginning of the head of a 1xx response. */
  #held: Buffer = NOTHING;
  #head_bytes = 0;
  #bytes_behind_head = 0;
  #bytes_behind_head_max = 0;

  /** @param onClose is called once, when the socket has closed */
  constructor(origin: string, socket: Socket, onClose: (connection: PooledConnection) => void) {
    super();
    this.socket = socket;
    this.idle_bytes = socket instanceof TLSSocket ? TLS_BYTES : PLAIN_BYTES;
    let handed_over = false;
    this.#client = new Client(origin, {
      connect: (_options, callback) => {
        const error = handed_over ? new Error('The connection was closed before the request was sent') : null;
        handed_over = true;
        // Calls back later, because undici ignores a connector that calls back before it returns.
        queueMicrotask(() => (error ? callback(error, null) : callback(null, socket)));
      },
      allowH2: false,
      pipelining: 1,
      maxHeaderSize: RESPONSE_HEADER_BYTES_MAX,
      // These timeouts are off. Each byte that arrives starts them again, so they would be no deadlines.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: IDLE_MS_MAX,
      keepAliveTimeoutThreshold: IDLE_HINT_MARGIN_MS,
    });
    // oxlint-disable-next-line typescript/unbound-method -- it is called with its socket
    const read = socket.read;
    socket.read = (size?: number) => {
      const chunk: unknown = read.call(socket, size);
      if (chunk === null) return null;
      if (this.head_expected) {
        const passed = this.#passed(chunk as Buffer);
        if (passed === null) socket.destroy(new errors.HeadersOverflowError());
        return passed === null || passed.length === 0 ? null : passed;
      }
      this.#bytes_behind_head += (chunk as Buffer).length;
      if (this.#bytes_behind_head <= this.#bytes_behind_head_max) return chunk;
      socket.destroy(new errors.ResponseExceededMaxSizeError());
      return null;
    };
    socket.on('error', ignore);
    socket.once('close', () => onClose(this));
  }

  /** @param raw_bytes_max the most bytes of the response after its head */
  send(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler, raw_bytes_max: number): void {
    this.#bytes_behind_head_max = raw_bytes_max;
    this.has_responded = false;
    this.head_expected = this.#status_line_expected = true;
    this.#head_bytes = this.#bytes_behind_head = 0;
    this.#held = NOTHING;
    this.#client.dispatch(options, handler);
  }

  /**
   * Looks at the head of a response before undici does, for two reasons. First, a server may send a 100 that nobody
   * asked for (RFC 9110, section 15.2.1). undici would end the connection because of a 100. So this function turns it
   * into a 102, which undici ignores. Second, undici makes an error with a stack trace for every header beyond its
   * limit: 100,000 headers take 72 ms. They take 1 ms when the surplus bytes never reach undici.
   *
   * The head of a 1xx may arrive in parts. Its beginning is held until the rest has arrived.
   *
   * @returns the bytes for undici; null when the head is too long
   */
  #passed(arrived: Buffer): Buffer | null {
    this.has_responded = true;
    const chunk = this.#held.length === 0 ? arrived : Buffer.concat([this.#held, arrived]);
    this.#held = NOTHING;
    let at = 0;
    while (this.#status_line_expected && mayBeInterimResponse(chunk, at)) {
      const end = chunk.indexOf('\r\n\r\n', at, 'latin1');
      if (end === -1) {
        this.#held = chunk.subarray(at);
        return this.#held.length > RESPONSE_HEADER_BYTES_MAX ? null : chunk.subarray(0, at);
      }
      if (chunk[at + 10] === ZERO && chunk[at + 11] === ZERO) chunk[at + 11] = ZERO + 2;
      at = end + 4;
    }
    this.#status_line_expected = false;
    return this.#isWithinLimit(chunk, at) ? chunk : null;
  }

  #isWithinLimit(chunk: Buffer, at: number): boolean {
    const left = RESPONSE_HEADER_BYTES_MAX - this.#head_bytes;
    this.#head_bytes += chunk.length - at;
    if (this.#head_bytes <= RESPONSE_HEADER_BYTES_MAX) return true;
    // The surplus bytes may be of the body: then the head ends within the limit.
    return chunk.subarray(at, at + Math.max(left, 0)).includes('\r\n\r\n', 0, 'latin1');
  }
}

/** Whether bytes begin like the status line of a 1xx response, "HTTP/1.1 1", or may do so when more of them arrive. */
function mayBeInterimResponse(chunk: Buffer, at: number): boolean {
  for (let i = 0; i < INTERIM.length && at + i < chunk.length; i++) {
    if (i !== MINOR_VERSION && chunk[at + i] !== INTERIM[i]) return false;
  }
  return true;
}

const INTERIM = Buffer.from('HTTP/1.1 1');
const MINOR_VERSION = 7;
const ZERO = 0x30;
const NOTHING = Buffer.alloc(0);

function ignore(): void {}
