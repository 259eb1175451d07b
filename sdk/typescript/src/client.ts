import { ConvokeError, errorFromResponse, errorFromFailure, errorFromProxy } from './error.ts';
import { listen, type EventsOptions } from './events.ts';
import { RawJson } from './raw_json.ts';
import type {
  ApiKey,
  ApiKeyWithToken,
  AuditEntry,
  Backup,
  BackupProgress,
  CreateKeyInput,
  Delivery,
  DeliveryWithAttempts,
  Demo,
  Diagnosis,
  EventsQuery,
  FeedEvent,
  Instance,
  JoinMeetingInput,
  LeaveMeetingInput,
  LeftMeeting,
  ListAuditQuery,
  ListDeliveriesQuery,
  ListInstancesQuery,
  ListMeetingInstancesQuery,
  ListMeetingsQuery,
  ListMessagesQuery,
  ListSessionsQuery,
  Meeting,
  MeetingInstance,
  Membership,
  Message,
  MessagePage,
  OpenSession,
  Page,
  PageQuery,
  RecoverInput,
  Recovered,
  Reencryption,
  RegisterInput,
  RegisteredInstance,
  RotateKeyInput,
  RotateSecretInput,
  RotatedSecret,
  SentMessage,
  ServiceNode,
  Session,
  UpdateInstanceInput,
} from './types.ts';

const TIMEOUT_MS = 10_000;
const SEND_ATTEMPTS_MAX = 4;
/** A server that asks for a longer pause gets no retry: the caller decides. */
const RETRY_WAIT_MS_MAX = 30_000;
/** The pause before the second attempt when the server names none; it doubles from there. */
const RETRY_FIRST_MS = 250;
const IDEMPOTENCY_KEY_BYTES = 16;

export interface ConvokeClientOptions {
  /** Where Convoke listens, such as `http://127.0.0.1:8080`; a path in it is kept. */
  base_url: string;
  /** Sent as a bearer token. Not needed while Convoke listens on loopback only and no key was made. */
  api_key?: string | undefined;
  /** In a browser: the `csrf_token` of a session that was begun before this page was loaded. */
  csrf_token?: string | undefined;
  /** Another implementation of fetch. */
  fetch?: typeof fetch | undefined;
  /** How long one request may take, response included; 10 s when absent. */
  timeout_ms?: number | undefined;
  /** How often sendMessage tries in all; 4 when absent, 1 for no retry. */
  send_attempts_max?: number | undefined;
  /** How the pauses between those tries are made; for tests. Must reject when the signal is aborted. */
  sleep?: ((ms: number, signal: AbortSignal | undefined) => Promise<void>) | undefined;
}

export interface CallOptions {
  /** Aborting it rejects the call with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface SendOptions extends CallOptions {
  /** Push only to these agents; empty or absent: to all agents of the meeting. */
  target_agents?: readonly string[] | undefined;
  /** Made at random when absent. Give your own to repeat a send safely across restarts of your program. */
  idempotency_key?: string | undefined;
}

interface Call extends CallOptions {
  query?: object;
  body?: object;
  /** The body as JSON text, instead of `body`. */
  text?: string;
  headers?: Record<string, string>;
}

/** The API of Convoke, one method per operation. Every method throws {@link ConvokeError}. */
export class ConvokeClient {
  readonly base_url: string;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;
  readonly #timeout_ms: number;
  readonly #send_attempts_max: number;
  readonly #sleep: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  /** Of the session that a browser's cookie stands for. */
  #csrf_token: string | null;

  /** @throws TypeError when base_url is not an http or https URL */
  constructor(options: ConvokeClientOptions) {
    this.base_url = parseBaseUrl(options.base_url);
    this.#headers = { accept: 'application/json' };
    this.#csrf_token = options.csrf_token ?? null;
    if (options.api_key !== undefined) this.#headers['authorization'] = `Bearer ${options.api_key}`;
    // Called as a plain function: as a method of this object, fetch throws "Illegal invocation" in browsers and workers.
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
    this.#timeout_ms = options.timeout_ms ?? TIMEOUT_MS;
    this.#send_attempts_max = options.send_attempts_max ?? SEND_ATTEMPTS_MAX;
    this.#sleep = options.sleep ?? sleep;
  }

