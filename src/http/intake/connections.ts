import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock, Timer } from '../../delivery/clock.ts';
import { IntrusiveList } from '../../delivery/intrusive_list.ts';
import { Problem } from '../../domain/problem.ts';
import {
  Connection,
  EXCHANGE,
  type Exchange,
  endExchangeOnClose,
  PIPELINED_MAX,
  READ_LIMITS,
  type Watched,
} from './connection.ts';
import { hasBody } from './framing.ts';
import { ignoreRest } from './ignore_rest.ts';
import { type Waiter, type WaitingRequest, WaitingRequests } from './waiting_requests.ts';
import { answerOf, endWithProblem } from '../problems.ts';

/**
 * A refused request is still read for this long, and up to this many bytes. Closing a connection with unread bytes
 * resets it. The reset overtakes the response, so a client that still writes would never see the response.
 */
const LINGER_MS = 2_000;
const LINGER_BYTES_MAX = 16 << 20;

/** How long a connection without a request is kept open when the server stops. */
const UNUSED_MS = 500;

/** How many connections are still accepted when the server stops: Node lets the system queue up to this many. */
const QUEUED_MAX = 511;

/** How often the server checks which connections wait for their clients. */
const LOOK_MS = 1_000;

/**
 * A connection that has waited this long for its client may be closed to make room, although its request is in
 * progress.
 */
const SLOW_MS = 3_000;

const RETRY_AFTER_S = 1;

/**
 * The connections of clients. Idle connections are listed in the order in which they became idle. When there are too
 * many connections, the one that has been idle longest is closed. If none is idle, the one that has waited longest for
 * its client is closed. If no connection waits for its client, a waiting request, such as a pull, gets its response
 * early. A request that Convoke works on is never closed.
 */
export class Connections {
  readonly #connections_max: number;
  readonly #clock: Clock;
  readonly #read_limits: typeof READ_LIMITS;
  readonly #open = new Map<Socket, Connection>();
  readonly #idle = new IntrusiveList<Connection>();
  /** Requests that wait until something happens, such as pulls. */
  readonly #waiting = new WaitingRequests();
  /**
   * Connections that had waited at least SLOW_MS for their clients at the last check; the one that has waited longest
   * is last.
   */
  #slow: Connection[] = [];
  /** Null while no connection is busy. */
  #next_look: Timer | null = null;
  /** Counts the turns of the event loop in which requests arrive. */
  #turn = 0;
  #is_turn_counted = false;
  /** Connections since the start, refused ones included. */
  #connection_count = 0;
  /** Whether each connection closes with its next response. */
  #is_closing = false;
  #onLastGone: (() => void) | null = null;
  /** One function for all connections. */
  readonly #onClose = (connection: Connection): void => this.#forget(connection);

  constructor(connections_max: number, clock: Clock, read_limits = READ_LIMITS) {
    this.#connections_max = connections_max;
    this.#clock = clock;
    this.#read_limits = read_limits;
  }

