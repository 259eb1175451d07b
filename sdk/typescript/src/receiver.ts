import type { JsonObject } from './types.ts';

/** How far the clocks of Convoke and of the receiver may be apart. */
const TOLERANCE_S = 300;
/** Twice what a push can be with the server's default limit, its list of agents included. */
const BODY_BYTES_MAX = 2 * 1024 * 1024;
/** Convoke repeats an answered push for at most an hour. */
const REMEMBER_S = 3600;
const REMEMBERED_MAX = 10_000;

const SECRET_PREFIX = 'whsec_';
const SECRET_BYTES_MIN = 24;
const SECRET_BYTES_MAX = 64;

/** A push: one message, for the agents of this machine that are to hear it. */
export interface Push {
  event: 'new_message';
  meeting_id: string;
  /** What the sender gave. Numbers that JavaScript cannot hold lose digits here; `body` has them. */
  message: JsonObject;
  /** The agents of this instance to notify. */
  target_agents: string[];
  /** The `created_at` of the message; empty when it has none. */
  timestamp: string;
  /** The same on every attempt: a push whose id was seen before is a repetition. Covered by the signature. */
  webhook_id: string;
  /** From the header convoke-message-id, which the signature does not cover; null when absent. */
  message_id: string | null;
  /** The number of the message in its meeting, from convoke-seq; not covered by the signature. */
  seq: number | null;
  /** From 1, from convoke-attempt; not covered by the signature. */
  attempt: number | null;
  /** True for the sample push of a webhook test. */
  test: boolean;
  /** The JSON text that was signed, character for character. */
  body: string;
}

export type VerificationReason =
  /** The receiver's own secret is not `whsec_` and the base64 of 24 to 64 bytes. */
  | 'invalid_secret'
  /** webhook-id, webhook-timestamp or webhook-signature is absent. */
  | 'missing_header'
  | 'invalid_timestamp'
  | 'timestamp_too_old'
  | 'timestamp_too_new'
  /** Forged, changed on the way, or signed with another secret. */
  | 'no_matching_signature'
  /** Genuine, but not a push. */
  | 'invalid_body';

/** Why something is not to be trusted as a push. The messages hold no secrets. */
export class VerificationError extends Error {
  override readonly name = 'VerificationError';
  readonly reason: VerificationReason;

  constructor(reason: VerificationReason, detail: string) {
    super(`${reason}: ${detail}`);
    this.reason = reason;
  }
}

/** A `Headers`, or an object such as `request.headers` of node:http. */
export type HeadersLike = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

export interface VerifyOptions {
  /** How many seconds the timestamp may be off, both ways; 300 when absent. */
  tolerance_s?: number | undefined;
  /** The clock, in milliseconds since the epoch. */
  now?: (() => number) | undefined;
}

/**
 * Verifies and reads one push. Give the bytes of the body as they came, not JSON that was parsed and written anew.
 *
 * @param secret the instance's webhook_secret, or several of them while it is being rotated
 * @throws VerificationError (as a rejection) with a `reason`
 */
export async function verify(
  body: Uint8Array | string,
  headers: HeadersLike,
  secret: string | readonly string[],
  options: VerifyOptions = {},
): Promise<Push> {
  const bytes = bytesOf(body);
  await verifySignature(bytes, headers, secret, options);
  return readPush(bytes, headers);
}

/**
 * Verifies the signature and the timestamp alone: Standard Webhooks v1, whatever the body is.
 *
 * @throws VerificationError (as a rejection) with a `reason`
 */
export async function verifySignature(
  body: Uint8Array | string,
  headers: HeadersLike,
  secret: string | readonly string[],
  options: VerifyOptions = {},
): Promise<void> {
  await verifyWithKeys(bytesOf(body), headers, await Promise.all(decodeSecrets(secret).map(importKey)), options);
}

