/** How Convoke reads the replies in a response to a push, and why it cannot send some of them. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { REPLIES_MAX, repliesIn } from '../../src/domain/reply.ts';

const MESSAGE_BYTES_MAX = 1_000;

function read(body: string, agents: string[] = ['anna']) {
  return repliesIn(body, { agents, max_message_bytes: MESSAGE_BYTES_MAX });
}

function onlyReply(body: string, agents?: string[]) {
  const [first, ...more] = read(body, agents);
  assert.ok(first?.kind === 'reply', JSON.stringify(first));
  assert.equal(more.length, 0);
  return first.reply;
}

function onlyRefusal(body: string, agents?: string[]): string {
  const [first, ...more] = read(body, agents);
  assert.ok(first?.kind === 'refused', JSON.stringify(first));
  assert.equal(more.length, 0);
  return first.why;
}

describe('a response to a push', () => {
  const WITHOUT = ['', 'ok\n', '{}', '[]', '"reply"', '{"reply"', '{"status":"ok"}', '{"reply":null}', '{"reply":""}'];
  for (const body of [
    ...WITHOUT,
    '{"replies":[]}',
    '{"replies":[null,""]}',
    '[{"reply":"x"}]',
    '\ufeff{"reply":"x"}',
  ]) {
    test(`has no reply in it: ${JSON.stringify(body)}`, () => assert.deepEqual(read(body), []));
  }

  test('may be a text, which becomes the content of a message', () => {
    assert.deepEqual(onlyReply(' \r\n{"id": 7, "reply": "Good \\u006dorning"}'), {
      message: '{"content":"Good \\u006dorning"}',
      timestamp: '',
      from_agent: 'anna',
      target_agents: null,
    });
  });

  test('may be a message, which stays as it was written', () => {
    const message = '{ "n": 12345678901234567890, "n": 1e400, "\\u0061": [ ], "created_at": 1.50 }';
    assert.deepEqual(
      onlyReply(`{"reply":{"message": ${message} ,"from_agent":"b","target_agents":["x","y","x"]}}`, ['a', 'b']),
      {
        message,
        timestamp: '1.50',
        from_agent: 'b',
        target_agents: ['x', 'y'],
      },
    );
  });

  test('may have several, in their order, with texts of their own', () => {
    const items = ['"one, [two] \\"{"', ' {"message":{"a":[1,{"b":"]"}]}} ', '{"message":{"created_at":"now"}}'];
    const replies = read(`{"x":[1],"replies":[${items.join(',')}]}`);
    assert.deepEqual(
      replies.map((each) => (each.kind === 'reply' ? [each.reply.message, each.reply.timestamp] : each.why)),
      [
        ['{"content":"one, [two] \\"{"}', ''],
        ['{"a":[1,{"b":"]"}]}', ''],
        ['{"created_at":"now"}', 'now'],
      ],
    );
  });

  test('sends what it can, and says of each of the others why not', () => {
    const kinds = read('{"replies":["a",7,{"message":{}}]}').map(({ kind }) => kind);
    assert.deepEqual(kinds, ['reply', 'refused', 'reply']);
  });

  test(`has at most ${REPLIES_MAX} that are sent`, () => {
    const replies = read(JSON.stringify({ replies: Array.from({ length: REPLIES_MAX + 3 }, (_, i) => `${i}`) }));
    assert.equal(replies.length, REPLIES_MAX + 1);
    assert.deepEqual(replies.at(-1), {
      kind: 'refused',
      why: `3 more were left out: a response has at most ${REPLIES_MAX}`,
      position: REPLIES_MAX,
    });
  });

  test('may have one for each agent of a push for many agents', () => {
    const agents = Array.from({ length: REPLIES_MAX + 5 }, (_, i) => `a${i}`);
    const replies = [...agents, 'a0'].map((from_agent) => ({ message: {}, from_agent }));
    const kinds = read(JSON.stringify({ replies }), agents).map(({ kind }) => kind);
    assert.deepEqual(kinds, [...agents.map(() => 'reply'), 'refused']);
  });

  test('keeps the position of each, also beside what is no reply', () => {
    const positions = read('{"replies":[null,"a","",7,"b"]}').map(({ position }) => position);
    assert.deepEqual(positions, [1, 3, 4]);
  });
});

describe('a reply is refused', () => {
  const REFUSED: [body: string, why: RegExp][] = [
    ['{"reply":7}', /a text, or an object/],
    ['{"reply":["x"]}', /a text, or an object/],
    ['{"reply":{"content":"x"}}', /and no "content"/],
    ['{"reply":{"message":{},"target_agent":["x"]}}', /and no "target_agent"/],
    ['{"reply":{"message":{},"__proto__":{}}}', /and no "__proto__"/],
    ['{"reply":{"message":"x"}}', /message of a reply is not a JSON object/],
    ['{"reply":{"message":[]}}', /message of a reply is not a JSON object/],
    ['{"reply":{}}', /message of a reply is not a JSON object/],
    ['{"reply":{"message":{},"from_agent":7}}', /from_agent is not a string/],
    ['{"reply":{"message":{},"from_agent":"bob"}}', /"bob" is none of the agents/],
    ['{"reply":{"message":{},"target_agents":"x"}}', /target_agents is not a list/],
    ['{"reply":{"message":{},"target_agents":[""]}}', /target_agents is not a list/],
    ['{"reply":{"message":{},"target_agents":["\\ud800"]}}', /target_agents is not a list/],
    ['{"replies":"x"}', /replies is not a list/],
    ['{"reply":"x","replies":["y"]}', /both reply and replies/],
    [`{"reply":{"message":{"a":"${'x'.repeat(MESSAGE_BYTES_MAX)}"}}}`, /has 1008 bytes, and at most 1000/],
    [`{"reply":{"message":{"a":${'['.repeat(200)}${']'.repeat(200)}}}}`, /nested too deeply/],
  ];
  for (const [body, why] of REFUSED) {
    test(`with words that say why: ${body.slice(0, 70)}`, () => assert.match(onlyRefusal(body), why));
  }

  test('when the push was for several agents, and it does not say which of them speaks', () => {
    assert.match(onlyRefusal('{"reply":"x"}', ['a', 'b']), /from_agent is missing/);
    assert.equal(onlyReply('{"reply":{"message":{},"from_agent":"b"}}', ['a', 'b']).from_agent, 'b');
  });

  test('with at most some words of what the receiver wrote', () => {
    const why = onlyRefusal(JSON.stringify({ reply: { message: {}, from_agent: 'x'.repeat(5_000) } }));
    assert.ok(why.length < 200, why);
  });
});
