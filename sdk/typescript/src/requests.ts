import { ConvokeError, errorFromResponse, errorFromFailure, errorFromProxy } from './error.ts';
import { assertNumberOption } from './number_option.ts';
import { pause, TIMER_MS_MAX } from './pause.ts';

/** The service responds to long changes part by part, each part within this time. */
export const TIMEOUT_MS = 10_000;

export interface RequestsOptions {
  /** The URL of Convoke, such as `http://127.0.0.1:8080`; a path in it is kept. */
  base_url: string;
  /**
   * Sent as a bearer token. Not needed while Convoke listens on loopback only and no key was made; an empty text is no
   * key.
   */
  api_key?: string | undefined;
  /** In a browser: the `csrf_token` of a session that began before this page was loaded. */
  csrf_token?: string | undefined;
  /** Another implementation of fetch. */
  fetch?: typeof fetch | undefined;
  /** How long one request may take, response included; 10 s when absent. */
  timeout_ms?: number | undefined;
  /**
   * How often sendMessage tries, the first try included; 4 when absent, 1 for no retry. Every other call tries as often
   * when the service is overloaded and says when to try again.
   */
  send_attempts_max?: number | undefined;
  /** Makes the pauses between the tries; tests replace it. Must reject when the signal is aborted. */
  sleep?: ((ms: number, signal: AbortSignal | undefined) => Promise<void>) | undefined;
}

export const SEND_ATTEMPTS_MAX = 4;
/** When a server asks for a longer pause, the SDK does not retry: the caller decides. */
export const RETRY_WAIT_MS_MAX = 30_000;

export interface CallOptions {
  /** Aborting it rejects the call with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** The segments of a path after `/api/v1/`. */
export type Path = readonly (string | number)[];

interface Call extends CallOptions {
  query?: object;
  body?: object;
  /** The body as JSON text, instead of `body`. */
  text?: string;
  headers?: Record<string, string>;
  /** Replaces the timeout of the client for this request. */
  timeout_ms?: number;
  /**
   * Called when the head of the response has arrived. Returns how long the body may take; without it, the timeout is for
   * the whole response.
   */
  onHead?: () => number;
  /** How often the request is tried while the service is overloaded; 1 for a caller that tries again by itself. */
  attempts_max?: number;
}

/**
 * Makes requests to the API: builds the address, adds the credentials, keeps the deadline, and turns failures into
 * errors.
 */
export class Requests {
  readonly base_url: string;
  /** Call it as a plain function: as a method, fetch throws "Illegal invocation" in browsers and workers. */
  readonly fetch: typeof fetch;
  /** The CSRF token of the session whose cookie the browser sends. */
  csrf_token: string | null;
  readonly #headers: Record<string, string>;
  readonly #timeout_ms: number;
  readonly #attempts_max: number;
  readonly #sleep: NonNullable<RequestsOptions['sleep']>;

