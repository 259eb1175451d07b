/**
 * `convoke connect --runtime`: what the runtime on this machine is shown, what becomes of the answers of its agents, and
 * what this process keeps in memory.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import {
  ConvokeError,
  type PushInHand,
  type PushResult,
  rawJson,
  type RawMessage,
  type SentMessage,
} from '@convoke/sdk';
import { LocalAgents } from '../../src/cli/program/commands/connect/local_agents.ts';
import { LocalRuntime } from '../../src/cli/program/commands/connect/local_runtime.ts';
import { LocalHistory } from '../../src/cli/program/commands/connect/local_history.ts';
import type { RuntimeSettings } from '../../src/domain/runtimes/runtimes.ts';

const MEETING = 'standup-42';

/** A push that this machine pulled, as far as `LocalAgents` reads it. */
function pushOf(seq: number, content: string, target_agents: string[], more: Partial<PushInHand> = {}): PushInHand {
  const delivery_id = `dlv_${seq}`;
  const body = JSON.stringify({ meeting_id: MEETING, message: { content }, target_agents, timestamp: '' });
  const headers = {
    'webhook-id': delivery_id,
    'convoke-seq': String(seq),
    'convoke-reply-url': 'http://127.0.0.1/replies/',
    'convoke-reply-token': `cvr_${seq}`,
    ...(typeof more.from_agent === 'string' && { 'convoke-from-agent': more.from_agent }),
  };
  const signal = new AbortController().signal;
  return { delivery_id, meeting_id: MEETING, seq, attempt: 1, target_agents, body, headers, signal, ...more } as never;
}

/** The JSON of a response, or the status of a failure. */
type Answer = object | string | number;

/**
 * Agents whose runtime answers with `answer`. Returns the bodies of the requests to the runtime too, and the replies
 * that were sent with a token. `whenSent` stands for the service that takes these replies.
 */
function agentsOf(
  settings: RuntimeSettings,
  listRawMessages: () => Promise<{ data: RawMessage[]; has_more: boolean }>,
  answer: Answer | ((request: string) => Answer),
  whenSent: (number: number) => void = () => {},
) {
  const requests: string[] = [];
  const sent: { token: string; key: string | undefined; reply: unknown }[] = [];
  const client: ConstructorParameters<typeof LocalAgents>[0] = {
    listRawMessages,
    sendReply: async (token, reply, options) => {
      sent.push({ token, key: options?.idempotency_key, reply });
      whenSent(sent.length);
      return {} as SentMessage;
    },
  };
  const local = {
    headers: {},
    send: async ({ body }: { body: string }): Promise<PushResult> => {
      requests.push(body);
      const given = typeof answer === 'function' ? answer(body) : answer;
      if (typeof given === 'number') return { status_code: given };
      return { status_code: 200, body: typeof given === 'string' ? given : JSON.stringify(given) };
    },
  };
  return { agents: new LocalAgents(client, local, settings, 'http://127.0.0.1:9000'), requests, sent };
}

const OPENAI: RuntimeSettings = { name: 'openai', options: { model: 'x' } };
const says = (content: string) => ({ choices: [{ message: { content } }] });

/** The agent that a request to a chat model is for. */
function agentIn(request: string): string {
  return (JSON.parse(request) as { user: string }).user.split(':')[1] ?? '';
}

/** The lines of a chat after the system message. */
function linesOf(request = ''): string[] {
  const { messages } = JSON.parse(request) as { messages: { content: string }[] };
  return messages.slice(1).flatMap(({ content }) => content.split('\n\n'));
}

const SILENT = { choices: [{ message: { content: 'NO_REPLY' } }] };

const mayNotRead = async (): Promise<never> => {
  throw new ConvokeError('not_permitted', 'the key may not read messages', { status: 403 });
};

