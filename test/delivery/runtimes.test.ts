/** Pushes in the shape of a runtime, over real HTTP, from the registration to the reply in the meeting. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import type { Instance, Message } from '@convoke/sdk';
import { Webhook } from 'standardwebhooks';
import { type Received, startReceiver } from '../support/receiver.ts';
import { assertProblem, messagesPath, startService, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const service = useService({ retry_schedule: '1s,1s,1s,1s,1s' });

const OPENAI = { runtime: 'openai', runtime_options: { model: 'llama3.2' } } as const;

interface ChatRequest {
  model: string;
  messages: { role: string; content: string }[];
  user: string;
}

const chatOf = (received: Received): ChatRequest => JSON.parse(received.text) as ChatRequest;

const says = (content: string) => ({
  body: JSON.stringify({ choices: [{ message: { role: 'assistant', content } }] }),
});

async function history(meeting_id: string, length: number): Promise<Message[]> {
  return until(
    `${length} messages in ${meeting_id}`,
    async () => (await service.get<{ data: Message[] }>(messagesPath(meeting_id))).body.data,
    (data) => data.length >= length,
  );
}

describe('an instance with the runtime openai', () => {
  test('is sent a chat completion with the meeting so far, and its answer is a reply', async (t) => {
    const m = service.name('meeting');
    await service.send(m, { content: 'Good morning', name: 'Ben' });
    const { receiver } = await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: says('lena: Here I am.'),
      registration: { ...OPENAI, webhook_headers: { authorization: 'Bearer the-secret-key' } },
    });
    const sent = await service.send(m, { content: 'Who is there?' });
    const received = await receiver.next();
    assert.deepEqual([received.method, received.path], ['POST', '/webhook/chat/completions']);
    assert.equal(received.headers.authorization, 'Bearer the-secret-key');
    const { model, messages, user } = chatOf(received);
    assert.deepEqual([model, user], ['llama3.2', `${m}:lena`]);
    assert.deepEqual(
      messages.map(({ role }) => role),
      ['system', 'user'],
    );
    assert.equal(messages[1]?.content, 'Ben: Good morning\n\nsomebody: Who is there?');
    const [, , reply] = await history(m, 3);
    assert.deepEqual(reply?.message, { content: 'Here I am.' });
    assert.deepEqual([reply?.from_agent, reply?.in_reply_to], ['lena', sent.message_id]);
    const delivery = await service.settled(sent);
    assert.deepEqual([delivery.state, delivery.attempts[0]?.answered_agents], ['delivered', ['lena']]);
  });

  test('has its own words as the assistant, and those of others as the user', async (t) => {
    const m = service.name('meeting');
    const { receiver } = await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: (_, number) => says(number === 1 ? 'One.' : 'NO_REPLY'),
      registration: OPENAI,
    });
    await service.settled(await service.send(m, { content: 'Count.' }));
    const second = await service.send(m, { content: 'Go on.' });
    await receiver.count(2);
    assert.deepEqual(
      chatOf(receiver.requests[1] as Received)
        .messages.map(({ role, content }) => [role, content].join(' '))
        .slice(1),
      ['user somebody: Count.', 'assistant One.', 'user somebody: Go on.'],
    );
    assert.equal((await service.settled(second)).state, 'delivered');
    assert.equal((await history(m, 3)).length, 3, 'NO_REPLY is no reply');
  });

  test('gets one request for each agent, and a retry asks only those that have not answered', async (t) => {
    const m = service.name('meeting');
    const failing = new Set(['ben']);
    const asked: string[] = [];
    const { receiver } = await service.member(t, m, {
      agent_ids: ['anna', 'ben', 'cleo'],
      behaviour: (received) => {
        const { user, messages } = chatOf(received);
        // Each agent also gets the answers of the other agents, and does not answer them.
        if (!messages.at(-1)?.content.endsWith('Who are you?')) return says('NO_REPLY');
        const agent = user.split(':')[1] as string;
        asked.push(agent);
        return failing.delete(agent) ? { status: 500, body: 'no memory left' } : says(`I am ${agent}`);
      },
      registration: OPENAI,
    });
    const first = await service.send(m, { content: 'Who are you?' });
    const delivery = await service.settled(first);
    assert.deepEqual(asked.toSorted(), ['anna', 'ben', 'ben', 'cleo']);
    assert.deepEqual(
      delivery.attempts.map(({ outcome, answered_agents }) => [outcome, answered_agents?.toSorted()]),
      [
        ['bad_status', ['anna', 'cleo']],
        ['ok', ['anna', 'ben', 'cleo']],
      ],
    );
    assert.match(delivery.attempts[0]?.detail ?? '', /^answered 500; answered already: /);
    const replies = (await history(m, 4)).filter(({ in_reply_to }) => in_reply_to === first.message_id);
    assert.deepEqual(replies.map(({ message }) => String(message['content'])).toSorted(), [
      'I am anna',
      'I am ben',
      'I am cleo',
    ]);
    const tries = receiver.requests.filter(
      (request) =>
        chatOf(request).messages.at(-1)?.content.endsWith('Who are you?') && request.text.includes(`${m}:ben`),
    );
    assert.equal(tries[0]?.text, tries[1]?.text, 'the bytes are the same on each attempt');
    const keys = tries.slice(0, 2).map(({ headers }) => headers['idempotency-key']);
    assert.deepEqual(keys, Array(2).fill(`${delivery.delivery_id}:ben`));
  });

  test('is told how many messages its agent missed', async (t) => {
    const m = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: says('NO_REPLY'),
      registration: OPENAI,
    });
    const wakes = { instance_id, meeting_id: m, agent_ids: ['lena'], wake: 'targeted' };
    await service.post('/api/v1/instances/join-meeting/', wakes);
    for (let i = 0; i < 3; i++) await service.send(m, { content: 'for everybody' });
    await service.send(m, { content: 'for Lena' }, ['lena']);
    const [system] = chatOf(await receiver.next()).messages;
    assert.match(system?.content ?? '', /\n\nConvoke did not send lena 3 messages of this meeting/);
    await service.send(m, { content: 'for Lena, at once' }, ['lena']);
    assert.doesNotMatch(chatOf(await receiver.next()).messages[0]?.content ?? '', /did not send/);
  });

  test('keeps to its bounds of history', async (t) => {
    const m = service.name('meeting');
    for (let i = 1; i <= 5; i++) await service.send(m, { content: `word ${i}` });
    const { receiver } = await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: says('NO_REPLY'),
      registration: { runtime: 'openai', runtime_options: { model: 'x', history: 2 } },
    });
    await service.send(m, { content: 'last' });
    const { messages } = chatOf(await receiver.next());
    assert.equal(messages[1]?.content, 'somebody: word 4\n\nsomebody: word 5\n\nsomebody: last');
  });

  test('gets nothing of what was for other agents only', async (t) => {
    const m = service.name('meeting');
    await service.send(m, { content: 'for all' });
    await service.send(m, { content: 'for Ben' }, ['ben']);
    await service.send(m, { content: 'for Lena and Ben' }, ['ben', 'lena']);
    const body = { message: { content: 'by Lena' }, from_agent: 'lena', target_agents: ['ben'] };
    await service.post(messagesPath(m), body);
    const { receiver } = await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: says('NO_REPLY'),
      registration: OPENAI,
    });
    await service.send(m, { content: 'last' });
    const { messages } = chatOf(await receiver.next());
    assert.deepEqual(
      messages.slice(1).map(({ content }) => content),
      ['somebody: for all\n\nsomebody: for Lena and Ben', 'by Lena', 'somebody: last'],
    );
  });

  test('that returns no chat completion is tried again, and the attempt says what is wrong', async (t) => {
    const m = service.name('meeting');
    await service.member(t, m, { agent_ids: ['lena'], behaviour: { body: '{"ok":true}' }, registration: OPENAI });
    const { attempts } = await service.attempted(await service.send(m, { content: 'hi' }));
    assert.deepEqual(
      [attempts[0]?.outcome, attempts[0]?.status_code, attempts[0]?.detail],
      ['broken_response', 200, 'answered, but its body has no choices[0]: this is no chat completion'],
    );
  });
});

test('a runtime whose answer is nested 30,000 deep fails its own push, and the service goes on', async (t) => {
  const m = service.name('meeting');
  await service.member(t, m, {
    agent_ids: ['lena'],
    behaviour: { body: `{"said":{"list":${'['.repeat(30_000)}${']'.repeat(30_000)}}}` },
    registration: { runtime: 'template', runtime_options: { body: {}, reply: '/said' } },
  });
  const { attempts } = await service.attempted(await service.send(m, { content: 'hi' }));
  assert.deepEqual([attempts[0]?.outcome, attempts[0]?.status_code], ['broken_response', 200]);
});

test('no digit of a number is lost, neither on the way to a runtime nor on the way back', async (t) => {
  const m = service.name('meeting');
  const [first, second] = ['{"order":12345678901234567890}', '{"order":23456789012345678901,"price":1.10}'];
  await service.sendText(m, first);
  const { receiver } = await service.member(t, m, {
    agent_ids: ['lena'],
    behaviour: { body: '{"said":{"order":98765432109876543210}}' },
    registration: {
      runtime: 'template',
      runtime_options: {
        path: '/{{message.order}}',
        body: { whole: '{{message}}', one: '{{message.order}}', text: '{{text}}', before: '{{history}}' },
        history: 1,
        reply: '/said',
      },
    },
  });
  await service.settled(await service.sendText(m, second));
  const { path, text } = await receiver.next();
  assert.equal(path, '/webhook/23456789012345678901');
  const before = `[{"seq":1,"from_agent":null,"message":${first}}]`;
  const one = '23456789012345678901';
  assert.equal(text, `{"whole":${second},"one":${one},"text":${JSON.stringify(second)},"before":${before}}`);
  assert.match((await service.get(messagesPath(m))).text, /"message":\{"order":98765432109876543210\}/);
});

test('a stream that is not over in time is a timeout, whose advice is a longer timeout_s', async (t) => {
  const m = service.name('meeting');
  const server = createServer((_, response) => void response.writeHead(200).write('event: metadata\ndata: {}\n\n'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close().closeAllConnections());
  const { instance_id } = await service.register({
    webhook_url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    agent_ids: ['lena'],
    runtime: 'langgraph',
    runtime_options: { assistant_id: 'agent' },
    timeout_s: 1,
  });
  await service.join(m, instance_id, ['lena']);
  const { attempts } = await service.attempted(await service.send(m, { content: 'hi' }));
  assert.deepEqual(
    [attempts[0]?.outcome, attempts[0]?.detail],
    ['timeout', 'the body of the response did not arrive whole within 1 s'],
  );
  assert.match((await service.instance(instance_id)).last_failure?.advice ?? '', /raise timeout_s/);
});

describe('timeout_s', () => {
  test('bounds an attempt instead of 5 s', async (t) => {
    const m = service.name('meeting');
    const { instance_id } = await service.member(t, m, { behaviour: 'hang', registration: { timeout_s: 1 } });
    assert.equal((await service.instance(instance_id)).timeout_s, 1);
    const { attempts } = await service.attempted(await service.send(m, { content: 'hi' }));
    assert.deepEqual([attempts[0]?.outcome, attempts[0]?.detail], ['timeout', 'no answer within 1 s']);
  });

  test('is how long webhook-test waits, and its advice says so', async (t) => {
    const { receiver, instance_id } = await service.member(t, service.name('meeting'), {
      behaviour: 'hang',
      registration: { timeout_s: 1 },
    });
    const { body } = await service.post<{ outcome: string; advice: string }>('/api/v1/instances/webhook-test/', {
      instance_id,
    });
    assert.equal(body.outcome, 'timeout');
    assert.match(body.advice, /no answer within 1 s\. .* raise timeout_s/);
    assert.equal(receiver.requests.length, 1);
  });

  test('of more than 5 s delays no stop: the push is made again after the next start', async (t) => {
    const own = await startService(t);
    const m = 'm';
    const { receiver } = await own.member(t, m, { behaviour: 'hang', registration: { timeout_s: 600 } });
    const sent = await own.send(m, { content: 'hi' });
    await receiver.next();
    receiver.behaviour = {};
    await own.restart({});
    const delivery = await own.settled(sent);
    assert.deepEqual(
      delivery.attempts.map(({ attempt, outcome }) => [attempt, outcome]),
      [[1, 'ok']],
    );
  });

  test('of 5 s or less lets a stop wait for the answer: no agent is asked a second time', async (t) => {
    const own = await startService(t);
    const { promise: after, resolve: answer } = Promise.withResolvers<void>();
    const { receiver } = await own.member(t, 'm', {
      behaviour: { after, body: '{"status":"accepted"}' },
      registration: { runtime: 'hermes' },
    });
    const sent = await own.send('m', { content: 'hi' });
    await receiver.next();
    const { url } = own;
    const restarted = own.restart({});
    await until(
      'the stop',
      () =>
        fetch(`${url}/healthz`).then(
          () => false,
          () => true,
        ),
      (is_refused) => is_refused,
    );
    answer();
    await restarted;
    assert.equal((await own.settled(sent)).state, 'delivered');
    assert.equal(receiver.requests.length, 1);
  });

  test('is as specified where it is not given: the instance has no such field', async (t) => {
    const { instance_id } = await service.member(t, service.name('meeting'));
    const instance = await service.instance(instance_id);
    for (const field of ['timeout_s', 'runtime', 'runtime_option_names']) assert.ok(!(field in instance), field);
  });
});

describe('an instance with the runtime template', () => {
  test('is sent what the template says, with the values encoded, and its reply is read by the pointer', async (t) => {
    const m = service.name('meeting');
    const { receiver } = await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: { status: 202, body: JSON.stringify({ out: [{ text: 'Done.' }] }) },
      registration: {
        runtime: 'template',
        runtime_options: {
          method: 'PUT',
          path: '/rooms/{{meeting_id}}?as={{agent_id}}',
          headers: { 'x-who': '{{from_agent}} of {{meeting_id}}' },
          body: { prompt: 'says: {{text}}', whole: '{{message}}', n: '{{seq}}', none: '{{in_reply_to}}' },
          reply: '/out/0/text',
        },
      },
    });
    const content = 'quote " and \\ and {{meeting_id}}';
    await service.send(m, { content });
    const { method, path, headers, text } = await receiver.next();
    assert.deepEqual([method, path, headers['x-who']], ['PUT', `/webhook/rooms/${m}?as=lena`, ` of ${m}`.trim()]);
    assert.deepEqual(JSON.parse(text), { prompt: `says: ${content}`, whole: { content }, n: 1, none: null });
    assert.deepEqual((await history(m, 2))[1]?.message, { content: 'Done.' });
  });
});

describe('an instance with the runtime hermes', () => {
  test('is signed under the names that Hermes knows, over the bytes that are sent', async (t) => {
    const m = service.name('meeting');
    const { receiver, webhook_secret } = await service.member(t, m, {
      agent_ids: ['hermes'],
      behaviour: { status: 202, body: '{"status":"accepted"}' },
      registration: { runtime: 'hermes' },
    });
    const sent = await service.send(m, { content: 'hi' });
    const { headers, text } = await receiver.next();
    const signed = ['id', 'timestamp', 'signature'].map((name) => [`webhook-${name}`, String(headers[`svix-${name}`])]);
    assert.ok(new Webhook(webhook_secret).verify(text, Object.fromEntries(signed) as Record<string, string>));
    assert.equal(headers['svix-id'], (await service.settled(sent)).delivery_id);
    const { convoke } = JSON.parse(text) as { convoke: { reply_url: string; reply_token: string } };
    const late = { body: { reply: 'Later.' }, headers: { 'convoke-reply-token': convoke.reply_token } };
    assert.equal((await service.request('POST', new URL(convoke.reply_url).pathname, late)).status, 201);
    assert.equal((await history(m, 2))[1]?.from_agent, 'hermes');
  });

  test('is tested with a signed event that its route filters', async (t) => {
    const receiver = await startReceiver(t, { body: '{"status":"ignored","event":"webhook_test"}' });
    const { instance_id, webhook_secret = '' } = await service.register({
      runtime: 'hermes',
      webhook_url: receiver.url,
    });
    const tested = await service.post<{ success: boolean }>('/api/v1/instances/webhook-test/', { instance_id });
    assert.equal(tested.body.success, true, tested.text);
    const { headers, text } = await receiver.next();
    const signed = ['id', 'timestamp', 'signature'].map((name) => [`webhook-${name}`, String(headers[`svix-${name}`])]);
    assert.ok(new Webhook(webhook_secret).verify(text, Object.fromEntries(signed) as Record<string, string>));
  });
});

describe('an instance with the runtime openclaw', () => {
  test('is sent the same bytes and key on each attempt, so that the gateway knows a run that it has', async (t) => {
    const m = service.name('meeting');
    const { receiver } = await service.member(t, m, {
      agent_ids: ['main'],
      behaviour: (_, number) => (number === 1 ? { status: 503 } : { body: '{"ok":true}' }),
      registration: { runtime: 'openclaw' },
    });
    await service.settled(await service.send(m, { content: 'hi' }));
    const [one, two] = receiver.requests.map(({ text, headers, path }) => [path, headers['idempotency-key'], text]);
    assert.equal(one?.[0], '/webhook/agent');
    assert.deepEqual(one, two);
    assert.match(String(one?.[2]), /convoke-reply-token: cvr_/);
  });
});

describe('a registration', () => {
  const register = (more: object) =>
    service.post('/api/v1/instances/register/', {
      instance_id: service.name('i'),
      instance_name: 'i',
      agent_ids: ['a'],
      webhook_url: 'http://127.0.0.1:9/v1',
      ...more,
    });

  for (const [what, more, path] of [
    ['an option that is missing', { runtime: 'openai' }, 'runtime_options.model'],
    ['an option of the wrong type', { runtime: 'openai', runtime_options: { model: 3 } }, 'runtime_options.model'],
    [
      'an option that there is not',
      { runtime: 'openai', runtime_options: { model: 'x', modle: 'y' } },
      'runtime_options.modle',
    ],
    ['options without a runtime', { runtime_options: { model: 'x' } }, 'runtime_options'],
    ['a runtime for a machine that pulls', { ...OPENAI, transport: 'pull' }, 'runtime'],
    [
      'a place that no push has',
      { runtime: 'template', runtime_options: { body: { a: '{{mesage}}' } } },
      'runtime_options.body',
    ],
    ['a runtime that is not there', { runtime: 'nobody' }, 'runtime'],
    ['a timeout beyond its bounds', { timeout_s: 601 }, 'timeout_s'],
  ] as const) {
    test(`with ${what} is refused, and the problem names ${path}`, async () => {
      const problem = assertProblem(await register(more), 422, 'invalid_fields');
      assert.deepEqual(
        problem.errors?.map((error) => error.path),
        [path],
      );
    });
  }

  test('shows the names of the options and never their values; one without a runtime ends it', async () => {
    const instance_id = service.name('i');
    const { body, text } = await register({
      instance_id,
      runtime: 'openai',
      runtime_options: { model: 'm', system: 'the-hidden-words' },
    });
    const { runtime, runtime_option_names, replies, timeout_s } = body as Instance;
    assert.deepEqual([runtime, runtime_option_names, replies, timeout_s], ['openai', ['model', 'system'], true, 120]);
    assert.ok(!text.includes('the-hidden-words'));
    const again = (await register({ instance_id })).body as Instance;
    assert.deepEqual([again.runtime, again.timeout_s], [undefined, undefined]);
  });

  test('that ends a runtime ends its timeout too, unless it gives one; one that ends none leaves the timeout', async () => {
    const instance_id = service.name('i');
    const timeoutAfter = async (more: object) =>
      ((await register({ instance_id, ...more })).body as Instance).timeout_s;
    const openclaw = { runtime: 'openclaw' };
    assert.equal(await timeoutAfter(openclaw), 600);
    assert.equal(await timeoutAfter({}), undefined, 'the 5 s of the specification');
    assert.equal(await timeoutAfter({ ...openclaw, timeout_s: 300 }), 300);
    assert.equal(await timeoutAfter({ runtime: 'spec' }), undefined, 'also one that was set');
    assert.equal(await timeoutAfter(openclaw), 600);
    assert.equal(await timeoutAfter({ timeout_s: 60 }), 60);
    assert.equal(await timeoutAfter({}), 60, 'there was no runtime');
  });
});

describe('webhook-test', () => {
  const test_ = (instance_id: string) =>
    service.post<{ success: boolean; advice: string }>('/api/v1/instances/webhook-test/', { instance_id });

  test('asks a server of chat completions for its models, and makes no completion', async (t) => {
    const receiver = await startReceiver(t, { body: '{"data":[{"id":"llama3.2:latest"},{"id":"qwen"}]}' });
    const good = await service.register({ ...OPENAI, webhook_url: `${receiver.origin}/v1` });
    const tested = await test_(good.instance_id);
    assert.deepEqual([tested.body.success, tested.body.advice], [true, 'It is there, and has the model llama3.2.']);
    assert.deepEqual(
      receiver.requests.map(({ method, path }) => `${method} ${path}`),
      ['GET /v1/models'],
    );
  });

  test('says which setting of the runtime is wrong', async (t) => {
    const receiver = await startReceiver(t, { body: '{"data":[{"id":"qwen"}]}' });
    const { instance_id } = await service.register({ ...OPENAI, webhook_url: `${receiver.origin}/v1` });
    const { body } = await test_(instance_id);
    assert.equal(body.success, false);
    assert.equal(body.advice, 'It does not list the model llama3.2 of runtime_options.model; it has qwen.');
    receiver.behaviour = { status: 401 };
    assert.match((await test_(instance_id)).body.advice, /set webhook_headers\.authorization/);
  });
});

test('webhook-test of a server with more models than are read says that it is there, and that nothing more was checked', async (t) => {
  const models = Array.from({ length: 2_000 }, (_, i) => ({ id: `a/model-with-a-long-name-${i}`, object: 'model' }));
  const receiver = await startReceiver(t, { body: JSON.stringify({ data: models }) });
  const { instance_id } = await service.register({ ...OPENAI, webhook_url: `${receiver.origin}/v1` });
  const { body } = await service.post<{ success: boolean; advice: string }>('/api/v1/instances/webhook-test/', {
    instance_id,
  });
  assert.deepEqual(
    [body.success, body.advice],
    [true, '200: it is there. Nothing more was checked: the body of the response was over 64 KiB.'],
  );
});

describe('what is kept of the response of a runtime', () => {
  const SECRET = 'Bearer the-secret-key';
  const ECHO = { webhook_headers: { authorization: SECRET }, replies: true };
  const isHidden = (text: string, token: string) =>
    assert.ok(!text.includes('the-secret-key') && !text.includes(token), text.slice(0, 200));

  test('is its beginning, without the credential and the token for replies that it repeats', async (t) => {
    const m = service.name('meeting');
    let token = '';
    const { receiver } = await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: ({ text, headers }) => {
        ({ token } = JSON.parse(text) as { token: string });
        return { body: JSON.stringify({ headers, token, said: 'x'.repeat(3_000) }) };
      },
      registration: {
        runtime: 'template',
        runtime_options: { body: { token: '{{reply_token}}' }, reply: '/said' },
        ...ECHO,
      },
    });
    const { state, attempts } = await service.settled(await service.send(m, { content: 'Hello' }));
    const [{ response_excerpt } = { response_excerpt: '' }] = attempts;
    assert.deepEqual([state, receiver.requests[0]?.headers.authorization], ['delivered', SECRET], 'control');
    assert.match(token, /^cvr_/, 'control');
    assert.match(response_excerpt, /"authorization":"\[hidden\]".*"token":"\[hidden\]"/);
    assert.ok(response_excerpt.length <= 1_024);
    isHidden(response_excerpt, token);
    const [, reply] = await history(m, 2);
    assert.deepEqual(reply?.message, { content: 'x'.repeat(3_000) }, 'the reply is whole');
  });

  test('is its reason for a failure, without the credential', async (t) => {
    const m = service.name('meeting');
    await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: ({ headers }) => ({
        body: JSON.stringify({ error: { message: `no such credential: ${headers.authorization}` } }),
      }),
      registration: { runtime: 'a2a', ...ECHO },
    });
    const { attempts } = await service.attempted(await service.send(m, { content: 'Hello' }));
    assert.match(attempts[0]?.detail ?? '', /no such credential: \[hidden\]/);
  });

  test('is the beginning of a long reason, without a part of the credential where it is cut', async (t) => {
    const m = service.name('meeting');
    await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: ({ headers }) => ({
        body: JSON.stringify({ error: { message: `${'x'.repeat(180)} ${headers.authorization}` } }),
      }),
      registration: { runtime: 'a2a', ...ECHO },
    });
    const { attempts } = await service.attempted(await service.send(m, { content: 'Hello' }));
    assert.match(attempts[0]?.detail ?? '', /: x{180} …$/);
  });

  test('is a reason that is text, also when half a character is at the cut', async (t) => {
    const m = service.name('meeting');
    await service.member(t, m, {
      agent_ids: ['lena'],
      behaviour: { body: JSON.stringify({ error: { message: `${'x'.repeat(199)}😀 and more` } }) },
      registration: { runtime: 'a2a', ...ECHO },
    });
    const { attempts } = await service.attempted(await service.send(m, { content: 'Hello' }));
    const { detail = '' } = attempts[0] ?? {};
    assert.ok(/: x{199}/.test(detail) && detail.isWellFormed(), JSON.stringify(detail));
  });
});

test('the log line of a failed push has the number of the agents that answered, and not all their names', async (t) => {
  const m = service.name('meeting');
  const agent_ids = Array.from({ length: 300 }, (_, i) => `agent-${i}-${'x'.repeat(100)}`);
  await service.member(t, m, {
    agent_ids,
    behaviour: ({ text }) => ({ status: text.includes('agent-7-') ? 500 : 200, body: '{}' }),
    registration: {
      runtime: 'template',
      runtime_options: { body: { agent: '{{agent_id}}' }, each_agent: true },
    },
  });
  const sent = await service.send(m, { content: 'Hello' });
  const { delivery_id } = await service.attempted(sent);
  const line = service.logOf({ delivery_id }).find(({ msg }) => msg === 'push failed');
  assert.equal(line?.['agents_answered'], 299);
  assert.ok(JSON.stringify(line).length < 2_000, JSON.stringify(line).slice(0, 2_000));
});
