/** How the agents of a push are asked: what becomes of odd responses, of slow agents, and of what others were told. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { askRuntime, type RuntimeAnswer } from '../../src/delivery/runtimes/ask_runtime.ts';
import type { Exchanged } from '../../src/delivery/runtimes/exchanged.ts';
import { ANSWERS_CHARS_MAX, type AnswersOfPush, KeptAnswers } from '../../src/delivery/runtimes/kept_answers.ts';
import type { Options } from '../../src/domain/runtimes/options.ts';
import type { Asked, PastMessage, RuntimeRequest } from '../../src/domain/runtimes/runtime.ts';
import { RUNTIMES, type ShapedName } from '../../src/domain/runtimes/runtimes.ts';
import { askedOf } from '../support/asked.ts';

const responded = (body: unknown, more: Partial<Exchanged> = {}): Exchanged => ({
  outcome: 'ok',
  status_code: 200,
  detail: '',
  retry_after: null,
  excerpt: '',
  body: typeof body === 'string' ? body : JSON.stringify(body),
  ...more,
});

interface Case {
  name: ShapedName;
  options?: Options;
  asked?: Partial<Asked>;
  attempt?: number;
  answered_agents?: string[];
  kept?: AnswersOfPush;
  pause?: (ms: number) => Promise<boolean>;
  exchange: (request: RuntimeRequest, agents: readonly string[]) => Promise<Exchanged> | Exchanged;
}

async function ask(of: Case): Promise<RuntimeAnswer> {
  const { name, options = {}, asked = {}, attempt = 1, answered_agents = [], pause, exchange } = of;
  const answer = await askRuntime({
    runtime: RUNTIMES[name],
    options,
    base_url: 'http://h/base',
    attempt,
    asked: askedOf(asked),
    answered_agents,
    kept: of.kept ?? new KeptAnswers().ofPush(),
    exchange: async (request, agents) => exchange(request, agents),
    pause: pause ?? (async () => false),
  });
  assert.ok(answer !== null);
  return answer;
}

describe('a response of another form than the runtime has', () => {
  const stream = (type: unknown) =>
    `event: metadata\ndata: {}\n\nevent: updates\ndata: ${JSON.stringify({ node: { messages: [{ type }] } })}\n\n`;
  /** Nobody can make this object into a text. */
  const NO_TEXT = { toString: 1 };
  const working = (id: unknown) => ({ task: { id, status: { state: 'TASK_STATE_WORKING' } } });
  const deep = `{"said":{"list":${'['.repeat(30_000)}${']'.repeat(30_000)}}}`;
  const cases: [what: string, Case['name'], Options, body: unknown, outcome: string][] = [
    ['an answer that is nested 30,000 deep', 'template', { body: {}, reply: '/said' }, deep, 'broken_response'],
    ['a task whose id is an object', 'a2a', {}, working(NO_TEXT), 'broken_response'],
    ['a task whose id is half a character', 'a2a', {}, working('\ud800'), 'broken_response'],
    ['a task without an id', 'a2a', {}, working(undefined), 'broken_response'],
    ['a message whose type is an object', 'langgraph', { assistant_id: 'a' }, stream(NO_TEXT), 'ok'],
    [
      'a run whose id is an object',
      'openclaw',
      {},
      { ok: true, runId: NO_TEXT, completion: { status: 'error' } },
      'ok',
    ],
  ];
  for (const [what, name, options, body, outcome] of cases) {
    test(`ends only its attempt: ${what}`, async () => {
      const answer = await ask({ name, options, exchange: () => responded(body) });
      assert.equal(answer.outcome, outcome, answer.detail);
      if (outcome !== 'ok') assert.deepEqual(answer.answered, []);
    });
  }
});

