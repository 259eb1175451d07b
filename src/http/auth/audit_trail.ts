/** Writes the audit log: who did what, from where, and which requests were refused. */
import type { FastifyRequest } from 'fastify';
import type { Author } from '../../changes/author.ts';
import type { Clock, Timer } from '../../delivery/clock.ts';
import type { AuditAction, AuditDetails, AuditSubject, AuditTarget } from '../../domain/audit.ts';
import { addressGroup } from '../../domain/client_address.ts';
import { isId } from '../../domain/id.ts';
import type { Problem, ProblemCode } from '../../domain/problem.ts';
import type { AuditedStore, Store } from '../../store/store.ts';
import type { Keyring } from './keyring.ts';
import type { Limits } from './limits.ts';
import { assertStanding } from './standing.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /**
     * The action of the route and its target. Every route that changes something names them, or says `none` with a
     * reason in a comment.
     */
    audit?: { action: AuditAction; target: AuditTarget } | 'none';
  }
}

export interface AuditTrailParts {
  store: Pick<Store, 'audit' | 'audited'>;
  keyring: Keyring;
  limits: Limits;
  clock: Clock;
  onError: (error: unknown) => void;
}

/**
 * Equal refusals are written once in this time. At the end of the time one more entry says how often they were
 * repeated.
 */
const REFUSALS_MS = 60_000;

/**
 * How many different refusals are written within REFUSALS_MS. Further refusals are only counted, so that a flood cannot
 * fill the disk.
 */
const REFUSALS_MAX = 100;

export class AuditTrail {
  readonly #parts: AuditTrailParts;
  /**
   * Refusals of anonymous callers have a limit of their own, so that anonymous callers cannot use up the limit for the
   * refusals of keys.
   */
  readonly #of_anonymous: Refusals;
  readonly #of_keys: Refusals;

  constructor(parts: AuditTrailParts) {
    this.#parts = parts;
    this.#of_anonymous = new Refusals(parts);
    this.#of_keys = new Refusals(parts);
  }

  /** The author of the changes that a request with a key makes. */
  authorOf(request: FastifyRequest): Author {
    const { key_id, owner_scope } = request.principal;
    return {
      key_id,
      owner_scope,
      storeFor: (more) => this.#storeFor(request, more),
      assertStanding: () => assertStanding(request.standing),
      record: () => this.#record(request),
    };
  }

