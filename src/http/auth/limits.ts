/** Limits how often a key or an address may do something, over all routes. */
import type { FastifyRequest } from 'fastify';
import type { Config } from '../../config/config.ts';
import type { Clock } from '../../delivery/clock.ts';
import type { Principal } from '../../domain/access.ts';
import type { Cidr } from '../../domain/address.ts';
import { addressGroup, clientAddress, isForwardedHttps } from '../../domain/client_address.ts';
import { Problem, type ProblemCode } from '../../domain/problem.ts';
import { type Rate, TokenBuckets } from '../../domain/token_bucket.ts';
import type { Keyring } from './keyring.ts';
import type { Standing } from './standing.ts';

export type LimitSettings = Pick<
  Config,
  | 'send_rate'
  | 'send_rate_per_address'
  | 'register_rate'
  | 'register_rate_per_address'
  | 'change_rate'
  | 'auth_failure_rate'
  | 'trust_proxy'
>;

/**
 * The limits that a route may have. `change` is for every request that leaves an entry in the audit log, because an
 * attacker could fill the log.
 */
export type Limited = 'send' | 'register' | 'change';

/** The problems of a request with a wrong token, which counts as a guess. A request without a token is no guess. */
const WRONG_KEY = new Set<ProblemCode>(['api_key_malformed', 'api_key_unknown', 'api_key_revoked', 'api_key_expired']);

/** Stands for the address of a client without TCP, which is on this machine. */
const NO_ADDRESS = 'none';

interface Limit {
  setting: string;
  buckets: TokenBuckets;
}

interface Pair {
  key: Limit | null;
  address: Limit | null;
}

export class Limits {
  readonly #clock: Clock;
  readonly #trust_proxy: readonly Cidr[];
  readonly #pairs: Record<Limited, Pair>;
  readonly #failures: { address: Limit; key: TokenBuckets } | null;

