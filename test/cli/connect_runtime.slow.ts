/** `convoke connect --runtime`: a model on this machine takes part in a meeting, with one command. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import type { Message } from '@convoke/sdk';
import { STREAM_BYTES_MAX } from '../../src/domain/runtimes/event_stream.ts';
import { blockOf, blocksOf } from '../support/documents.ts';
import { convoke, start, temporaryDirectory } from '../support/command_line.ts';
import { type Behaviour, type Received, type Receiver, startReceiver } from '../support/receiver.ts';
import { messagesPath, type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const says = (content: string) => ({
  body: JSON.stringify({ choices: [{ message: { role: 'assistant', content } }] }),
});

interface ChatRequest {
  messages: { role: string; content: string }[];
  user: string;
}

const chatOf = (received: Received): ChatRequest => JSON.parse(received.text) as ChatRequest;
const agentOf = (received: Received): string => chatOf(received).user.split(':')[1] as string;
/** Whether the new message is the question of the test, and not the answer of another agent. */
const isAsked = (received: Received): boolean =>
  chatOf(received).messages.at(-1)?.content.endsWith('Who are you?') === true;

/** The command of the README, with the model of the test and the meeting m. */
async function documented(model: Receiver): Promise<string[]> {
  const [, , ...words] = blockOf(await blocksOf('README.md'), 'connect a model')
    .trim()
    .split(' ');
  return words.map((word) =>
    word === 'standup-42' ? 'm' : word.replace('http://127.0.0.1:11434', () => model.origin),
  );
}

/** Runs the command of the README, and stops it with the test. */
async function connected(t: TestContext, service: Service, behaviour: Behaviour, ...more: string[]): Promise<Receiver> {
  const model = await startReceiver(t, behaviour);
  await connect(t, service, [...(await documented(model)), ...more]);
  return model;
}

/** @returns what the command wrote to stderr so far */
function launch(t: TestContext, service: Service, args: readonly string[]): () => string {
  const HOME = temporaryDirectory(t);
  const child = start([...args, '--url', service.url], { env: { HOME, XDG_CONFIG_HOME: join(HOME, 'c') } });
  child.stdout?.resume();
  let noted = '';
  child.stderr?.on('data', (chunk: Buffer) => (noted += chunk.toString()));
  const ended = once(child, 'exit');
  t.after(async () => {
    // The service is already closed, so the command could not report any result.
    child.kill('SIGKILL');
    await ended;
  });
  return () => noted;
}

/** @returns what the command wrote to stderr so far */
async function connect(t: TestContext, service: Service, args: readonly string[]): Promise<() => string> {
  const noted = launch(t, service, args);
  await until(
    'a connection',
    async () => (await service.get<{ data: { connected?: unknown }[] }>('/api/v1/instances/')).body.data,
    ([instance]) => Boolean(instance?.connected),
  );
  return noted;
}

async function history(service: Service, length: number): Promise<Message[]> {
  return until(
    `${length} messages`,
    async () => (await service.get<{ data: Message[] }>(messagesPath('m'))).body.data,
    (data) => data.length >= length,
  );
}

describe('convoke connect says what it waits for', () => {
  test('at its start, and when the runtime responds 503, each once; and that the runtime is there', async (t) => {
    const service = await startService(t);
    let is_starting = true;
    const runtime = await startReceiver(t, () => ({ status: is_starting ? 503 : 200 }));
    await runtime.down();
    const to = `${runtime.origin}/convoke`;
    const noted = launch(t, service, ['connect', '--agent', 'anna', '--meeting', 'm', '--to', to]);
    const ofRuntime = (): string[] => noted().match(/^.*(?:nothing listens|responds 503|is there).*(?=\n)/gm) ?? [];
    const notes = (count: number): Promise<string[]> =>
      until(`${count} notes`, ofRuntime, (all) => all.length >= count);
    const waiting = (why: string): string => `${why}; until it takes pushes, they wait`;
    assert.equal((await notes(1))[0], waiting(`nothing listens at ${to}`));
    await runtime.up();
    assert.equal((await notes(2))[1], `${to} is there: pushes go on`);
    await service.send('m', { content: 'Hello' });
    assert.equal((await notes(3))[2], waiting(`${to} responds 503`));
    is_starting = false;
    assert.equal((await notes(4))[3], `${to} is there: pushes go on`);
  });
});

