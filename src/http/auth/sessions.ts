/**
 * Signing in on a page: the page sends a key once and gets a cookie, which no script can read. The store has the
 * session, and every request reads it, so signing out holds on every node.
 *
 * A browser adds a cookie by itself to the requests of any page. Over http it also sends the cookie to every other port
 * of this host. So the cookie alone must give no access. Three things protect it:
 *
 * - The browser sends the cookie with no request from another site (SameSite=Strict).
 * - A request with the cookie must be from a page of this origin.
 * - The request must also have a second value, csrf_token. The response to the sign-in contains this value, and later
 *   only responses to requests that have it. The page keeps it where only pages of this origin can read it.
 *
 * The cookie is written and parsed here, in a few lines: a fixed name, a value of 43 characters that need no quoting,
 * and fixed attributes. A library would bring quoting, decoding and signing that must not happen to this value.
 */
import { type KeyObject, randomBytes, timingSafeEqual } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Author } from '../../changes/author.ts';
import type { Clock, Timer } from '../../delivery/clock.ts';
import { EVERYTHING_ALLOWED, NOTHING_ALLOWED, type Principal } from '../../domain/access.ts';
import { digestOf } from '../../domain/api_key.ts';
import { Problem, type ProblemCode } from '../../domain/problem.ts';
import { type Session, sessionEnd } from '../../domain/session.ts';
import { isLikeSessionToken, isSessionToken, makeSessionToken, tagOf } from '../../domain/session_token.ts';
import type { Page, PageRequest } from '../../store/contract/page.ts';
import type { DerivedSecrets } from '../../store/secrets/derived_secrets.ts';
import type { Store } from '../../store/store.ts';
import { onClosed } from '../on_closed.ts';
import type { Keyring } from './keyring.ts';
import type { Limits } from './limits.ts';
import { assertStanding, type Standing, type Token } from './standing.ts';

/** A browser accepts this prefix of a name only from this host over https. */
const SECURE = '__Host-';
export const CSRF_HEADER = 'convoke-csrf';

const SECRET_BYTES = 32;

/** How long a sign-in link is valid, and the most links at a time. */
const LINK_MS = 5 * 60_000;
const LINKS_MAX = 10;

/** How often the sessions of requests in progress are looked for in the store. */
const LOOK_MS = 500;

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);

/** A session that a request has signed in with. */
export interface SignedIn {
  session: Session;
  /** Every request of the page has this value as a header. */
  csrf_token: string;
}

/** A session that a request signed in with by its cookie. */
export interface SignedInByCookie extends SignedIn {
  /**
   * The cookie for a request to another node. It has both names, because the connection to that node may be https, or
   * not, unlike that of the client.
   */
  forwarded_cookie: string;
}

/** The digest of the token of a key with which a request is made, or with which its session began; null for neither. */
export function tokenDigestOf({ standing, signed_in }: Pick<FastifyRequest, 'standing' | 'signed_in'>): string | null {
  return standing?.token?.digest ?? signed_in?.session.token_digest ?? null;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The session of the request's cookie; null when the request has no cookie, or has a key. */
    signed_in: SignedInByCookie | null;
  }
}

export interface SessionParts {
  store: Pick<Store, 'sessions' | 'cluster'>;
  secrets: DerivedSecrets;
  /** Unique to this start of the node. */
  node_id: string;
  keyring: Keyring;
  limits: Limits;
  clock: Clock;
  onError: (error: unknown) => void;
}

/** The standing of a request with a session. It depends on the session and on the token that began it. */
class SessionStanding implements Standing {
  readonly principal: Principal;
  /** A session cannot begin another session. */
  readonly token = null;
  readonly #by: Token | null;
  readonly #keyring: Keyring;
  readonly #clock: Clock;
  readonly session: Session;
  /** Whether somebody has ended the session, here or on another node. */
  has_ended = false;

  constructor(session: Session, keyring: Keyring, clock: Clock) {
    const { key_id, token_digest } = session;
    this.principal = key_id === null ? EVERYTHING_ALLOWED : (keyring.known(key_id)?.principal ?? NOTHING_ALLOWED);
    this.session = session;
    this.#by = key_id === null ? null : { key_id, digest: token_digest ?? '' };
    this.#keyring = keyring;
    this.#clock = clock;
  }

  revocationReason(): ProblemCode | null {
    if (this.has_ended || this.session.expires_at <= this.#clock.wall()) return 'session_ended';
    const code = this.#by === null ? null : this.#keyring.revocationReason(this.#by);
    // The key is valid, but the token that began the session is not.
    return code === 'api_key_unknown' ? 'session_ended' : code;
  }
}

export class Sessions {
  readonly #parts: SessionParts;
  /** Called when the session of a request in progress was ended, on any node. The request has no standing any more. */
  onEnd: () => void = () => {};
  /** The standings of the requests in progress. */
  readonly #in_progress = new Set<SessionStanding>();
  #look_timer: Timer | null = null;
  #is_closed = false;
  /** The one-time links, by the digests of their tokens. */
  readonly #links = new Map<string, { timer: Timer; standing: Standing | null }>();

