/** A service of a later version may have words that a command does not know. The command shows them as they are. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Delivery, DeliveryWithAttempts, Explanation } from '@convoke/sdk';
import { whyInWords } from '../../src/cli/program/commands/explain.ts';
import { adviceInWords, attemptInWords, causeInWords, stateInWords } from '../../src/cli/program/format.ts';

const DELIVERY = { attempt_count: 1, attempts: [], reason: null, waiting_for: null } as object as DeliveryWithAttempts;

/** What a service of a later version may send. */
function later<T>(base: T, words: Record<string, unknown>): T {
  return { ...base, ...words };
}

test('an unknown reason, and an unknown cause of a wait', () => {
  assert.equal(stateInWords(later(DELIVERY, { state: 'failed', reason: 'eclipse' })), 'failed: eclipse');
  assert.equal(stateInWords(later(DELIVERY, { state: 'pending', waiting_for: 'moon' })), 'pending: moon');
});

test('an unknown outcome', () => {
  const attempt = { outcome: 'eclipse', status_code: null, detail: '', duration_ms: 1000 };
  assert.equal(attemptInWords(attempt as never), 'eclipse after 1.0 s');
  const delivery = later<Delivery>(DELIVERY, { state: 'failed', reason: 'exhausted', last_attempt: attempt });
  assert.equal(causeInWords(delivery), 'failed: gave up after 1 attempt (eclipse)');
  const advice = adviceInWords(later(DELIVERY, { ...delivery, instance_id: 'box', attempts: [attempt] }));
  assert.match(advice, /^(?!undefined).*instances show box says how its instance is/);
});

test('an unknown reason why a message is not pushed, and what may become of it', () => {
  const explained = { pushed: 'later', why: 'eclipse', may_become: ['moon'] } as object as Explanation;
  assert.equal(whyInWords(explained), 'eclipse, moon');
});
