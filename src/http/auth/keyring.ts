import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { Clock, Timer } from '../../delivery/clock.ts';
import { EVERYTHING_ALLOWED, type Principal, principalOf } from '../../domain/access.ts';
import { type ApiKey, digestOf, isActive, isWhole, keyIdOf, whyEnded } from '../../domain/api_key.ts';
import { Problem, type ProblemCode } from '../../domain/problem.ts';
import { ownBytes } from '../../domain/own_bytes.ts';
import { EARLIER_MAX } from '../../domain/rotation.ts';
import type { ApiKeyStore } from '../../store/contract/api_keys.ts';
import type { Standing, Token } from './standing.ts';
import { UnknownTokens } from './unknown_tokens.ts';

/** An earlier token of a key: its digest as bytes, and the standing of requests with it. */
interface EarlierToken {
  digest: Buffer;
  until: number;
  standing: TokenStanding | null;
}

/** A key as the keyring holds it: its digests as bytes, and the standing of requests with each of its tokens. */
interface KnownKey {
  key: ApiKey;
  digest: Buffer;
  by_current: TokenStanding;
  /** Always EARLIER_MAX, so that each request with a key takes the same steps. */
  earlier: readonly EarlierToken[];
  /** When the use of the key was last recorded. */
  noted_at: number;
  /** The last characters of the latest token that was verified. */
  right_end: string | null;
}

/** The claims of a request about its key, before they are verified. */
export interface TokenHint {
  key_id: string;
  /** Whether the key exists and can be used. */
  is_in_use: boolean;
  /** Whether a token with the same last characters was verified since the start. */
  verified_before: boolean;
}

/** Tokens that are no tokens of a key. */
export interface OtherTokens {
  /** Identifies a request by such a token; null when the token is unknown. */
  identify(token: string): Standing | null;
  /** What such a token claims; null for any other text. Computes no digest. */
  hintOf(token: string): TokenHint | null;
}

/** The standing of a request with a token of a key. */
class TokenStanding implements Standing {
  readonly principal: Principal;
  readonly token: Token;
  readonly #keyring: Keyring;

  constructor(keyring: Keyring, principal: Principal, token: Token) {
    this.#keyring = keyring;
    this.principal = principal;
    this.token = token;
  }

  revocationReason(): ProblemCode | null {
    return this.#keyring.revocationReason(this.token);
  }
}

/** The length of the checksum at the end of a token. Nobody can find the secret with it, so it may stay in memory. */
const END_CHARS = 6;

const BEARER = /^Bearer +(\S+) *$/i;
/**
 * The use of a key is recorded at most once in NOTE_EVERY_MS. The record is written WRITE_AFTER_MS later, together with
 * the use of other keys.
 */
const NOTE_EVERY_MS = 60_000;
const WRITE_AFTER_MS = 1_000;
/** How many uses one call of the store records. */
const USES_MAX = 500;
const DIGEST_BYTES = 32;

/** How often a node reads the changed keys, in case a notification of another node was lost. */
const FOLLOW_EVERY_MS = 500;

/** Stands for the digest of a key that does not exist, or of an earlier token that a key does not have. */
const NO_DIGEST = randomBytes(DIGEST_BYTES);

/** The earlier tokens of a key without any. Most keys share them. */
const NO_EARLIER: readonly EarlierToken[] = Array.from({ length: EARLIER_MAX }, () => ({
  digest: NO_DIGEST,
  until: 0,
  standing: null,
}));

/**
 * The keys in memory: identifying a request takes a map look-up and one SHA-256.
 *
 * A change of a key calls `put` before the response is sent, so a revoked key is refused from then on. Nodes that share
 * a store read the changed keys when another node reports a change, when a request has an unknown token (`readAgain`),
 * and also twice a second: `follow`.
 */