  /** Watches the connections of a server. Call it before the server listens. */
  watch(server: Server): void {
    server.on('connection', (socket) => this.#admit(socket));
    // Runs before the routes, so that a request that `#begin` refuses costs no further work.
    const answerers = server.listeners('request') as ((request: IncomingMessage, response: ServerResponse) => void)[];
    server.removeAllListeners('request');
    server.on('request', (request, response) => {
      if (this.#begin(request, response) === null) return;
      for (const answer of answerers) answer(request, response);
    });
    server.on('checkContinue', (request, response) => {
      const exchange = this.#begin(request, response);
      if (exchange === null) return;
      exchange.awaits_continue = true;
      server.emit('request', request, response);
    });
    // A request with an unknown `Expect` goes to the same checks as other requests, and they refuse it with a problem.
    // Node's own response would be only a status.
    server.on('checkExpectation', (request, response) => server.emit('request', request, response));
    server.on('connect', (_request, socket) => {
      socket.on('error', () => {});
      socket.end(answerOf(new Problem('malformed_request', 'This service is not a proxy: it does not take CONNECT.')));
    });
  }

  /**
   * The first step of a stop: from now on each response has `connection: close`. A connection that stayed open after
   * its response would hold up the stop.
   */
  closeWithResponses(): void {
    this.#is_closing = true;
  }

  /**
   * The server accepts no new connection, so that a proxy takes another node at once. Each open connection gets one
   * more response, because a request may already be on its way. Resolves when all connections have closed, or after
   * `drain_ms`.
   */
  async drain(server: Server, drain_ms: number): Promise<void> {
    await this.#acceptQueued(this.#clock.now() + drain_ms);
    // The `close` of an HTTP server would close idle connections too.
    NetServer.prototype.close.call(server);
    if (this.#open.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onLastGone = resolve;
    const timer = this.#clock.after(drain_ms, resolve);
    await promise;
    timer.cancel();
    // Requests that arrived in their sockets while this process was busy are read first.
    await turn();
  }

  /**
   * Accepts the connections that wait in the system's queue, perhaps with a request written: closing the server would
   * reset them. Node accepts one in each turn of the event loop, so the loop runs until a turn accepts none. It also
   * ends at `until` and after QUEUED_MAX connections: clients that connect all the time must not delay the stop.
   */
  async #acceptQueued(until: number): Promise<void> {
    const count_max = this.#connection_count + QUEUED_MAX;
    let count: number;
    await turn();
    do {
      count = this.#connection_count;
      await turn();
    } while (this.#connection_count > count && this.#connection_count < count_max && this.#clock.now() < until);
  }

  /**
   * Called when the server stops. Node closes idle connections that had a request before, but waits 5 s for connections
   * that never had a request. This method closes the unused connections after UNUSED_MS, so that a request on its way
   * can still arrive.
   */
  closeUnused(): void {
    for (const connection of this.#idle.toArray()) {
      if (!connection.was_asked) this.#clock.after(UNUSED_MS, () => closeIfUnused(connection));
    }
  }

  /**
   * A request waits until something happens, and may end early to make room for another connection.
   *
   * @param key_id the key of the request; null while no key is needed
   * @returns what to give to `endsWait` when the wait is over
   */
  waits(request: IncomingMessage, key_id: string | null, waiter: Waiter): WaitingRequest {
    return this.#waiting.add(key_id, request, waiter);
  }

  endsWait(waiting: WaitingRequest): void {
    this.#waiting.delete(waiting);
  }

  /**
   * The exchange of a request. Null when its connection is closing: nobody will read the response, so the request must
   * have no effect.
   */
  exchangeOf(request: IncomingMessage): Exchange | null {
    const exchange = (request as Watched)[EXCHANGE];
    if (exchange === undefined) return null;
    return exchange.connection === null || this.#open.get(request.socket)?.closing === false ? exchange : null;
  }

  /**
   * Called before a response is sent. A connection whose request did not arrive completely cannot be used again.
   *
   * @returns whether the response must have `connection: close`
   */
  closesAfter(request: IncomingMessage): boolean {
    const connection = this.#open.get(request.socket);
    if (request.complete || !hasBody(request)) return this.#is_closing || connection === undefined;
    if (connection !== undefined && !connection.closing) this.#linger(connection, request);
    return true;
  }

  /** Refuses bytes that are not HTTP, or that did not become a request in time. */
  refuse(error: Error & { code?: string }, socket: Socket): void {
    const connection = this.#open.get(socket);
    if (connection === undefined || connection.closing || !socket.writable || error.code === 'ECONNRESET') {
      socket.destroy();
      return;
    }
    // The connection gets no more responses, and the bytes that still arrive need not be HTTP.
    if (connection.is_over) return;
    const problem = problemOf(error);
    const { exchange } = connection;
    if (exchange?.body?.is_awaited) {
      exchange.body.refuse(problem);
    } else if (connection.is_idle) {
      this.#end(connection, problem);
    } else if (exchange?.request.complete) {
      // The bad bytes follow a whole request, which gets its own response first.
      exchange.response.once('close', () => this.#end(connection, problem));
    } else {
      socket.destroy();
    }
  }

  #admit(socket: Socket): void {
    this.#connection_count++;
    if (this.#open.size >= this.#connections_max && !this.#makeRoom()) {
      socket.on('error', () => {});
      socket.end(answerOf(tooManyConnections()), () => socket.destroy());
      return;
    }
    this.#open.set(socket, new Connection(socket, this.#idle, this.#onClose));
  }

  #makeRoom(): boolean {
    const one = this.#idle.first ?? this.#takeSlowest();
    if (one === null) return this.#endWait();
    this.#forget(one);
    one.socket.destroy();
    return true;
  }

  /** Ends the wait of one request, and closes its connection after its response. @returns whether a request waited */
  #endWait(): boolean {
    const waiting = this.#waiting.take();
    if (waiting === null) return false;
    const connection = this.#open.get(waiting.request.socket);
    if (connection !== undefined) this.#leave(connection);
    waiting.waiter.makeRoom();
    return true;
  }

  /** The connection gets one more response, and no longer takes a place. */
  #leave(connection: Connection): void {
    connection.closing = true;
    this.#forget(connection);
    this.#destroyLater(connection.socket);
  }

