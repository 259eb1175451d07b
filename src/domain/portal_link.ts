/**
 * The token of a portal link. The link shows the instances of a key inside a page of another product, for an hour at
 * most. No part of a token is stored. Its form is `cvp_KEY_ID.MAKER.EXPIRES.INSTANCE.MAC`:
 *
 * - KEY_ID: the key whose instances the link shows.
 * - MAKER: the admin key that made the link.
 * - EXPIRES: seconds since 1970.
 * - INSTANCE: the id of the only instance that the link shows, as base64url; empty: all instances of the key.
 * - MAC: HMAC-SHA256 in base64url, over all text before it and the digests of the tokens of both keys.
 */
import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';

/** The path of the page. */
export const PORTAL_PATH = '/portal/';
export const PORTAL_LINK_S = 3_600;

const TOKEN = /^cvp_([0-9a-v]{12})\.([0-9a-v]{12})\.(\d{1,11})\.([0-9A-Za-z_-]{0,1100})\.([0-9A-Za-z_-]{43})$/;
const CHARS_MAX = 1_300;

export interface PortalTerms {
  /** The key whose instances the link shows. */
  key_id: string;
  /** The admin key that made the link. */
  maker_id: string;
  /** Milliseconds of the wall clock. */
  expires_at: number;
  /** Null: all instances of the key. */
  instance_id: string | null;
}

/** The digests of the tokens of both keys. The link ends when a rotation ends one of these tokens. */
export interface PortalDigests {
  key: string;
  maker: string;
}

/** The token of a portal link: its terms as text, and their MAC. `expires_at` is rounded down to a second. */
export function makePortalToken(secret: KeyObject, terms: PortalTerms, digests: PortalDigests): string {
  const { key_id, maker_id, expires_at, instance_id } = terms;
  const limited_to = Buffer.from(instance_id ?? '').toString('base64url');
  const body = `cvp_${key_id}.${maker_id}.${Math.floor(expires_at / 1000)}.${limited_to}`;
  return `${body}.${macOf(secret, body, digests)}`;
}

/** The terms that a token claims; null for a text without the shape of a token. */
export function portalClaims(token: string): PortalTerms | null {
  const [, key_id = '', maker_id = '', expires_s = '', limited_to = ''] =
    token.length > CHARS_MAX ? [] : (TOKEN.exec(token) ?? []);
  if (key_id === '') return null;
  const instance_id = limited_to === '' ? null : Buffer.from(limited_to, 'base64url').toString();
  return { key_id, maker_id, expires_at: Number(expires_s) * 1000, instance_id };
}

/** Whether one of these secrets made the token, with these digests of its keys. */
export function isPortalToken(secrets: readonly KeyObject[], token: string, digests: PortalDigests): boolean {
  const end = token.lastIndexOf('.');
  const [body, mac] = [token.slice(0, end), Buffer.from(token.slice(end + 1))];
  return secrets.some((secret) => timingSafeEqual(Buffer.from(macOf(secret, body, digests)), mac));
}

function macOf(secret: KeyObject, body: string, { key, maker }: PortalDigests): string {
  return createHmac('sha256', secret).update(`${body}\n${key}\n${maker}`).digest('base64url');
}
