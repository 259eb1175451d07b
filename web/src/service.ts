/** The service that this page came from, through its SDK, and who we are to it. */
import { ConvokeClient, type Scope, type Session } from '@convoke/sdk';
import { Watched } from './watched.ts';

/** Null until the service was asked. */
export const session = new Watched<Session | null>(null);

export const client = new ConvokeClient({
  base_url: location.origin,
  send_attempts_max: 2,
  fetch: async (input, init) => {
    const answer = await fetch(input, init);
    // The session ended, or the first key was made: somebody has to sign in before anything else.
    if (answer.status === 401 && session.value !== null) {
      session.value = { ...session.value, state: 'signed_out', scopes: [] };
    }
    return answer;
  },
});

export function may(scope: Scope): boolean {
  const scopes = session.value?.scopes ?? [];
  return scopes.includes('admin') || scopes.includes(scope);
}
