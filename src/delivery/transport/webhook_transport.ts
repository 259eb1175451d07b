import type { Socket } from 'node:net';
import { createSecureContext, getCACertificates } from 'node:tls';
import type { SecureContext } from 'node:tls';
import { Client, errors } from 'undici';
import type { Dispatcher } from 'undici';
import type { EgressPolicy } from '../../domain/address.ts';
import { outcomeOfStatus } from '../../domain/outcome.ts';
import type { Outcome } from '../../domain/outcome.ts';
import { isRefusal, parseWebhookUrl } from '../../domain/webhook_url.ts';
import type { WebhookTarget } from '../../domain/webhook_url.ts';
import { ConnectAttempt } from './connector.ts';
import type { ConnectionObserver, ConnectorOptions } from './connector.ts';
import { Deadlines, DeadlineEntry } from './deadlines.ts';
import { ListNode, IntrusiveList } from '../intrusive_list.ts';
import { withoutSecrets } from './push.ts';
import { createHostResolver } from './resolver.ts';
import type { Push, PushResult, Stage, StageReport, Transport } from './transport.ts';

/**
 * Pushes over HTTP/1.1, on undici's `dispatch`: `fetch` costs ten times as much and `request` honours no signal before
 * the socket is connected. undici is given a connected socket and one request at a time, so that nothing ever queues
 * inside it; what it has no deadline for (a dripped body, a flood of 103) ends by ours.
 */
export interface WebhookTransportOptions {
  policy: EgressPolicy;
  /** Monotonic milliseconds (`performance.now`): a clock that steps would end pushes early, or never. */
  now?: () => number;
  /** From the call to the result, whatever the machine does. */
  deadline_ms?: number;
  /** `address:port` of the name servers; those of the system when absent. */
  name_servers?: readonly string[];
  /** Where names are looked up before DNS; the system's hosts file when absent. */
  hosts_path?: string;
  /** Certificate authorities in PEM, trusted beside those that Node trusts. */
  extra_ca?: readonly string[];
  /** Unused connections kept over all instances; the longest unused is closed first. */
  idle_connections_max?: number;
}

export interface WebhookTransport extends Transport {
  counts(): { pushes: number; connections: number; idle_connections: number; instances: number };
}

export const RESPONSE_EXCERPT_CHARS_MAX = 1024;
/** Of an answer's body no more than this is read. */
export const RESPONSE_BYTES_MAX = 64 * 1024;
/** Of all that comes behind the head no more than this: chunk extensions and trailers are no body, and have no end of their own. */
const RESPONSE_RAW_BYTES_MAX = 2 * RESPONSE_BYTES_MAX;

const RESPONSE_HEADER_BYTES_MAX = 16 * 1024;
/** A character takes four bytes at most. */
const EXCERPT_BYTES_MAX = RESPONSE_EXCERPT_CHARS_MAX * 4;
/** RFC 9110, section 15.2, wants any number of 1xx answers ignored; nobody honest sends this many. */
const INTERIM_ANSWERS_MAX = 100;
const DEADLINE_MS = 5000;
/** An unused connection is closed after this, unless the machine's Keep-Alive header says otherwise. */
const IDLE_MS = 10_000;
const IDLE_MS_MAX = 60_000;
/** A machine's own hint is undercut by this, lest both ends decide at the same moment. */
const IDLE_HINT_MARGIN_MS = 1000;
const IDLE_CONNECTIONS_MAX = 4096;

export function createWebhookTransport(options: WebhookTransportOptions): WebhookTransport {
  return new PooledTransport(options);
}

class PooledTransport implements WebhookTransport {
  readonly policy: EgressPolicy;
  readonly now: () => number;
  readonly deadline_ms: number;
  readonly deadlines: Deadlines;
  readonly connector: ConnectorOptions;
  readonly connections = new Set<Connection>();
  /** In the order in which they fell idle. */
  readonly idle = new IntrusiveList<Connection>();
  readonly pools = new Map<string, InstancePool>();
  readonly idle_connections_max: number;
  closed = false;

  constructor(options: WebhookTransportOptions) {
    this.policy = options.policy;
    this.now = options.now ?? monotonicNow;
    this.deadline_ms = options.deadline_ms ?? DEADLINE_MS;
    this.deadlines = new Deadlines(this.deadline_ms, this.now);
    this.idle_connections_max = options.idle_connections_max ?? IDLE_CONNECTIONS_MAX;
    const { policy, name_servers, hosts_path, extra_ca } = options;
    this.connector = {
      policy,
      resolver: createHostResolver({ ...(name_servers && { name_servers }), ...(hosts_path && { hosts_path }) }),
      secure_context: secureContextOf(extra_ca),
    };
  }

