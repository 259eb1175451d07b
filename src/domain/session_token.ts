/**
 * The value of a session's cookie: 24 random bytes and 8 bytes of their HMAC-SHA256, as base64url. The random
 * bytes protect the session. The HMAC lets a node refuse an invented cookie without a read of the store.
 */
import { createHmac, type KeyObject, randomBytes, timingSafeEqual } from 'node:crypto';

const RANDOM_BYTES = 24;
const MAC_BYTES = 8;
const TOKEN = /^[A-Za-z0-9_-]{43}$/;

/**
 * Makes the value of a new cookie.
 * @param secret the secret of the current data key
 */
export function makeSessionToken(secret: KeyObject): string {
  const random = randomBytes(RANDOM_BYTES);
  return Buffer.concat([random, macOf(secret, random)]).toString('base64url');
}

/** Whether a text has the shape of a token. */
export function isLikeSessionToken(text: string): boolean {
  return TOKEN.test(text);
}

/** Whether one of these secrets made the token. Even then, the session may have ended. */
export function isSessionToken(secrets: readonly KeyObject[], token: string): boolean {
  if (!isLikeSessionToken(token)) return false;
  const bytes = Buffer.from(token, 'base64url');
  const [random, mac] = [bytes.subarray(0, RANDOM_BYTES), bytes.subarray(RANDOM_BYTES)];
  return secrets.some((secret) => timingSafeEqual(macOf(secret, random), mac));
}

/** A text that is different for each secret, and says nothing about the secret. */
export function tagOf(secret: KeyObject): string {
  return macOf(secret, 'tag').toString('hex');
}

function macOf(secret: KeyObject, random: Buffer | string): Buffer {
  return createHmac('sha256', secret).update(random).digest().subarray(0, MAC_BYTES);
}
