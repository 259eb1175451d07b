/**
 * The token that a push carries, with which its receiver can reply later without a key: `cvr_DELIVERY_ID.EXPIRES.MAC`.
 * EXPIRES is in seconds since 1970. The MAC, HMAC-SHA256 in base64url, covers all text before it. No part of a token is
 * stored, and a forged one is refused without a look into the store.
 */
import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';

export const REPLY_TOKEN_MS = 86_400_000;

const TOKEN = /^cvr_(dlv_[0-9a-v]{8,40})\.(\d{1,11})\.([0-9A-Za-z_-]{43})$/;

/** Makes the token for replies to the message of a delivery. It expires after REPLY_TOKEN_MS. */
export function makeReplyToken(key: KeyObject, delivery_id: string, wall_ms: number): string {
  const expires_s = Math.ceil((wall_ms + REPLY_TOKEN_MS) / 1000);
  const body = `cvr_${delivery_id}.${expires_s}`;
  return `${body}.${macOf(key, body)}`;
}

/**
 * The delivery that a token is for; null when it is not genuine, or has expired.
 *
 * @param keys all keys that may have made it
 */
export function deliveryOfReplyToken(keys: readonly KeyObject[], token: string, wall_ms: number): string | null {
  const [, delivery_id = '', expires_s = '', mac = ''] = TOKEN.exec(token) ?? [];
  if (delivery_id === '') return null;
  const body = token.slice(0, -mac.length - 1);
  const given = Buffer.from(mac);
  const is_genuine = keys.some((key) => timingSafeEqual(Buffer.from(macOf(key, body)), given));
  return is_genuine && wall_ms < Number(expires_s) * 1000 ? delivery_id : null;
}

function macOf(key: KeyObject, body: string): string {
  return createHmac('sha256', key).update(body).digest('base64url');
}
