/** The signatures of Convoke are those of Standard Webhooks, and the published vectors are right. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Webhook } from 'standardwebhooks';
import { makeSecret, signingKey, signPush } from '../../src/domain/signature.ts';
import { vectors } from '../support/vectors.ts';

describe('a push is signed to the letter of the vector:', () => {
  for (const { name, secrets, webhook_id, webhook_timestamp, body, webhook_signature } of vectors.sign) {
    test(name, () => {
      assert.equal(
        signPush(secrets.map(signingKey), webhook_id, webhook_timestamp, Buffer.from(body)),
        webhook_signature,
      );
    });
  }
});

describe('the reference library makes the same signature for the vector:', () => {
  for (const { name, secrets, webhook_id, webhook_timestamp, body, webhook_signature } of vectors.sign) {
    test(name, () => {
      const at = new Date(webhook_timestamp * 1000);
      assert.equal(
        secrets.map((secret) => new Webhook(secret).sign(webhook_id, at, body)).join(' '),
        webhook_signature,
      );
    });
  }
});

describe('the reference library decides as the vector says:', () => {
  for (const { name, secrets, headers, body, now_s, reason } of vectors.verify) {
    test(name, (t) => {
      t.mock.timers.enable({ apis: ['Date'], now: now_s * 1000 });
      const accepts = (secret: string) => {
        try {
          new Webhook(secret).verify(body, headers, { jsonParse: false });
          return true;
        } catch {
          return false;
        }
      };
      // The library takes one secret at a time, so it cannot see that a list has a bad secret.
      const verdict = reason === 'invalid_secret' ? secrets.every(accepts) : secrets.some(accepts);
      assert.equal(verdict, reason === null);
    });
  }
});

describe('nothing is signed with an invalid secret:', () => {
  for (const { name, secret } of vectors.invalid_secrets) {
    test(name, () => {
      assert.throws(
        () => signingKey(secret),
        (error: Error & { code?: string }) => {
          assert.equal(error.code, 'invalid_fields');
          assert.ok(secret.length < 8 || !error.message.includes(secret.slice(-8)), 'the message must not tell it');
          return true;
        },
      );
    });
  }
});

test('a made secret carries all of its 32 bytes, and can be signed with', () => {
  const bytes = randomBytes(32);
  const secret = makeSecret(bytes);
  assert.equal(secret, `whsec_${bytes.toString('base64')}`);
  assert.ok(signingKey(secret).export().equals(bytes));
  assert.throws(() => makeSecret(new Uint8Array(0)), RangeError);
});

test('a push is never sent unsigned', () => {
  assert.throws(() => signPush([], 'dlv_1', 1, Buffer.from('{}')), RangeError);
});

test('whatever the id, the time and the body, the reference library verifies the signature', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 0 });
  const ids = fc.stringMatching(/^[A-Za-z0-9_-]{1,60}$/);
  const times = fc.integer({ min: 0, max: 9_999_999_999 });
  const keys = fc.uint8Array({ minLength: 24, maxLength: 64 });
  fc.assert(
    fc.property(keys, ids, times, fc.string({ unit: 'grapheme' }), (key, id, timestamp_s, body) => {
      const secret = `whsec_${Buffer.from(key).toString('base64')}`;
      t.mock.timers.setTime(timestamp_s * 1000);
      const headers = {
        'webhook-id': id,
        'webhook-timestamp': String(timestamp_s),
        'webhook-signature': signPush([signingKey(secret)], id, timestamp_s, Buffer.from(body)),
      };
      new Webhook(secret).verify(body, headers, { jsonParse: false });
    }),
  );
});