  constructor(parts: SessionParts) {
    this.#parts = parts;
  }

  /** Whether the cookie of a request identifies the caller. A key has precedence. */
  isUsedBy({ headers }: FastifyRequest): boolean {
    return headers.authorization === undefined && headers.cookie !== undefined && !this.#parts.keyring.is_open;
  }

  /**
   * Identifies the caller of a request; null when the request has no cookie of Convoke. Until the response is closed,
   * the standing ends when somebody ends the session.
   *
   * @throws Problem `session_ended`, `origin_not_allowed`, `csrf_token_wrong`, and those of a key that cannot be used
   */
  async identify(request: FastifyRequest, reply: Pick<FastifyReply, 'raw'>): Promise<Standing | null> {
    const found = this.#cookieOf(request);
    if (found === null) return null;
    const { name, token } = found;
    assertSameOrigin(request);
    const csrf_token = request.headers[CSRF_HEADER];
    if (typeof csrf_token !== 'string') throw new Problem('csrf_token_wrong');
    const { store, secrets, clock, keyring } = this.#parts;
    if (!isSessionToken(secrets.all, token)) throw new Problem('session_ended');
    const session = await store.sessions.find(digestOf(token), clock.wall());
    if (session === null || (await this.ofLostProcesses([session])).length > 0) throw new Problem('session_ended');
    if (!isEqual(digestOf(csrf_token), session.csrf_digest)) throw new Problem('csrf_token_wrong');
    const standing = new SessionStanding(session, keyring, clock);
    assertStanding(standing);
    const plain = name.replace(SECURE, '');
    request.signed_in = { session, csrf_token, forwarded_cookie: `${plain}=${token}; ${SECURE}${plain}=${token}` };
    this.#in_progress.add(standing);
    this.#look_timer ??= clock.after(LOOK_MS, () => void this.#look());
    onClosed(reply.raw, () => this.#in_progress.delete(standing));
    return standing;
  }

  /** Looks which sessions of requests in progress have ended in the store: another node may have ended them. */
  async #look(): Promise<void> {
    const sessions = new Map<string, Session>();
    for (const { session } of this.#in_progress) sessions.set(session.digest, session);
    try {
      this.#endAll(await this.ended([...sessions.values()]));
    } catch (error) {
      if (!this.#is_closed) this.#parts.onError(error);
    }
    const goes_on = !this.#is_closed && this.#in_progress.size > 0;
    this.#look_timer = goes_on ? this.#parts.clock.after(LOOK_MS, () => void this.#look()) : null;
  }

  #endAll(ended: readonly Session[]): void {
    const digests = new Set(ended.map(({ digest }) => digest));
    const losing = [...this.#in_progress].filter(({ session }) => digests.has(session.digest));
    if (losing.length === 0) return;
    for (const standing of losing) {
      standing.has_ended = true;
      this.#in_progress.delete(standing);
    }
    this.onEnd();
  }

  /** Why a session has ended; null while it is valid. Asks the store. */
  async storedRevocationReason(session: Session): Promise<ProblemCode | null> {
    return (await this.ended([session])).length > 0 ? 'session_ended' : null;
  }

  /**
   * Which of these sessions have ended. Asks the store once for all of them, and once more when a sign-in link of
   * another node began one of them.
   */
  async ended(sessions: readonly Session[]): Promise<Session[]> {
    if (sessions.length === 0) return [];
    const { store, clock } = this.#parts;
    const digests = sessions.map(({ digest }) => digest);
    const standing = new Set(await store.sessions.standing(digests, clock.wall()));
    const lost = await this.ofLostProcesses(sessions);
    return sessions.filter((session) => !standing.has(session.digest) || lost.includes(session));
  }

  /** Finds the sessions that began with a sign-in link of a process that has ended. */
  async ofLostProcesses(sessions: readonly Session[]): Promise<Session[]> {
    const { store, node_id } = this.#parts;
    const of_others = sessions.filter((session) => session.key_id === null && session.node_id !== node_id);
    if (of_others.length === 0) return [];
    const nodes = new Set((await store.cluster?.list())?.map((node) => node.node_id));
    return of_others.filter((session) => session.node_id === null || !nodes.has(session.node_id));
  }

  /**
   * Begins a session, and sets its cookie.
   *
   * @param by the token in the request; null for a sign-in link
   */
  async begin(
    author: Pick<Author, 'storeFor'>,
    request: FastifyRequest,
    reply: FastifyReply,
    by: Token | null,
  ): Promise<SignedIn> {
    const { secrets, clock, keyring, node_id } = this.#parts;
    const now = clock.wall();
    const secret = secrets.newest;
    if (secret === undefined) throw new Error('a session began before the secrets were read');
    const token = makeSessionToken(secret);
    const csrf_token = randomBytes(SECRET_BYTES).toString('base64url');
    const key_id = by?.key_id ?? null;
    const key_expires_at = key_id === null ? null : (keyring.known(key_id)?.key.expires_at ?? null);
    const session = await author.storeFor().sessions.create({
      digest: digestOf(token),
      csrf_digest: digestOf(csrf_token),
      key_id,
      token_digest: by?.digest ?? null,
      node_id: by === null ? node_id : null,
      created_at: now,
      expires_at: sessionEnd(now, key_expires_at),
    });
    setCookie(reply, this.#nameFor(request, secret), token, Math.max(0, Math.floor((session.expires_at - now) / 1000)));
    return { session, csrf_token };
  }

  /**
   * The sessions that can be used, the latest first. A page may be shorter than its limit, because it leaves out
   * sessions of processes that have ended.
   */
  async list(page: PageRequest): Promise<Page<Session>> {
    const { store, clock } = this.#parts;
    const { data, next_cursor } = await store.sessions.list(page, clock.wall());
    const lost = await this.ofLostProcesses(data);
    return { data: data.filter((session) => !lost.includes(session)), next_cursor };
  }

  /**
   * Ends a session, and everything that goes on with it. The caller is its holder or an admin. Null when there is no
   * such session.
   */
  async end(author: Author, by: { digest: string } | { session_id: string }): Promise<Session | null> {
    const { sessions } = author.storeFor();
    const ended = 'digest' in by ? await sessions.remove(by.digest) : await sessions.end(by.session_id);
    if (ended !== null) this.#endAll([ended]);
    return ended;
  }

  /** Removes the cookie of a request. */
  forget(request: FastifyRequest, reply: FastifyReply): void {
    const cookie = this.#cookieOf(request);
    if (cookie !== null) setCookie(reply, cookie.name, '', 0);
  }

  /**
   * The cookie whose name is made from the current data key. During a change of the key, a cookie of the previous key
   * counts when there is no other.
   */
  #cookieOf(request: FastifyRequest): { name: string; token: string } | null {
    const { headers } = request;
    const cookies = (headers.cookie ?? '').split(';').map((cookie) => cookie.split('=', 2).map((part) => part.trim()));
    for (const secret of this.#parts.secrets.all) {
      const name = this.#nameFor(request, secret);
      const found = cookies.find(([given, value = '']) => given === name && isLikeSessionToken(value));
      if (found !== undefined) return { name, token: found[1]! };
    }
    return null;
  }

  /**
   * The name of the cookie, which depends on the data key. A browser sends a cookie to every port of a host, and keeps
   * one cookie of each name. So with one name for all, two services on one host would end each other's sessions.
   */
  #nameFor(request: FastifyRequest, secret: KeyObject): string {
    return `${this.#parts.limits.isHttps(request) ? SECURE : ''}convoke_session_${tagOf(secret)}`;
  }

  /**
   * Makes the token of a link that signs in an admin: once, within five minutes, on this node. A link that is made
   * while no key exists ends when somebody makes the first key.
   */
  makeLink(): string {
    const token = randomBytes(SECRET_BYTES).toString('base64url');
    const [oldest] = this.#links.keys();
    if (this.#links.size >= LINKS_MAX && oldest !== undefined) this.#take(oldest);
    const digest = digestOf(token);
    const { clock, keyring } = this.#parts;
    const timer = clock.after(LINK_MS, () => void this.#links.delete(digest));
    this.#links.set(digest, { timer, standing: keyring.is_open ? keyring.identify(undefined) : null });
    return token;
  }

  /** @throws Problem `sign_in_link_not_valid` when the link was used before, has expired, or was never made */
  useLink(token: string): void {
    if (!this.#take(digestOf(token))) throw new Problem('sign_in_link_not_valid');
  }

  #take(digest: string): boolean {
    const link = this.#links.get(digest);
    if (link === undefined) return false;
    link.timer.cancel();
    this.#links.delete(digest);
    return link.standing === null || link.standing.revocationReason() === null;
  }

  close(): void {
    this.#is_closed = true;
    this.#look_timer?.cancel();
    for (const { timer } of this.#links.values()) timer.cancel();
    this.#links.clear();
  }
}

function setCookie(reply: FastifyReply, name: string, value: string, age_s: number): void {
  const secure = name.startsWith(SECURE) ? '; Secure' : '';
  void reply.header('set-cookie', `${name}=${value}; Path=/; Max-Age=${age_s}; HttpOnly; SameSite=Strict${secure}`);
}

/**
 * Refuses a request with a cookie that is not from a page of this service. A browser says where a request comes from.
 * On a secure or local connection it says so in Sec-Fetch-Site, which no page can set. Otherwise it says so in Origin,
 * on every request that changes something. If such a request has neither header, no page of this service made it.
 *
 * @throws Problem `origin_not_allowed`
 */
function assertSameOrigin({ method, headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  const is_safe = SAFE_METHODS.has(method);
  if (site !== undefined) {
    // `none`: a person typed the address.
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

/** Digests that the previous version wrote may be empty, and timingSafeEqual throws for texts of different lengths. */
function isEqual(digest: string, kept: string): boolean {
  return digest.length === kept.length && timingSafeEqual(Buffer.from(digest), Buffer.from(kept));
}
