import { assertNumberOption } from './number_option.ts';
import type { JsonObject } from './types.ts';

/** How far the clock of the receiver may differ from that of Convoke. */
const TOLERANCE_S = 300;
const SECRET_PREFIX = 'whsec_';
const SECRET_BYTES_MIN = 24;
const SECRET_BYTES_MAX = 64;

/** A push: one message, for those agents of this instance that should get it. */
export interface Push {
  event: 'new_message';
  meeting_id: string;
  /** The message of the sender. Numbers that JavaScript cannot hold lose digits here; `body` has all digits. */
  message: JsonObject;
  /** The agents of this instance to notify. */
  target_agents: string[];
  /** The `created_at` of the message; empty when it has none. */
  timestamp: string;
  /** The same on every attempt: a push whose id was seen before is a repetition. The signature covers it. */
  webhook_id: string;
  /** From the header convoke-message-id, which the signature does not cover; null when absent. */
  message_id: string | null;
  /** The number of the message in its meeting, from convoke-seq; not covered by the signature. */
  seq: number | null;
  /** Starts at 1; from convoke-attempt; not covered by the signature. */
  attempt: number | null;
  /**
   * The agent that sent the message, from convoke-from-agent; null: the sender named none. Not covered by the
   * signature.
   */
  from_agent: string | null;
  /**
   * The message_id of the message that this one answers, from convoke-in-reply-to; null: the sender named none. Not
   * covered by the signature.
   */
  in_reply_to: string | null;
  /**
   * How many messages of agents in a row led to the message, from convoke-hops; null when absent. Not covered by the
   * signature.
   */
  hops: number | null;
  /**
   * How many messages before this one were for these agents and are not pushed, up to 1,000; 0 for a membership without
   * rules. `client.listMessages` has them. From convoke-missed; not covered by the signature.
   */
  missed: number;
  /**
   * With this URL and this token the instance can reply later, for a day: `client.sendReply(push.reply_token, …)`, or a
   * POST to the address. Null unless the instance may reply. Not covered by the signature.
   */
  reply_url: string | null;
  reply_token: string | null;
  /**
   * The trace that the message belongs to, so that your program can continue it; null: none. Not covered by the
   * signature.
   */
  traceparent: string | null;
  tracestate: string | null;
  /** True for the sample push of a webhook test. The webhook-id shows it, and the signature covers that id. */
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

/** Why a request cannot be trusted as a push. The text of this error contains no secret. */
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
  /** How many seconds the timestamp may differ from the clock, in either direction; 300 when absent. */
  tolerance_s?: number | undefined;
  /** The clock, in milliseconds since the epoch. */
  now?: (() => number) | undefined;
}

/**
 * Verifies and reads one push. Give the bytes of the body as they arrived, not JSON that was parsed and written again.
 *
 * @param secret the instance's webhook_secret, or several of them while it is being rotated
 * @throws VerificationError (as a rejection) with a `reason`
 * @throws RangeError (as a rejection) when tolerance_s is NaN or negative, TypeError when it is no number, or
 *   when the body was parsed already
 */
export async function verify(
  body: Uint8Array | ArrayBuffer | string,
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
 * @throws RangeError (as a rejection) when tolerance_s is NaN or negative, TypeError when it is no number, or
 *   when the body was parsed already
 */
export async function verifySignature(
  body: Uint8Array | ArrayBuffer | string,
  headers: HeadersLike,
  secret: string | readonly string[],
  options: VerifyOptions = {},
): Promise<void> {
  assertTolerance(options);
  await verifyWithKeys(bytesOf(body), headers, await Promise.all(decodeSecrets(secret).map(importKey)), options);
}

/** @throws TypeError, RangeError */
export function assertTolerance({ tolerance_s }: VerifyOptions): void {
  assertNumberOption('tolerance_s', tolerance_s, 0);
}

/** As {@link verifySignature}, with keys that were imported, and options that were checked before. */
export async function verifyWithKeys(
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

  // One HMAC for each secret, however many signatures the header has.
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
      'no v1 signature matches; check that the secret is the one of this instance and that the body is verified as it arrived',
    );
  }
}

