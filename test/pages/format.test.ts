/** Pages and service have their own words and numbers, because pages import nothing of the service. They must agree. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  durationInWords as durationInCommands,
  failureInWords as failureInCommands,
} from '../../src/cli/program/format.ts';
import { SPANS } from '../../src/domain/history.ts';
import { type Outcome, OUTCOMES } from '../../src/domain/outcome.ts';
import { durationInWords as durationInPages, failureInWords, pauseInWords, whyInWords } from '../../web/src/format.ts';
import { isolated } from '../../web/src/parts/isolated.ts';
import { SPANS as SPANS_OF_PAGES } from '../../web/src/spans.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

test('pages and commands say the same of a duration', () => {
  const turns = [1, 999, SECOND, 10 * SECOND, 120 * SECOND, 2 * HOUR, 48 * HOUR, 400 * HOUR];
  for (const at of turns) {
    for (const ms of [at - 1, at, at + 1, at * 1.5].filter((each) => each >= 1)) {
      assert.equal(durationInPages(ms), durationInCommands(ms), `${ms} ms`);
    }
  }
});

test('pages and commands say the same of a failure, for each outcome, with and without a detail', () => {
  for (const outcome of Object.keys(OUTCOMES) as Outcome[]) {
    for (const status_code of [null, 200, 202, 410, 500]) {
      for (const detail of ['', 'answered 500', 'host not found: nowhere.test']) {
        const failure = { outcome, status_code, detail };
        assert.equal(failureInWords(failure), failureInCommands(failure), JSON.stringify(failure));
      }
    }
  }
});

test('a failure is named once', () => {
  const failure = { status_code: null };
  const words = [
    failureInWords({ ...failure, outcome: 'dns_failed', detail: 'host not found: nowhere.test' }),
    failureInWords({ ...failure, outcome: 'timeout', detail: 'no answer within 5 s' }),
    failureInWords({ outcome: 'gone', status_code: 410, detail: 'answered 410' }),
    failureInWords({ outcome: 'bad_status', status_code: 500, detail: 'answered 500' }),
    failureInWords({ ...failure, outcome: 'connect_refused', detail: 'connection refused: port 9000' }),
  ];
  assert.deepEqual(words, [
    'host not found: nowhere.test',
    'no answer within 5 s',
    'answered 410 Gone: pushing was turned off',
    'answered 500',
    'connection refused: port 9000',
  ]);
});

test('a delivery that was given up says after how many attempts', () => {
  assert.equal(
    whyInWords({ instance_id: 'x', reason: 'exhausted', waiting_for: null, attempt_count: 6 }),
    'gave up after 6 attempts',
  );
});

test('the charts show as much time as the service keeps', () => {
  const kept = Object.entries(SPANS).map(([span, { step_s, steps }]) => [span, step_s * steps]);
  const shown = Object.entries(SPANS_OF_PAGES).map(([span, { span_s }]) => [span, span_s]);
  assert.deepEqual(shown, kept);
});

test('a chart draws a point where no line shows a value: between two gaps, and alone at an end', () => {
  assert.deepEqual(isolated([1, null, 2, null, 3, 4, null, 5]), [0, 2, 7]);
  assert.deepEqual(isolated([null, 1, undefined, 2, undefined, null, 3]), [6]);
  assert.deepEqual(isolated([1, 2, 3]), []);
  assert.deepEqual(isolated([null, null]), []);
  assert.deepEqual(isolated([7]), [0]);
});

test('a pause between two attempts is explained by whether the receiver was reached before it, as the service judges', () => {
  for (const [outcome, { reached }] of Object.entries(OUTCOMES) as [Outcome, { reached: boolean }][]) {
    const why = reached ? 'pauses grow after each bad response' : 'pauses grow while its machine cannot be reached';
    assert.equal(pauseInWords({ outcome }), why, outcome);
  }
});