async function verifyWithKeys(
  body: Uint8Array,
  headers: HeadersLike,
  keys: readonly Key[],
  options: VerifyOptions,
): Promise<void> {
  const id = requiredHeader(headers, 'webhook-id');
  const timestamp = requiredHeader(headers, 'webhook-timestamp');
  const signatures = requiredHeader(headers, 'webhook-signature');
  checkTimestamp(timestamp, options);

  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const signed = new Uint8Array(head.length + body.length);
  signed.set(head);
  signed.set(body, head.length);

  // One HMAC per secret, however many signatures the header holds.
  const given = signatures.split(' ');
  let matches = false;
  for (const key of keys) {
    const expected = `v1,${base64(new Uint8Array(await crypto.subtle.sign('HMAC', key, signed)))}`;
    for (const signature of given) {
      if (equalInConstantTime(signature, expected)) matches = true;
    }
  }
  if (!matches) {
    throw new VerificationError(
      'no_matching_signature',
      'no v1 signature matches; check that the secret is the one of this instance and that the body is verified as it came',
    );
  }
}

function checkTimestamp(timestamp: string, { tolerance_s = TOLERANCE_S, now = Date.now }: VerifyOptions): void {
  if (!/^\d{1,12}$/.test(timestamp)) {
    throw new VerificationError('invalid_timestamp', 'webhook-timestamp is not a number of seconds');
  }
  const ahead_s = Number(timestamp) - Math.floor(now() / 1000);
  if (ahead_s < -tolerance_s) {
    const detail = `signed ${-ahead_s} s ago, ${tolerance_s} s are allowed; a replay, or the clock of this machine is wrong`;
    throw new VerificationError('timestamp_too_old', detail);
  }
  if (ahead_s > tolerance_s) {
    const detail = `signed ${ahead_s} s in the future, ${tolerance_s} s are allowed; check the clocks`;
    throw new VerificationError('timestamp_too_new', detail);
  }
}

/** Compares all of the text, so that the time taken does not tell how much of a forged signature was right. */
function equalInConstantTime(given: string, expected: string): boolean {
  if (given.length !== expected.length) return false;
  let difference = 0;
  for (let i = 0; i < expected.length; i++) difference |= given.charCodeAt(i) ^ expected.charCodeAt(i);
  return difference === 0;
}

type Key = Awaited<ReturnType<typeof importKey>>;

function importKey(bytes: Uint8Array<ArrayBuffer>) {
  return crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
}

function decodeSecrets(secret: string | readonly string[]): Uint8Array<ArrayBuffer>[] {
  const secrets = typeof secret === 'string' ? [secret] : secret;
  if (!Array.isArray(secrets) || secrets.length === 0) throw invalidSecret();
  return secrets.map(decodeSecret);
}

function decodeSecret(secret: unknown): Uint8Array<ArrayBuffer> {
  if (typeof secret !== 'string' || !secret.startsWith(SECRET_PREFIX)) throw invalidSecret();
  const text = secret.slice(SECRET_PREFIX.length);
  let bytes: Uint8Array<ArrayBuffer>;
  try {
    bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  } catch {
    throw invalidSecret();
  }
  const fits = bytes.length >= SECRET_BYTES_MIN && bytes.length <= SECRET_BYTES_MAX;
  // atob forgives white space and missing padding; the server does not.
  if (!fits || base64(bytes) !== text) throw invalidSecret();
  return bytes;
}