describe('the messages before a push', () => {
  const past = (seq: number, content: string, target_agents: string[] | null): RawMessage => {
    const message = rawJson(JSON.stringify({ content, order: 1 }).replace('1}', '12345678901234567890}'));
    return { message_id: `msg_${seq}`, seq, accepted_at: '', deliveries_queued: 1, target_agents, message };
  };

  test('are without those that were only for other agents', async () => {
    const data = [past(1, 'for all', null), past(2, 'for Ben', ['ben']), past(3, 'for Lena', ['lena'])];
    const { agents, requests } = agentsOf(OPENAI, async () => ({ data, has_more: false }), SILENT);
    await agents.post(pushOf(4, 'last', ['lena']));
    const { messages } = JSON.parse(requests[0] as string) as { messages: { content: string }[] };
    assert.equal(messages[1]?.content, 'somebody: for all\n\nsomebody: for Lena\n\nsomebody: last');
  });

  test('have every digit of their numbers', async () => {
    const settings: RuntimeSettings = { name: 'template', options: { body: '{{history}}', history: 1 } };
    const data = [past(1, 'for all', null)];
    const { agents, requests } = agentsOf(settings, async () => ({ data, has_more: false }), {});
    await agents.post(pushOf(2, 'last', ['lena']));
    assert.match(requests[0] ?? '', /"order":12345678901234567890\}/);
  });

  test('that this machine got are without those that were only for another agent of it', async () => {
    const { agents, requests } = agentsOf(OPENAI, mayNotRead, SILENT);
    await agents.post(pushOf(1, 'for Ben', ['ben']));
    await agents.post(pushOf(2, 'for both', ['ben', 'lena']));
    await agents.post(pushOf(3, 'last', ['lena']));
    assert.doesNotMatch(requests.at(-1) ?? '', /for Ben/);
    assert.match(requests.at(-1) ?? '', /for both/);
  });

  test('that this machine got are the messages alone, however long it runs: no token and no earlier request', async () => {
    const settings: RuntimeSettings = {
      name: 'template',
      options: { body: { history: '{{history}}' }, history: 3 },
    };
    const { agents, requests } = agentsOf(settings, mayNotRead, {});
    for (let seq = 1; seq <= 6; seq++) await agents.post(pushOf(seq, `word ${seq}`, ['lena']));
    const message = (seq: number) => ({ seq, from_agent: null, message: { content: `word ${seq}` } });
    assert.deepEqual(JSON.parse(requests.at(-1) as string), { history: [3, 4, 5].map(message) });
  });

  test('that this machine got have the answer of one of its agents once, also when it is pushed to another one', async () => {
    const answer = (request: string): Answer =>
      linesOf(request).at(-1) === 'somebody: Who is there?' ? says(`I am ${agentIn(request)}`) : SILENT;
    const { agents, requests } = agentsOf(OPENAI, mayNotRead, answer);
    await agents.post(pushOf(1, 'Who is there?', ['anna', 'ben']));
    await agents.post(pushOf(2, 'I am anna', ['ben'], { from_agent: 'anna' }));
    assert.deepEqual(linesOf(requests.at(-1)), ['somebody: Who is there?', 'I am ben', 'anna: I am anna']);
    await agents.post(pushOf(3, 'I am ben', ['anna'], { from_agent: 'ben' }));
    assert.deepEqual(linesOf(requests.at(-1)), ['somebody: Who is there?', 'I am anna', 'ben: I am ben']);
  });

  test('that this machine got are kept only as far as they fit into a request', () => {
    const history = new LocalHistory();
    const message = { content: 'x'.repeat(10_000) };
    for (let seq = 1; seq <= 50; seq++) {
      history.add(MEETING, { seq, from_agent: null, target_agents: null, message });
      history.answer(MEETING, seq, [{ from_agent: 'anna', target_agents: null, message }]);
    }
    const seqsBefore = (before_seq: number) => history.before(MEETING, before_seq, 100).map(({ seq }) => seq);
    assert.deepEqual(seqsBefore(51), [48, 48, 49, 49, 50, 50]);
    assert.deepEqual(seqsBefore(48), []);
  });
});