  push(push: Push): Promise<PushResult> {
    return new Promise((resolve) => new PushAttempt(this, push, resolve).start());
  }

  forget(instance_id: string): void {
    const pool = this.pools.get(instance_id);
    if (pool === undefined) return;
    this.pools.delete(instance_id);
    pool.close();
  }

  async close(): Promise<void> {
    this.closed = true;
    this.deadlines.close();
    for (const instance_id of this.pools.keys()) this.forget(instance_id);
    const sockets = [...this.connections].map(({ socket }) => socket);
    await Promise.all(sockets.map((socket) => new Promise((closed) => socket.once('close', closed).destroy())));
  }

  counts() {
    return {
      pushes: this.deadlines.size,
      connections: this.connections.size,
      idle_connections: this.idle.size,
      instances: this.pools.size,
    };
  }

  /** The instance's own connections; a new URL leaves those to the old one behind. Null when the URL is refused. */
  poolOf(instance_id: string, url: string): InstancePool | string {
    const known = this.pools.get(instance_id);
    if (known !== undefined && known.target.url === url) return known;
    const target = parseWebhookUrl(url, this.policy);
    if (isRefusal(target)) return `webhook_url ${target.message}`;
    if (known !== undefined && known.target.origin === target.origin) {
      known.target = target;
      return known;
    }
    known?.close();
    const pool = new InstancePool(this, instance_id, target);
    this.pools.set(instance_id, pool);
    return pool;
  }
}

/** The connections of one instance. It exists while there is a push or a connection, so that an idle instance costs nothing. */
class InstancePool {
  readonly transport: PooledTransport;
  readonly instance_id: string;
  target: WebhookTarget;
  /** Last in, first out: what is surplus grows old and is closed. */
  readonly idle: Connection[] = [];
  pushes = 0;
  closed = false;

  constructor(transport: PooledTransport, instance_id: string, target: WebhookTarget) {
    this.transport = transport;
    this.instance_id = instance_id;
    this.target = target;
  }

  take(): Connection | null {
    for (;;) {
      const connection = this.idle.pop();
      if (connection === undefined) return null;
      this.transport.idle.delete(connection);
      if (!connection.socket.destroyed) return connection;
    }
  }

  keep(connection: Connection): void {
    const { idle, idle_connections_max } = this.transport;
    this.idle.push(connection);
    idle.add(connection);
    if (idle.size <= idle_connections_max) return;
    const oldest = idle.first!;
    oldest.socket.destroy();
    oldest.pool?.drop(oldest);
  }

  /** Takes a closed connection off the list. */
  drop(connection: Connection): void {
    if (!this.transport.idle.delete(connection)) return;
    const index = this.idle.indexOf(connection);
    if (index !== -1) this.idle.splice(index, 1);
    this.disposeIfUnused();
  }

  close(): void {
    this.closed = true;
    for (const connection of this.idle.splice(0)) {
      this.transport.idle.delete(connection);
      connection.socket.destroy();
    }
  }

  disposeIfUnused(): void {
    if (this.pushes > 0 || this.idle.length > 0 || this.closed) return;
    this.closed = true;
    this.transport.pools.delete(this.instance_id);
  }
}

/** A connected socket and the undici client that speaks HTTP on it: one client per socket, never a second socket. */
class Connection extends ListNode {
  readonly socket: Socket;
  readonly client: Client;
  /** Null for one that serves a single push. */
  readonly pool: InstancePool | null;
  /** Pushes answered on it before the present one. */
  uses = 0;
  /** Whether a byte came since the present push was sent. */
  answered = false;
  /** Until the head of the final answer has come whole. */
  head_expected = false;
  #status_line_expected = false;
  #head_bytes = 0;
  #bytes_behind_head = 0;

