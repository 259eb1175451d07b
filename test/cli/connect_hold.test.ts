/** While a runtime restarts, `convoke connect` holds its pushes, so that no failure is stored. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PushResult } from '@convoke/sdk';
import { ackTimeoutOf } from '../../src/cli/program/commands/connect/connection.ts';
import { holdWhileRestarting } from '../../src/cli/program/commands/connect/hold.ts';

/** Gives a push to a runtime that responds with these results, one after the other. */
async function given(
  results: readonly PushResult[],
  ack_timeout_ms = 600_000,
  { signal = new AbortController().signal, ending = new AbortController() } = {},
) {
  let posts = 0;
  const post = async (): Promise<PushResult> => {
    const result = results[posts++] as PushResult;
    // Ends the process in the next turn, when the pause before the next attempt has begun.
    if (result === ENDS) setImmediate(() => ending.abort());
    return result;
  };
  const result = await holdWhileRestarting({ signal }, post, ack_timeout_ms, ending.signal);
  return { result, posts };
}

const REFUSED: PushResult = { not_reached: 'connect ECONNREFUSED' };
const RESTARTING: PushResult = { status_code: 503 };
const OK: PushResult = { status_code: 200 };
/** A result with which the test also stops this process: the runtime is restarting. */
const ENDS: PushResult = { status_code: 503, retry_after: '20' };

describe('a push is held', () => {
  test('while the runtime refuses connections or responds 503, and the result is what it says then', async () => {
    assert.deepEqual(await given([RESTARTING, REFUSED, OK]), { result: OK, posts: 3 });
  });

  test('and not after any other response, which is handed back at once', async () => {
    for (const status_code of [200, 204, 400, 410, 429, 500, 502, 504]) {
      assert.deepEqual(await given([{ status_code }, OK]), { result: { status_code }, posts: 1 });
    }
  });

  test('for no longer than there is time for, or than the runtime asks', async () => {
    assert.deepEqual(await given([REFUSED, OK], 100), { result: REFUSED, posts: 1 });
    const later: PushResult = { status_code: 503, retry_after: '40' };
    assert.deepEqual(await given([later, OK], 60_000), { result: later, posts: 1 });
  });

  test('and handed back at once when the process is to end', async () => {
    assert.deepEqual(await given([REFUSED, ENDS, OK]), { result: ENDS, posts: 2 });
  });

  test('and not when the service no longer waits for its result', async () => {
    assert.deepEqual(await given([REFUSED, OK], 600_000, { signal: AbortSignal.abort() }), {
      result: REFUSED,
      posts: 1,
    });
  });
});

test('a push has the time that --timeout gives, otherwise the time that its runtime needs', () => {
  const runtime = { name: 'openai', options: { model: 'x' } } as const;
  assert.equal(ackTimeoutOf({ ack_timeout_s: 7, runtime }), 7);
  assert.equal(ackTimeoutOf({ ack_timeout_s: null, runtime }), 120);
  assert.equal(ackTimeoutOf({ ack_timeout_s: null }), 30);
});
