/** What it costs to read a body, and which repeated names are refused in it. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { fieldText, itemTexts, parseJsonBody } from '../../src/domain/request_body.ts';
import { Problem } from '../../src/domain/problem.ts';
import { leastCost } from '../support/least_cost.ts';

const parse = (text: string) => parseJsonBody(Buffer.from(text));

describe('a JSON body', () => {
  for (const text of [
    '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}',
    '{"a":{"b":1,"b":2}}',
    '{"a":{"b":{"c":{}, "c" :1}}}',
    '{"a":[{"b":1},{"c":1,"c":2}]}',
    '{"message":{},"a":{"b":1,"b":2}}',
    '[{"a":1,"a":2}]',
    '{"reply":{"message":{},"message":{}}}',
    '{"reply":{"message":{"a":1},"a":{"b":1,"b":2}}}',
    '{"reply":{"message":{}},"a":{"b":1,"b":2}}',
    '{"reply":{"a":{"message":{"b":1,"b":2}}}}',
    '{"reply":{"message":[{"a":1,"a":2}]},"reply":{}}',
  ]) {
    test(`is refused where a field is there twice: ${text}`, () => assert.throws(() => parse(text), /there twice/));
  }

  for (const text of [
    '{"message":{"a":1,"a":[{"b":1,"b":2}]},"a":1}',
    '{"reply":{"b":1,"message":{"a":1,"a":[{"b":1,"b":2}]},"a":1}}',
    '{"a":{"b":1},"c":{"b":1},"b":1}',
    '{"a":[{"b":1},{"b":2}]}',
    '{"a":"\\"b\\":","b":1}',
  ]) {
    test(`is taken as it is: ${text}`, () => assert.deepEqual(parse(text).value, JSON.parse(text)));
  }

  test('returns the text of its own fields unchanged, and of none within others', () => {
    const body = parse('{"x":{"message":1}, "message" : {"n": 1e400 , "message": 2} ,"y":[{"z":3}]}');
    assert.equal(body.textOf('message'), '{"n": 1e400 , "message": 2}');
    assert.equal(body.textOf('y'), '[{"z":3}]');
    assert.equal(body.textOf('z'), null);
    assert.equal(fieldText('{"a":1,"b":{"a":3},"a":2.50}', 'a'), '2.50');
  });

  test('returns the items of a list as bodies of their own: one with a repeated field is a problem, and the others are not', () => {
    const texts = [
      '{"meeting_id":12345678901234567890,"message": {"a":1,"a":2} }',
      '{"a":1,"a":2}',
      ' 7',
      '{}',
      '["x"]',
    ];
    const body = parse(`{"x":[1], "messages" : [${texts.join(' ,')}] }`);
    const [first, second, ...rest] = body.items('messages', 100);
    assert.ok(first !== undefined && !(first instanceof Problem) && second instanceof Problem);
    assert.equal(first.textOf('message'), '{"a":1,"a":2}');
    assert.equal(first.textOf('meeting_id'), '12345678901234567890');
    assert.equal(second.code, 'malformed_json');
    assert.deepEqual(
      rest.map((item) => (item instanceof Problem ? item : item.value)),
      [7, {}, ['x']],
    );
    for (const text of ['{"messages":{}}', '{"messages":[]}', '{"messages":7}', '{}', '[]', 'null'])
      assert.deepEqual(parse(text).items('messages', 100), [], text);
    const [small, large] = parse('{"messages":[{"a":1}, {"a":12}]}').items('messages', 7);
    assert.ok(!(small instanceof Problem) && large instanceof Problem);
    assert.equal(large.code, 'body_too_large');
  });

  test('is refused when it is large and has very many values, and taken when it has as many bytes and few values', () => {
    const bytes = 1 << 20;
    assert.throws(() => parse(`{"messages":[${'{},'.repeat(bytes / 3)}{}]}`), /more than 150000 values/);
    assert.doesNotThrow(() => parse(`{"messages":["${'x'.repeat(bytes)}"]}`));
    assert.doesNotThrow(() => parse(`{"messages":[${'{},'.repeat(160_000)}{}]}`));
  });

  test('is refused where it is too deep, within the message as well', () => {
    for (const field of ['message', 'a']) {
      const nested = (levels: number): string => `{"${field}":${'['.repeat(levels)}${']'.repeat(levels)}}`;
      assert.doesNotThrow(() => parse(nested(99)));
      assert.throws(() => parse(nested(100)), Problem);
    }
  });

  test('with an item that is too deep is refused, unless its items are judged one by one: then this item is refused', () => {
    const nested = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;
    const text = `{"messages":[${nested(99)},${nested(100)},${nested(101)}],"a":${nested(99)}}`;
    assert.throws(() => parse(text), Problem);
    const items = parseJsonBody(Buffer.from(text), true).items('messages', 1_000);
    assert.deepEqual(
      items.map((item) => item instanceof Problem),
      [false, false, true],
    );
    assert.throws(() => parseJsonBody(Buffer.from(`{"messages":[],"a":${nested(100)}}`), true), Problem);
  });

  // An earlier version scanned each level separately, and its cost was 97 times the bytes.
  test('costs its bytes, however deep they are nested', async () => {
    const inner = `[${'1,'.repeat(250_000)}1]`;
    const costOf = (text: string) => {
      const bytes = Buffer.from(text);
      return (): number => {
        const { user, system } = process.cpuUsage();
        parseJsonBody(bytes);
        const used = process.cpuUsage({ user, system });
        return used.user + used.system;
      };
    };
    const costOfFlat = costOf(`{"a":${inner}}`);
    const flat = Math.min(costOfFlat(), costOfFlat(), costOfFlat());
    const nested = await leastCost(10 * flat, costOf(`{"a":${'{"b":'.repeat(97)}${inner}${'}'.repeat(97)}}`));
    assert.ok(nested <= 10 * flat, `${nested} µs, and ${flat} µs where nothing is nested`);
  });
});

describe('the items of a list', () => {
  for (const list of ['[]', ' [ ] ', '[1]', '[ 1 , "a,]\\"" ,{"b":[2,3]}, [[], {}] , null ]']) {
    test(`have the texts that they were written with: ${list}`, () => {
      const texts = itemTexts(list, 100);
      assert.deepEqual(
        texts.map((text) => JSON.parse(text) as unknown),
        JSON.parse(list),
      );
      for (const text of texts) assert.ok(list.includes(text) && text === text.trim());
    });
  }

  test('are no more than were asked for', () => assert.deepEqual(itemTexts('[1,2,3]', 2), ['1', '2']));
});