  constructor(settings: LimitSettings, clock: Clock) {
    this.#clock = clock;
    this.#trust_proxy = settings.trust_proxy;
    this.#pairs = {
      send: {
        key: limitOf('send_rate', settings.send_rate),
        address: limitOf('send_rate_per_address', settings.send_rate_per_address),
      },
      register: {
        key: limitOf('register_rate', settings.register_rate),
        address: limitOf('register_rate_per_address', settings.register_rate_per_address),
      },
      change: { key: limitOf('change_rate', settings.change_rate), address: null },
    };
    const address = limitOf('auth_failure_rate', settings.auth_failure_rate);
    this.#failures =
      address === null || settings.auth_failure_rate === null
        ? null
        : { address, key: new TokenBuckets(settings.auth_failure_rate) };
  }

  /** The address of the client; null when it is not known. */
  addressOf({ socket, headers }: Pick<FastifyRequest, 'socket' | 'headers'>): string | null {
    const forwarded_for = headers['x-forwarded-for'];
    return clientAddress(
      socket.remoteAddress,
      Array.isArray(forwarded_for) ? forwarded_for.join(',') : forwarded_for,
      this.#trust_proxy,
    );
  }

  /** Whether the client used https, as a trusted proxy says: the service itself has no TLS. */
  isHttps({ socket, headers }: Pick<FastifyRequest, 'socket' | 'headers'>): boolean {
    if (this.#trust_proxy.length === 0) return false;
    return isForwardedHttps(socket.remoteAddress, headers['x-forwarded-proto'], this.#trust_proxy);
  }

  /**
   * Runs `attempt`, which rejects with a Problem when the client guessed wrong, and limits how often an address may
   * fail.
   *
   * @throws Problem `rate_limited` from an address with too many failures, and the problems of `attempt`
   */
  async limitFailures<Found>(request: FastifyRequest, attempt: () => Promise<Found>): Promise<Found> {
    const failures = this.#failures;
    if (failures === null) return attempt();
    const { buckets, setting } = failures.address;
    const group = this.#groupOf(request);
    // The guess is counted before the attempt. Many guesses may arrive at the same moment, and otherwise all of them
    // would begin before the first guess fails.
    const wait_ms = buckets.take(group, this.#clock.now());
    if (wait_ms > 0) throw rateLimited(setting, wait_ms);
    let has_guessed_wrong = false;
    try {
      return await attempt();
    } catch (error) {
      has_guessed_wrong = error instanceof Problem;
      throw error;
    } finally {
      if (!has_guessed_wrong) buckets.giveBack(group, this.#clock.now());
    }
  }

  /**
   * @param limited the limits that hold for the request; an entry that is undefined stands for no limit
   * @throws Problem `rate_limited` when the key or the address has used up one of the limits. A refused request counts
   * against none of them.
   */
  assertWithinRate(limited: readonly (Limited | undefined)[], { key_id }: Principal, request: FastifyRequest): void {
    const limits: (Limit & { name: string })[] = [];
    for (const each of limited) {
      if (each === undefined) continue;
      const { key, address } = this.#pairs[each];
      if (key !== null && key_id !== null) limits.push({ ...key, name: key_id });
      if (address !== null) limits.push({ ...address, name: this.#groupOf(request) });
    }
    const now = this.#clock.now();
    for (const { buckets, name, setting } of limits) {
      const wait_ms = buckets.wait(name, now);
      if (wait_ms > 0) throw rateLimited(setting, wait_ms);
    }
    for (const { buckets, name } of limits) buckets.take(name, now);
  }

  /**
   * Identifies who makes a request, and limits how often an address may guess.
   *
   * After too many failures from an address, this function refuses its requests without a look at their tokens. Other
   * clients may share that address. So it still judges two kinds of tokens:
   *
   * - A token that ends with the same characters as a token that was verified before. A guess hits these 35 bits once
   *   in 5 · 10^10 times. So no attacker can delay a client whose token was verified since the start.
   * - Any token of a key in use, until there are too many failures with that key. So an attacker who does not know a
   *   key_id cannot delay the clients of that key.
   *
   * Both are true of portal links too. Wrong links of a key are counted apart from wrong tokens of that key.
   *
   * Another node may just have made an unknown token. So the request waits until the keys are read again. It counts as
   * a guess meanwhile, so that an address cannot let more requests wait than it may make guesses.
   *
   * @returns a promise only when the request waits
   * @throws Problem `rate_limited`, and those of `Keyring.identify`
   */
  identify(keyring: Keyring, request: FastifyRequest): Standing | Promise<Standing> {
    const { authorization } = request.headers;
    this.#assertMayTry(keyring, request);
    try {
      return keyring.identify(authorization);
    } catch (error) {
      if (!(error instanceof Problem && WRONG_KEY.has(error.code))) throw error;
      const giveBack = this.#countGuess(keyring, request);
      const read = error.code === 'api_key_unknown' ? keyring.readAgain() : null;
      if (read === null) throw error;
      return read.then(() => {
        const standing = keyring.identify(authorization);
        giveBack();
        return standing;
      });
    }
  }

  /** @throws Problem `rate_limited`: see `identify` */
  #assertMayTry(keyring: Keyring, request: FastifyRequest): void {
    const { authorization } = request.headers;
    const failures = this.#failures;
    if (failures === null || keyring.is_open || authorization === undefined) return;
    if (failures.address.buckets.size === 0) return;
    const now = this.#clock.now();
    const wait_ms = failures.address.buckets.wait(this.#groupOf(request), now);
    if (wait_ms === 0) return;
    const hint = keyring.guessHint(authorization);
    const may_try =
      hint !== null && (hint.verified_before || (hint.is_in_use && failures.key.wait(hint.counted_as, now) === 0));
    if (!may_try) throw rateLimited(failures.address.setting, wait_ms);
  }

  /** @returns a function that takes the guess back, because it was none */
  #countGuess(keyring: Keyring, request: FastifyRequest): () => void {
    const failures = this.#failures;
    if (failures === null) return () => {};
    const now = this.#clock.now();
    const hint = keyring.guessHint(request.headers.authorization ?? '');
    const counts = [{ buckets: failures.address.buckets, name: this.#groupOf(request) }];
    if (hint?.is_in_use === true) counts.push({ buckets: failures.key, name: hint.counted_as });
    const taken = counts.filter(({ buckets, name }) => buckets.take(name, now) === 0);
    return () => {
      for (const { buckets, name } of taken) buckets.giveBack(name, this.#clock.now());
    };
  }

  #groupOf(request: FastifyRequest): string {
    const address = this.addressOf(request);
    return address === null ? NO_ADDRESS : addressGroup(address);
  }
}

function limitOf(setting: keyof LimitSettings, rate: Rate | null): Limit | null {
  return rate === null ? null : { setting, buckets: new TokenBuckets(rate) };
}

function rateLimited(setting: string, wait_ms: number): Problem {
  const retry_after_s = Math.ceil(wait_ms / 1000);
  return new Problem(
    'rate_limited',
    `More often than CONVOKE_${setting.toUpperCase()} permits. Try again in ${retry_after_s} s.`,
    { retry_after_s },
  );
}

/** The URL at which people reach the service: the configured URL, or the URL that this client used. */
export function publicUrlOf(
  request: FastifyRequest,
  limits: Pick<Limits, 'isHttps'>,
  public_url: string | null,
): string {
  return public_url ?? `${limits.isHttps(request) ? 'https' : 'http'}://${request.headers.host ?? ''}`;
}