describe('a task that works', () => {
  const working = { task: { id: 't1', status: { state: 'TASK_STATE_WORKING' } } };
  const done = { id: 't1', status: { state: 'TASK_STATE_COMPLETED', message: { parts: [{ text: 'Sunshine' }] } } };
  const CUT = 'the body of the response did not arrive whole';
  const failing = (status_code: number, more: Partial<Exchanged> = {}) =>
    responded('', { outcome: 'bad_status', status_code, ...more });

  for (const [what, hitch, pause_ms] of [
    ['responds 503', failing(503), 1_000],
    ['responds 401, because its credential has just ended', failing(401), 1_000],
    ['responds 302', failing(302), 1_000],
    ['responds 429 and asks for a pause', failing(429, { retry_after: '7' }), 7_000],
    ['is not reached', responded('', { outcome: 'connect_refused', status_code: null }), 1_000],
    ['cuts the connection', responded('', { outcome: 'broken_response', status_code: null }), 1_000],
    ['cuts its response', responded('{"id":', { outcome: 'broken_response', detail: CUT }), 1_000],
  ] as const) {
    test(`is looked for again when its agent ${what}: the message is sent once`, async () => {
      const responses = [responded(working), hitch, responded(done)];
      const requests: string[] = [];
      const pauses: number[] = [];
      const answer = await ask({
        name: 'a2a',
        exchange: ({ method, url }) => {
          requests.push(`${method} ${url}`);
          return responses.shift() as Exchanged;
        },
        pause: async (ms) => pauses.push(ms) > 0,
      });
      assert.deepEqual([answer.outcome, answer.answered[0]?.body], ['ok', '{"replies":["Sunshine"]}'], answer.detail);
      const look = 'GET http://h/base/tasks/t1';
      assert.deepEqual(requests, ['POST http://h/base/message:send', look, look]);
      assert.deepEqual(pauses, [1_000, pause_ms]);
    });
  }

  test('that its agent does not know any more fails the attempt, so that the message is sent again', async () => {
    const responses = [responded(working), failing(404)];
    const answer = await ask({
      name: 'a2a',
      exchange: () => responses.shift() as Exchanged,
      pause: async () => true,
    });
    assert.deepEqual([answer.outcome, answer.status_code], ['bad_status', 404]);
  });

  for (const [what, body] of [
    ['has an error of its own', { error: { code: -32_603, message: 'the store is locked' } }],
    ['answers with something else', { result: {} }],
  ] as const) {
    test(`is looked for again when its agent ${what}, with the status 200 of JSON-RPC`, async () => {
      const responses = [working, body, done].map((result) => responded(result === body ? body : { result }));
      const methods: string[] = [];
      const answer = await ask({
        name: 'a2a',
        options: { protocol: '1.0-jsonrpc' },
        exchange: (request) => {
          methods.push((JSON.parse(request.body) as { method: string }).method);
          return responses.shift() as Exchanged;
        },
        pause: async () => true,
      });
      assert.deepEqual([answer.outcome, answer.answered[0]?.body], ['ok', '{"replies":["Sunshine"]}'], answer.detail);
      assert.deepEqual(methods, ['SendMessage', 'GetTask', 'GetTask']);
    });
  }

  test('that its agent does not know any more, as JSON-RPC says it, fails the attempt', async () => {
    const gone = { error: { code: -32_001, message: 'Task not found' } };
    const responses = [responded({ result: working }), responded(gone)];
    const answer = await ask({
      name: 'a2a',
      options: { protocol: '1.0-jsonrpc' },
      exchange: () => responses.shift() as Exchanged,
      pause: async () => true,
    });
    assert.equal(answer.outcome, 'bad_status');
  });

  test('whose agent is away until the time is over is not sent again', async () => {
    const responses = [responded(working), failing(503)];
    const left = [true, false];
    const answer = await ask({
      name: 'a2a',
      exchange: () => responses.shift() as Exchanged,
      pause: async () => left.shift() === true,
    });
    assert.deepEqual(
      [answer.outcome, answer.detail],
      ['ok', 'the task of the agent was not finished in time; its answer is lost'],
    );
  });

  test('whose responses are always too long to be read is not sent again, and the attempt says so', async () => {
    const long = responded('{"id":', {
      outcome: 'broken_response',
      detail: 'the body of the response was over 64 KiB',
    });
    const responses = [responded(working), long, long];
    const left = [true, true, false];
    const answer = await ask({
      name: 'a2a',
      exchange: () => responses.shift() as Exchanged,
      pause: async () => left.shift() === true,
    });
    assert.equal(answer.outcome, 'ok');
    assert.match(answer.detail, /its answer is lost; the last response: the body of the response was over 64 KiB$/);
    assert.deepEqual(answer.answered[0]?.body, '{"replies":[]}');
  });
});

