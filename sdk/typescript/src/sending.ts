import { ConvokeError } from './error.ts';
import { pause } from './pause.ts';
import { randomId } from './random_id.ts';
import { jsonWithRaw, RawJson } from './raw_json.ts';
import {
  type CallOptions,
  type Requests,
  type RequestsOptions,
  RETRY_WAIT_MS_MAX,
  SEND_ATTEMPTS_MAX,
} from './requests.ts';
import type { JsonObject, ReplyMessage, SentMessage } from './types.ts';

/** The pause before the second attempt when the server names none; each further pause is twice as long, up to 30 s. */
const RETRY_FIRST_MS = 250;

export interface SendingOptions extends Pick<RequestsOptions, 'send_attempts_max' | 'sleep'> {
  /**
   * How many milliseconds sendMessage waits for other messages, to send all of them in one request. 2 is enough for a
   * program that sends hundreds in a second. Absent: each message is a request of its own.
   */
  gather_ms?: number | undefined;
}

/**
 * The trace of a message, as in W3C Trace Context. A `fetch` that OpenTelemetry instruments adds the trace by itself.
 */
export interface TraceOptions {
  traceparent?: string | undefined;
  tracestate?: string | undefined;
}

export interface ReplyOptions extends CallOptions, TraceOptions {
  /** A random key when absent. Give your own key to repeat a reply safely across restarts of your program. */
  idempotency_key?: string | undefined;
}

export interface SendOptions extends CallOptions, TraceOptions {
  /** Push only to these agents; empty or absent: to all agents of the meeting. */
  target_agents?: readonly string[] | undefined;
  /**
   * The agent that sends the message. A message to all agents is not pushed to this agent. Absent: a person, or a
   * program that is no agent.
   */
  from_agent?: string | undefined;
  /** The message_id of the message that this one answers, in the same meeting. */
  in_reply_to?: string | undefined;
  /** After this many seconds the message is no longer pushed, if that is earlier than the limit of the service. */
  expires_in_s?: number | undefined;
  /** A random key when absent. Give your own key to repeat a send safely after a restart of your program. */
  idempotency_key?: string | undefined;
}

/** A reply: a text, which becomes `{ content: text }`, or a message with the agent that says it. */
export type Reply = string | (Omit<ReplyMessage, 'message'> & { message: JsonObject | RawJson });

/** Sends one message, again and again with the same idempotency key, until it is stored or no try is left. */
export async function send(
  requests: Requests,
  { send_attempts_max, sleep }: SendingOptions,
  meeting_id: string | number,
  message: object | RawJson,
  options: SendOptions,
): Promise<SentMessage> {
  const { signal, idempotency_key, traceparent, tracestate, ...given } = options;
  const request = { path: ['meetings', meeting_id, 'messages'], text: sendBody(message, given), headers: {} };
  const more = { signal, idempotency_key, traceparent, tracestate };
  return untilStored(requests, { send_attempts_max, sleep }, request, more);
}

/** Sends one reply with the token of a push. Repeats it in the same way as `send`. */
export async function sendReply(
  requests: Requests,
  sending: SendingOptions,
  reply_token: string,
  reply: Reply,
  options: ReplyOptions,
): Promise<SentMessage> {
  const headers = { 'convoke-reply-token': reply_token };
  return untilStored(requests, sending, { path: ['replies'], text: jsonWithRaw({ reply }), headers }, options);
}

async function untilStored(
  requests: Requests,
  { send_attempts_max = SEND_ATTEMPTS_MAX, sleep = pause }: SendingOptions,
  { path, text, headers: given }: { path: (string | number)[]; text: string; headers: Record<string, string> },
  { signal, idempotency_key = randomId(), traceparent, tracestate }: ReplyOptions,
): Promise<SentMessage> {
  const headers = {
    ...given,
    'idempotency-key': idempotency_key,
    ...(traceparent !== undefined && { traceparent }),
    ...(tracestate !== undefined && { tracestate }),
  };
  for (let attempt = 1; ; attempt++) {
    try {
      return await requests.call<SentMessage>('POST', path, { signal, text, headers, attempts_max: 1 }, 'message_id');
    } catch (error) {
      if (!(error instanceof ConvokeError)) throw error;
      error.idempotency_key = idempotency_key;
      const wait_ms = retryWait(error, attempt);
      if (wait_ms === null || wait_ms > RETRY_WAIT_MS_MAX || attempt >= send_attempts_max) throw error;
      await sleep(wait_ms, signal);
    }
  }
}

/**
 * The JSON of a message and its fields.
 *
 * @throws TypeError when the message is not an object
 */
export function sendBody(
  message: object,
  given: Omit<SendOptions, 'signal' | 'idempotency_key' | keyof TraceOptions>,
): string {
  if (typeof message !== 'object' || message === null || Array.isArray(message)) {
    throw new TypeError('a message must be an object; for JSON text use rawJson(text)');
  }
  const text = message instanceof RawJson ? message.text : JSON.stringify(message);
  // JSON leaves undefined fields out. A null, or a field that does not exist, is a mistake that the server should see:
  // with `target_agent` in place of `target_agents` the message would go to everybody.
  const fields = JSON.stringify(given).slice(1);
  return fields === '}' ? `{"message":${text}}` : `{"message":${text},${fields}`;
}

/**
 * A proxy responds 502 and 504 when it lost the node that had the request. Then it is unknown whether the message was
 * stored; the idempotency key makes sure that the service stores it once.
 */
const STATUSES_TO_TRY_AGAIN: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/**
 * How long to wait before a send is tried again; null when it must not be tried again. Above RETRY_WAIT_MS_MAX the
 * server asks for a longer pause than the SDK makes.
 */
export function retryWait({ code, status, retry_after_s }: ConvokeError, attempt: number): number | null {
  const safe = code === 'unreachable' || code === 'timeout' || (status !== null && STATUSES_TO_TRY_AGAIN.has(status));
  if (!safe) return null;
  if (retry_after_s !== null) return retry_after_s * 1000;
  return Math.min(RETRY_FIRST_MS * 2 ** (attempt - 1), RETRY_WAIT_MS_MAX) * (0.5 + Math.random() / 2);
}