describe('convoke connect --runtime openai', () => {
  test('lets a model on this machine answer, and gives it the earlier messages', async (t) => {
    const service = await startService(t);
    await service.send('m', { content: 'Good morning' });
    const model = await connected(t, service, says('Here I am.'), '--header', 'authorization: Bearer local-token');
    const sent = await service.send('m', { content: 'Who is there?' });
    const received = await model.next();
    assert.deepEqual([received.path, received.headers.authorization], ['/v1/chat/completions', 'Bearer local-token']);
    assert.equal(chatOf(received).messages[1]?.content, 'somebody: Good morning\n\nsomebody: Who is there?');
    const reply = (await history(service, 3))[2];
    assert.deepEqual(
      [reply?.message, reply?.from_agent, reply?.in_reply_to],
      [{ content: 'Here I am.' }, 'lena', sent.message_id],
    );
  });

  test('gives it the trace of the message', async (t) => {
    const service = await startService(t);
    const model = await connected(t, service, says('NO_REPLY'));
    const trace = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', tracestate: 'a=1' };
    await service.post(messagesPath('m'), { message: { content: 'Who is there?' } }, trace);
    const { traceparent, tracestate } = (await model.next()).headers;
    assert.deepEqual({ traceparent, tracestate }, trace);
  });

  test('asks each agent once, although another one fails, and each gives its own answer', async (t) => {
    const service = await startService(t, { retry_schedule: '10ms,10ms,10ms' });
    const failing = new Set(['ben']);
    const asked: string[] = [];
    const answer = (received: Received) => {
      if (!isAsked(received)) return says('NO_REPLY');
      const agent = agentOf(received);
      asked.push(agent);
      return failing.delete(agent) ? { status: 503 } : says(`I am ${agent}`);
    };
    await connected(t, service, answer, '--agent', 'ben');
    const sent = await service.send('m', { content: 'Who are you?' });
    const replies = (await history(service, 3)).filter(({ in_reply_to }) => in_reply_to === sent.message_id);
    assert.deepEqual(asked.toSorted(), ['ben', 'ben', 'lena']);
    assert.deepEqual(
      replies.map(({ from_agent, message }) => `${from_agent}: ${String(message['content'])}`).toSorted(),
      ['ben: I am ben', 'lena: I am lena'],
    );
  });

  test('sends the answer of an agent once, although another one fails in every attempt', async (t) => {
    const service = await startService(t, { retry_schedule: '10ms,10ms,10ms' });
    const answer = (received: Received) =>
      chatOf(received).user.endsWith(':ben') ? { status: 500 } : says(isAsked(received) ? 'I am lena' : 'NO_REPLY');
    await connected(t, service, answer, '--agent', 'ben');
    const { state, reason } = await service.settled(await service.send('m', { content: 'Who are you?' }));
    assert.deepEqual([state, reason], ['failed', 'exhausted']);
    const [, ...replies] = await history(service, 2);
    assert.deepEqual(
      replies.map(({ from_agent, message }) => [from_agent, message['content']]),
      [['lena', 'I am lena']],
    );
  });

  test('gives the answers of 25 agents to one message', async (t) => {
    const service = await startService(t);
    const agents = Array.from({ length: 25 }, (_, i) => `a${i}`);
    const answer = (received: Received) => says(isAsked(received) ? `I am ${agentOf(received)}` : 'NO_REPLY');
    const model = await startReceiver(t, answer);
    const who = agents.flatMap((agent) => ['--agent', agent]);
    const to = ['--to', `${model.origin}/v1`, '--meeting', 'm', '--instance', 'crowd'];
    await connect(t, service, ['connect', '--runtime', 'openai', '--model', 'x', ...to, ...who]);
    const sent = await service.send('m', { content: 'Who are you?' });
    const { attempts } = await service.settled(sent);
    assert.deepEqual(
      attempts.map(({ detail }) => detail),
      [''],
    );
    const replies = (await history(service, 1)).filter(({ in_reply_to }) => in_reply_to === sent.message_id);
    assert.deepEqual(
      replies.map(({ message }) => String(message['content'])).toSorted(),
      agents.map((agent) => `I am ${agent}`).toSorted(),
    );
  });

  test('gives a model what this machine received and sent, where its key may not read messages', async (t) => {
    const service = await startService(t);
    await service.send('m', { content: 'Said before it came' });
    await service.endOpenMode();
    const { token } = await service.createKey({ scopes: ['instance'] });
    const answer = (_: Received, number: number) => says(number === 1 ? 'I am listening.' : 'NO_REPLY');
    const model = await connected(t, service, answer, '--api-key', token);
    await service.settled(await service.send('m', { content: 'Good morning' }));
    await service.send('m', { content: 'For ears of others' }, ['ben']);
    await service.settled(await service.send('m', { content: 'Who is there?' }));
    await model.count(2);
    const said = model.requests.map((received) =>
      chatOf(received)
        .messages.slice(1)
        .map(({ role, content }) => `${role} ${content}`),
    );
    assert.deepEqual(said, [
      ['user somebody: Good morning'],
      ['user somebody: Good morning', 'assistant I am listening.', 'user somebody: Who is there?'],
    ]);
  });

  test('says which option is missing or wrong before it asks the service for anything', async (t) => {
    const env = { HOME: temporaryDirectory(t) };
    const to = ['connect', '--agent', 'lena', '--to', 'http://127.0.0.1:9/v1', '--url', 'http://127.0.0.1:1'];
    const [missing, wrong, subscription] = await Promise.all([
      convoke([...to, '--runtime', 'openai'], { env }),
      convoke([...to, '--runtime', 'openai', '--model', 'x', '--option', 'history=many'], { env }),
      convoke([...to, '--runtime', 'mcp_events'], { env }),
    ]);
    assert.deepEqual([missing.code, wrong.code, subscription.code], [2, 2, 2]);
    assert.match(subscription.stderr, /registers its subscription itself, with events\/subscribe/);
    assert.match(missing.stderr, /--option model is required by this runtime/);
    assert.match(wrong.stderr, /--option history must be a whole number from 0 to 100/);
  });
});

