/**
 * Machines whose agents reply, as a process of their own, which outlives every Convoke process of a test. The path of
 * the webhook says how: `one` and `three` reply in the response, `later` with the token of the push. They remember
 * nothing: for a push that comes again, they find other words.
 */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { Answered } from './reply_checker.ts';

const LATER_MS_MAX = 300;
const AGAIN_MS = 50;
const TRIES_MAX = 2_000;

let answered: Answered[] = [];
let outstanding = 0;
let words = 0;

/** To an agent that nobody hosts: nobody answers it. */
function replyOf(webhook_id: string, place: number) {
  return { message: { answers: webhook_id, place, words: ++words }, target_agents: ['nobody'] };
}

const server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
  const { headers, url = '' } = request;
  // A sender that is killed in the middle of a request was not heard.
  request.on('error', () => {});
  request.resume();
  request.on('end', () => {
    const webhook_id = String(headers['webhook-id']);
    const message_id = String(headers['convoke-message-id']);
    const how = url.slice(1) as Answered['how'];
    answered.push({ webhook_id, message_id, how });
    response.setHeader('content-type', 'application/json');
    if (how === 'one') return void response.end(JSON.stringify({ reply: replyOf(webhook_id, 0) }));
    if (how === 'three') {
      const replies = [0, 1, 2].map((place) => replyOf(webhook_id, place));
      return void response.end(JSON.stringify({ replies }));
    }
    response.end();
    outstanding++;
    void replyLater(webhook_id, headers).finally(() => outstanding--);
  });
});

/** Asks until the reply is known to be stored: repeated under the same key, it is stored once. */
async function replyLater(webhook_id: string, headers: IncomingHttpHeaders): Promise<void> {
  await pause(Math.random() * LATER_MS_MAX);
  const body = JSON.stringify({ reply: replyOf(webhook_id, 0) });
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const status = await fetch(String(headers['convoke-reply-url']), {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'convoke-reply-token': String(headers['convoke-reply-token']),
        'idempotency-key': webhook_id,
      },
      body,
      signal: AbortSignal.timeout(10_000),
    }).then(
      async (answer) => {
        await answer.text();
        return answer.status;
      },
      () => 0,
    );
    if (status === 201) return;
    await pause(AGAIN_MS);
  }
}

process.on('message', () => {
  process.send?.({ answered, outstanding });
  answered = [];
});
process.once('disconnect', () => process.exit());
server.listen(0, '127.0.0.1', () => process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
