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
 * How much earlier than the receiver Convoke closes a connection, so that the receiver does not close it just when
 * Convoke uses it for the next push.
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
        if (this.#passes(chunk as Buffer)) return chunk;
        socket.destroy(new errors.HeadersOverflowError());
        return null;
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
    this.#client.dispatch(options, handler);
  }

  /**
   * Looks at the head of a response before undici does, for two reasons. First, a server may send a 100 that nobody
   * asked for (RFC 9110, section 15.2.1). undici would end the connection because of a 100. So this function turns it
   * into a 102, which undici ignores. Second, undici makes an error with a stack trace for every header beyond its
   * limit: 100,000 headers take 72 ms. They take 1 ms when the surplus bytes never reach undici.
   */
  #passes(chunk: Buffer): boolean {
    this.has_responded = true;
    let at = 0;
    while (this.#status_line_expected && isInterimResponse(chunk, at)) {
      if (chunk[at + 10] === ZERO && chunk[at + 11] === ZERO) chunk[at + 11] = ZERO + 2;
      const end = chunk.indexOf('\r\n\r\n', at, 'latin1');
      if (end === -1) return this.#isWithinLimit(chunk, at);
      at = end + 4;
      if (at === chunk.length) return true;
    }
    this.#status_line_expected = false;
    return this.#isWithinLimit(chunk, at);
  }

  #isWithinLimit(chunk: Buffer, at: number): boolean {
    const left = RESPONSE_HEADER_BYTES_MAX - this.#head_bytes;
    this.#head_bytes += chunk.length - at;
    if (this.#head_bytes <= RESPONSE_HEADER_BYTES_MAX) return true;
    // The surplus bytes may be of the body: then the head ends within the limit.
    return chunk.subarray(at, at + Math.max(left, 0)).includes('\r\n\r\n', 0, 'latin1');
  }
}

/** "HTTP/1.1 1": the status line of a 1xx response. */
function isInterimResponse(chunk: Buffer, at: number): boolean {
  return chunk[at + 9] === ZERO + 1 && chunk[at + 8] === SPACE && chunk[at] === LETTER_H;
}

const SPACE = 0x20;
const ZERO = 0x30;
const LETTER_H = 0x48;

function ignore(): void {}
