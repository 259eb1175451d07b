/** The service that served this page, through the SDK, and who is signed in. */
import { ConvokeClient, type ProblemDetails, type Scope, type Session } from '@convoke/sdk';
import { Observable } from './observable.ts';

/** Null until the service was asked. */
export const session = new Observable<Session | null>(null);

/**
 * The half of a session that is not in the cookie. A browser sends the cookie to every port of the host, but hides this
 * half from pages of other ports. All tabs share it, so that after a new sign-in in one tab the others continue.
 */
const CSRF_TOKEN = 'convoke.csrf_token';
/** Used in browsers that store nothing; it lasts until the page is closed. */
let csrf_token: string | null = null;

function csrfToken(): string | null {
  try {
    return localStorage.getItem(CSRF_TOKEN) ?? csrf_token;
  } catch {
    return csrf_token;
  }
}

/** Null: somebody signed out. */
export function keepCsrfToken(token: string | null): void {
  csrf_token = token;
  try {
    if (token === null) localStorage.removeItem(CSRF_TOKEN);
    else localStorage.setItem(CSRF_TOKEN, token);
  } catch {
    // The token stays in this page.
  }
}

export const client = new ConvokeClient({
  base_url: location.origin,
  send_attempts_max: 2,
  fetch: async (input, init) => {
    const headers = new Headers(init?.headers);
    const token = csrfToken();
    if (token !== null) headers.set('convoke-csrf', token);
    const response = await fetch(input, { ...init, headers });
    if (session.value !== null && (await wantsSignIn(response))) {
      session.value = { ...session.value, state: 'signed_out', scopes: [] };
    }
    return response;
  },
});

/** Whether a person must sign in: the session ended, its token was lost, or the first key was made. */
async function wantsSignIn(response: Response): Promise<boolean> {
  if (response.status === 401) return true;
  if (response.status !== 403) return false;
  const { code } = (await response.clone().json()) as ProblemDetails;
  return code === 'csrf_token_wrong';
}

/** The OpenAPI document of the service. */
export async function apiDocument(): Promise<unknown> {
  const response = await fetch('/openapi.json');
  if (!response.ok) throw new Error(`the service responded ${response.status}`);
  return response.json();
}

export function may(scope: Scope): boolean {
  const scopes = session.value?.scopes ?? [];
  return scopes.includes('admin') || scopes.includes(scope);
}
