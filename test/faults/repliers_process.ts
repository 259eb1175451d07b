/**
 * Machines whose agents reply, all in one process, which runs until the end of a test while processes of Convoke start
 * and end. The path of the webhook says how a machine replies: `one` and `three` reply in the response, `later` replies
 * with the token of the push. A fourth machine pulls, and replies in its results; it begins when it knows the addresses
 * of the service. The machines remember nothing: they give other replies to a push that arrives again.
 */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { type Answered, REPLIES } from './reply_checker.ts';

const LATER_MS_MAX = 300;
const AGAIN_MS = 50;
const PULLER = 'pulled';
const PULL = { max: 8, wait_s: 2 };
const PULL_MS_MAX = 10_000;

/** What a test sends to this process: the request to report, or the addresses of the service. */
export type Asked = 'report' | { urls: string[] };

/** The report of this process: the replies since the previous report, and how many later replies are not stored yet. */
export interface RepliesReport {
  answered: Answered[];
  outstanding: number;
}

interface Push {
  delivery_id: string;
  attempt: number;
  headers: Record<string, string>;
}

let answered: Answered[] = [];
let outstanding = 0;
let words = 0;

/** Makes a reply. No instance hosts its target, so nobody answers the reply. */
function replyOf(webhook_id: string, place: number) {
  return { message: { answers: webhook_id, place, words: ++words }, target_agents: ['nobody'] };
}

/** Notes the replies to a push; returns the body of the response. */
function answerTo(headers: IncomingHttpHeaders, how: Answered['how']): string {
  const webhook_id = String(headers['webhook-id']);
  answered.push({ webhook_id, message_id: String(headers['convoke-message-id']), how });
  const replies = Array.from({ length: REPLIES[how] }, (_, place) => replyOf(webhook_id, place));
  if (how === 'later') return '';
  return JSON.stringify(replies.length === 1 ? { reply: replies[0] } : { replies });
}

const server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
  const { headers, url = '' } = request;
  // A request whose sender was killed before its end does not count.
  request.on('error', () => {});
  request.resume();
  request.on('end', () => {
    const how = url.slice(1) as Answered['how'];
    response.setHeader('content-type', 'application/json').end(answerTo(headers, how));
    if (how !== 'later') return;
    outstanding++;
    void replyLater(headers).finally(() => outstanding--);
  });
});

/**
 * Repeats a later reply until its response says that it is stored. All requests have the same key, so it is stored
 * once.
 */
async function replyLater(headers: IncomingHttpHeaders): Promise<void> {
  const webhook_id = String(headers['webhook-id']);
  await pause(Math.random() * LATER_MS_MAX);
  const more = { 'convoke-reply-token': String(headers['convoke-reply-token']), 'idempotency-key': webhook_id };
  for (;;) {
    const answer = await post(String(headers['convoke-reply-url']), { reply: replyOf(webhook_id, 0) }, more);
    if (answer?.status === 201) return;
    if (answer !== null && answer.status < 429) console.error('a later reply got', JSON.stringify(answer));
    await pause(AGAIN_MS);
  }
}

/** Pulls from the nodes in turn, and repeats its results until a node has accepted them. */
async function pullFrom(urls: readonly string[]): Promise<never> {
  let results: object[] = [];
  for (let asked = 0; ; asked++) {
    const url = `${urls[asked % urls.length]}/api/v1/instances/${PULLER}/pull/`;
    const answer = await post(url, { ...PULL, results });
    if (answer?.status !== 200) {
      await pause(AGAIN_MS);
      continue;
    }
    const { pushes } = answer.body as { pushes: Push[] };
    results = pushes.map(({ delivery_id, attempt, headers }) => {
      return { delivery_id, attempt, status_code: 200, body: answerTo(headers, PULLER) };
    });
  }
}

/** Makes a POST. Returns null when no complete response arrived. */
async function post(
  url: string,
  body: object,
  more: Record<string, string> = {},
): Promise<{ status: number; body: unknown } | null> {
  const headers = { 'content-type': 'application/json', ...more };
  const signal = AbortSignal.timeout(PULL_MS_MAX);
  try {
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body), signal });
    return { status: answer.status, body: await answer.json() };
  } catch {
    return null;
  }
}

process.on('message', (asked: Asked) => {
  if (asked !== 'report') return void pullFrom(asked.urls);
  process.send?.({ answered, outstanding } satisfies RepliesReport);
  answered = [];
});
process.once('disconnect', () => process.exit());
server.listen(0, '127.0.0.1', () => process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
