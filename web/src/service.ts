/** The service that this page came from, through its SDK, and who we are to it. */
import type { Scope } from '@convoke/sdk';
import { PendingClient } from './pending_sdk.ts';
import { Watched } from './watched.ts';

interface Session {
  /** `open`: the service wants no key. */
  state: 'asking' | 'open' | 'signed_in' | 'key_wanted';
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
