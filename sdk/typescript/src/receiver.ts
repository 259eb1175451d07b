import { assertNumberOption } from './number_option.ts';
import { RESULT_BODY_BYTES_MAX } from './push_result.ts';
import { jsonWithRaw } from './raw_json.ts';
import { Remembered } from './remembered.ts';
import type { Reply } from './sending.ts';
import {
  assertTolerance,
  decodeSecrets,
  importKey,
  type Push,
  readPush,
  VerificationError,
  type VerifyOptions,
  verifyWithKeys,
} from './verify.ts';

/** Twice the size of the largest push under the server's default limit, its list of agents included. */
const BODY_BYTES_MAX = 2 * 1024 * 1024;
/**
 * With its default settings, Convoke stops retrying an answered push within an hour. Later retries come only when the
 * receiver asks for more time, or when somebody retries the push by hand.
 */
const REMEMBER_S = 3600;
const REMEMBERED_MAX = 10_000;
const REMEMBERED_BYTES_MAX = 16 * 1024 * 1024;

export const BODY_WAS_READ =
  'the body was read before the receiver got the request: call the receiver before any body parser';

/**
 * The return value of onPush when an agent replies: a text, which becomes `{ content: text }`, or replies. `from_agent`
 * of a reply is one of the push's target_agents, and needed when there are several. Any other value is not a reply. All
 * of it has at most 64 KiB as JSON; otherwise onPush counts as failed.
 */
export type Answer = string | { reply: Reply } | { replies: readonly Reply[] };

export interface ReceiverOptions extends VerifyOptions {
  /** The instance's webhook_secret, or several of them while it is being rotated. */
  secret: string | readonly string[];
  /**
   * Called once per push. The response is 200 when onPush returns or resolves. Convoke waits 5 s for that: put the push
   * into a queue of your own, or start the agent without waiting for its reply. While onPush runs, Convoke holds back
   * the next push of the same meeting. When onPush fails, Convoke sends the push again.
   *
   * The agent may reply at once with the return value: see `Answer`. The reply is sent in the meeting, if the instance
   * is registered with `replies: true`. Later the agent can reply with `push.reply_token`.
   */
  onPush: (push: Push) => unknown;
  /**
   * Called instead of onPush for the sample push of a webhook test. When absent, nothing is called, and the test
   * succeeds.
   */
  onTest?: ((push: Push) => unknown) | undefined;
  /** Called with the error that onPush or onTest threw; console.error when absent. */
  onError?: ((error: unknown, push: Push) => void) | undefined;
  /** A larger body gets the response 413. 2 MiB when absent. */
  body_bytes_max?: number | undefined;
  /** How long a handled push is remembered; an hour when absent. */
  remember_s?: number | undefined;
  /**
   * How many handled pushes are remembered; 10,000 when absent. With more, or when their answers together take more
   * than 16 MiB, the push that was not seen for the longest time is forgotten.
   */
  remembered_max?: number | undefined;
}

/**
 * Makes a webhook endpoint out of a function: a handler from Request to Response, for any server that uses these two
 * types (`toNodeListener` of `@convoke/sdk/node` for node:http).
 *
 * A push may arrive more than once. A push whose webhook-id was handled gets a 200 without a call of onPush. While the
 * first call still runs, a repetition waits for that call. If the first call threw, onPush is called again. This memory
 * ends with the process, so an agent that must never act twice has to remember the webhook_id itself.
 *
 * Responses: 200 when the push was handled, 400 when the request is genuine but no push, 401 when it is not genuine,
 * 405 and 413, and 500 when onPush threw. The handler rejects with a TypeError when something else has read the body.
 *
 * @throws VerificationError with reason `invalid_secret`, at once
 * @throws RangeError for an option that is NaN or too small, TypeError for one that is no number; at once
 */
export function createReceiver(options: ReceiverOptions): (request: Request) => Promise<Response> {
  const { onPush, onTest = () => {} } = options;
  return receiverOf(options, async (push) => {
    return answerJson(await (push.test ? onTest(push) : onPush(push)));
  });
}