  /** Creates the instance or overwrites it, and switches it on. The response has `webhook_secret`, this once. */
  register(input: RegisterInput, options?: CallOptions): Promise<RegisteredInstance> {
    return this.#call('POST', ['instances', 'register'], { ...options, body: input });
  }

  listInstances(query: ListInstancesQuery = {}, options?: CallOptions): Promise<Page<Instance>> {
    return this.#call('GET', ['instances'], { ...options, query });
  }

  getInstance(instance_id: string, options?: CallOptions): Promise<Instance> {
    return this.#call('GET', ['instances', instance_id], { ...options });
  }

  updateInstance(instance_id: string, changes: UpdateInstanceInput, options?: CallOptions): Promise<Instance> {
    return this.#call('PATCH', ['instances', instance_id], { ...options, body: changes });
  }

  /** Its pending deliveries are cancelled. */
  deleteInstance(instance_id: string, options?: CallOptions): Promise<void> {
    return this.#call('DELETE', ['instances', instance_id], { ...options });
  }

  /** Reports that the instance is alive: ends its back-off, so that its backlog is sent at once. */
  heartbeat(instance_id: string, options?: CallOptions): Promise<Instance> {
    return this.#call('POST', ['instances', instance_id, 'heartbeat'], { ...options });
  }

  /** Makes a new webhook secret; both sign until the overlap ends. */
  rotateSecret(instance_id: string, input: RotateSecretInput = {}, options?: CallOptions): Promise<RotatedSecret> {
    return this.#call('POST', ['instances', instance_id, 'rotate-secret'], { ...options, body: input });
  }

  /** Queues the deliveries of the instance that failed at or after `since` again. */
  recover(instance_id: string, input: RecoverInput, options?: CallOptions): Promise<Recovered> {
    return this.#call('POST', ['instances', instance_id, 'recover'], { ...options, body: input });
  }

  /** Fails with `instance_does_not_exist` when the instance is not registered. */
  joinMeeting(input: JoinMeetingInput, options?: CallOptions): Promise<Membership> {
    return this.#call('POST', ['instances', 'join-meeting'], { ...options, body: input });
  }

  /** Leaving what was not joined is no error: `left_at` is null then. */
  leaveMeeting(input: LeaveMeetingInput, options?: CallOptions): Promise<LeftMeeting> {
    return this.#call('POST', ['instances', 'leave-meeting'], { ...options, body: input });
  }

  /** Sends one signed sample push and returns, stage by stage, what happened. A failed push is no error. */
  testWebhook(instance_id: string, options?: CallOptions): Promise<Diagnosis> {
    return this.#call('POST', ['instances', 'webhook-test'], { ...options, body: { instance_id } });
  }

  /** The nodes that share the store, in the order in which they joined. */
  listNodes(options?: CallOptions): Promise<{ data: ServiceNode[] }> {
    return this.#call('GET', ['nodes'], { ...options });
  }

  listMeetings(query: ListMeetingsQuery = {}, options?: CallOptions): Promise<Page<Meeting>> {
    return this.#call('GET', ['meetings'], { ...options, query });
  }

  listMeetingInstances(
    meeting_id: string | number,
    query: ListMeetingInstancesQuery = {},
    options?: CallOptions,
  ): Promise<Page<MeetingInstance>> {
    return this.#call('GET', ['meetings', meeting_id, 'instances'], { ...options, query });
  }

