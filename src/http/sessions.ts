/**
 * Signing in on a page: a key is given once and exchanged for a cookie, which no script can read. What it stands for is
 * kept in the store, and asked for with every request: who signs out is out, on every node.
 *
 * A browser adds a cookie by itself, to whatever a page of whatever origin asks for. So it is sent to no other site
 * (SameSite=Strict), and a request that it comes with must be from a page of this origin, and with everything that
 * changes something there must be a value that only such a page can read.
 */
import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock, Timer } from '../delivery/clock.ts';
import { EVERYTHING_ALLOWED, type Principal } from '../domain/access.ts';
import { digestOf } from '../domain/api_key.ts';
import { Problem, type ProblemCode } from '../domain/problem.ts';
import { csrfTokenOf, type Session, sessionEnd } from '../domain/session.ts';
import type { SessionStore } from '../store/store.ts';
import type { Keyring } from './keyring.ts';
import type { Limits } from './limits.ts';

/** With the first a browser takes care that nobody but this very host over https has set it. */
const SECURE_COOKIE = '__Host-convoke_session';
const PLAIN_COOKIE = 'convoke_session';
export const CSRF_HEADER = 'convoke-csrf';

const TOKEN_BYTES = 32;
const TOKEN = /^[A-Za-z0-9_-]{43}$/;

/** How long a link can be used, and how many there are at a time. */
const LINK_MS = 5 * 60_000;
const LINKS_MAX = 10;

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);

/** Who came with a cookie. */
export interface SignedIn {
  session: Session;
  /** To be sent with what changes something. */
  csrf_token: string;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** What the cookie of the request stands for; null when it came with none, or with a key. */
    signed_in: SignedIn | null;
  }
}

export interface SessionParts {
  store: { sessions: SessionStore };
  keyring: Keyring;
  limits: Limits;
  clock: Clock;
}

export class Sessions {
  readonly #parts: SessionParts;
  readonly #links = new Map<string, Timer>();

  constructor(parts: SessionParts) {
    this.#parts = parts;
  }

  /** Whether a request is to be judged by its cookie: with a key it is judged by that. */
  isUsedBy({ headers }: FastifyRequest): boolean {
    return headers.authorization === undefined && headers.cookie !== undefined && !this.#parts.keyring.is_open;
  }

  /**
   * Who makes a request; null when there is no cookie of ours.
   *
   * @throws Problem `session_ended`, `origin_not_allowed`, `csrf_token_wrong`, and what stands against its key
   */
  async identify(request: FastifyRequest): Promise<Principal | null> {
    const token = this.#tokenOf(request);
    if (token === null) return null;
    assertSameOrigin(request);
    if (!SAFE_METHODS.has(request.method)) assertCsrfToken(request, csrfTokenOf(token));
    const { store, clock } = this.#parts;
    const session = await store.sessions.find(digestOf(token), clock.wall());
    if (session === null) throw new Problem('session_ended');
    request.signed_in = { session, csrf_token: csrfTokenOf(token) };
    return this.#principalOf(session);
  }

  #principalOf({ key_id }: Session): Principal {
    if (key_id === null) return EVERYTHING_ALLOWED;
    const { keyring } = this.#parts;
    const code = keyring.whyNot(key_id);
    if (code !== null) throw new Problem(code);
    return keyring.known(key_id)?.principal as Principal;
  }

  /** Why a session is none any more; null while it is one. Asks the store. */
  async whyNot({ digest }: Session): Promise<ProblemCode | null> {
    const { store, clock } = this.#parts;
    return (await store.sessions.find(digest, clock.wall())) === null ? 'session_ended' : null;
  }

  /**
   * Begins a session, and sets its cookie.
   *
   * @param key_id the key that it is for; null for who came by a link
   * @param sessions the store that leaves an entry in the audit log
   */
  async begin(
    request: FastifyRequest,
    reply: FastifyReply,
    key_id: string | null,
    sessions: SessionStore,
  ): Promise<SignedIn> {
    const { clock, keyring } = this.#parts;
    const now = clock.wall();
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    const key_expires_at = key_id === null ? null : (keyring.known(key_id)?.key.expires_at ?? null);
    const session = await sessions.create({
      digest: digestOf(token),
      key_id,
      created_at: now,
      expires_at: sessionEnd(now, key_expires_at),
    });
    this.#setCookie(request, reply, token, Math.max(0, Math.floor((session.expires_at - now) / 1000)));
    return { session, csrf_token: csrfTokenOf(token) };
  }

  /** Takes the cookie away. */
  forget(request: FastifyRequest, reply: FastifyReply): void {
    this.#setCookie(request, reply, '', 0);
  }

  #setCookie(request: FastifyRequest, reply: FastifyReply, value: string, age_s: number): void {
    const is_https = this.#parts.limits.isHttps(request);
    const name = is_https ? SECURE_COOKIE : PLAIN_COOKIE;
    const cookie = `${name}=${value}; Path=/; Max-Age=${age_s}; HttpOnly; SameSite=Strict${is_https ? '; Secure' : ''}`;
    void reply.header('set-cookie', cookie);
  }

  #tokenOf(request: FastifyRequest): string | null {
    const name = this.#parts.limits.isHttps(request) ? SECURE_COOKIE : PLAIN_COOKIE;
    for (const cookie of (request.headers.cookie ?? '').split(';')) {
      const [given, value = ''] = cookie.split('=', 2).map((part) => part.trim());
      if (given === name && TOKEN.test(value)) return value;
    }
    return null;
  }

  /** Makes the token of a link that signs in once, as an admin, within five minutes, on this node. */
  makeLink(): string {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    const [oldest] = this.#links.keys();
    if (this.#links.size >= LINKS_MAX && oldest !== undefined) this.#take(oldest);
    const digest = digestOf(token);
    this.#links.set(
      digest,
      this.#parts.clock.after(LINK_MS, () => void this.#links.delete(digest)),
    );
    return token;
  }

  /** @throws Problem `sign_in_link_not_valid` when it was used, or never was one */
  useLink(token: string): void {
    if (!this.#take(digestOf(token))) throw new Problem('sign_in_link_not_valid');
  }

  #take(digest: string): boolean {
    this.#links.get(digest)?.cancel();
    return this.#links.delete(digest);
  }

  close(): void {
    for (const timer of this.#links.values()) timer.cancel();
    this.#links.clear();
  }
}

/**
 * A browser says from where a request comes: in Sec-Fetch-Site, which no page can set, where the connection is secure or
 * local, and in Origin otherwise, with all that changes something. What says neither is no page of ours.
 *
 * @throws Problem `origin_not_allowed`
 */
function assertSameOrigin({ method, headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  const is_safe = SAFE_METHODS.has(method);
  if (site !== undefined) {
    // `none`: somebody typed the address.
    if (site === 'same-origin' || (site === 'none' && is_safe)) return;
    throw notOurs();
  }
  const { origin, host } = headers;
  if (origin === undefined ? is_safe : hostOf(origin) === host?.toLowerCase()) return;
  throw notOurs();
}

function notOurs(): Problem {
  return new Problem('origin_not_allowed', 'A session is taken only from pages of this service itself.');
}

function hostOf(origin: string): string | null {
  return URL.canParse(origin) ? new URL(origin).host : null;
}

/** @throws Problem `csrf_token_wrong` */
function assertCsrfToken({ headers }: FastifyRequest, csrf_token: string): void {
  const given = headers[CSRF_HEADER];
  const is_right = typeof given === 'string' && timingSafeEqual(digest(given), digest(csrf_token));
  if (!is_right) throw new Problem('csrf_token_wrong');
}

function digest(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}
