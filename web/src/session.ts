/** Coming in and going out. */
import { errorOf, forgetAnswers } from './answers.ts';
import { feed } from './feed.ts';
import { recallWhatHappened, watchWhatHappens } from './happened.ts';
import { say } from './parts/notice.tsx';
import { client, session } from './service.ts';

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

function begin(found: typeof session.value): void {
  forgetAnswers();
  session.value = found;
  feed.start();
  recallWhatHappened().catch(() => {});
}