  /**
   * @throws TypeError when base_url is not an http or https URL, a number option is no number, or api_key cannot be in a
   *   header
   * @throws RangeError when a number option is NaN or too small
   */
  constructor(options: RequestsOptions) {
    this.base_url = parseBaseUrl(options.base_url);
    this.#headers = { accept: 'application/json' };
    this.csrf_token = options.csrf_token ?? null;
    // A key that was read from a file may end with a line break.
    const api_key = options.api_key?.trim();
    if (api_key) this.#headers['authorization'] = bearer(api_key);
    this.fetch = options.fetch ?? ((input, init) => fetch(input, init));
    this.#timeout_ms = options.timeout_ms ?? TIMEOUT_MS;
    this.#attempts_max = options.send_attempts_max ?? SEND_ATTEMPTS_MAX;
    assertNumberOption('timeout_ms', this.#timeout_ms, 1);
    assertNumberOption('send_attempts_max', this.#attempts_max, 1);
    this.#sleep = options.sleep ?? pause;
  }

  urlOf(path: Path, query?: object): string {
    return `${this.base_url}/api/v1/${path.map(segment).join('/')}/${queryString(query)}`;
  }

  /**
   * The headers of a request: `accept`, and the credentials.
   *
   * @throws TypeError when a value cannot be in a header
   */
  headersWith(more: Record<string, string> = {}): Record<string, string> {
    for (const [name, value] of Object.entries(more)) assertHeader(name, value);
    const headers = { ...this.#headers, ...more };
    if (this.csrf_token !== null) headers['convoke-csrf'] = this.csrf_token;
    return headers;
  }

  /**
   * @param expected see `Expected`
   */
  async call<T>(method: string, path: Path, call: Call, expected: Expected<T>): Promise<T> {
    const url = this.urlOf(path, call.query);
    const parse = parserOf(expected);
    const attempts_max = call.attempts_max ?? this.#attempts_max;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.ask(method, url, call, (response, text) => parseResponse<T>(response, text, url, parse));
      } catch (error) {
        const wait_ms = overloadedWait(error);
        if (wait_ms === null || attempt >= attempts_max) throw error;
        await this.#sleep(wait_ms, call.signal);
      }
    }
  }

  /** @param read turns the response into the result, or throws */
  async ask<T>(method: string, url: string, call: Call, read: (response: Response, text: string) => T): Promise<T> {
    call.signal?.throwIfAborted();
    const headers = this.headersWith(call.headers);
    const body = call.text ?? (call.body === undefined ? null : JSON.stringify(call.body));
    if (body !== null) headers['content-type'] = 'application/json';

    let timeout_ms = call.timeout_ms ?? this.#timeout_ms;

    // AbortSignal.any would do the same, but is missing in Node before 20.3; this timer also ends with the call.
    const abort = new AbortController();
    const abortAfter = (ms: number) => setTimeout(() => abort.abort(), Math.min(ms, TIMER_MS_MAX));
    let timer = abortAfter(timeout_ms);
    const abortByCaller = () => abort.abort();
    call.signal?.addEventListener('abort', abortByCaller, { once: true });
    try {
      const response = await this.fetch(url, { method, headers, body, redirect: 'manual', signal: abort.signal });
      if (call.onHead !== undefined) {
        clearTimeout(timer);
        timeout_ms = call.onHead();
        timer = abortAfter(timeout_ms);
      }
      return read(response, await response.text());
    } catch (error) {
      if (error instanceof ConvokeError) throw error;
      call.signal?.throwIfAborted();
      if (abort.signal.aborted) {
        throw timeoutError(url, timeout_ms, error);
      }
      throw errorFromFailure(error, url);
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener('abort', abortByCaller);
    }
  }

  /**
   * The body of a 200 with this media type as a stream, or the value of another success. The timeout ends when the
   * stream begins: then only `signal` ends it.
   */
  async stream<T>(
    path: Path,
    type: string,
    { signal }: CallOptions,
    expected: Expected<T>,
  ): Promise<T | ReadableStream<Uint8Array<ArrayBuffer>>> {
    const url = this.urlOf(path);
    signal?.throwIfAborted();
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), Math.min(this.#timeout_ms, TIMER_MS_MAX));
    const abortByCaller = () => abort.abort(signal?.reason);
    signal?.addEventListener('abort', abortByCaller, { once: true });
    let has_begun = false;
    try {
      const headers = this.headersWith();
      const response = await this.fetch(url, { headers, redirect: 'manual', signal: abort.signal });
      has_begun = response.status === 200 && response.headers.get('content-type') === type && response.body !== null;
      if (has_begun) return response.body as ReadableStream<Uint8Array<ArrayBuffer>>;
      return parseResponse(response, await response.text(), url, parserOf(expected));
    } catch (error) {
      if (error instanceof ConvokeError) throw error;
      signal?.throwIfAborted();
      if (abort.signal.aborted) throw timeoutError(url, this.#timeout_ms, error);
      throw errorFromFailure(error, url);
    } finally {
      clearTimeout(timer);
      if (!has_begun) signal?.removeEventListener('abort', abortByCaller);
    }
  }
}

function timeoutError(url: string, timeout_ms: number, cause: unknown): ConvokeError {
  const detail = `no whole response from ${url} within ${timeout_ms} ms; it may have been carried out all the same`;
  return new ConvokeError('timeout', detail, { cause });
}

/**
 * How long to wait before a request to an overloaded service is repeated; null for no retry. The service has not
 * carried the request out.
 */
function overloadedWait(error: unknown): number | null {
  if (!(error instanceof ConvokeError) || error.code !== 'overloaded' || error.retry_after_s === null) return null;
  const wait_ms = error.retry_after_s * 1000;
  return wait_ms <= RETRY_WAIT_MS_MAX ? wait_ms : null;
}

/**
 * How to read the body of a success, and how to recognize that it is from Convoke:
 *
 * - The name of a field: every body of this call has the field.
 * - A function: it returns the result, or throws when the body is not from Convoke.
 * - Null: a success of this call has no body.
 *
 * A proxy or another service may respond with 200 and JSON of its own. Without this check, a message would count as
 * sent although nobody stored it.
 */
type Expected<T> = (keyof NoInfer<T> & string) | ((text: string) => T) | null;

function parserOf<T>(expected: Expected<T>): (text: string) => T {
  if (typeof expected === 'function') return expected;
  return (text) => {
    if (expected === null) {
      if (text !== '') throw new SyntaxError('there is a body');
      return undefined as T;
    }
    const value = JSON.parse(text) as Record<string, unknown> | null;
    // A text has members too, such as `link`.
    const field = typeof value === 'object' ? value?.[expected] : undefined;
    if (field === undefined || (expected === 'data' && !Array.isArray(field))) throw new SyntaxError('not of Convoke');
    return value as T;
  };
}

function parseResponse<T>(response: Response, text: string, url: string, parse: (text: string) => T): T {
  if (!response.ok) throw errorFromResponse(response, text, url);
  try {
    return parse(text);
  } catch {
    throw errorFromProxy(response, url);
  }
}

/** @throws TypeError when the key cannot be in a header */
export function bearer(api_key: string): string {
  assertHeader('api_key', api_key);
  return `Bearer ${api_key}`;
}

/**
 * Refuses a value that cannot be in a header. fetch would report such a value like a connection that failed, so the
 * request would be made again and again. The error of fetch also shows the value, which may be a credential.
 *
 * @throws TypeError when the value cannot be in a header
 */
export function assertHeader(name: string, value: string): void {
  if (/^([!-~]([\t -~]*[!-~])?)?$/.test(value)) return;
  throw new TypeError(`${name} must be printable ASCII, with no space or line break at its ends`);
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
 * An id as one segment of a path. An empty id would address the list instead, and `.` and `..` cannot be written: URL
 * parsers resolve them even when they are percent-encoded. In plain JavaScript an id may be missing: then a message would
 * be sent in the meeting `undefined`.
 */
function segment(id: string | number): string {
  const is_id = typeof id === 'string' ? !/^\.{0,2}$|\p{Surrogate}/u.test(id) : Number.isSafeInteger(id);
  if (!is_id) {
    const what = typeof id === 'string' ? JSON.stringify(id) : String(id);
    throw new TypeError(`an id that goes into the path cannot be ${what}`);
  }
  return encodeURIComponent(id);
}

function queryString(query: object | undefined): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const each of [value].flat()) if (each !== undefined) params.append(name, String(each));
  }
  return params.size === 0 ? '' : `?${params.toString()}`;
}