  /**
   * Sends a message in a meeting. When it resolves, the message is stored and its pushes are queued.
   *
   * Tries again, with the same idempotency key and therefore without a second message, when Convoke cannot be reached,
   * does not respond in time, or responds 429, 502, 503 or 504; the pause is the one the server asks for.
   */
  async sendMessage(
    meeting_id: string | number,
    message: object | RawJson,
    options: SendOptions = {},
  ): Promise<SentMessage> {
    const { signal, target_agents, idempotency_key = makeIdempotencyKey() } = options;
    const path = ['meetings', meeting_id, 'messages'];
    const text = sendBody(message, target_agents);
    const headers = { 'idempotency-key': idempotency_key };
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#call<SentMessage>('POST', path, { signal, text, headers });
      } catch (error) {
        if (!(error instanceof ConvokeError)) throw error;
        error.idempotency_key = idempotency_key;
        const wait_ms = retryWait(error, attempt);
        if (wait_ms === null || attempt >= this.#send_attempts_max) throw error;
        await this.#sleep(wait_ms, signal);
      }
    }
  }

  /** The latest messages, or those after or before a `seq`; always in the order of `seq`. */
  listMessages(
    meeting_id: string | number,
    query: ListMessagesQuery = {},
    options?: CallOptions,
  ): Promise<MessagePage> {
    return this.#call('GET', ['meetings', meeting_id, 'messages'], { ...options, query });
  }

  /** Every message of a meeting after `after_seq` (0, the beginning, when absent), in order, page after page. */
  async *allMessages(
    meeting_id: string | number,
    query: { after_seq?: number | undefined; limit?: number | undefined } = {},
    options?: CallOptions,
  ): AsyncGenerator<Message, void, undefined> {
    let after_seq = query.after_seq ?? 0;
    for (;;) {
      const page = await this.listMessages(meeting_id, { ...query, after_seq }, options);
      yield* page.data;
      const last = page.data.at(-1);
      if (!page.has_more || last === undefined) return;
      after_seq = last.seq;
    }
  }

  /** Newest first. */
  listDeliveries(query: ListDeliveriesQuery = {}, options?: CallOptions): Promise<Page<Delivery>> {
    return this.#call('GET', ['deliveries'], { ...options, query });
  }

  /** One delivery with every attempt made for it. */
  getDelivery(delivery_id: string, options?: CallOptions): Promise<DeliveryWithAttempts> {
    return this.#call('GET', ['deliveries', delivery_id], { ...options });
  }

  /** Queues a failed or pending delivery at once, under the same webhook-id. */
  retryDelivery(delivery_id: string, options?: CallOptions): Promise<Delivery> {
    return this.#call('POST', ['deliveries', delivery_id, 'retry'], { ...options });
  }

  /** Changes the data key that secrets are encrypted under at rest, for some seconds; call again while `done` is false. */
  reencrypt(options?: CallOptions): Promise<Reencryption> {
    return this.#call('POST', ['encryption', 'reencrypt'], { ...options });
  }

  /** Begins a copy of all data, which has everything that was stored before. One at a time. For admins. */
  beginBackup(options?: CallOptions): Promise<Backup> {
    return this.#call('POST', ['backups'], { ...options });
  }

  /**
   * How far the copy is, or when it is whole the copy itself, once. Reading it takes as long as it takes: only `signal` ends
   * that. Fails with `backup_does_not_exist` when it was handed over, or nobody asked for it for a minute.
   */
  async fetchBackup(
    backup_id: string,
    options: CallOptions = {},
  ): Promise<BackupProgress | ReadableStream<Uint8Array<ArrayBuffer>>> {
    const url = this.#urlOf(['backups', backup_id]);
    options.signal?.throwIfAborted();
    try {
      const signal = options.signal ?? null;
      const response = await this.#fetch(url, { headers: this.#headers, redirect: 'manual', signal });
      if (response.status === 200 && response.body !== null) return response.body;
      return parseResponse<BackupProgress>(response, await response.text(), url);
    } catch (error) {
      if (error instanceof ConvokeError) throw error;
      options.signal?.throwIfAborted();
      throw errorFromFailure(error, url);
    }
  }

  /** Makes a key. The response has its `token`, this once. The first key must be one with the scope `admin`. */
  createKey(input: CreateKeyInput, options?: CallOptions): Promise<ApiKeyWithToken> {
    return this.#call('POST', ['keys'], { ...options, body: input });
  }

  /** Revoked ones included, in the order of their making. */
  listKeys(query: PageQuery = {}, options?: CallOptions): Promise<Page<ApiKey>> {
    return this.#call('GET', ['keys'], { ...options, query });
  }

  getKey(key_id: string, options?: CallOptions): Promise<ApiKey> {
    return this.#call('GET', ['keys', key_id], { ...options });
  }

  /** It is refused from the response on. Fails with `last_admin_key` when nobody could make keys without it. */
  revokeKey(key_id: string, options?: CallOptions): Promise<void> {
    return this.#call('DELETE', ['keys', key_id], { ...options });
  }

  /** Makes a new token; the old one is accepted as well until the overlap ends. */
  rotateKey(key_id: string, input: RotateKeyInput = {}, options?: CallOptions): Promise<ApiKeyWithToken> {
    return this.#call('POST', ['keys', key_id, 'rotate'], { ...options, body: input });
  }

  /** Who did what to what, from where and when; the newest entry first unless `order` is the other. For admins. */
  listAudit(query: ListAuditQuery = {}, options?: CallOptions): Promise<Page<AuditEntry>> {
    return this.#call('GET', ['audit'], { ...options, query });
  }

  /** Whether the demo runs. For admins, as are starting and stopping it. */
  demo(options?: CallOptions): Promise<Demo> {
    return this.#call('GET', ['demo'], { ...options });
  }

  /** Lets two agents within the service talk in a meeting. Fails with `demo_not_possible` where no push may reach them. */
  startDemo(options?: CallOptions): Promise<Demo> {
    return this.#call('POST', ['demo'], { ...options });
  }

  /** Stops the demo and removes its instances. */
  stopDemo(options?: CallOptions): Promise<void> {
    return this.#call('DELETE', ['demo'], { ...options });
  }

  /**
   * Who is signed in. A page of Convoke itself asks this first: when the state is `signed_out`, it asks for a key. The
   * client remembers the token that protects a session, and sends it with every request.
   */
  async session(options?: CallOptions): Promise<Session> {
    return this.#remember(await this.#call('GET', ['session'], { ...options }));
  }

  /** Exchanges a key for a session, in a browser: the cookie is kept by it, and sent by it. */
  async signIn(api_key: string, options?: CallOptions): Promise<Session> {
    const headers = { authorization: `Bearer ${api_key}` };
    return this.#remember(await this.#call('POST', ['session'], { ...options, headers }));
  }

  /** Signs in by what stands behind `#sign-in=` in a link that `convoke serve` printed. */
  async signInByLink(token: string, options?: CallOptions): Promise<Session> {
    return this.#remember(await this.#call('POST', ['session', 'link'], { ...options, body: { token } }));
  }

  /** Ends the session. */
  async signOut(options?: CallOptions): Promise<void> {
    await this.#call('DELETE', ['session'], { ...options });
    this.#csrf_token = null;
  }

  /** The sessions of all pages, the latest first; for admins. */
  listSessions(query: ListSessionsQuery = {}, options?: CallOptions): Promise<Page<OpenSession>> {
    return this.#call('GET', ['sessions'], { ...options, query });
  }

  /** Ends a session of anybody, on every node within a second; for admins. */
  endSession(session_id: string, options?: CallOptions): Promise<void> {
    return this.#call('DELETE', ['sessions', session_id], { ...options });
  }

  #remember(session: Session): Session {
    this.#csrf_token = session.csrf_token;
    return session;
  }

  /**
   * What happens, as it happens. When the connection is lost it is made again, and goes on after the last event; what
   * was missed for good is an event `gap`. It ends when `signal` is aborted, and throws when it is refused for good.
   *
   *     for await (const event of client.events({ meeting_id: 'standup' })) …
   */
  events(query: EventsQuery = {}, options: EventsOptions = {}): AsyncGenerator<FeedEvent, void, undefined> {
    const url = this.#urlOf(['events'], { ...query, last_event_id: undefined });
    const headers: Record<string, string> = { ...this.#headers, accept: 'text/event-stream' };
    if (this.#csrf_token !== null) headers['convoke-csrf'] = this.#csrf_token;
    return listen(this.#fetch, url, headers, query.last_event_id ?? null, options);
  }

  /** The metrics of this node, as Prometheus text. */
  metrics(options: CallOptions = {}): Promise<string> {
    const url = `${this.base_url}/metrics`;
    return this.#ask('GET', url, options, (response, text) => {
      if (!response.ok) throw errorFromResponse(response, text, url, Date.now());
      return text;
    });
  }

  #urlOf(path: readonly (string | number)[], query?: object): string {
    return `${this.base_url}/api/v1/${path.map(segment).join('/')}/${queryString(query)}`;
  }

  async #call<T>(method: string, path: readonly (string | number)[], call: Call): Promise<T> {
    const url = this.#urlOf(path, call.query);
    return this.#ask(method, url, call, (response, text) => parseResponse<T>(response, text, url));
  }

  /** @param read makes the result of a response, or throws */
  async #ask<T>(method: string, url: string, call: Call, read: (response: Response, text: string) => T): Promise<T> {
    call.signal?.throwIfAborted();
    const headers: Record<string, string> = { ...this.#headers, ...call.headers };
    const body = call.text ?? (call.body === undefined ? null : JSON.stringify(call.body));
    if (body !== null) headers['content-type'] = 'application/json';
    if (this.#csrf_token !== null) headers['convoke-csrf'] = this.#csrf_token;

    // AbortSignal.any would do, but is missing in Node before 20.3; this timer also ends with the call.
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), this.#timeout_ms);
    const abortByCaller = () => abort.abort();
    call.signal?.addEventListener('abort', abortByCaller, { once: true });
    try {
      const response = await this.#fetch(url, { method, headers, body, redirect: 'manual', signal: abort.signal });
      return read(response, await response.text());
    } catch (error) {
      if (error instanceof ConvokeError) throw error;
      call.signal?.throwIfAborted();
      if (abort.signal.aborted) {
        const detail = `no whole response from ${url} within ${this.#timeout_ms} ms; it may have been carried out all the same`;
        throw new ConvokeError('timeout', detail, { cause: error });
      }
      throw errorFromFailure(error, url);
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener('abort', abortByCaller);
    }
  }
}