  constructor(transport: PooledTransport, pool: InstancePool | null, target: WebhookTarget, socket: Socket) {
    super();
    this.socket = socket;
    this.pool = pool;
    let handed_over = false;
    this.client = new Client(target.origin, {
      connect: (_options, callback) => {
        const error = handed_over ? new Error('The connection was closed before the request was sent') : null;
        handed_over = true;
        // Not at once: undici overlooks a connector that calls back before it returns.
        queueMicrotask(() => (error ? callback(error, null) : callback(null, socket)));
      },
      allowH2: false,
      pipelining: 1,
      maxHeaderSize: RESPONSE_HEADER_BYTES_MAX,
      // Neither is a deadline: each byte that drips in starts them anew.
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
      if (this.#bytes_behind_head <= RESPONSE_RAW_BYTES_MAX) return chunk;
      socket.destroy(new errors.ResponseExceededMaxSizeError());
      return null;
    };
    socket.on('error', ignore);
    socket.once('close', () => {
      transport.connections.delete(this);
      this.pool?.drop(this);
    });
    transport.connections.add(this);
  }

  send(push: PushAttempt, options: Dispatcher.DispatchOptions): void {
    this.answered = false;
    this.head_expected = this.#status_line_expected = true;
    this.#head_bytes = this.#bytes_behind_head = 0;
    this.client.dispatch(options, push);
  }

  /**
   * Looks at the head of an answer before undici does, for two reasons. undici takes an unasked-for 100 for a breach of the
   * protocol, and a server may send one (RFC 9110, section 15.2.1): undici is shown a 102, which it ignores as it should.
   * And beyond its limit undici makes an error with a stack trace for every further header: 100,000 headers cost 72 ms
   * of this process, against 1 ms when the bytes that are too many never reach it.
   */
  #passes(chunk: Buffer): boolean {
    this.answered = true;
    let at = 0;
    while (this.#status_line_expected && isInterimAnswer(chunk, at)) {
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
    // The head may end within the limit, with the body behind it.
    return chunk.subarray(at, at + Math.max(left, 0)).includes('\r\n\r\n', 0, 'latin1');
  }
}

/** One push from the call to its result: undici's handler and the connector's observer in one object. */
class PushAttempt extends DeadlineEntry implements Dispatcher.DispatchHandler, ConnectionObserver {
  readonly #transport: PooledTransport;
  readonly #push: Push;
  readonly #resolve: (result: PushResult) => void;
  #target: WebhookTarget | null = null;
  #pool: InstancePool | null = null;
  #connect_attempt: ConnectAttempt | null = null;
  #connection: Connection | null = null;
  #settled = false;
  #sent_again = false;

  #stages: StageReport[] = [];
  #stage: Stage | null = null;
  #stage_at_ms = 0;

  #interim_answers = 0;
  #status_code: number | null = null;
  #retry_after: string | null = null;
  #body_bytes = 0;
  #excerpt: Buffer[] | null = null;

  constructor(transport: PooledTransport, push: Push, resolve: (result: PushResult) => void) {
    super();
    this.#transport = transport;
    this.#push = push;
    this.#resolve = resolve;
  }

  start(): void {
    const { instance_id, url, fresh_connection = false } = this.#push;
    const transport = this.#transport;
    transport.deadlines.add(this, transport.now());
    if (transport.closed) return this.#settle('unreachable', 'the service is stopping');
    if (fresh_connection) {
      const target = parseWebhookUrl(url, transport.policy);
      if (isRefusal(target)) return this.#settle('blocked', `webhook_url ${target.message}`);
      this.#target = target;
      return this.#connect(transport.deadline_ms);
    }
    const pool = transport.poolOf(instance_id, url);
    if (typeof pool === 'string') return this.#settle('blocked', pool);
    this.#pool = pool;
    this.#target = pool.target;
    pool.pushes += 1;
    const kept = pool.take();
    if (kept === null) return this.#connect(transport.deadline_ms);
    this.#send(kept, this.started_at_ms);
  }

  #connect(timeout_ms: number): void {
    this.#connect_attempt = new ConnectAttempt(this.#target!, this.#transport.connector, this);
    this.#connect_attempt.start(timeout_ms);
  }

  #send(connection: Connection, now_ms: number): void {
    this.#connection = connection;
    this.#stage = 'request';
    this.#stage_at_ms = now_ms;
    const { headers, body } = this.#push;
    connection.send(this, {
      path: this.#target!.path,
      method: 'POST',
      headers,
      body,
      ...(this.#pool === null && { reset: true }),
    });
  }

  // The connector's part.

  beginStage(stage: Stage): void {
    this.#stage = stage;
    this.#stage_at_ms = this.#transport.now();
  }

  endStage(ok: boolean, detail: string): void {
    if (this.#stage === null) return;
    const now_ms = this.#transport.now();
    this.#stages.push({ stage: this.#stage, ok, duration_ms: elapsed(this.#stage_at_ms, now_ms), detail });
    this.#stage = null;
  }

  onConnected(socket: Socket): void {
    this.#connect_attempt = null;
    this.#send(new Connection(this.#transport, this.#pool, this.#target!, socket), this.#transport.now());
  }

  onConnectFailed(outcome: Outcome, detail: string): void {
    this.#connect_attempt = null;
    this.#settle(outcome, detail);
  }

  // undici's part.

  /**
   * undici writes the request next. A process that was stopped for a while in between (a paused machine) gets here before
   * any timer tells it that the time is up: by now another node may have delivered in its place.
   */
  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#transport.now() - this.started_at_ms < this.#transport.deadline_ms) return;
    this.expire();
    controller.abort(new Error('the deadline passed before the request was sent'));
  }

  onRequestSent(): void {
    if (this.#settled) return;
    const { writableLength: unsent_bytes } = this.#connection!.socket;
    this.endStage(true, unsent_bytes === 0 ? '' : `${unsent_bytes} bytes are waiting for the machine to read`);
    this.beginStage('response');
  }

  onResponseStart(_controller: unknown, status_code: number, headers: Record<string, string | string[] | undefined>) {
    if (this.#settled) return;
    if (status_code < 200) return this.#onInterimAnswer(status_code);
    this.#status_code = status_code;
    this.#connection!.head_expected = false;
    const retry_after = headers['retry-after'];
    if (retry_after !== undefined) this.#retry_after = typeof retry_after === 'string' ? retry_after : retry_after[0]!;
  }

  onResponseData(_controller: unknown, chunk: Buffer): void {
    if (this.#settled) return;
    if (this.#body_bytes < EXCERPT_BYTES_MAX) {
      // A copy, because a chunk is a window on the 64 KiB that the socket read.
      const part = Buffer.from(chunk.subarray(0, EXCERPT_BYTES_MAX - this.#body_bytes));
      if (this.#excerpt === null) this.#excerpt = [part];
      else this.#excerpt.push(part);
    }
    this.#body_bytes += chunk.length;
    if (this.#body_bytes > RESPONSE_BYTES_MAX) this.#settleByStatus(false);
  }

  onResponseEnd(): void {
    this.#settleByStatus(true);
  }

  onResponseError(_controller: unknown, error: NodeJS.ErrnoException): void {
    if (this.#settled) return;
    if (this.#status_code !== null) return this.#settleByStatus(false);
    const { socket, uses, answered } = this.#connection!;
    if (uses > 0 && socket.destroyed && !answered && !this.#sent_again) return this.#sendAgain();
    if (error.code === 'UND_ERR_INVALID_ARG' || error.code === 'UND_ERR_NOT_SUPPORTED') {
      return this.#settle('unreachable', 'the request could not be made: one of its headers is not valid HTTP');
    }
    this.#settle('broken_response', describeBroken(error, answered));
  }

  /** The deadline. */
  expire(): void {
    if (this.#status_code !== null) return this.#settleByStatus(false);
    const said = this.#transport.closed ? 'before the service stopped' : `within ${this.#transport.deadline_ms} ms`;
    switch (this.#stage) {
      case 'dns':
        return this.#settle('dns_failed', `no name server answered ${said}`);
      case 'connect':
        return this.#settle('connect_timeout', `the machine did not take the connection ${said}`);
      case 'tls':
        return this.#settle('tls_failed', `the TLS handshake was not finished ${said}`);
      default: {
        const unread = (this.#connection?.socket.writableLength ?? 0) > 0;
        return this.#settle('timeout', `${unread ? 'the request was not read' : 'no status line came'} ${said}`);
      }
    }
  }

  #onInterimAnswer(status_code: number): void {
    if (status_code === 101) {
      this.#settle('broken_response', 'answered 101, a change of protocol that nobody asked for');
    } else if (++this.#interim_answers > INTERIM_ANSWERS_MAX) {
      this.#settle('broken_response', `answered with over ${INTERIM_ANSWERS_MAX} interim responses (1xx)`);
    }
  }

  /** The machine closed a kept connection just as it was used, and had not begun to answer: it never saw the push. */
  #sendAgain(): void {
    this.#sent_again = true;
    this.#connection = null;
    this.#stages = [];
    this.#stage = null;
    const { started_at_ms } = this;
    this.#connect(started_at_ms + this.#transport.deadline_ms - this.#transport.now());
  }

  /** The status line is the verdict, whatever became of the body. */
  #settleByStatus(complete: boolean): void {
    const status_code = this.#status_code!;
    const outcome = outcomeOfStatus(status_code, this.#push.success_statuses);
    this.#settle(outcome, describeStatus(status_code, outcome), complete);
  }

  #settle(outcome: Outcome, detail: string, complete = false): void {
    if (this.#settled) return;
    this.#settled = true;
    const transport = this.#transport;
    transport.deadlines.remove(this);
    this.#connect_attempt?.cancel();
    const ok = outcome === 'ok';
    this.endStage(ok, ok ? `answered ${this.#status_code}` : detail);
    this.#release(complete);
    this.#resolve({
      outcome,
      status_code: this.#status_code,
      detail,
      duration_ms: elapsed(this.started_at_ms, transport.now()),
      stages: this.#stages,
      response_excerpt: this.#excerpt === null ? '' : excerptOf(this.#excerpt, this.#push.headers, complete),
      retry_after: this.#retry_after,
    });
  }

  /** A connection is kept only after a whole answer; anything else leaves it in a state that nobody knows. */
  #release(complete: boolean): void {
    const connection = this.#connection;
    const pool = this.#pool;
    if (connection !== null) {
      connection.uses += 1;
      if (complete && pool !== null && !pool.closed && !connection.socket.destroyed) pool.keep(connection);
      else connection.socket.destroy();
    }
    if (pool === null) return;
    pool.pushes -= 1;
    pool.disposeIfUnused();
  }
}

function describeStatus(status_code: number, outcome: Outcome): string {
  if (outcome === 'ok') return '';
  if (outcome === 'not_200') return `answered ${status_code}, and only 200 counts as a success for this instance`;
  if (status_code >= 300 && status_code < 400) return `answered ${status_code}; redirects are not followed`;
  return `answered ${status_code}`;
}

function describeBroken(error: NodeJS.ErrnoException, answered: boolean): string {
  // undici 8.12 leaves the code of a parser error undefined.
  if (error instanceof errors.HTTPParserError) return 'the answer was not HTTP/1.1';
  const { code } = error;
  if (code === 'UND_ERR_HEADERS_OVERFLOW') {
    return `the headers of the answer were over ${RESPONSE_HEADER_BYTES_MAX / 1024} KiB`;
  }
  const how = code === 'ECONNRESET' || code === 'EPIPE' ? 'reset' : 'closed';
  return `the connection was ${how} ${answered ? 'in the middle of the answer' : 'without an answer'}`;
}

/** Lossy UTF-8, without our secrets. NUL is replaced too, because PostgreSQL's text and jsonb refuse it. */
function excerptOf(parts: Buffer[], headers: Record<string, string>, is_complete: boolean): string {
  const bytes = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  const text = withoutSecrets(bytes.toString('utf8'), headers, !is_complete || bytes.length === EXCERPT_BYTES_MAX);
  const cut = text.length > RESPONSE_EXCERPT_CHARS_MAX ? text.slice(0, RESPONSE_EXCERPT_CHARS_MAX) : text;
  return (cut.isWellFormed() ? cut : cut.slice(0, -1)).replaceAll('\0', '\ufffd');
}

/** "HTTP/1.1 1": the status line of a 1xx answer. */
function isInterimAnswer(chunk: Buffer, at: number): boolean {
  return chunk[at + 9] === ZERO + 1 && chunk[at + 8] === SPACE && chunk[at] === LETTER_H;
}

const SPACE = 0x20;
const ZERO = 0x30;
const LETTER_H = 0x48;

/** Rounded to a tenth of a millisecond. */
function elapsed(from_ms: number, to_ms: number): number {
  return Math.round((to_ms - from_ms) * 10) / 10;
}

function monotonicNow(): number {
  return performance.now();
}

/** One context for all connections: each would read every trusted certificate again. Throws on a malformed `extra_ca`. */
function secureContextOf(extra_ca: readonly string[] = []): () => SecureContext {
  if (extra_ca.length > 0) {
    const context = createSecureContext({ ca: [...getCACertificates(), ...extra_ca] });
    return () => context;
  }
  // Made when first needed: many services never push over TLS.
  let context: SecureContext | undefined;
  return () => (context ??= createSecureContext());
}

function ignore(): void {}
