import { refusedPort } from './refused_ports.ts';
import type { FieldError, ProblemDetails } from './types.ts';

/**
 * Any failure between a client and Convoke. Branch on `code`; `message` is for people.
 *
 * The server's codes are kept as they are (`instance_does_not_exist`, `invalid_fields`, …). Four codes are the client's
 * own: `unreachable` (no connection, or it broke), `timeout` (no whole response in time), `unexpected_response`
 * (something responded that is not Convoke) and `port_refused` (fetch refuses the port of base_url, such as 6000). After
 * `unreachable` and `timeout` the request may or may not have been carried out.
 */
export class ConvokeError extends Error {
  override readonly name = 'ConvokeError';
  /** The HTTP status; null when there was no response. */
  readonly status: number | null;
  readonly code: string;
  /** The meaning of the code, in the words of the service; null for a code of the client's own. */
  readonly title: string | null;
  /** What went wrong and what to do, without the code and its title. */
  readonly detail: string;
  /** The fields that the failure is about, such as those that are not valid; empty when it is about none. */
  readonly errors: readonly FieldError[];
  /** How long the server asks to wait; null when it does not ask. */
  readonly retry_after_s: number | null;
  /**
   * The key with which a message was sent. When the same message is sent again with this key, the message is stored at
   * most once.
   */
  idempotency_key: string | null = null;

  constructor(
    code: string,
    detail: string,
    extra: {
      title?: string | null;
      status?: number;
      errors?: readonly FieldError[];
      retry_after_s?: number | null;
      cause?: unknown;
    } = {},
  ) {
    const errors = extra.errors ?? [];
    const where = extra.status === undefined ? code : `${code} (${extra.status})`;
    const title = typeof extra.title === 'string' ? extra.title : null;
    const what = title === null ? '' : `${title}. `;
    super(`${where}: ${what}${[detail, ...unmentioned(errors, detail)].join('; ')}`, { cause: extra.cause });
    this.code = code;
    this.title = title;
    this.detail = detail;
    this.status = extra.status ?? null;
    this.errors = errors;
    this.retry_after_s = extra.retry_after_s ?? null;
  }
}

/** Whether the failure may pass by itself. A wrong key, for example, stays wrong. */
export function isPassing({ code, status }: ConvokeError): boolean {
  if (status === null) return code === 'unreachable' || code === 'timeout';
  return status === 408 || status === 429 || status >= 500;
}

/**
 * Whether an agent waits until the failure is over. A response that is not from Convoke passes too: a network that the
 * machine has just joined responds with a page of its own, and so does a proxy while the service is replaced.
 */
export function isWaitedOut(error: ConvokeError): boolean {
  return isPassing(error) || error.code === 'unexpected_response';
}

/** The errors of fields that the detail does not contain. When only one field is invalid, the detail already names it. */
function unmentioned(errors: readonly FieldError[], detail: string): string[] {
  return errors.map(({ path, message }) => `${path} ${message}`).filter((text) => !detail.includes(text));
}

/** Makes the error for a response whose status is not a success. */
export function errorFromResponse(response: Response, text: string, url: string): ConvokeError {
  const { status } = response;
  const retry_after_s = parseRetryAfter(response.headers.get('retry-after'), sentAt(response));
  const problem = parseProblem(text);
  if (problem !== null) {
    const { code, title, detail, errors = [] } = problem;
    return new ConvokeError(code, detail, { title, status, errors, retry_after_s });
  }
  return new ConvokeError('unexpected_response', describeProxyResponse(response, url), { status, retry_after_s });
}

/** Makes the error for a response whose status is a success and whose body is not the expected JSON. */
export function errorFromProxy(response: Response, url: string): ConvokeError {
  return new ConvokeError('unexpected_response', describeProxyResponse(response, url), { status: response.status });
}

