/** The client with which the pages call the service, and the session of the person who is signed in. */
import { ConvokeClient, type ProblemDetails, type Scope, type Session } from '@convoke/sdk';
import { Observable } from './observable.ts';
import { is_portal, portalToken } from './portal.ts';

/** Null until the service was asked. */
export const session = new Observable<Session | null>(null);

/**
 * The result of a request, for the person who asked. When their session has ended meanwhile, the promise never settles:
 * nothing that waits for it may reach the next person.
 */
export async function inThisSession<T>(work: Promise<T>): Promise<T> {
  const whose = session.value;
  try {
    return await work;
  } finally {
    if (session.value !== whose) await new Promise(() => {});
  }
}

/** The version of the service, when it is not the version with which this page began; null otherwise. */
export const other_version = new Observable<string | null>(null);

/**
 * The half of a session that is not in the cookie. A browser sends the cookie to every port of the host, but hides this
 * half from pages of other ports. All tabs share this half, as they share the cookie, because they all have the same
 * session.
 */
export const CSRF_TOKEN = 'convoke.csrf_token';
/** Used only in browsers that store nothing; it lasts until the page is closed. */
let csrf_token: string | null = null;

/** The half of the latest session that began in this browser, perhaps in another tab. */
export function keptCsrfToken(): string | null {
  try {
    return localStorage.getItem(CSRF_TOKEN) ?? csrf_token;
  } catch {
    return csrf_token;
  }
}

/** Null: somebody signed out. */
export function keepCsrfToken(token: string | null): void {
  csrf_token = null;
  try {
    if (token === null) localStorage.removeItem(CSRF_TOKEN);
    else localStorage.setItem(CSRF_TOKEN, token);
  } catch {
    csrf_token = token;
  }
}

/** Whether another session is about to replace this session. In that time a refused request signs nobody out. */
let is_changing = false;

/** Does work that ends this session and begins another one. */
export async function changingSession(work: () => Promise<void>): Promise<void> {
  is_changing = true;
  await work().finally(() => (is_changing = false));
}

export const client = new ConvokeClient({
  base_url: location.origin,
  send_attempts_max: 2,
  fetch: async (input, init) => {
    const { value } = session;
    const response = await fetch(input, is_portal ? byLink(init) : bySession(init));
    if (value === null || value.state === 'signed_out') return response;
    const refused = await whySignIn(response);
    // The service removes the cookie of a session that has ended, when somebody asks it for the session. Without the
    // cookie, a request is refused as one without a key, but the reason is the end of the session.
    const code = refused === 'api_key_missing' && value.state === 'signed_in' ? 'session_ended' : refused;
    // In another tab somebody signed in or out, and this tab is about to show that.
    if (!is_portal && value.csrf_token !== keptCsrfToken()) return response;
    // A response to a request of an earlier session says nothing about this session.
    if (code !== null && !is_changing && session.value === value) {
      const by_feed = code === 'session_ended' && feed_end !== null ? WHY_SIGN_IN[feed_end] : undefined;
      signed_out_because.value = by_feed ?? WHY_SIGN_IN[code] ?? 'You were signed out. Sign in again to continue.';
      session.value = { ...value, state: 'signed_out', scopes: [] };
    }
    return response;
  },
});

/** Asks who is signed in with the session that the tabs share, which this tab may not show yet. */
export function sharedSession(): Promise<Session> {
  return new ConvokeClient({ base_url: location.origin, csrf_token: keptCsrfToken() ?? undefined }).session();
}

/** Why the page asks for a key again; null when the user signed out. */
export const signed_out_because = new Observable<string | null>(null);

/**
 * The latest reason that the live feed gave for its end. A session ends with its key. Then the feed says why the key
 * ended, but a response says only that the session has ended.
 */
let feed_end: string | null = null;

export function noteEnd(code: string | null): void {
  feed_end = code;
}

export const SIGNED_OUT_ELSEWHERE = 'You were signed out: in another tab somebody signed out, or signed in again.';

const WHY_SIGN_IN: Record<string, string> = {
  api_key_revoked: 'You were signed out: your key was revoked. Ask an admin for a new one.',
  api_key_expired: 'You were signed out: your key has expired. Ask an admin for a new one.',
  session_ended:
    'You were signed out: your session has ended, after 12 hours, because somebody ended it, or because your key was revoked or replaced. A session that began with a link also ends when the service is started again.',
  api_key_missing: 'The service asks for a key now, because the first key was made.',
  csrf_token_wrong: SIGNED_OUT_ELSEWHERE,
};

/** The code of a response after which a person must sign in; null after any other. */
async function whySignIn(response: Response): Promise<string | null> {
  if (response.status !== 401 && response.status !== 403) return null;
  const problem = (await response
    .clone()
    .json()
    .catch(() => null)) as ProblemDetails | null;
  if (response.status === 401) return problem?.code ?? '';
  return problem?.code === 'csrf_token_wrong' ? problem.code : null;
}

/**
 * Sends the half of the session that this tab shows. When somebody else has signed in, their cookie does not fit this
 * half, and the service refuses the request. Otherwise the tab would show their data under the name of the first person.
 */
function bySession(init: RequestInit | undefined): RequestInit {
  const headers = new Headers(init?.headers);
  const token = session.value?.csrf_token ?? null;
  if (token === null) headers.delete('convoke-csrf');
  else headers.set('convoke-csrf', token);
  return { ...init, headers };
}

/** Sends no cookie, because a page that frames the portal must not use the session of an operator. */
function byLink(init: RequestInit | undefined): RequestInit {
  const headers = new Headers(init?.headers);
  headers.set('authorization', `Bearer ${portalToken() ?? ''}`);
  return { ...init, headers, credentials: 'omit' };
}

/** The OpenAPI document of the service. */
export async function apiDocument(): Promise<unknown> {
  const response = await fetch('/openapi.json');
  if (!response.ok) throw new Error(`the service responded ${response.status}`);
  return response.json();
}

/** Whether the key may see anything. A key that may only send sees nothing. */
export function seesSomething(): boolean {
  return may('read') || may('instance');
}

export function may(scope: Scope): boolean {
  const scopes = session.value?.scopes ?? [];
  return scopes.includes('admin') || scopes.includes(scope);
}