test('a stream that is too long to be read as a whole does not count as the complete answer', async (t) => {
  const service = await startService(t, { retry_schedule: '10ms' });
  const event = (name: string, data: unknown) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
  const update = (content: string) => event('updates', { node: { messages: [{ type: 'ai', content }] } });
  const begin = event('metadata', { run_id: 'r' });
  // Convoke reads only the beginning of this stream, so it does not get the answer at the end.
  const long = begin + update('Let me think.') + update('x'.repeat(STREAM_BYTES_MAX)) + update('The answer');
  const agent = await startReceiver(t, (_, number) => ({ body: number === 1 ? long : begin + update('The answer') }));
  const who = ['--agent', 'lena', '--meeting', 'm', '--to', agent.origin];
  await connect(t, service, ['connect', ...who, '--runtime', 'langgraph', '--option', 'assistant_id=agent']);
  const { attempts } = await service.settled(await service.send('m', { content: 'Who is there?' }));
  assert.deepEqual(
    attempts.map(({ outcome, response_excerpt }) => [outcome, response_excerpt.slice(0, 48)]),
    [
      ['bad_status', 'the body of the response did not arrive whole, o'],
      ['ok', '{"replies":["The answer"]}'],
    ],
  );
  const [, ...replies] = await history(service, 2);
  assert.deepEqual(
    replies.map(({ message }) => message),
    [{ content: 'The answer' }],
  );
});

test('a reply over 64 KiB is not sent, and the attempt and the terminal say so', async (t) => {
  const service = await startService(t);
  const runtime = await startReceiver(t, { body: JSON.stringify({ reply: 'x'.repeat(70_000) }) });
  const who = ['--agent', 'lena', '--meeting', 'm', '--to', runtime.url];
  const noted = await connect(t, service, ['connect', ...who, '--replies']);
  const { state, attempts } = await service.settled(await service.send('m', { content: 'Tell me everything' }));
  assert.deepEqual(
    [state, attempts.map(({ detail }) => detail)],
    ['delivered', ['the body of the response was over 64 KiB; a reply in it was not sent']],
  );
  await until('the note', noted, (text) => /m #1: the body .* over 64 KiB; a reply .* is not sent/.test(text));
});

test('convoke runtimes lists what there is, and the options of one', async () => {
  const [all, one] = await Promise.all([convoke(['runtimes']), convoke(['runtimes', 'openai', '--json'])]);
  assert.match(all.stdout, /spec[^]*openai[^]*template/);
  assert.doesNotMatch(all.stdout, /mcp_events/, 'nobody names it for an agent');
  const { options } = JSON.parse(one.stdout) as { options: { name: string; is_required: boolean }[] };
  assert.deepEqual(
    options.filter(({ is_required }) => is_required).map(({ name }) => name),
    ['model'],
  );
});
