/**
 * The token in a push, with which the receiver can reply later without a key. No part of a token is stored, and the
 * service refuses a forged token without a read of the store. Its form is `cvr_DELIVERY_ID.EXPIRES.STANDING.MAC`:
 *
 * - EXPIRES: seconds since 1970.
 * - STANDING: identifies the machine that may use the token, see `replyStanding`.
 * - MAC: HMAC-SHA256 in base64url, over all text before it.
 */
import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { Instance } from './instance.ts';

export const REPLY_TOKEN_MS = 86_400_000;
/**
 * The token of a delivery changes after every interval of this length, counted from the acceptance of the message.
 * Attempts in one interval have the same token, so that a request with the token in its body has the same bytes each
 * time.
 */
const SAME_TOKEN_MS = 2 * 3_600_000;

/** The length of the MAC of the standing in base64url: 96 bits. */
const STANDING_CHARS = 16;
const TOKEN = /^cvr_(dlv_[0-9a-v]{8,40})\.(\d{1,11})\.([0-9A-Za-z_-]{16})\.([0-9A-Za-z_-]{43})$/;

/** The fields of an instance that its reply tokens depend on. */
export type Replier = Pick<Instance, 'created_at' | 'owner_key_id' | 'transport' | 'webhook_url'>;

/**
 * The facts that let a machine reply, as text: this registration of the id, its owner, its transport, and the server of
 * a webhook. When one of them changes, the machine that got the token no longer speaks for the instance.
 *
 * `created_at` is only compared for equality, so it does not matter whether the clock was set back.
 */
export function replyStanding({ created_at, owner_key_id, transport, webhook_url }: Replier): string {
  const server = transport === 'webhook' ? (URL.parse(webhook_url)?.origin ?? webhook_url) : null;
  return JSON.stringify([created_at, owner_key_id, transport, server]);
}

/**
 * Why a machine that got a push may not reply to it now. `off`: its instance was deleted or disabled, or its replies
 * were switched off. `changed`: the machine no longer speaks for the instance.
 */
export type ReplyRefusal = 'off' | 'changed';

/**
 * Decides about every reply of a machine, in a response or later.
 *
 * @param instance the instance as the store has it now
 * @param standsOn whether the push was made for this standing
 */
export function replyRefusal(
  instance: (Replier & Pick<Instance, 'replies' | 'is_active'>) | null,
  standsOn: (standing: string) => boolean,
): ReplyRefusal | null {
  if (instance === null || !instance.replies || !instance.is_active) return 'off';
  return standsOn(replyStanding(instance)) ? null : 'changed';
}

/** A genuine token that has not expired. */
export interface ReplyToken {
  delivery_id: string;
  /** Whether the token was made for this standing. */
  readonly standsOn: (standing: string) => boolean;
}

/** The terms of a token. */
export interface TokenTerms {
  delivery_id: string;
  /** When the message was accepted, by the wall clock. */
  accepted_at: number;
  /** See `replyStanding`. */
  standing: string;
}

/**
 * Makes the token for replies to the message of a delivery. The token expires REPLY_TOKEN_MS from now, or up to
 * SAME_TOKEN_MS earlier. The token must not last longer, because the store counts the replies to a delivery only for
 * REPLY_TOKEN_MS.
 */
export function makeReplyToken(key: KeyObject, terms: TokenTerms, wall_ms: number): string {
  const { delivery_id, accepted_at, standing } = terms;
  const elapsed_ms = Math.max(0, wall_ms - accepted_at);
  const begun_ms = accepted_at + elapsed_ms - (elapsed_ms % SAME_TOKEN_MS);
  const expires_s = Math.ceil((begun_ms + REPLY_TOKEN_MS) / 1000);
  const body = `cvr_${delivery_id}.${expires_s}.${standingMac(key, standing)}`;
  return `${body}.${macOf(key, body)}`;
}

/**
 * Reads a token; null when it is not genuine, or has expired.
 *
 * @param keys all keys that may have made the token
 */
export function readReplyToken(keys: readonly KeyObject[], token: string, wall_ms: number): ReplyToken | null {
  const [, delivery_id = '', expires_s = '', standing_mac = '', mac = ''] = TOKEN.exec(token) ?? [];
  if (delivery_id === '') return null;
  const body = token.slice(0, -mac.length - 1);
  const key = keys.find((each) => isEqual(macOf(each, body), mac));
  if (key === undefined || wall_ms >= Number(expires_s) * 1000) return null;
  return { delivery_id, standsOn: (standing) => isEqual(standingMac(key, standing), standing_mac) };
}

/** A MAC of the standing and not its text, because the holder of the token should not learn who the owner is. */
function standingMac(key: KeyObject, standing: string): string {
  return macOf(key, `standing ${standing}`).slice(0, STANDING_CHARS);
}

function macOf(key: KeyObject, body: string): string {
  return createHmac('sha256', key).update(body).digest('base64url');
}

function isEqual(a: string, b: string): boolean {
  return timingSafeEqual(Buffer.from(a), Buffer.from(b));
}