test('agents that never answer keep no other agent from being asked in one of the attempts', async () => {
  const agents = Array.from({ length: 12 }, (_, i) => `a${i}`);
  const slow = new Set(agents.slice(0, 8));
  const answered = new Set<string>();
  for (let attempt = 1; attempt <= 3; attempt++) {
    let has_time = true;
    await ask({
      name: 'openai',
      options: { model: 'x' },
      asked: { agents },
      attempt,
      // The time of the attempt is over when an agent did not answer.
      exchange: async (_request, [agent = '']) => {
        const is_asked = has_time;
        await turn();
        if (!slow.has(agent) && is_asked) answered.add(agent);
        if (slow.has(agent)) has_time = false;
        return slow.has(agent) || !is_asked
          ? responded('', { outcome: 'timeout', status_code: null })
          : responded({ choices: [{ message: { content: 'NO_REPLY' } }] });
      },
    });
  }
  assert.deepEqual([...answered].toSorted(), agents.slice(8).toSorted());
});

test('an agent is shown nothing that was said only to another agent of its instance', async () => {
  const past = (content: string, target_agents: string[] | null, from_agent: string | null = null): PastMessage => ({
    seq: 1,
    from_agent,
    target_agents,
    message: { content },
  });
  const shown = new Map<string, string>();
  await ask({
    name: 'openai',
    options: { model: 'x' },
    asked: {
      agents: ['anna', 'ben'],
      history: [
        past('for all', null),
        past('for everybody', []),
        past('for Ben', ['ben']),
        past('for both', ['ben', 'anna']),
        past('by Anna', ['ben'], 'anna'),
      ],
    },
    exchange: ({ body }, [agent = '']) => {
      const { messages } = JSON.parse(body) as { messages: { content: string }[] };
      const lines = messages.slice(1).flatMap(({ content }) => content.split('\n\n'));
      shown.set(agent, lines.map((line) => line.replace(/^\w+: /, '')).join(', '));
      return responded({ choices: [{ message: { content: 'NO_REPLY' } }] });
    },
  });
  assert.deepEqual(Object.fromEntries(shown), {
    anna: 'for all, for everybody, for both, by Anna, Who is there?',
    ben: 'for all, for everybody, for Ben, for both, by Anna, Who is there?',
  });
});

describe('without room for the answers of all pushes', () => {
  const OPENAI = { name: 'openai', options: { model: 'x' } } as const;
  const answer = responded({ choices: [{ message: { content: 'Sunshine' } }] });
  const ANSWER = '{"replies":["Sunshine"]}';
  /** Other pushes keep this many times as much as one push may. */
  const fill = (all: KeptAnswers, pushes: number): AnswersOfPush[] =>
    Array.from({ length: pushes }, () => {
      const other = all.ofPush();
      assert.equal(other.take(ANSWERS_CHARS_MAX), 'kept');
      return other;
    });

  test('no more agents are asked; the next attempt asks these, and no agent runs twice', async () => {
    const all = new KeptAnswers();
    const agents = ['a', 'b', 'c', 'd', 'e', 'f'];
    const ran: string[] = [];
    const others: AnswersOfPush[] = [];
    const first = await ask({
      ...OPENAI,
      asked: { agents },
      kept: all.ofPush(),
      exchange: (_, [agent = '']) => {
        ran.push(agent);
        if (others.length === 0) others.push(...fill(all, 8));
        return answer;
      },
    });
    assert.deepEqual(ran, ['a']);
    assert.equal(first.outcome, 'broken_response');
    assert.match(first.detail, /no room for the answers of more agents.*; answered already: a$/);
    const answered_agents = first.answered.flatMap((part) => (part.body === ANSWER ? part.agents : []));
    for (const other of others) other.release();
    const exchange = (_: RuntimeRequest, [agent = '']: readonly string[]) => (ran.push(agent), answer);
    const second = await ask({
      ...OPENAI,
      asked: { agents },
      attempt: 2,
      answered_agents,
      kept: all.ofPush(),
      exchange,
    });
    assert.deepEqual([second.outcome, ran.toSorted()], ['ok', agents]);
  });

  test('an agent that ran meanwhile does not run again: its answer is not sent, and the attempt says so', async () => {
    const all = new KeptAnswers();
    const given = await ask({
      ...OPENAI,
      asked: { agents: ['a'] },
      kept: all.ofPush(),
      exchange: () => (fill(all, 16), answer),
    });
    assert.equal(given.outcome, 'ok');
    assert.match(given.detail, /no room for the answer, so it was not sent/);
    assert.deepEqual(given.answered, [{ agents: ['a'], body: '{"replies":[]}' }]);
  });
});