function describeProxyResponse(response: Response, url: string): string {
  const location = response.headers.get('location');
  // A browser does not say where a redirect leads to.
  if (location !== null || response.type === 'opaqueredirect') {
    return `${url} redirects to ${location ?? 'another address'}; redirects are not followed, so give base_url as the address it leads to`;
  }
  const type = response.headers.get('content-type') ?? 'no content type';
  return (
    `${url} responded ${response.status} with ${type}, which is no response of Convoke; ` +
    'check base_url, and any proxy in between'
  );
}

function parseProblem(text: string): ProblemDetails | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const { code, detail, errors } = value as Partial<ProblemDetails>;
  if (typeof code !== 'string' || typeof detail !== 'string') return null;
  return { ...(value as ProblemDetails), errors: Array.isArray(errors) ? errors.filter(isFieldError) : [] };
}

/** Another service may respond with errors of another shape. */
function isFieldError(value: unknown): value is FieldError {
  const { path, message } = (value ?? {}) as Partial<FieldError>;
  return typeof path === 'string' && typeof message === 'string';
}

/** Seconds or an HTTP date (RFC 9110, section 10.2.3); anything else counts as absent. */
function parseRetryAfter(value: string | null, now_ms: number): number | null {
  if (value === null) return null;
  if (/^\d{1,9}$/.test(value.trim())) return Number(value);
  const at_ms = Date.parse(value);
  // A parser of dates takes many other texts for dates.
  if (!/^(mon|tue|wed|thu|fri|sat|sun)/i.test(value) || Number.isNaN(at_ms)) return null;
  return Math.max(0, Math.ceil((at_ms - now_ms) / 1000));
}

/**
 * When a response was sent, on the clock of its sender, because the clock of this machine may be wrong. The header has
 * whole seconds. Where a proxy removes it, the clock of this machine takes its place.
 */
export function sentAt(response: Response): number {
  const date_ms = Date.parse(response.headers.get('date') ?? '');
  return Number.isNaN(date_ms) ? Date.now() : date_ms;
}

const CAUSES: Record<string, string> = {
  ECONNREFUSED: 'nothing listens there; is Convoke running (`convoke serve`), and is this its port?',
  ENOTFOUND: 'the host name is not known; check base_url for a typing error',
  EAI_AGAIN: 'the host name could not be looked up; check the network of this machine',
  ECONNRESET: 'the connection was cut; if this goes on, look at the log of Convoke and of any proxy in between',
  UND_ERR_SOCKET: 'the connection was cut; if this goes on, look at the log of Convoke and of any proxy in between',
  ETIMEDOUT: 'the machine does not respond; check the address and any firewall in between',
  EHOSTUNREACH: 'there is no way to the machine; check the address and the network',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS there; use http:// in base_url, or the port that speaks TLS',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is self-signed; trust it with NODE_EXTRA_CA_CERTS',
  CERT_HAS_EXPIRED: 'its certificate has expired',
};

/** Makes the error for a fetch that failed before a whole response arrived. */
export function errorFromFailure(error: unknown, url: string): ConvokeError {
  const code = codeOf(error);
  // When fetch refuses a port, its error has no code. Some runtimes, such as Bun, refuse no port. There a request to
  // such a port fails for another reason, and its error has a code.
  const port = code === null ? refusedPort(url) : null;
  if (port !== null) {
    const why = `port ${port} belongs to another protocol, and fetch refuses it; let Convoke listen on another port`;
    return new ConvokeError('port_refused', `cannot ask ${url}: ${why}`, { cause: error });
  }
  const known = code === null ? undefined : CAUSES[code];
  const why = known === undefined ? innermostText(error) : `${known} (${code})`;
  return new ConvokeError('unreachable', `cannot reach ${url}: ${why}`, { cause: error });
}

/** Runtimes put the code of a failed connection at different depths; Node puts it into `cause`. */
function codeOf(error: unknown): string | null {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if ('code' in at && typeof at.code === 'string') return at.code;
  }
  return null;
}

function innermostText(error: unknown): string {
  let text = String(error);
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if (at.message !== '') text = at.message;
  }
  return text;
}
