/**
 * A value that cannot be valid is reported once, with its row and column, and read as the empty value of its type.
 * test/faults/damaged_rows.faults.ts tests all columns.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  type DamagedValue,
  describeDamaged,
  onDamagedValue,
  storedAttempts,
  storedCount,
  storedFailure,
  storedHeaders,
  storedObjectJson,
  storedResult,
  storedRuntime,
  storedStatuses,
  storedTexts,
  storedTextsJson,
  storedTime,
  storedTrace,
} from '../../src/store/rows/stored_values.ts';

const ATTEMPT = {
  attempt: 1,
  started_at: '2026-11-22T00:00:00.000Z',
  duration_ms: 1.5,
  outcome: 'ok',
  status_code: 200,
  detail: '',
  response_excerpt: '',
} as const;
const RESULT = { message_id: 'msg_1', meeting_id: 'm', seq: 7, accepted_at: 8.64e15, deliveries_queued: 0 };
const FAILURE = { at: '2026-11-22T00:00:00.000Z', outcome: 'timeout', status_code: null, detail: 'x' } as const;

test('what this service writes is read as it was written, and nothing is reported', () => {
  onDamagedValue((damaged) => assert.fail(JSON.stringify(damaged)));
  assert.deepEqual(storedTexts('["a","é"]', 't', 'c', 'r'), ['a', 'é']);
  assert.equal(storedTextsJson('["a" , "b"]', 't', 'c', 'r'), '["a" , "b"]');
  assert.deepEqual(storedHeaders('{"a":"b"}', 't', 'c', 'r'), { a: 'b' });
  assert.deepEqual(storedFailure(JSON.stringify(FAILURE), 'r'), FAILURE);
  const answered = { ...FAILURE, response_excerpt: 'out of GPU memory' };
  assert.deepEqual(storedFailure(JSON.stringify(answered), 'r'), answered);
  assert.equal(storedFailure(null, 'r'), null);
  assert.deepEqual(
    storedAttempts(JSON.stringify([ATTEMPT, ATTEMPT]), () => 'r'),
    [ATTEMPT, ATTEMPT],
  );
  assert.equal(storedStatuses('2xx', 'r'), '2xx');
  assert.deepEqual(storedResult(JSON.stringify(RESULT), 'r'), RESULT);
  assert.equal(storedObjectJson('{"n":1e400}', 't', 'c', 'r'), '{"n":1e400}');
  assert.deepEqual(
    [storedCount(7, 't', 'c', 'r'), storedTime(8.64e15, 't', 'c', 'r'), storedTime(null, 't', 'c', 'r')],
    [7, 8.64e15, null],
  );
  const trace = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  for (const each of [null, trace, `${trace} a=1`]) assert.equal(storedTrace(each, 7), each);
});

test('a damaged trace is none, and never a header', () => {
  const reported: DamagedValue[] = [];
  onDamagedValue((damaged) => reported.push(damaged));
  for (const text of ['', 'nonsense', '00-0-0-01', 'x: y\r\nz: 1']) assert.equal(storedTrace(text, 7), null);
  assert.deepEqual(reported, [{ table: 'messages', column: 'trace', row: '7' }]);
});

test('nonsense is empty, and reported once', () => {
  const reported: DamagedValue[] = [];
  onDamagedValue((damaged) => reported.push(damaged));
  const nonsense = ['', '{"a":', 'null', '[1,{}]', '1', '"x"', '{"a":1}'];
  for (const text of [...nonsense, ...nonsense]) {
    assert.deepEqual(storedTexts(text, 'memberships', 'agent_ids', text), []);
    assert.deepEqual(storedHeaders(text, 'instances', 'webhook_headers', text), {});
    assert.equal(storedFailure(text, text), null);
    assert.deepEqual(
      storedAttempts(text, () => text),
      [],
    );
    assert.equal(storedStatuses(text, text), '200');
  }
  assert.equal(storedTextsJson('nonsense', 't', 'c', 'r'), '[]');
  assert.equal(storedObjectJson('[1]', 't', 'c', 'r2'), '{}');
  for (const number of [-1, 0.5, NaN, Infinity, 2 ** 53])
    assert.equal(storedCount(number, 't', 'n', String(number)), 0);
  for (const ms of [8.7e15, -8.7e15, NaN]) assert.equal(storedTime(ms, 't', 'at', String(ms)), 0);
  assert.equal(reported.length, 5 * nonsense.length + 2 + 5 + 3);
  assert.deepEqual(reported[0], { table: 'memberships', column: 'agent_ids', row: '' });
});

test('a runtime that only a later version knows is none, and is not called damaged', () => {
  const reported: DamagedValue[] = [];
  onDamagedValue((damaged) => reported.push(damaged));
  assert.equal(storedRuntime('{"name":"eclipse","options":{}}', 'later'), null);
  for (const text of ['{"name":"eclipse"}', '{"name":1,"options":{}}', '{"name":'])
    assert.equal(storedRuntime(text, text), null);
  const [later, ...damaged] = reported;
  assert.deepEqual(later, { table: 'instances', column: 'runtime', row: 'later', unknown: 'eclipse' });
  assert.match(describeDamaged(later), /^a later version of Convoke wrote a row of instances/);
  assert.deepEqual([damaged.length, damaged.some((each) => 'unknown' in each)], [3, false]);
});

test('a failure with an excerpt that is no text is none', () => {
  const reported: DamagedValue[] = [];
  onDamagedValue((damaged) => reported.push(damaged));
  assert.equal(storedFailure(JSON.stringify({ ...FAILURE, response_excerpt: { a: 1 } }), 'r'), null);
  assert.deepEqual(reported, [{ table: 'instances', column: 'last_failure', row: 'r' }]);
});

test('a result of an idempotency key with a field that is missing or damaged is none', () => {
  const reported: DamagedValue[] = [];
  onDamagedValue((damaged) => reported.push(damaged));
  const damages = {
    message_id: [7],
    meeting_id: [null],
    seq: [-1, 0.5],
    accepted_at: [8.7e15],
    deliveries_queued: ['1'],
  };
  const spoilt = Object.entries(damages).flatMap(([field, values]) =>
    [undefined, ...values].map((value) => JSON.stringify({ ...RESULT, [field]: value })),
  );
  for (const text of spoilt) assert.equal(storedResult(text, text), null, text);
  assert.deepEqual(reported[0], { table: 'idempotency_keys', column: 'result', row: spoilt[0] });
  assert.equal(reported.length, 11);
});

test('no JSON makes any of them throw', () => {
  onDamagedValue(() => {});
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
      assert.ok(storedTexts(text, 't', 'c', 'r').every((each) => typeof each === 'string'));
      assert.ok(storedAttempts(text, () => 'r').every(({ started_at }) => !Number.isNaN(Date.parse(started_at))));
      storedHeaders(text, 't', 'c', 'r');
      storedFailure(text, 'r');
      storedResult(text, 'r');
    }),
  );
});