describe('the answers of the agents', () => {
  const AGENTS = ['ben', 'lena'];
  const readable = async () => ({ data: [], has_more: false });
  /** Ben fails, Lena answers. */
  const onlyLena = (request: string): Answer => (agentIn(request) === 'ben' ? 500 : says('I am lena'));
  const whoIsThere = (attempt: number): PushInHand => pushOf(1, 'Who is there?', AGENTS, { attempt });
  const LENA = {
    token: 'cvr_1',
    key: 'dlv_1:1:0',
    reply: { message: { content: 'I am lena' }, from_agent: 'lena' },
  };

  test('have every digit of their numbers', async () => {
    const settings: RuntimeSettings = {
      name: 'template',
      options: { body: '{{history}}', history: 1, reply: '/said' },
    };
    const { agents, requests } = agentsOf(settings, mayNotRead, '{"said":{"n":12345678901234567890}}');
    const result = await agents.post(pushOf(1, 'How many?', ['lena']));
    assert.deepEqual(result, { status_code: 200, body: '{"replies":[{"message":{"n":12345678901234567890}}]}' });
    await agents.post(pushOf(2, 'Sure?', ['lena']));
    assert.match(requests[1] ?? '', /"n":12345678901234567890\}/);
  });

  test('are sent once, during the second attempt, when another agent fails in every attempt', async () => {
    const { agents, requests, sent } = agentsOf(OPENAI, readable, onlyLena);
    const results: PushResult[] = [await agents.post(whoIsThere(1))];
    assert.deepEqual(sent, [], 'all agents may still answer in the response');
    for (const attempt of [2, 3]) results.push(await agents.post(whoIsThere(attempt)));
    assert.deepEqual(sent, [LENA]);
    assert.deepEqual(
      results.map((result) => 'status_code' in result && result.status_code),
      [500, 500, 500],
    );
    assert.deepEqual(requests.map(agentIn).toSorted(), ['ben', 'ben', 'ben', 'lena']);
  });

  test('that were sent are not in the response of a later attempt', async () => {
    let is_failing = true;
    const answer = (request: string): Answer =>
      agentIn(request) === 'ben' && is_failing ? 500 : says(`I am ${agentIn(request)}`);
    const { agents, sent } = agentsOf(OPENAI, readable, answer);
    for (const attempt of [1, 2]) await agents.post(whoIsThere(attempt));
    is_failing = false;
    assert.deepEqual(await agents.post(whoIsThere(3)), { status_code: 200, body: '' });
    assert.deepEqual(
      sent.map(({ key }) => key),
      ['dlv_1:1:0', 'dlv_1:0:0'],
    );
  });

  test('are sent with the same key by another process that asks again', async () => {
    const first = agentsOf(OPENAI, readable, onlyLena);
    for (const attempt of [1, 2]) await first.agents.post(whoIsThere(attempt));
    const next = agentsOf(OPENAI, readable, (request) => says(`I am ${agentIn(request)}`));
    assert.deepEqual(await next.agents.post(whoIsThere(3)), { status_code: 200, body: '' });
    assert.equal(first.sent[0]?.key, next.sent.find(({ reply }) => JSON.stringify(reply).includes('lena'))?.key);
  });

  test('that may or may not be stored are sent again with their key, and the push is made again until then', async () => {
    const { agents, requests, sent } = agentsOf(OPENAI, readable, says('I am lena'), (number) => {
      if (number === 1) throw new ConvokeError('unexpected_response', 'the response broke off', { status: 201 });
    });
    const push = pushOf(1, 'Who is there?', AGENTS, { attempt: 2 });
    const lost = await agents.post(push);
    assert.ok('not_reached' in lost);
    assert.match(lost.not_reached, /an answer could not be sent: .*the response broke off/);
    assert.deepEqual(await agents.post(push), { status_code: 200, body: '' });
    const keys = sent.map(({ key }) => key);
    assert.deepEqual([keys[2], requests.length], [keys[0], AGENTS.length]);
  });

  test('that the service does not take with the token are in the response', async () => {
    const { agents } = agentsOf(OPENAI, readable, says('Here.'), () => {
      throw new ConvokeError('reply_limit_reached', 'no replies left', { status: 409 });
    });
    const result = await agents.post(whoIsThere(2));
    assert.ok('status_code' in result);
    const { replies } = JSON.parse(result.body ?? '') as { replies: { from_agent: string }[] };
    assert.deepEqual(replies.map(({ from_agent }) => from_agent).toSorted(), AGENTS);
  });
});

for (const [what, status, said] of [
  ['its error', 401, (secret: string) => `no such token: ${secret}`],
  ['its reason for a refusal', 200, (secret: string) => JSON.stringify({ error: { message: `no token: ${secret}` } })],
  [
    'a reason that is cut',
    200,
    (secret: string) => JSON.stringify({ error: { message: `${'x'.repeat(180)} ${secret}` } }),
  ],
] as const) {
  test(`a credential that the runtime repeats in ${what} stays on this machine`, async (t) => {
    const server = createServer((request, response) => {
      response.writeHead(status).end(said(String(request.headers.authorization)));
    }).listen(0, '127.0.0.1');
    t.after(() => server.close());
    await once(server, 'listening');
    const to = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const runtime = new LocalRuntime(new URL(to), { authorization: 'Bearer the-secret-of-this-machine' });
    const client = {} as ConstructorParameters<typeof LocalAgents>[0];
    const agents = new LocalAgents(client, runtime, { name: 'a2a', options: {} }, to);
    const result = JSON.stringify(await agents.post(pushOf(1, 'Hello', ['lena'])));
    assert.match(result, /no such token|no token|x{180}/, 'control');
    assert.doesNotMatch(result, /Bearer|the-secret/);
  });
}
