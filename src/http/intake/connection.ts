import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type IntrusiveList, ListNode } from '../../delivery/intrusive_list.ts';
import type { Body } from './body.ts';

/**
 * The most requests of one connection that have no response yet, or that arrived in one turn of the event loop. Node
 * reads up to 64 KiB at a time, and a request can be as short as 26 bytes, so without this limit a turn could be very
 * long. One request more gets 503, and the connection closes.
 */
export const PIPELINED_MAX = 8;

/**
 * How long a client may take to read: `answer_ms`, and a second more for each 64 KiB written since the client began to
 * lag. The limit holds for every response, also for a stream without a length.
 */
export const READ_LIMITS = { answer_ms: 30_000, bytes_per_s_min: 65_536 };

/** A request and its response. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Whether the client sends the body only after 100 Continue (Expect: 100-continue). */
  awaits_continue: boolean;
  /**
   * Null while no body was read. The body counts against the budget until the response is made, or the connection is
   * gone.
   */
  body: Body | null;
  /** Null for a request that this process makes to itself. */
  readonly connection: Connection | null;
  /** The previous request on the same connection, while that request has no response either. */
  before: Exchange | null;
}

/**
 * The property in which a request keeps its exchange. A WeakMap would do the same, but each of its entries would cost
 * the garbage collector time.
 */
export const EXCHANGE: unique symbol = Symbol('exchange');

export type Watched = IncomingMessage & { [EXCHANGE]?: Exchange };

/** The property in which a socket keeps its connection. */
const CONNECTION: unique symbol = Symbol('connection');

/** One listener for all sockets. */
function onSocketClosed(this: Socket & { [CONNECTION]?: Connection }): void {
  this[CONNECTION]?.close();
}

export class Connection extends ListNode {
  readonly socket: Socket;
  readonly #idle: IntrusiveList<Connection>;
  readonly #onClose: (connection: Connection) => void;
  /** Requests without a response: more than one when the client pipelines. */
  #unanswered = 0;
  /**
   * The turn of the event loop in which the latest requests arrived, and their number, including those that got a
   * response at once.
   */
  #turn = -1;
  #in_turn = 0;
  /** Whether there were too many requests. Then everything that arrives is ignored. */
  is_over = false;
  /** When the connection began to wait until its client reads or writes; null while it does not wait. */
  waits_since: number | null = null;
  /** How many bytes of responses had left the buffer of the socket when `waits_since` was set. */
  #read_bytes = 0;
  /** The latest request, until it has a response. */
  exchange: Exchange | null = null;
  was_asked = false;
  closing = false;
  #gone = false;

  /**
   * @param idle the list of connections without a request; a new connection begins in it
   * @param onClose called once, when the socket has closed
   */
  constructor(socket: Socket, idle: IntrusiveList<Connection>, onClose: (connection: Connection) => void) {
    super();
    this.socket = socket;
    this.#idle = idle;
    this.#onClose = onClose;
    idle.add(this);
    (socket as Socket & { [CONNECTION]?: Connection })[CONNECTION] = this;
    socket.on('close', onSocketClosed);
  }

  /** The socket has closed. */
  close(): void {
    for (let each = this.exchange, before; each !== null; each = before) {
      before = each.before;
      endQueued(each.response);
    }
    this.#onClose(this);
  }

  get is_idle(): boolean {
    return this.#unanswered === 0;
  }

  /** @returns whether another request may begin */
  hasRoom(turn: number): boolean {
    if (this.#turn !== turn) this.#in_turn = 0;
    this.#turn = turn;
    return this.#unanswered < PIPELINED_MAX && ++this.#in_turn <= PIPELINED_MAX;
  }

  begin(exchange: Exchange): void {
    this.was_asked = true;
    exchange.before = this.exchange;
    this.exchange = exchange;
    this.#unanswered++;
    this.#idle.delete(this);
  }

  end(exchange: Exchange): void {
    this.#unanswered--;
    this.#unlink(exchange);
    if (this.is_idle && !this.#gone) this.#idle.add(this);
  }

  #unlink(exchange: Exchange): void {
    if (this.exchange === exchange) this.exchange = exchange.before;
    for (let each = this.exchange; each !== null; each = each.before) {
      if (each.before === exchange) each.before = exchange.before;
    }
    exchange.before = null;
  }

  forget(): void {
    this.#gone = true;
    this.#idle.delete(this);
  }

  /** @returns whether the client reads so slowly that the connection should close */
  look(now: number, { answer_ms, bytes_per_s_min }: typeof READ_LIMITS): boolean {
    const unread = this.socket.writableLength;
    if (unread === 0 && this.exchange?.body?.is_awaited !== true) {
      this.waits_since = null;
      return false;
    }
    // `bytesWritten` is read only for a connection that waits, because its getter adds up the buffers of the socket.
    // Thousands of connections do not wait.
    const written = this.socket.bytesWritten;
    if (this.waits_since === null) {
      this.waits_since = now;
      this.#read_bytes = written - unread;
    }
    // Judges only responses, because body_reader.ts limits bodies.
    return unread > 0 && now - this.waits_since > answer_ms + (1000 * (written - this.#read_bytes)) / bytes_per_s_min;
  }
}

/**
 * The response was written, or the connection is gone. One function serves all responses, because a closure for each
 * response would hold its request. With closures, 13 of 16 MB of requests outlived two collections of the young
 * generation, and stayed until a full collection. Without closures, no request did.
 */
function onResponseClosed(this: ServerResponse): void {
  const exchange = (this.req as Watched)[EXCHANGE];
  exchange?.body?.release();
  exchange?.connection?.end(exchange);
}

/**
 * Ends a response that still waits behind an earlier response when their connection closes. Node 24 does that itself.
 * In Node 22 the body of its request would otherwise count against the budget for ever, and a pull would wait for a
 * client that is gone.
 */
function endQueued(response: ServerResponse): void {
  if (response.socket !== null || response.destroyed) return;
  response.destroyed = true;
  response.emit('close');
}

/** Ends the exchange of a response when the response is written or its connection is gone. */
export function endExchangeOnClose(response: ServerResponse): void {
  response.on('close', onResponseClosed);
}
