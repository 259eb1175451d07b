/** What runtimes are sent, and what their responses mean: pure functions of the push. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Problem } from '../../src/domain/problem.ts';
import type { Options } from '../../src/domain/runtimes/options.ts';
import type { Asked, Meaning, PastMessage } from '../../src/domain/runtimes/runtime.ts';
import { checkedRuntime, RUNTIMES, type ShapedName } from '../../src/domain/runtimes/runtimes.ts';

const asked = (more: Partial<Asked> = {}): Asked => ({
  delivery_id: 'dlv_00000001',
  message_id: 'msg_00000001',
  seq: 7,
  meeting_id: 'standup-42',
  message: { content: 'Who is there?' },
  agents: ['lena'],
  timestamp: '',
  from_agent: null,
  in_reply_to: null,
  reply_url: null,
  reply_token: null,
  body: '{}',
  history: [],
  ...more,
});

const past = (from_agent: string | null, content: string): PastMessage => ({
  seq: 1,
  from_agent,
  message: { content },
});

function bodyOf(name: ShapedName, options: Options, given = asked()): Record<string, unknown> {
  return JSON.parse(RUNTIMES[name].requestOf(given, options, 'http://h/base').body) as Record<string, unknown>;
}

function meaningOf(name: ShapedName, body: unknown, options: Options = {}, status_code = 200): Meaning {
  const response = { status_code, body: typeof body === 'string' ? body : JSON.stringify(body) };
  return RUNTIMES[name].read(response, asked(), options, 'http://h/base');
}

const said = (...answers: string[]): Meaning => ({ kind: 'answered', answers });

const completion = (content: unknown) => ({ choices: [{ message: { role: 'assistant', content } }] });

describe('openai', () => {
  const OPTIONS = { model: 'x' };

  test('roles go by turns and the user begins, whoever spoke before', () => {
    const history = [past('lena', 'I began.'), past('ben', 'Hi.'), past('lena', 'Hello.'), past('lena', 'And more.')];
    const { messages } = bodyOf('openai', OPTIONS, asked({ history })) as {
      messages: { role: string; content: string }[];
    };
    assert.deepEqual(
      messages.slice(1).map(({ role, content }) => `${role} ${content}`),
      ['user lena: I began.\n\nben: Hi.', 'assistant Hello.\n\nAnd more.', 'user somebody: Who is there?'],
    );
  });

  test('the text of a message is its content or text, or all of it', () => {
    const texts = [{ content: 'a' }, { text: 'b' }, { kind: 'poll', options: [1] }].map((message) => {
      const { messages } = bodyOf('openai', OPTIONS, asked({ message })) as { messages: { content: string }[] };
      return messages[1]?.content;
    });
    assert.deepEqual(texts, ['somebody: a', 'somebody: b', 'somebody: {"kind":"poll","options":[1]}']);
  });

  test('an answer is a text or parts, without the name before it; empty and the word for none are none', () => {
    assert.deepEqual(meaningOf('openai', completion('Hello.')), said('Hello.'));
    assert.deepEqual(meaningOf('openai', completion([{ type: 'text', text: 'Hel' }, { text: 'lo.' }])), said('Hello.'));
    assert.deepEqual(meaningOf('openai', completion(' lena: Hello. ')), said('Hello.'));
    for (const none of ['', ' ', 'NO_REPLY', null])
      assert.deepEqual(meaningOf('openai', completion(none)), said(), String(none));
    assert.deepEqual(meaningOf('openai', completion('PASS'), { no_reply: 'PASS' }), said());
  });

  test('what is no completion, or no success, is a failure', () => {
    const kinds = ['', '[]', '{}', 'null', '{"choices":[]}'].map((body) => meaningOf('openai', body).kind);
    assert.deepEqual(new Set(kinds), new Set(['failed']));
    for (const [status, outcome] of [
      [404, 'bad_status'],
      [503, 'bad_status'],
      [410, 'gone'],
    ] as const) {
      const meaning = meaningOf('openai', '', {}, status);
      assert.deepEqual(meaning, { kind: 'failed', outcome, detail: `answered ${status}` });
    }
  });
});

describe('template', () => {
  test('no text breaks out of its place, and a lone place keeps the type of its value', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (content) => {
        const options = {
          body: { text: 'x{{text}}y', whole: '{{message.content}}', n: '{{seq}}', list: ['{{target_agents}}'] },
        };
        const body = bodyOf('template', options, asked({ message: { content } }));
        assert.deepEqual(body, {
          text: `x${content.toWellFormed()}y`,
          whole: content.toWellFormed(),
          n: 7,
          list: [['lena']],
        });
      }),
    );
  });

  test('values in the path and in headers are percent-encoded', () => {
    const options = { body: {}, path: '/r/{{meeting_id}}?q={{text}}', headers: { 'X-About': 'in {{meeting_id}}' } };
    const given = asked({ meeting_id: 'a/b\r\nc: d', message: { content: '&x=1#' } });
    const { url, headers } = RUNTIMES.template.requestOf(given, options, 'http://h/base');
    assert.equal(url, 'http://h/base/r/a%2Fb%0D%0Ac%3A%20d?q=%26x%3D1%23');
    assert.equal(headers['x-about'], 'in a%2Fb%0D%0Ac%3A%20d');
  });

  test('a reply is what the pointer finds: a text, or a message', () => {
    const options = { body: {}, reply: '/a~1b/0' };
    assert.deepEqual(meaningOf('template', { 'a/b': ['yes'] }, options), said('yes'));
    assert.deepEqual(meaningOf('template', { 'a/b': [{ mood: 1 }] }, options), {
      kind: 'answered',
      answers: [{ message: { mood: 1 } }],
    });
    for (const none of [{}, { 'a/b': [null] }, { 'a/b': [3] }, { 'a/b': 'yes' }]) {
      assert.deepEqual(meaningOf('template', none, options), said());
    }
    assert.deepEqual(meaningOf('template', 'no json', { body: {} }), said(), 'without a pointer nothing is read');
    assert.equal(meaningOf('template', 'no json', options).kind, 'failed');
  });

  test('options that could do harm or are mistyped are refused', () => {
    const body = {};
    for (const options of [
      { body: 'text' },
      { body: { a: '{{mesage.content}}' } },
      { body, path: 'http://elsewhere/' },
      { body, path: '/a b' },
      { body, headers: { host: 'x' } },
      { body, headers: { 'content-length': '1' } },
      { body, headers: { a: 'b\r\nc: d' } },
      { body, reply: 'choices/0' },
      { body, method: 'DELETE' },
      { body: { a: 'x'.repeat(20_000) } },
    ]) {
      assert.throws(
        () => checkedRuntime('template', options),
        (error) => error instanceof Problem && error.code === 'invalid_fields',
        JSON.stringify(options).slice(0, 80),
      );
    }
  });
});

describe('a2a', () => {
  const task = (state: string, more: object = {}) => ({ id: 't1', contextId: 'c', status: { state }, ...more });
  const artifacts = [{ artifactId: 'a', parts: [{ text: 'Sun' }, { text: 'shine' }] }];

  test('each way to write it has the text, the context of meeting and agent, and asks not to wait', () => {
    const [now, rpc, before] = (['1.0', '1.0-jsonrpc', '0.3'] as const).map((protocol) => bodyOf('a2a', { protocol }));
    const about = { messageId: 'dlv_00000001:lena', contextId: 'standup-42:lena' };
    const { message, configuration } = now as { message: object; configuration: object };
    assert.deepEqual(
      { ...message, ...about, role: 'ROLE_USER', parts: [{ text: 'somebody: Who is there?' }] },
      message,
    );
    assert.deepEqual(configuration, { returnImmediately: true, acceptedOutputModes: ['text/plain'] });
    assert.deepEqual([rpc?.['method'], rpc?.['params']], ['SendMessage', now]);
    const params = before?.['params'] as { message: { kind: string; parts: object[] }; configuration: object };
    assert.deepEqual([before?.['method'], params.configuration], ['message/send', { blocking: false }]);
    assert.deepEqual(params.message.parts, [{ kind: 'text', text: 'somebody: Who is there?' }]);
  });

  test('a message and a finished task are answers, in each way to write it', () => {
    const result = (value: unknown) => ({ jsonrpc: '2.0', id: '1', result: value });
    for (const [options, body] of [
      [{}, { message: { parts: [{ text: 'Sun\nshine' }] } }],
      [{}, { task: task('TASK_STATE_COMPLETED', { artifacts }) }],
      [{}, task('TASK_STATE_COMPLETED', { artifacts })],
      [{ protocol: '1.0-jsonrpc' }, result({ task: task('TASK_STATE_COMPLETED', { artifacts }) })],
      [{ protocol: '0.3' }, result({ kind: 'message', parts: [{ kind: 'text', text: 'Sun\nshine' }] })],
      [{ protocol: '0.3' }, result({ kind: 'task', ...task('completed', { artifacts }) })],
    ] as const) {
      assert.deepEqual(meaningOf('a2a', body, options), said('Sun\nshine'), JSON.stringify(body));
    }
    const asks = { state: 'TASK_STATE_INPUT_REQUIRED', message: { parts: [{ text: 'Where?' }] } };
    assert.deepEqual(meaningOf('a2a', { task: { ...task(''), status: asks } }), said('Where?'));
  });

  test('a task that works is asked for again, and never sent again', () => {
    const meaning = meaningOf('a2a', { task: task('TASK_STATE_WORKING') });
    assert.equal(meaning.kind, 'later');
    if (meaning.kind !== 'later') return;
    assert.deepEqual([meaning.request.method, meaning.request.url], ['GET', 'http://h/base/tasks/t1']);
    assert.deepEqual(meaning.if_late.answers, []);
    assert.match(meaning.if_late.note ?? '', /not finished in time/);
  });

  test('a refusal, a failed task, and what is neither are failures; a rejected task has no answer', () => {
    assert.equal(meaningOf('a2a', { task: task('TASK_STATE_FAILED') }).kind, 'failed');
    assert.equal(meaningOf('a2a', {}).kind, 'failed');
    const refused = { jsonrpc: '2.0', id: '1', error: { code: -32601, message: 'no such method' } };
    assert.match((meaningOf('a2a', refused, { protocol: '0.3' }) as { detail: string }).detail, /no such method/);
    assert.deepEqual(meaningOf('a2a', { task: task('TASK_STATE_REJECTED') }), {
      kind: 'answered',
      answers: [],
      note: 'the agent ended the task as rejected',
    });
  });

  test('the agent card says whether it speaks what was chosen', () => {
    const card = { name: 'Sky', supportedInterfaces: [{ protocolBinding: 'JSONRPC', protocolVersion: '1.0' }] };
    const probed = (protocol: string) =>
      RUNTIMES.a2a.readProbe({ status_code: 200, body: JSON.stringify(card) }, { protocol });
    assert.equal(probed('1.0-jsonrpc').is_ok, true);
    assert.deepEqual(probed('1.0'), {
      is_ok: false,
      advice: 'Sky does not speak runtime_options.protocol 1.0; its card names 1.0-jsonrpc.',
    });
  });
});

test('the same push gives the same bytes', () => {
  for (const [name, options] of [
    ['openai', { model: 'x' }],
    ['template', { body: { all: '{{message}}', before: '{{history}}' } }],
    ['a2a', {}],
  ] as const) {
    const given = asked({ history: [past('ben', 'Hi.')] });
    const [one, two] = [0, 1].map(() => RUNTIMES[name].requestOf(structuredClone(given), options, 'http://h/base'));
    assert.deepEqual(one, two, name);
  }
});
