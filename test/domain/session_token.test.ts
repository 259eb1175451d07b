/** The value of the cookie of a session: what a node can check without the store. */
import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import { isSessionToken, makeSessionToken } from '../../src/domain/session_token.ts';

const secret = createSecretKey(randomBytes(32));
const other = createSecretKey(randomBytes(32));

describe('the token of a session', () => {
  test('is known by the secret that made it, also while that secret is being replaced', () => {
    const token = makeSessionToken(secret);
    assert.match(token, /^[A-Za-z0-9_-]{43}$/);
    assert.ok(isSessionToken([secret], token));
    assert.ok(isSessionToken([other, secret], token));
    assert.notEqual(makeSessionToken(secret), token);
  });

  test('is not known when another secret made it, when a character differs, and when it is no token', () => {
    const token = makeSessionToken(secret);
    assert.ok(!isSessionToken([other], token));
    assert.ok(!isSessionToken([], token));
    for (const at of [0, 20, 41]) {
      const changed = `${token.slice(0, at)}${token[at] === 'A' ? 'B' : 'A'}${token.slice(at + 1)}`;
      assert.ok(!isSessionToken([secret], changed), `the character at ${at} was changed`);
    }
    for (const text of ['', 'A'.repeat(43), token.slice(1), `${token}A`, `${token.slice(1)}.`]) {
      assert.ok(!isSessionToken([secret], text), text);
    }
  });
});