export class Keyring {
  readonly #clock: Clock;
  readonly #store: ApiKeyStore;
  readonly #onError: (error: unknown) => void;
  readonly #keys = new Map<string, KnownKey>();
  readonly #uses = new Map<string, number>();
  /** The standing of every request while no key was ever made. */
  readonly #open: Standing = {
    principal: EVERYTHING_ALLOWED,
    token: null,
    revocationReason: () => (this.is_open ? null : 'api_key_missing'),
  };
  #change_no = 0;
  #timer: Timer | null = null;
  #following: Timer | null = null;
  readonly #unknown_tokens: UnknownTokens;
  #is_closed = false;
  /** Called when keys changed, because sessions, feeds and pulls that depend on them may have to end. */
  onChange: () => void = () => {};
  /** Set after the start of the keyring, because these tokens depend on keys. */
  others: OtherTokens = { identify: () => null, hintOf: () => null };

  constructor(clock: Clock, store: ApiKeyStore, onError: (error: unknown) => void) {
    this.#clock = clock;
    this.#store = store;
    this.#onError = onError;
    this.#unknown_tokens = new UnknownTokens(clock, () => this.refresh());
  }

  /**
   * Whether no key was ever made: then everybody may do everything. A revoked key counts, so the API never opens again.
   */
  get is_open(): boolean {
    return this.#keys.size === 0;
  }

  /** Whether a request is allowed only because no key was ever made. */
  isOfOpen(standing: Standing | null): boolean {
    return standing === this.#open;
  }

  /** Reads the keys that changed since the last call; all keys at the first call. */
  async refresh(): Promise<void> {
    let may_end = false;
    for (const key of await this.#store.changedSince(this.#change_no)) {
      if (this.#put(key)) may_end = true;
      // The number rises here and not in `put`. A change by this node, which `put` gets, may have a higher number than
      // a change by another node that this node has not read yet. The next call must still read that change.
      this.#change_no = Math.max(this.#change_no, key.change_no);
    }
    if (may_end) this.onChange();
  }

  /**
   * Reads all keys again. After changes may have been missed, the database may be an earlier one: then a key may be
   * gone, and new changes have numbers that this node has read already. A database without any key changes nothing,
   * because without keys everybody may do everything.
   */
  async refreshAll(): Promise<void> {
    const before = new Map(this.#keys);
    const changed = await this.#store.changedSince(0);
    if (changed.length === 0) return;
    this.#change_no = changed.reduce((highest, { change_no }) => Math.max(highest, change_no), 0);
    const stored = new Map(changed.map((key) => [key.key_id, key]));
    for (const [key_id, known] of before) {
      const is_changed_meanwhile = this.#keys.get(key_id) !== known;
      if (is_changed_meanwhile || stored.get(key_id)?.change_no === known.key.change_no) stored.delete(key_id);
      else this.#keys.delete(key_id);
    }
    for (const key of stored.values()) this.#put(key);
    this.onChange();
  }

  /** Reads the changes of other nodes, from now on. */
  follow(): void {
    if (this.#is_closed) return;
    this.#following = this.#clock.after(FOLLOW_EVERY_MS, () => {
      const again = (): void => this.follow();
      // An error is not reported here: when the store does not respond, other calls report that.
      this.refresh().then(again, again);
    });
  }

  /**
   * Waits until the keys are read again, for a request with a token that this node does not know. Null when this node
   * follows no other nodes, or when too many requests wait already.
   */
  readAgain(): Promise<void> | null {
    return this.#following === null || this.#is_closed ? null : this.#unknown_tokens.nextRead();
  }

  /** A key was made or changed. */
  put(key: ApiKey): void {
    if (this.#put(key)) this.onChange();
  }

  /** @returns whether something may have ended: a new key ends nothing, except that the first key ends the open mode */
  #put(key: ApiKey): boolean {
    const { key_id, change_no, digest, earlier_tokens } = key;
    const previous = this.#keys.get(key_id);
    if (previous !== undefined && previous.key.change_no >= change_no) return false;
    const may_end = previous !== undefined || this.is_open;
    const principal = principalOf(key);
    const earlier = earlier_tokens.map(({ value, until }) => ({
      digest: digestIn(value),
      until,
      standing: new TokenStanding(this, principal, { key_id, digest: value }),
    }));
    this.#keys.set(key_id, {
      key,
      digest: digestIn(digest),
      by_current: new TokenStanding(this, principal, { key_id, digest }),
      earlier: earlier.length === 0 ? NO_EARLIER : [...earlier, ...NO_EARLIER.slice(earlier.length)],
      noted_at: previous?.noted_at ?? key.last_used_at ?? 0,
      right_end: null,
    });
    return may_end;
  }

  /** Whether there is a key that can be used now and that may own instances. */
  canOwn(key_id: string): boolean {
    const key = this.#keys.get(key_id)?.key;
    if (key === undefined || !isActive(key, this.#clock.wall())) return false;
    return key.scopes.includes('instance') || key.scopes.includes('admin');
  }

  /** A key and the principal of its requests; null when there is no such key. */
  known(key_id: string): { principal: Principal; key: ApiKey } | null {
    const known = this.#keys.get(key_id);
    return known === undefined ? null : { principal: known.by_current.principal, key: known.key };
  }

  /** Why a token of a key cannot be used now; null when it can. */
  revocationReason({ key_id, digest }: Token): ReturnType<typeof whyEnded> {
    const key = this.#keys.get(key_id)?.key;
    return key === undefined ? 'api_key_unknown' : whyEnded(key, digest, this.#clock.wall());
  }

  /** The principal in the audit log for a request without a key. */
  get nameless(): 'open' | 'local command' {
    return 'open';
  }

  /** The claims of a request about its key; null when the header contains no token of a key. Computes no digest. */
  tokenHint(authorization: string): TokenHint | null {
    const token = BEARER.exec(authorization)?.[1] ?? '';
    const key_id = keyIdOf(token);
    if (key_id === null) return null;
    const known = this.#keys.get(key_id);
    if (known === undefined || !isActive(known.key, this.#clock.wall()))
      return { key_id, is_in_use: false, verified_before: false };
    return { key_id, is_in_use: true, verified_before: token.slice(-END_CHARS) === known.right_end };
  }

  /**
   * The claims of a request about any token, to limit guesses.
   *
   * @returns also the name under which wrong tokens with these claims are counted
   */
  guessHint(authorization: string): (TokenHint & { counted_as: string }) | null {
    const hint = this.tokenHint(authorization);
    if (hint !== null) return { ...hint, counted_as: hint.key_id };
    const other = this.others.hintOf(BEARER.exec(authorization)?.[1] ?? '');
    return other === null ? null : { ...other, counted_as: `other ${other.key_id}` };
  }

  /**
   * Identifies the caller of a request.
   *
   * @param authorization the header
   * @throws Problem `api_key_missing`, `api_key_malformed`, `api_key_unknown` (also for a wrong secret),
   * `api_key_revoked`, `api_key_expired`: the last two only with the right secret
   */
  identify(authorization: string | undefined): Standing {
    if (this.is_open) return this.#open;
    if (authorization === undefined) throw new Problem('api_key_missing');
    const token = BEARER.exec(authorization)?.[1];
    if (token === undefined) throw new Problem('api_key_missing');
    const key_id = keyIdOf(token);
    if (key_id === null) {
      const standing = this.others.identify(token);
      if (standing === null) throw new Problem('api_key_malformed');
      return standing;
    }
    return this.#standingOf(token, key_id);
  }

  /**
   * Takes the same steps whether the key exists or not: one digest, and a comparison with each token that a key may
   * have. So the time of the response does not reveal whether the key exists.
   */
  #standingOf(token: string, key_id: string): Standing {
    const now = this.#clock.wall();
    const digest = Buffer.from(digestOf(token), 'hex');
    const known = this.#keys.get(key_id);
    const is_current = timingSafeEqual(digest, known?.digest ?? NO_DIGEST);
    let standing = is_current && known !== undefined ? known.by_current : null;
    for (const earlier of known?.earlier ?? NO_EARLIER)
      if (timingSafeEqual(digest, earlier.digest) && now < earlier.until) standing ??= earlier.standing;
    if (known === undefined || standing === null) {
      throw new Problem(isWhole(token) ? 'api_key_unknown' : 'api_key_malformed');
    }
    if (known.key.revoked_at !== null) throw new Problem('api_key_revoked');
    if (!isActive(known.key, now)) throw new Problem('api_key_expired');
    if (is_current) known.right_end = token.slice(-END_CHARS);
    if (now - known.noted_at >= NOTE_EVERY_MS) this.#recordUse(known, now);
    return standing;
  }

  #recordUse(known: KnownKey, now: number): void {
    known.noted_at = now;
    this.#uses.set(known.key.key_id, now);
    this.#timer ??= this.#clock.after(WRITE_AFTER_MS, () => void this.#write());
  }

  async #write(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    const uses = Array.from(this.#uses, ([key_id, used_at]) => ({ key_id, used_at }));
    this.#uses.clear();
    if (uses.length === 0) return;
    try {
      // After a restart, all machines use their keys in the same second.
      for (let i = 0; i < uses.length; i += USES_MAX) await this.#store.recordUse(uses.slice(i, i + USES_MAX));
    } catch (error) {
      // A lost record does no harm, because the next use of the key is recorded again.
      this.#onError(error);
    }
  }

  /** Stores those uses of keys that are only in memory so far. Call it before the store is closed. */
  close(): Promise<void> {
    this.#is_closed = true;
    this.#following?.cancel();
    return this.#write();
  }
}

/** The bytes of a digest. For a damaged digest these are NO_DIGEST, which no token has. */
function digestIn(hex: string): Buffer {
  const bytes = ownBytes(hex, 'hex');
  return bytes.length === DIGEST_BYTES ? bytes : NO_DIGEST;
}

/**
 * The keyring for the owner of the data file. It knows one token, which is made for this process and may do everything.
 */
export class OwnersKeyring extends Keyring {
  readonly token = randomBytes(DIGEST_BYTES).toString('hex');
  readonly #standing: Standing = { principal: EVERYTHING_ALLOWED, token: null, revocationReason: () => null };

  override get nameless() {
    return 'local command' as const;
  }

  override get is_open(): boolean {
    return false;
  }

  override identify(authorization: string | undefined): Standing {
    const given = Buffer.from(digestOf(authorization ?? ''), 'hex');
    if (timingSafeEqual(given, Buffer.from(digestOf(`Bearer ${this.token}`), 'hex'))) return this.#standing;
    throw new Problem('api_key_unknown');
  }
}
