import { hash } from 'node:crypto';
import { type Earlier, holding } from './rotation.ts';

/** The rights that a key may have. `admin` includes the other rights. */
export const SCOPES = ['admin', 'send', 'read', 'instance'] as const;
export type Scope = (typeof SCOPES)[number];

/** A key as it is stored. The token is not stored, so a reader of the data file cannot use the key. */
export interface ApiKey {
  key_id: string;
  name: string | null;
  scopes: Scope[];
  /** Limits the scopes `send` and `read`, and joins, to these meetings; null: no limit. */
  meeting_ids: string[] | null;
  /** Limits the scope `instance` to this instance; null: no limit. */
  instance_id: string | null;
  /** See `digestOf`. */
  digest: string;
  /** The digests of the tokens before the last rotations, the newest first. */
  earlier_tokens: Earlier[];
  created_at: number;
  expires_at: number | null;
  revoked_at: number | null;
  last_used_at: number | null;
  /**
   * The number of the key's last change. Each change of any key gets a higher number. A use of the key is not a change.
   */
  change_no: number;
}

/**
 * A token: `cvk_`, the key_id, `_`, the secret (256 bits in base 62), and a checksum. The checksum shows, without a
 * read of the store, that a token was mistyped or cut off. A scanner for secrets can check the checksum too:
 * docs/keys.md has the pattern.
 */
const TOKEN = /^cvk_([0-9a-v]{12})_[0-9A-Za-z]{49}$/;

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const ID_CHARS = 12;
const ID_BITS = 60;
export const ID_BYTES = 8;
export const SECRET_BYTES = 32;
const SECRET_CHARS = 43;
const CHECKSUM_CHARS = 6;
const CHECKSUM_HEX_CHARS = 8;

/**
 * Makes a key_id.
 *
 * @param random_bytes 8 bytes from a cryptographic source
 */
export function makeKeyId(random_bytes: Uint8Array): string {
  if (random_bytes.length !== ID_BYTES) throw new RangeError(`a key_id is made of ${ID_BYTES} bytes`);
  return BigInt.asUintN(ID_BITS, numberOf(random_bytes)).toString(32).padStart(ID_CHARS, '0');
}

/**
 * Makes the token of a key. The token is shown once; only its `digestOf` is stored.
 *
 * @param random_bytes 32 bytes from a cryptographic source
 */
export function makeToken(key_id: string, random_bytes: Uint8Array): string {
  if (random_bytes.length !== SECRET_BYTES) throw new RangeError(`a token is made of ${SECRET_BYTES} bytes`);
  const body = `cvk_${key_id}_${base62(numberOf(random_bytes), SECRET_CHARS)}`;
  return body + checksumOf(body);
}

/** The key_id in a token; null for a text without the shape of a token. Does not check the checksum. */
export function keyIdOf(token: string): string | null {
  return TOKEN.exec(token)?.[1] ?? null;
}

/** Whether the checksum of a token is right. If not, the token was mistyped or made up. */
export function isWhole(token: string): boolean {
  return checksumOf(token.slice(0, -CHECKSUM_CHARS)) === token.slice(-CHECKSUM_CHARS);
}

/**
 * The stored form of a token: SHA-256, as hexadecimal digits. One round is enough, because a token has 256 random bits.
 * Slow hashes are for passwords, which can be guessed.
 */
export function digestOf(token: string): string {
  return hash('sha256', token);
}

/** Whether a key can be used at a time. */
export function isActive({ revoked_at, expires_at }: ApiKey, wall_ms: number): boolean {
  return revoked_at === null && (expires_at === null || wall_ms < expires_at);
}

/** The digests of the tokens that work at a time, as far as rotations decide that. The current one is the first. */
export function validDigests({ digest, earlier_tokens }: ApiKey, wall_ms: number): string[] {
  return [digest, ...holding(earlier_tokens, wall_ms).map(({ value }) => value)];
}

/**
 * When a token of a key ends, as far as that is known: Infinity for never, `wall_ms` for a token that does not work
 * now.
 */
export function tokenEnd(key: ApiKey, token_digest: string | null, wall_ms: number): number {
  if (!isActive(key, wall_ms)) return wall_ms;
  const { digest, earlier_tokens, expires_at } = key;
  const earlier = holding(earlier_tokens, wall_ms).find(({ value }) => value === token_digest);
  const until = token_digest === digest ? Infinity : (earlier?.until ?? wall_ms);
  return Math.min(expires_at ?? Infinity, until);
}

/** Why a token of a key does not work at a time; null when it does. */
export function whyEnded(
  key: ApiKey,
  token_digest: string | null,
  wall_ms: number,
): 'api_key_unknown' | 'api_key_revoked' | 'api_key_expired' | null {
  if (key.revoked_at !== null) return 'api_key_revoked';
  if (!isActive(key, wall_ms)) return 'api_key_expired';
  return token_digest !== null && validDigests(key, wall_ms).includes(token_digest) ? null : 'api_key_unknown';
}

/** Whether a key can make other keys and never expires. At least one such key must remain. */
export function isLastingAdmin({ scopes, revoked_at, expires_at }: ApiKey): boolean {
  return scopes.includes('admin') && revoked_at === null && expires_at === null;
}

/** The first 32 bits of SHA-256, as six digits in base 62. */
function checksumOf(text: string): string {
  return base62(BigInt(`0x${hash('sha256', text).slice(0, CHECKSUM_HEX_CHARS)}`), CHECKSUM_CHARS);
}

function numberOf(bytes: Uint8Array): bigint {
  return BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
}

function base62(number: bigint, chars: number): string {
  let text = '';
  for (let rest = number; text.length < chars; rest /= 62n) text = BASE62[Number(rest % 62n)] + text;
  return text;
}