function checkTimestamp(timestamp: string, { tolerance_s = TOLERANCE_S, now = Date.now }: VerifyOptions): void {
  if (!/^\d{1,12}$/.test(timestamp)) {
    throw new VerificationError('invalid_timestamp', 'webhook-timestamp is not a number of seconds');
  }
  const ahead_s = Number(timestamp) - Math.floor(now() / 1000);
  // In this direction the comparison refuses a time when the clock says NaN.
  if (Math.abs(ahead_s) <= tolerance_s) return;
  if (ahead_s > 0) {
    const detail = `signed ${ahead_s} s in the future, ${tolerance_s} s are allowed; check the clocks`;
    throw new VerificationError('timestamp_too_new', detail);
  }
  const detail = `signed ${-ahead_s} s ago, ${tolerance_s} s are allowed; a replay, or the clock of this machine is wrong`;
  throw new VerificationError('timestamp_too_old', detail);
}

/** Compares the whole text, so that the time does not show how much of a forged signature was right. */
function equalInConstantTime(given: string, expected: string): boolean {
  if (given.length !== expected.length) return false;
  let difference = 0;
  for (let i = 0; i < expected.length; i++) difference |= given.charCodeAt(i) ^ expected.charCodeAt(i);
  return difference === 0;
}

type Key = Awaited<ReturnType<typeof importKey>>;

/** Makes the bytes of a secret ready for verifying; once per secret is enough. */
export function importKey(bytes: Uint8Array<ArrayBuffer>) {
  return crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
}

/** @throws VerificationError with reason `invalid_secret` */
export function decodeSecrets(secret: string | readonly string[]): Uint8Array<ArrayBuffer>[] {
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
  // atob accepts white space and missing padding; the server does not.
  if (!fits || base64(bytes) !== text) throw invalidSecret();
  return bytes;
}

/** The error for a secret that cannot be used. `whsec_` alone would be an empty key, with which anybody can sign. */
function invalidSecret(): VerificationError {
  return new VerificationError(
    'invalid_secret',
    'the secret must be whsec_ followed by the base64 of 24 to 64 bytes, as the registration returned it',
  );
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

/** @throws TypeError for a body that was parsed already */
function bytesOf(body: Uint8Array | ArrayBuffer | string): Uint8Array {
  if (typeof body === 'string') return new TextEncoder().encode(body);
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  throw new TypeError('the body must be its bytes or its text, as it arrived, before any parser');
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

/** Looks at the methods, because a runtime or a library may have a Headers class of its own. */
function isHeaders(headers: HeadersLike): headers is Headers {
  return typeof headers.get === 'function';
}

/**
 * The webhook-id of a webhook test begins with this text; the id of a delivery has no hyphen there. The signature
 * covers the id. It does not cover the header convoke-test: anybody between sender and receiver could add that header
 * to a real push, and then the push would wake no agent.
 */
const TEST_ID_PREFIX = 'dlv_test-';

/** Reads a push whose signature was verified. */
export function readPush(bytes: Uint8Array, headers: HeadersLike): Push {
  let body: string;
  let value: unknown;
  try {
    body = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(body);
  } catch {
    throw new VerificationError('invalid_body', 'the body is not JSON in UTF-8');
  }
  if (!isPushBody(value)) throw new VerificationError('invalid_body', 'the body is not that of a new_message push');
  const webhook_id = requiredHeader(headers, 'webhook-id');
  return {
    event: value.event,
    meeting_id: value.meeting_id,
    message: value.message,
    target_agents: value.target_agents,
    timestamp: value.timestamp,
    webhook_id,
    message_id: header(headers, 'convoke-message-id'),
    seq: count(header(headers, 'convoke-seq')),
    attempt: count(header(headers, 'convoke-attempt')),
    from_agent: decoded(header(headers, 'convoke-from-agent')),
    in_reply_to: header(headers, 'convoke-in-reply-to'),
    hops: count(header(headers, 'convoke-hops')),
    missed: count(header(headers, 'convoke-missed')) ?? 0,
    reply_url: header(headers, 'convoke-reply-url'),
    reply_token: header(headers, 'convoke-reply-token'),
    traceparent: header(headers, 'traceparent'),
    tracestate: header(headers, 'tracestate'),
    test: webhook_id.startsWith(TEST_ID_PREFIX),
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

function decoded(value: string | null): string | null {
  try {
    return value === null ? null : decodeURIComponent(value);
  } catch {
    return null;
  }
}
