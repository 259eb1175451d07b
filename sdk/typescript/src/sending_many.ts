import { ConvokeError } from './error.ts';
import { pause } from './pause.ts';
import { randomId } from './random_id.ts';
import type { RawJson } from './raw_json.ts';
import { type CallOptions, type Requests, RETRY_WAIT_MS_MAX, SEND_ATTEMPTS_MAX } from './requests.ts';
import { retryWait, sendBody, type SendingOptions, type SendOptions } from './sending.ts';
import type { SendResult, SentMessage, SentMessages } from './types.ts';

/** The most messages, and the most characters of them, in one request. The service takes 500, and 4 MiB of UTF-8. */
const REQUEST_MESSAGES_MAX = 500;
const REQUEST_CHARS_MAX = 1 << 20;
/**
 * With these statuses the service, or a proxy, refuses all messages of a request although one is the reason: it is
 * nested too deep, or the whole is too large.
 */
const STATUSES_OF_ALL: ReadonlySet<number | null> = new Set([400, 413]);

/** One of many messages. */
export interface MessageToSend extends Omit<SendOptions, 'signal'> {
  meeting_id: string | number;
  message: object | RawJson;
}

/** A message on its way. */
export interface Item {
  text: string;
  idempotency_key: string;
  /** Null until the result is known. */
  result: PromiseSettledResult<SentMessage> | null;
}

/** Why a request, or part of it, may be sent again, and after which pause. */
interface Again {
  error: ConvokeError;
  wait_ms: number;
}

/**
 * Sends messages in their order, as many in one request as a request may have. When messages of a request may be tried
 * again, the next request begins with these messages, with the same idempotency keys. When no try is left, or the pause
 * would be too long, the messages behind are not sent either. When a request is refused as a whole, the next request has
 * half as many messages.
 *
 * @returns a result for each, in the order of the list; a reason is a ConvokeError
 * @throws the reason of the signal
 */
export async function sendMany(
  requests: Requests,
  { send_attempts_max = SEND_ATTEMPTS_MAX, sleep = pause }: SendingOptions,
  items: readonly Item[],
  { signal }: CallOptions = {},
): Promise<PromiseSettledResult<SentMessage>[]> {
  let attempt = 1;
  let messages_max = REQUEST_MESSAGES_MAX;
  let again: Again | null = null;
  for (;;) {
    const request = nextRequest(items, messages_max);
    if (request.length === 0) break;
    again = await sendRequest(requests, request, attempt, signal);
    const has_results = request.some(({ result }) => result !== null);
    // The service takes messages, so those behind have all their tries, as in a send of each by itself.
    if (has_results) attempt = 1;
    if (has_results) messages_max = Math.min(messages_max * 2, REQUEST_MESSAGES_MAX);
    else if (again === null) messages_max = Math.ceil(request.length / 2);
    if (again === null) continue;
    if (attempt >= send_attempts_max || again.wait_ms > RETRY_WAIT_MS_MAX) break;
    await sleep(again.wait_ms, signal);
    attempt++;
  }
  return items.map((item) => item.result ?? failed(item, (again as Again).error));
}

/** The first items without a result, as many as one request takes. */
function nextRequest(items: readonly Item[], messages_max: number): Item[] {
  const request: Item[] = [];
  let chars = 0;
  for (const item of items) {
    if (item.result !== null) continue;
    chars += item.text.length;
    if (request.length === messages_max || (request.length > 0 && chars > REQUEST_CHARS_MAX)) break;
    request.push(item);
  }
  return request;
}

/** Returns null without a result for any item when the items are refused as a whole. */
async function sendRequest(
  requests: Requests,
  items: readonly Item[],
  attempt: number,
  signal: AbortSignal | undefined,
): Promise<Again | null> {
  const text = `{"messages":[${items.map((item) => item.text).join(',')}]}`;
  let results: SendResult[];
  try {
    const call = { signal, text, attempts_max: 1 };
    results = await requests.call('POST', ['messages'], call, (answer) => resultsOf(answer, items.length));
  } catch (error) {
    if (!(error instanceof ConvokeError)) throw error;
    const wait_ms = retryWait(error, attempt);
    if (wait_ms !== null) return { error, wait_ms };
    if (items.length > 1 && STATUSES_OF_ALL.has(error.status)) return null;
    for (const item of items) item.result = failed(item, error);
    return null;
  }
  let again: Again | null = null;
  for (const [i, item] of items.entries()) {
    const result = results[i] as SendResult;
    if (result.message !== undefined) {
      item.result = { status: 'fulfilled', value: result.message };
      continue;
    }
    const error = errorOf(result);
    const wait_ms = retryWait(error, attempt);
    if (wait_ms === null) item.result = failed(item, error);
    else if (again === null || wait_ms > again.wait_ms) again = { error, wait_ms };
  }
  return again;
}

/** @throws SyntaxError when the response does not have a result for each message */
function resultsOf(text: string, count: number): SendResult[] {
  const { results } = JSON.parse(text) as Partial<SentMessages>;
  if (
    !Array.isArray(results) ||
    results.length !== count ||
    results.some((result) => typeof result?.status !== 'number')
  )
    throw new SyntaxError('these are no results');
  return results;
}

/** @throws TypeError when the message is not an object */
export function itemOf({
  meeting_id,
  message,
  idempotency_key = randomId(),
  traceparent,
  tracestate,
  ...given
}: MessageToSend): Item {
  const text = sendBody(message, given);
  const own = JSON.stringify({ meeting_id, idempotency_key, traceparent, tracestate });
  return {
    text: `${own.slice(0, -1)},${text.slice(1)}`,
    idempotency_key,
    result: null,
  };
}

function errorOf({ status, problem, retry_after_s }: SendResult): ConvokeError {
  const {
    code = 'unexpected_response',
    title = null,
    detail = 'the service does not say what happened',
    errors = [],
  } = problem ?? {};
  return new ConvokeError(code, detail, { title, status, errors, retry_after_s: retry_after_s ?? null });
}

/** Each message has an error of its own, because the error names the key of the message. */
function failed({ idempotency_key }: Item, { code, title, detail, status, errors, retry_after_s }: ConvokeError) {
  const extra = { title, errors, retry_after_s, ...(status !== null && { status }) };
  const reason = new ConvokeError(code, detail, extra);
  reason.idempotency_key = idempotency_key;
  return { status: 'rejected' as const, reason };
}
