import { pushBody } from '../../domain/push_body.ts';
import type { MessageOrigin } from '../../domain/message_origin.ts';
import { signPush } from '../../domain/signature.ts';
import { type TraceContext, traceHeaders } from '../../domain/trace_context.ts';
import { signingKeysOf, type Target } from './target.ts';
import type { Push } from './transport.ts';

/** The headers that an instance needs to reply later: see delivery/replies/reply_access.ts. */
export const REPLY_URL_HEADER = 'convoke-reply-url';
export const REPLY_TOKEN_HEADER = 'convoke-reply-token';

/** Headers that Convoke sets, or that HTTP itself needs: webhook_headers may not name them. */
export const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  'content-type',
  'content-length',
  'content-encoding',
  'transfer-encoding',
  'connection',
  'keep-alive',
  'upgrade',
  'expect',
  'te',
  'trailer',
  'host',
  'user-agent',
  'webhook-id',
  'webhook-timestamp',
  'webhook-signature',
  'idempotency-key',
  'convoke-message-id',
  'convoke-seq',
  'convoke-attempt',
  'convoke-from-agent',
  'convoke-in-reply-to',
  'convoke-hops',
  'convoke-missed',
  'convoke-test',
  'traceparent',
  'tracestate',
  REPLY_URL_HEADER,
  REPLY_TOKEN_HEADER,
]);

/**
 * Values that are shorter than this are not hidden. They are hardly secrets, and responses without them would be hard
 * to read.
 */
const SECRET_CHARS_MIN = 8;
/**
 * A cut text may end with the beginning of a secret. A beginning that is shorter than this is not hidden, because it
 * reveals nothing.
 */
const PART_CHARS_MIN = 4;
const HIDDEN = '[hidden]';

/**
 * The text of a response without the values of webhook_headers and without the token for replies. Error pages often
 * show the request, and Convoke stores and shows the response. Hides each value as it was sent, and also the last word
 * of each value alone, such as a bearer token.
 *
 * @param headers the headers of the push
 * @param is_cut whether the text was cut, so that it may end with the beginning of a value
 */
export function withoutSecrets(text: string, headers: Record<string, string>, is_cut: boolean): string {
  // Most responses are too short to contain a secret.
  if (text.length < (is_cut ? PART_CHARS_MIN : SECRET_CHARS_MIN)) return text;
  let hidden = text;
  for (const [name, value] of Object.entries(headers)) {
    if (RESERVED_HEADERS.has(name) && name !== REPLY_TOKEN_HEADER) continue;
    for (const secret of new Set([value, value.slice(value.lastIndexOf(' ') + 1)])) {
      if (secret.length < SECRET_CHARS_MIN) continue;
      hidden = hidden.replaceAll(secret, HIDDEN);
      if (is_cut) hidden = hidden.slice(0, hidden.length - charsOfSecretAtEnd(hidden, secret));
    }
  }
  return hidden;
}

function charsOfSecretAtEnd(text: string, secret: string): number {
  for (let chars = Math.min(secret.length - 1, text.length); chars >= PART_CHARS_MIN; chars--) {
    if (text.endsWith(secret.slice(0, chars))) return chars;
  }
  return 0;
}

/** The parts of a delivery that go into its push. */
export interface PushContent {
  delivery_id: string;
  message_id: string;
  seq: number;
  instance_id: string;
  /** The beginning of the body, shared by all deliveries of the message. */
  body_head: Uint8Array;
  /** A list of agent ids, as JSON. */
  target_agents: string;
  timestamp: string;
  origin: MessageOrigin | null;
  /** The trace that the message belongs to. */
  trace: TraceContext | null;
  /** How many earlier messages of the meeting the instance did not get: see src/domain/catch_up.ts. */
  missed?: number;
}

/**
 * Makes a delivery into the POST of the contract. Every attempt has the same body and the same ids. The number of the
 * attempt, its time and its signature are new.
 *
 * @param attempt the number of the attempt, from 1
 */
export function pushOf(
  delivery: PushContent,
  target: Target,
  attempt: number,
  wall_ms: number,
  user_agent: string,
): Push {
  const body = pushBody(delivery.body_head, delivery.target_agents, delivery.timestamp);
  const timestamp_s = Math.floor(wall_ms / 1000);
  const signature = signPush(signingKeysOf(target, wall_ms), delivery.delivery_id, timestamp_s, body);
  return {
    instance_id: delivery.instance_id,
    url: target.url,
    headers: pushHeaders(target.headers, delivery, attempt, timestamp_s, signature, user_agent),
    body,
    success_statuses: target.success_statuses,
  };
}

/** @param own the headers of the instance */
export function pushHeaders(
  own: Record<string, string>,
  delivery: Pick<PushContent, 'delivery_id' | 'message_id' | 'seq' | 'origin' | 'missed' | 'trace'>,
  attempt: number,
  timestamp_s: number,
  signature: string,
  user_agent: string,
): Record<string, string> {
  return {
    ...own,
    'content-type': 'application/json',
    'user-agent': user_agent,
    'webhook-id': delivery.delivery_id,
    'webhook-timestamp': String(timestamp_s),
    'webhook-signature': signature,
    'idempotency-key': delivery.delivery_id,
    'convoke-message-id': delivery.message_id,
    'convoke-seq': String(delivery.seq),
    'convoke-attempt': String(attempt),
    ...(delivery.origin !== null && originHeaders(delivery.origin)),
    ...(delivery.missed !== undefined && delivery.missed > 0 && { 'convoke-missed': String(delivery.missed) }),
    ...(delivery.trace !== null && traceHeaders(delivery.trace)),
  };
}

/** The origin of the message as headers. A header holds ASCII only, so the id of an agent is percent-encoded UTF-8. */
function originHeaders({ from_agent, in_reply_to, hops }: MessageOrigin): Record<string, string> {
  return {
    ...(from_agent !== null && { 'convoke-from-agent': encodeURIComponent(from_agent.toWellFormed()) }),
    ...(in_reply_to !== null && { 'convoke-in-reply-to': in_reply_to }),
    'convoke-hops': String(hops),
  };
}
