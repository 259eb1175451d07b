import type { Clock } from '../../delivery/clock.ts';
import type { Principal } from '../../domain/access.ts';
import { isActive, validDigests } from '../../domain/api_key.ts';
import { GenerationCache } from '../../domain/generation_cache.ts';
import {
  isPortalToken,
  makePortalToken,
  type PortalDigests,
  type PortalTerms,
  portalClaims,
} from '../../domain/portal_link.ts';
import { invalidField, Problem, type ProblemCode } from '../../domain/problem.ts';
import type { InstanceStore } from '../../store/contract/instances.ts';
import type { DerivedSecrets } from '../../store/secrets/derived_secrets.ts';
import type { Keyring, OtherTokens, TokenHint } from './keyring.ts';
import type { Standing } from './standing.ts';

/**
 * The standing of a request with a portal link. It depends on the key whose instances the link shows, and on the key
 * that made the link.
 */
class PortalStanding implements Standing {
  readonly principal: Principal;
  /** A link cannot begin a session. */
  readonly token = null;
  readonly #links: PortalLinks;
  readonly #terms: PortalTerms;
  readonly #digests: PortalDigests;

  constructor(links: PortalLinks, principal: Principal, terms: PortalTerms, digests: PortalDigests) {
    this.#links = links;
    this.principal = principal;
    this.#terms = terms;
    this.#digests = digests;
  }

  revocationReason(): ProblemCode | null {
    return this.#links.revocationReason(this.#terms, this.#digests);
  }
}

/** How many links are remembered after they were verified, and how many characters of each. */
const VERIFIED_MAX = 10_000;
const END_CHARS = 6;

/** What is remembered of a link: too little to make one. */
function endOf(token: string, { key_id }: PortalTerms): string {
  return key_id + token.slice(-END_CHARS);
}

/**
 * Portal links: an admin makes a link for a key. For an hour, anybody who opens the link sees the instances of the key.
 * They may also do what helps the machines of these instances to get messages again: see domain/portal_rights.ts.
 */
export class PortalLinks implements OtherTokens {
  readonly #secrets: DerivedSecrets;
  readonly #keyring: Keyring;
  readonly #instances: Pick<InstanceStore, 'find'>;
  readonly #clock: Clock;
  /** The ends of the links that were verified lately. */
  readonly #verified = new GenerationCache<true>(VERIFIED_MAX);

  constructor(secrets: DerivedSecrets, keyring: Keyring, instances: Pick<InstanceStore, 'find'>, clock: Clock) {
    this.#secrets = secrets;
    this.#keyring = keyring;
    this.#instances = instances;
    this.#clock = clock;
  }

  /**
   * @throws Problem `key_does_not_exist`, `key_not_active`, `not_permitted` for a key that owns no instances of its own,
   * `invalid_fields` for an instance that the key may not use
   */
  async make(terms: PortalTerms): Promise<string> {
    const secret = this.#secrets.newest;
    const [digests] = this.#digestsOf(terms);
    if (secret === undefined || digests === undefined) throw new Problem('key_does_not_exist');
    if (this.revocationReason(terms, digests) !== null) throw new Problem('key_not_active');
    const principal = this.#principalOf({ ...terms, instance_id: null });
    if (principal === null) {
      throw new Problem(
        'not_permitted',
        'A link shows the instances of a key with the scope instance that is no admin.',
      );
    }
    await this.#assertOwned(terms.instance_id, principal);
    return makePortalToken(secret, terms, digests);
  }

  /** Says the same of an instance of another key and of none at all, so that nobody learns which ids exist. */
  async #assertOwned(instance_id: string | null, { owner_scope, visibility }: Principal): Promise<void> {
    if (instance_id === null) return;
    const limited_to = owner_scope?.instance_id ?? null;
    if (limited_to !== null && limited_to !== instance_id)
      throw invalidField('instance_id', 'must be the instance to which the key is limited, or absent');
    if ((await this.#instances.find(instance_id, visibility)) === null)
      throw invalidField('instance_id', 'must be an instance that the key owns, or absent');
  }

  /**
   * Identifies the caller of a request with the token of a link; null for any other text.
   *
   * @throws Problem `api_key_unknown` when the link was not made here, or when a token that one of its two keys had at
   * that time has ended; `api_key_expired`, `api_key_revoked`
   */
  identify(token: string): Standing | null {
    const terms = portalClaims(token);
    if (terms === null) return null;
    const digests = this.#digestsOf(terms).find((pair) => isPortalToken(this.#secrets.all, token, pair));
    const principal = this.#principalOf(terms);
    if (digests === undefined || principal === null)
      throw new Problem('api_key_unknown', 'This link is not valid here, or not any more. Open it again where it was.');
    const code = this.revocationReason(terms, digests);
    if (code !== null) throw new Problem(code, 'This link has ended. Open it again where it was.');
    this.#verified.set(endOf(token, terms), true);
    return new PortalStanding(this, principal, terms, digests);
  }

  hintOf(token: string): TokenHint | null {
    const terms = portalClaims(token);
    if (terms === null) return null;
    const { key_id, maker_id, expires_at } = terms;
    const now = this.#clock.wall();
    const isInUse = (id: string): boolean => {
      const known = this.#keyring.known(id);
      return known !== null && isActive(known.key, now);
    };
    return {
      key_id,
      is_in_use: now < expires_at && isInUse(key_id) && isInUse(maker_id),
      verified_before: this.#verified.get(endOf(token, terms)) === true,
    };
  }

  /** Why a link has ended; null while it is valid. */
  revocationReason({ key_id, maker_id, expires_at }: PortalTerms, { key, maker }: PortalDigests): ProblemCode | null {
    if (expires_at <= this.#clock.wall()) return 'api_key_expired';
    return (
      this.#keyring.revocationReason({ key_id, digest: key }) ??
      this.#keyring.revocationReason({ key_id: maker_id, digest: maker })
    );
  }

  /**
   * The digests with which a link can be valid now: first those of the current tokens, and during the overlap of a
   * rotation those of the earlier ones too. Empty when there is no such key.
   */
  #digestsOf({ key_id, maker_id }: PortalTerms): PortalDigests[] {
    const now = this.#clock.wall();
    const [keys = [], makers = []] = [key_id, maker_id].map((id) => {
      const known = this.#keyring.known(id);
      return known === null ? [] : validDigests(known.key, now);
    });
    return keys.flatMap((key) => makers.map((maker) => ({ key, maker })));
  }

  /** A principal that sees the instances of the key; null when a link may show none of them. */
  #principalOf({ key_id, instance_id }: PortalTerms): Principal | null {
    const known = this.#keyring.known(key_id);
    if (known === null || !known.key.scopes.includes('instance') || known.key.scopes.includes('admin')) return null;
    const limited_to = known.key.instance_id;
    if (limited_to !== null && instance_id !== null && limited_to !== instance_id) return null;
    const owner_scope = { key_id, instance_id: limited_to ?? instance_id };
    return {
      ...known.principal,
      scopes: ['instance'],
      owner_scope,
      visibility: { owner_scope, meeting_ids: [] },
      is_portal_link: true,
    };
  }
}