function parseResponse<T>(response: Response, text: string, url: string): T {
  if (!response.ok) throw errorFromResponse(response, text, url, Date.now());
  if (response.status === 204) return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw errorFromProxy(response, url);
  }
}

function parseBaseUrl(base_url: string): string {
  const url = URL.canParse(base_url) ? new URL(base_url) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new TypeError(`base_url must be an http or https URL such as http://127.0.0.1:8080, not ${base_url}`);
  }
  if (url.username !== '' || url.password !== '') {
    throw new TypeError('base_url must not hold a user name or password; give the key as api_key');
  }
  return url.origin + url.pathname.replace(/\/+$/, '');
}

/**
 * An id as one segment of a path. An empty one would address the list instead, and `.` and `..` cannot be written:
 * URL parsers resolve them even when they are percent-encoded.
 */
function segment(id: string | number): string {
  const text = String(id);
  if (text === '' || text === '.' || text === '..') {
    throw new TypeError(`an id that goes into the path cannot be ${JSON.stringify(text)}`);
  }
  return encodeURIComponent(text);
}

function queryString(query: object | undefined): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined) params.append(name, String(value));
  }
  return params.size === 0 ? '' : `?${params.toString()}`;
}

function sendBody(message: object, target_agents: readonly string[] | undefined): string {
  if (typeof message !== 'object' || message === null || Array.isArray(message)) {
    throw new TypeError('a message must be an object; for JSON text use rawJson(text)');
  }
  const text = message instanceof RawJson ? message.text : JSON.stringify(message);
  // An undefined list means everybody; a null one is a mistake that the server should see.
  const targets = target_agents === undefined ? '' : `,"target_agents":${JSON.stringify(target_agents)}`;
  return `{"message":${text}${targets}}`;
}

/**
 * 502 and 504 come from a proxy that lost the node which had the request: nobody knows whether it was stored, and the key tells
 * that it is the same.
 */
const STATUSES_TO_TRY_AGAIN: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** How long to wait before a send is tried again; null when it must not be. */
function retryWait(error: ConvokeError, attempt: number): number | null {
  const { code, status, retry_after_s } = error;
  const safe = code === 'unreachable' || code === 'timeout' || (status !== null && STATUSES_TO_TRY_AGAIN.has(status));
  if (!safe) return null;
  if (retry_after_s === null) return RETRY_FIRST_MS * 2 ** (attempt - 1) * (0.5 + Math.random() / 2);
  const wait_ms = retry_after_s * 1000;
  return wait_ms <= RETRY_WAIT_MS_MAX ? wait_ms : null;
}

/** crypto.randomUUID would do, but browsers offer it only to pages that were loaded over https or from localhost. */
function makeIdempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(IDEMPOTENCY_KEY_BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      if (signal?.aborted) reject(signal.reason as Error);
      else resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });
}
