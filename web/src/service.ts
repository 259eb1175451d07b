/** The service that this page came from, through its SDK, and who we are to it. */
import type { Scope } from '@convoke/sdk';
import { errorOf, forgetAnswers } from './answers.ts';
import { feed } from './feed.ts';
import { recallWhatHappened, watchWhatHappens } from './happened.ts';
import { say } from './parts/notice.tsx';
import { PendingClient } from './pending_sdk.ts';
import { Watched } from './watched.ts';

/** `open`: the service wants no key. */
type SessionState = 'asking' | 'open' | 'signed_in' | 'key_wanted';

interface Session {
  state: SessionState;
  scopes: readonly Scope[];
}

export const session = new Watched<Session>({ state: 'asking', scopes: [] });

export const client = new PendingClient({
  base_url: location.origin,
  send_attempts_max: 2,
  fetch: async (input, init) => {
    const answer = await fetch(input, init);
    // The session ended, or the first key was made: whatever was asked, it has to be asked again by somebody.
    if (answer.status === 401 && session.value.state !== 'asking') session.value = { state: 'key_wanted', scopes: [] };
    return answer;
  },
});

export function may(scope: Scope): boolean {
  const { scopes } = session.value;
  return scopes.includes('admin') || scopes.includes(scope);
}

/** Finds out who we are, by the one-time link if that is how we came. */
export async function enter(): Promise<void> {
  watchWhatHappens();
  const [, link_token] = /^#sign-in=(.+)$/.exec(location.hash) ?? [];
  if (link_token !== undefined) {
    history.replaceState(null, '', location.pathname + location.search);
    try {
      return await signIn(decodeURIComponent(link_token));
    } catch (error) {
      say(errorOf(error).detail, { is_bad: true });
    }
  }
  try {
    begin(await client.getSession());
  } catch (error) {
    if (errorOf(error).status === 401) session.value = { state: 'key_wanted', scopes: [] };
    else begin({ state: 'open', scopes: ['admin'] });
  }
}

/** @throws ConvokeError when the key is not taken */
export async function signIn(key: string): Promise<void> {
  begin(await client.signIn(key));
}

export async function signOut(): Promise<void> {
  await client.signOut().catch(() => {});
  forgetAnswers();
  feed.stop();
  session.value = { state: 'key_wanted', scopes: [] };
}

function begin(found: Session): void {
  forgetAnswers();
  session.value = found;
  feed.start();
  recallWhatHappened().catch(() => {});
}