  #takeSlowest(): Connection | null {
    for (let one = this.#slow.pop(); one !== undefined; one = this.#slow.pop()) {
      if (one.waits_since !== null && this.#open.has(one.socket)) return one;
    }
    return null;
  }

  /** One timer for all connections, while requests are in progress. */
  #look(): void {
    const now = this.#clock.now();
    this.#slow = [];
    let is_busy = false;
    for (const connection of this.#open.values()) {
      if (connection.is_idle) connection.waits_since = null;
      else {
        is_busy = true;
        if (connection.look(now, this.#read_limits)) connection.socket.destroy();
        else if (now - (connection.waits_since ?? now) >= SLOW_MS) this.#slow.push(connection);
      }
    }
    this.#slow.sort((a, b) => (b.waits_since ?? now) - (a.waits_since ?? now));
    this.#next_look = is_busy ? this.#clock.after(LOOK_MS, () => this.#look()) : null;
  }

  #forget(connection: Connection): void {
    this.#open.delete(connection.socket);
    connection.forget();
    if (this.#open.size > 0) return;
    // A command on the data file ends when no timer is left.
    this.#next_look?.cancel();
    this.#next_look = null;
    this.#onLastGone?.();
  }

  /**
   * Begins the exchange of a request. Null when the request gets no response from a route: its connection is gone, or
   * has too many requests in progress.
   */
  #begin(request: IncomingMessage, response: ServerResponse): Exchange | null {
    const known = (request as Watched)[EXCHANGE];
    if (known !== undefined) return known;
    const connection = this.#open.get(request.socket);
    if (connection === undefined || request.socket.destroyed) return null;
    if (connection.is_over) return null;
    if (!connection.hasRoom(this.#countTurn())) {
      this.#endBehind(connection, response);
      return null;
    }
    const exchange: Exchange = {
      request,
      response,
      awaits_continue: false,
      body: null,
      connection,
      before: null,
    };
    (request as Watched)[EXCHANGE] = exchange;
    connection.begin(exchange);
    endExchangeOnClose(response);
    this.#next_look ??= this.#clock.after(LOOK_MS, () => this.#look());
    return exchange;
  }

  #countTurn(): number {
    if (!this.#is_turn_counted) {
      this.#is_turn_counted = true;
      this.#clock.soon(() => {
        this.#is_turn_counted = false;
        this.#turn++;
      });
    }
    return this.#turn;
  }

  /** Refuses the request that exceeds the limit, after the responses before it. Everything after it is ignored. */
  #endBehind(connection: Connection, response: ServerResponse): void {
    const { socket } = connection;
    connection.is_over = true;
    ignoreRest(socket, LINGER_BYTES_MAX);
    this.#leaveSlowly(socket);
    endWithProblem(response, tooManyPipelined());
  }

  #end(connection: Connection, problem: Problem): void {
    connection.closing = true;
    connection.socket.end(answerOf(problem));
    this.#destroyLater(connection.socket);
  }

  #linger(connection: Connection, request: IncomingMessage): void {
    const { socket } = connection;
    connection.closing = true;
    let bytes = 0;
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > LINGER_BYTES_MAX) socket.destroy();
    });
    this.#leaveSlowly(socket);
  }

  /** Node calls destroySoon when the response is written. Its own destroySoon would close the connection too early. */
  #leaveSlowly(socket: Socket): void {
    socket.destroySoon = () => {
      socket.end();
      this.#destroyLater(socket);
    };
  }

  #destroyLater(socket: Socket): void {
    const timer = this.#clock.after(LINGER_MS, () => socket.destroy());
    socket.once('close', () => timer.cancel());
  }
}

function closeIfUnused({ socket, was_asked }: Connection): void {
  if (!was_asked) socket.destroy();
}

function problemOf({ code }: { code?: string }): Problem {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new Problem('request_timeout', 'The request did not arrive in time.');
    case 'HPE_HEADER_OVERFLOW':
      return new Problem('headers_too_large');
    default:
      return new Problem('malformed_request', 'The request is not well-formed HTTP.');
  }
}

function tooManyConnections(): Problem {
  return new Problem('overloaded', 'There are too many connections with requests in progress. Try again soon.', {
    retry_after_s: RETRY_AFTER_S,
  });
}

function tooManyPipelined(): Problem {
  return new Problem(
    'overloaded',
    `More than ${PIPELINED_MAX} requests on this connection wait for their answers. Send the next one when one was answered.`,
    { retry_after_s: RETRY_AFTER_S },
  );
}