/** `whsec_` alone would be an empty key, under which anybody can sign. */
function invalidSecret(): VerificationError {
  return new VerificationError(
    'invalid_secret',
    'the secret must be whsec_ followed by the base64 of 24 to 64 bytes, as the registration answered it',
  );
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

function bytesOf(body: Uint8Array | string): Uint8Array {
  return typeof body === 'string' ? new TextEncoder().encode(body) : body;
}

function requiredHeader(headers: HeadersLike, name: string): string {
  const value = header(headers, name);
  if (value === null || value === '') throw new VerificationError('missing_header', `there is no header ${name}`);
  return value;
}

function header(headers: HeadersLike, name: string): string | null {
  if (isHeaders(headers)) return headers.get(name);
  for (const [key, value] of Object.entries(headers)) {
    if (key.toLowerCase() !== name || value === undefined) continue;
    return typeof value === 'string' ? value : value.join(', ');
  }
  return null;
}

/** By what it can do: a runtime or a library may bring a Headers class of its own. */
function isHeaders(headers: HeadersLike): headers is Headers {
  return typeof headers.get === 'function';
}

function readPush(bytes: Uint8Array, headers: HeadersLike): Push {
  let body: string;
  let value: unknown;
  try {
    body = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(body);
  } catch {
    throw new VerificationError('invalid_body', 'the body is not JSON in UTF-8');
  }
  if (!isPushBody(value)) throw new VerificationError('invalid_body', 'the body is not that of a new_message push');
  return {
    event: value.event,
    meeting_id: value.meeting_id,
    message: value.message,
    target_agents: value.target_agents,
    timestamp: value.timestamp,
    webhook_id: requiredHeader(headers, 'webhook-id'),
    message_id: header(headers, 'convoke-message-id'),
    seq: count(header(headers, 'convoke-seq')),
    attempt: count(header(headers, 'convoke-attempt')),
    test: header(headers, 'convoke-test') === 'true',
    body,
  };
}

type PushBody = Pick<Push, 'event' | 'meeting_id' | 'message' | 'target_agents' | 'timestamp'>;

function isPushBody(value: unknown): value is PushBody {
  if (typeof value !== 'object' || value === null) return false;
  const { event, meeting_id, message, target_agents, timestamp } = value as Partial<Record<keyof PushBody, unknown>>;
  return (
    event === 'new_message' &&
    typeof meeting_id === 'string' &&
    typeof message === 'object' &&
    message !== null &&
    !Array.isArray(message) &&
    Array.isArray(target_agents) &&
    target_agents.every((id) => typeof id === 'string') &&
    typeof timestamp === 'string'
  );
}

function count(value: string | null): number | null {
  return value !== null && /^\d{1,15}$/.test(value) ? Number(value) : null;
}

export interface ReceiverOptions extends VerifyOptions {
  /** The instance's webhook_secret, or several of them while it is being rotated. */
  secret: string | readonly string[];
  /**
   * Called once per push. The answer is 200 when it returns or resolves, and Convoke waits 5 s for it: put the push
   * into a queue of your own, or start the agent without waiting for its reply. While it runs, the next push of the
   * same meeting is held back; when it fails, this one comes again.
   */
  onPush: (push: Push) => unknown;
  /** Called instead of onPush for the sample push of a webhook test; nothing when absent, and the test succeeds. */
  onTest?: ((push: Push) => unknown) | undefined;
  /** Told what onPush or onTest threw; console.error when absent. */
  onError?: ((error: unknown, push: Push) => void) | undefined;
  /** A larger body is answered 413; 2 MiB when absent. */
  body_bytes_max?: number | undefined;
  /** For how long a handled push is known again; an hour when absent. */
  remember_s?: number | undefined;
  /** How many handled pushes are known again; 10,000 when absent, the longest unseen are forgotten first. */
  remembered_max?: number | undefined;
}

/**
 * Makes a webhook endpoint out of a function: a handler from Request to Response, for any server that speaks those
 * (`toNodeListener` of `@convoke/sdk/node` for node:http).
 *
 * A push may come more than once. One whose webhook-id was handled is answered 200 without calling onPush; one whose
 * first call still runs waits for it; one whose call threw is handled anew. The memory is that of this process: across
 * a restart, an agent that must not act twice has to remember the webhook_id itself.
 *
 * Answers: 200 handled, 400 genuine but no push, 401 not genuine, 405, 413, 500 when onPush threw.
 *
 * @throws VerificationError with reason `invalid_secret`, at once
 */
export function createReceiver(options: ReceiverOptions): (request: Request) => Promise<Response> {
  const { onPush, onTest = () => {}, onError = (error) => console.error(error), now = Date.now } = options;
  const { body_bytes_max = BODY_BYTES_MAX, remember_s = REMEMBER_S, remembered_max = REMEMBERED_MAX } = options;
  const keys = Promise.all(decodeSecrets(options.secret).map(importKey));
  // A failed import is met by the first request; without this, it would end the process before.
  keys.catch(() => {});
  const handled = new Remembered(remember_s * 1000, remembered_max, now);
  const running = new Map<string, Promise<void>>();

  async function handle(push: Push): Promise<void> {
    await (push.test ? onTest(push) : onPush(push));
    handled.add(push.webhook_id);
  }

  function handleOnce(push: Push): Promise<void> {
    if (handled.has(push.webhook_id)) return Promise.resolve();
    let call = running.get(push.webhook_id);
    if (call === undefined) {
      call = handle(push).finally(() => running.delete(push.webhook_id));
      running.set(push.webhook_id, call);
      call.catch((error: unknown) => onError(error, push));
    }
    return call;
  }

  return async (request) => {
    if (request.method !== 'POST') return answer(405, 'pushes are sent with POST', { allow: 'POST' });
    const body = await readBody(request, body_bytes_max);
    if (body === 'too_large') return answer(413, `a push may have at most ${body_bytes_max} bytes here`);
    if (body === 'cut_off') return answer(400, 'the body was cut off');
    let push: Push;
    try {
      await verifyWithKeys(body, request.headers, await keys, options);
      push = readPush(body, request.headers);
    } catch (error) {
      if (!(error instanceof VerificationError)) throw error;
      return answer(error.reason === 'invalid_body' ? 400 : 401, error.message);
    }
    try {
      await handleOnce(push);
    } catch {
      return answer(500, 'the receiver failed; its log says why');
    }
    return answer(200, 'ok');
  };
}

function answer(status: number, text: string, headers: Record<string, string> = {}): Response {
  return new Response(`${text}\n`, { status, headers: { 'content-type': 'text/plain; charset=utf-8', ...headers } });
}

/** Stops reading as soon as the limit is passed. */
async function readBody(request: Request, bytes_max: number): Promise<Uint8Array | 'too_large' | 'cut_off'> {
  if (Number(request.headers.get('content-length')) > bytes_max) return 'too_large';
  if (request.body === null) return new Uint8Array();
  const reader = request.body.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      length += value.length;
      if (length > bytes_max) {
        await reader.cancel();
        return 'too_large';
      }
      chunks.push(value);
    }
  } catch {
    return 'cut_off';
  }
  const body = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.length;
  }
  return body;
}

/** Ids with the time they were last met, the longest unseen first: that is the order in which a Map keeps what is set. */
class Remembered {
  readonly #met_at_ms = new Map<string, number>();
  readonly #for_ms: number;
  readonly #size_max: number;
  readonly #now: () => number;

  constructor(for_ms: number, size_max: number, now: () => number) {
    this.#for_ms = for_ms;
    this.#size_max = size_max;
    this.#now = now;
  }

  add(id: string): void {
    this.#met_at_ms.delete(id);
    this.#met_at_ms.set(id, this.#now());
    for (const [oldest, met_at_ms] of this.#met_at_ms) {
      if (this.#met_at_ms.size <= this.#size_max && !this.#isOver(met_at_ms)) break;
      this.#met_at_ms.delete(oldest);
    }
  }

  has(id: string): boolean {
    const met_at_ms = this.#met_at_ms.get(id);
    if (met_at_ms === undefined || this.#isOver(met_at_ms)) return false;
    this.add(id);
    return true;
  }

  #isOver(met_at_ms: number): boolean {
    return this.#now() - met_at_ms > this.#for_ms;
  }
}