/** The JSON of a response with replies; null when there are none. */
function answerJson(answer: unknown): string | null {
  if (typeof answer === 'string') return answer === '' ? null : answerText({ reply: answer });
  if (typeof answer !== 'object' || answer === null) return null;
  const { reply, replies } = answer as { reply?: unknown; replies?: unknown };
  return reply === undefined && replies === undefined ? null : answerText({ reply, replies });
}

/**
 * The JSON of replies.
 *
 * @throws RangeError when the service would not read all of it: then no reply would be sent
 */
export function answerText(replies: { reply: unknown } | { replies: unknown }): string {
  const text = jsonWithRaw(replies);
  const bytes = new TextEncoder().encode(text).length;
  if (bytes <= RESULT_BODY_BYTES_MAX) return text;
  throw new RangeError(`the answer has ${bytes} bytes as JSON; ${RESULT_BODY_BYTES_MAX} are possible`);
}

/** @param answer handles a push, and returns the JSON of the response; null for an empty response */
export function receiverOf(
  options: Omit<ReceiverOptions, 'onPush' | 'onTest'>,
  answer: (push: Push) => Promise<string | null>,
): (request: Request) => Promise<Response> {
  const { onError = (error) => console.error(error), now = Date.now } = options;
  const { body_bytes_max = BODY_BYTES_MAX, remember_s = REMEMBER_S, remembered_max = REMEMBERED_MAX } = options;
  assertTolerance(options);
  assertNumberOption('body_bytes_max', body_bytes_max, 1);
  assertNumberOption('remember_s', remember_s, 0);
  assertNumberOption('remembered_max', remembered_max, 0);
  const keys = Promise.all(decodeSecrets(options.secret).map(importKey));
  // The first request reports that a secret could not be imported. Without this line, the failure would end the process
  // before any request.
  keys.catch(() => {});
  const limits = { for_ms: remember_s * 1000, size_max: remembered_max, bytes_max: REMEMBERED_BYTES_MAX };
  const handled = new Remembered<string | null>(limits, (json) => json?.length ?? 0, now);
  const running = new Map<string, Promise<string | null>>();

  async function handle(push: Push): Promise<string | null> {
    const json = await answer(push);
    handled.set(push.webhook_id, json);
    return json;
  }

  function handleOnce(push: Push): Promise<string | null> {
    const before = handled.get(push.webhook_id);
    if (before !== undefined) return Promise.resolve(before);
    let call = running.get(push.webhook_id);
    if (call === undefined) {
      call = handle(push).finally(() => running.delete(push.webhook_id));
      running.set(push.webhook_id, call);
      call.catch((error: unknown) => onError(error, push)).catch((thrown: unknown) => console.error(thrown));
    }
    return call;
  }

  return async (request) => {
    if (request.method !== 'POST') return respond(405, 'pushes are sent with POST', { allow: 'POST' });
    const body = await readBody(request, body_bytes_max);
    if (body === 'too_large') return respond(413, `a push may have at most ${body_bytes_max} bytes here`);
    if (body === 'cut_off') return respond(400, 'the body was cut off');
    let push: Push;
    try {
      await verifyWithKeys(body, request.headers, await keys, options);
      push = readPush(body, request.headers);
    } catch (error) {
      if (!(error instanceof VerificationError)) throw error;
      return respond(error.reason === 'invalid_body' ? 400 : 401, error.message);
    }
    let json: string | null;
    try {
      json = await handleOnce(push);
    } catch {
      return respond(500, 'the receiver failed; its log has the reason');
    }
    if (json === null) return respond(200, 'ok');
    return new Response(json, { headers: { 'content-type': 'application/json' } });
  };
}

function respond(status: number, text: string, headers: Record<string, string> = {}): Response {
  return new Response(`${text}\n`, { status, headers: { 'content-type': 'text/plain; charset=utf-8', ...headers } });
}

/**
 * Stops reading as soon as the body exceeds the limit.
 *
 * @throws TypeError when something else has read the body
 */
async function readBody(request: Request, bytes_max: number): Promise<Uint8Array | 'too_large' | 'cut_off'> {
  if (request.bodyUsed) throw new TypeError(BODY_WAS_READ);
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