  /** The author of a session that a sign-in link begins: the link has no key. */
  holderOfLink(request: FastifyRequest): Pick<Author, 'storeFor'> {
    return { storeFor: () => this.#storeFor(request, { principal: 'sign-in link' }) };
  }

  /** The author of the changes that a machine makes when it redeems an invite: the machine has no key yet. */
  holderOfInvite(request: FastifyRequest): Pick<Author, 'storeFor'> {
    return { storeFor: (more) => this.#storeFor(request, { principal: 'invite link', ...more }) };
  }

  #storeFor(request: FastifyRequest, more: Partial<AuditSubject> = {}): AuditedStore {
    const { store, clock } = this.#parts;
    return store.audited({ subject: this.#subjectOf(request, more), wall_ms: clock.wall() });
  }

  async #record(request: FastifyRequest): Promise<void> {
    const { store, clock } = this.#parts;
    await store.audit.append({ ...this.#subjectOf(request), outcome: 'done', code: null }, clock.wall());
  }

  /**
   * A request was refused. The response does not wait for the entry, because the request changed nothing, and the time
   * of the response must not show which refusals are written. With PostgreSQL a later call may not see the entry yet.
   */
  refused(request: FastifyRequest, { code, status }: Problem): void {
    const { audit } = request.routeOptions.config;
    const is_anonymous = request.principal === null;
    const is_wrong_key = status === 401 || (is_anonymous && code === 'rate_limited');
    if (status >= 500 || (!is_wrong_key && (audit === undefined || audit === 'none'))) return;
    const subject = is_wrong_key ? this.#anonymousSubject(request) : this.#subjectOf(request);
    (is_anonymous ? this.#of_anonymous : this.#of_keys).note(subject, code);
  }

  /** The key or session of a pull ended while the pull waited. */
  standingEnded(address: string | null, key_id: string | null, code: ProblemCode): void {
    this.#of_keys.note(authenticationSubject(address, key_id), code);
  }

  /** Writes the refusals that were only counted so far. Call it before the store is closed. */
  async close(): Promise<void> {
    await Promise.all([this.#of_anonymous.close(), this.#of_keys.close()]);
  }

  #subjectOf(request: FastifyRequest, more: Partial<AuditSubject> = {}): AuditSubject {
    const { audit } = request.routeOptions.config;
    if (audit === undefined || audit === 'none') throw new Error('the route does not say what it does: config.audit');
    const { keyring } = this.#parts;
    const { principal } = request as { principal: FastifyRequest['principal'] | null };
    const nameless = request.signed_in === null ? keyring.nameless : 'sign-in link';
    return {
      principal: principal === null ? 'unknown' : (principal.key_id ?? nameless),
      address: this.#addressOf(request),
      action: audit.action,
      target_kind: audit.target,
      target_id: targetOf(request, audit.target),
      ...more,
      details: { ...detailsOf(request.body), ...more.details },
    };
  }

  #anonymousSubject(request: FastifyRequest): AuditSubject {
    const address = this.#parts.limits.addressOf(request);
    const key_id = this.#parts.keyring.tokenHint(request.headers.authorization ?? '')?.key_id ?? null;
    return authenticationSubject(address, key_id);
  }

  #addressOf(request: FastifyRequest): string | null {
    const { keyring, limits } = this.#parts;
    return keyring.nameless === 'local command' ? null : limits.addressOf(request);
  }
}

/** @param key_id the key that the caller claims to have; null when the caller names none */
function authenticationSubject(address: string | null, key_id: string | null): AuditSubject {
  return {
    principal: 'unknown',
    address: address === null ? null : addressGroup(address),
    action: 'authenticate',
    target_kind: 'service',
    target_id: null,
    details: key_id === null ? {} : { claimed_key_id: key_id },
  };
}

interface Refusal {
  subject: AuditSubject;
  code: ProblemCode;
  again: number;
}

/** Collects refusals: equal refusals are written once a minute. */
class Refusals {
  readonly #parts: Pick<AuditTrailParts, 'store' | 'clock' | 'onError'>;
  #kinds = new Map<string, Refusal>();
  #others = 0;
  #timer: Timer | null = null;

  constructor(parts: Pick<AuditTrailParts, 'store' | 'clock' | 'onError'>) {
    this.#parts = parts;
  }

  note(subject: AuditSubject, code: ProblemCode): void {
    this.#timer ??= this.#parts.clock.after(REFUSALS_MS, () => void this.#flush());
    const { principal, address, action, target_id } = subject;
    const kind = JSON.stringify([principal, address, action, target_id, code]);
    const known = this.#kinds.get(kind);
    if (known !== undefined) {
      known.again++;
    } else if (this.#kinds.size >= REFUSALS_MAX) {
      this.#others++;
    } else {
      this.#kinds.set(kind, { subject, code, again: 0 });
      void this.#write(subject, code);
    }
  }

  async #flush(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    const [kinds, others] = [this.#kinds, this.#others];
    this.#kinds = new Map();
    this.#others = 0;
    const writing = [...kinds.values()]
      .filter(({ again }) => again > 0)
      .map(({ subject, code, again }) =>
        this.#write({ ...subject, details: { ...subject.details, repeated: again } }, code),
      );
    if (others > 0) writing.push(this.#write({ ...OTHERS, details: { others } }, null));
    await Promise.all(writing);
  }

  async #write(subject: AuditSubject, code: ProblemCode | null): Promise<void> {
    const { store, clock, onError } = this.#parts;
    try {
      await store.audit.append({ ...subject, outcome: 'refused', code }, clock.wall());
    } catch (error) {
      onError(error);
    }
  }

  close(): Promise<void> {
    return this.#flush();
  }
}

/** The entry for refusals beyond REFUSALS_MAX, which are only counted. */
const OTHERS = {
  principal: 'unknown',
  address: null,
  action: 'authenticate',
  target_kind: 'service',
  target_id: null,
} as const;

function targetOf({ params, body }: FastifyRequest, target: AuditTarget): string | null {
  const name = `${target}_id`;
  const id =
    fieldOf(params, target === 'key' ? 'key_id' : name) ?? (target === 'instance' ? fieldOf(body, name) : null);
  return chosenId(id);
}

/**
 * The id that a request names; null for a value that is no id. A database would change a text that is not well-formed,
 * and the chain of the log would then show a changed entry.
 */
function chosenId(value: unknown): string | null {
  return typeof value === 'string' && isId(value) ? value : null;
}

/** The names of the fields in the body, and the id of the meeting; no other value. */
function detailsOf(body: unknown): AuditDetails {
  if (typeof body !== 'object' || body === null) return {};
  const meeting_id = chosenId(fieldOf(body, 'meeting_id'));
  const fields = Object.keys(body).filter((name) => KNOWN_FIELD.test(name));
  return {
    ...(fields.length === 0 ? {} : { fields: fields.toSorted().slice(0, FIELDS_MAX) }),
    ...(meeting_id !== null && { meeting_id }),
  };
}

/**
 * A refused body may have any number of fields with any names, so names that do not look like names of the API are left
 * out.
 */
const KNOWN_FIELD = /^[a-z_]{1,40}$/;
const FIELDS_MAX = 20;

function fieldOf(object: unknown, name: string): unknown {
  return typeof object === 'object' && object !== null ? (object as Record<string, unknown>)[name] : undefined;
}
