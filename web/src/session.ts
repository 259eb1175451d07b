/** Signing in and signing out. */
import { ConvokeError, type Session } from '@convoke/sdk';
import { errorOf, forgetResponses, isAway } from './queries.ts';
import { feed } from './feed.ts';
import { forgetHistory } from './history.ts';
import { followActivity, recallActivity } from './activity.ts';
import { forgetNotice, notify, showProblem } from './parts/notice.tsx';
import { is_portal, portalToken, takeLink } from './portal.ts';
import {
  changingSession,
  client,
  CSRF_TOKEN,
  keepCsrfToken,
  keptCsrfToken,
  other_version,
  seesSomething,
  session,
  sharedSession,
  SIGNED_OUT_ELSEWHERE,
  signed_out_because,
} from './service.ts';

/** The pause before a service that did not respond is asked again. */
const AGAIN_MS = 2000;

/** The session of nobody: after a sign-out, and in a portal without a link or with a link that has ended. */
const NOBODY: Session = {
  state: 'signed_out',
  key_id: null,
  key_name: null,
  scopes: [],
  meeting_ids: null,
  instance_id: null,
  expires_at: null,
  csrf_token: null,
  version: '',
  environment: null,
  features: { cluster: false },
};

/** Finds out who is signed in; a one-time link in the address signs in first. */
export async function enter(): Promise<void> {
  followActivity();
  session.subscribe(() => {
    // The service would refuse every connection, and write each refusal into the audit log.
    if (session.value === null || session.value.state === 'signed_out') feed.stop();
    // A notice may name what the next person must not see, and offer to undo what the previous person did.
    forgetNotice();
    noteVersion(session.value);
  });
  followVersion();
  if (is_portal) return enterPortal();
  followOtherTabs();
  // Somebody may open a link in a tab that shows the page already.
  addEventListener('hashchange', () => {
    if (!SIGN_IN_LINK.test(location.hash)) return;
    // Views keep what they have read. The next person must not see that, so all views end first.
    session.value = null;
    void enterByAddress();
  });
  await enterByAddress();
}

/** The version of the service with which this page began; empty until it is known. */
let own_version = '';

function noteVersion(found: Session | null): void {
  if (found === null || found.version === '') return;
  own_version ||= found.version;
  other_version.value = found.version === own_version ? null : found.version;
}

/**
 * Whenever the feed goes on, asks whether the service has another version now. A hidden page has no feed for a while,
 * without an error, and the service may change its version in that time.
 */
function followVersion(): void {
  let goes_on = false;
  feed.state.subscribe(() => {
    const { value: state } = feed.state;
    if (state === 'live' && goes_on) (is_portal ? client.session() : sharedSession()).then(noteVersion, () => {});
    goes_on = state !== 'off' && (goes_on || state !== 'connecting');
  });
}

const SIGN_IN_LINK = /^#sign-in=(.+)$/;

/** Signs in with the one-time link in the address, if there is one and it works; otherwise asks who is signed in. */
async function enterByAddress(): Promise<void> {
  const [, token] = SIGN_IN_LINK.exec(location.hash) ?? [];
  if (token === undefined) return ask();
  // The link works once, so it is removed from the address.
  history.replaceState(null, '', location.pathname + location.search);
  try {
    begin(await client.signInByLink(token));
  } catch (error) {
    await ask();
    showProblem(error);
  }
}

async function enterPortal(): Promise<void> {
  // The product may give the frame another link, perhaps of another customer.
  addEventListener('hashchange', () => {
    if (!takeLink()) return;
    session.value = null;
    forgetResponses();
    void showPortal();
  });
  takeLink();
  await showPortal();
}

async function showPortal(): Promise<void> {
  const token = portalToken();
  let found: Session;
  try {
    found = token === null ? NOBODY : await client.session();
  } catch (error) {
    if (token !== portalToken()) return;
    if (error instanceof ConvokeError && error.status === 401) return void (session.value = NOBODY);
    showWait(error);
    setTimeout(() => token === portalToken() && void showPortal(), AGAIN_MS);
    return;
  }
  // The frame may have got another link meanwhile.
  if (token !== portalToken()) return;
  session.value = found;
  // Tabs with another link, or with a session, may see other events, so they do not share the connection.
  if (found.state !== 'signed_out') feed.start(`portal ${token}`);
}

/** All tabs share the session, so when it ends or begins in another tab, this tab changes too. */
function followOtherTabs(): void {
  const look = (): void => {
    const shown = session.value;
    // Until the first response there is nothing to change.
    if (shown === null || shown.csrf_token === keptCsrfToken()) return;
    const why = shown.state === 'signed_out' ? signed_out_because.value : SIGNED_OUT_ELSEWHERE;
    // Views keep what they have read. The next person must not see that, so all views end first.
    session.value = null;
    void ask(why);
  };
  addEventListener('storage', ({ key }) => {
    // Null: everything was removed.
    if (key === CSRF_TOKEN || key === null) look();
  });
  // A hidden tab may get no `storage` event from its browser.
  document.addEventListener('visibilitychange', () => !document.hidden && look());
}

/** Says why the page shows nothing yet. The page asks again by itself. */
function showWait(error: unknown): void {
  if (!isAway(errorOf(error))) return showProblem(error);
  notify('The service does not respond. This page continues by itself when it does.', { is_bad: true });
}

/**
 * Shows the session that the tabs share.
 *
 * @param why the page says this if nobody is signed in
 */
async function ask(why: string | null = null): Promise<void> {
  let token: string | null;
  let found: Session | null;
  do {
    token = keptCsrfToken();
    found = await sharedSession().catch((error: unknown) => {
      showWait(error);
      return null;
    });
    if (found === null) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    // Somebody may have signed in or out meanwhile.
  } while (found === null || keptCsrfToken() !== token);
  begin(found);
  if (found.state === 'signed_out') signed_out_because.value = why;
}

/** A key has only these characters. A text with other characters cannot be sent in a header. */
const CAN_BE_KEY = /^[\x20-\x7e]*$/;

/** @throws ConvokeError when the service refuses the key */
export async function signIn(key: string): Promise<void> {
  if (!CAN_BE_KEY.test(key))
    throw new ConvokeError(
      'api_key_malformed',
      'This API key is mistyped: it has a character that no key has. Copy the whole key again.',
    );
  begin(await client.signIn(key));
}

export async function signOut(): Promise<void> {
  const whose = session.value;
  try {
    // While the session ends, requests in progress are refused. The page must not show that as a reason to sign in.
    await changingSession(async () => {
      await client.signOut();
      showNobody();
    });
  } catch (error) {
    // An earlier press of the button, or an admin, may have ended the session.
    if (session.value !== whose) return;
    if (errorOf(error).status === 401) showNobody();
    else showProblem(error);
  }
}

function showNobody(): void {
  const { version, environment, features } = session.value ?? NOBODY;
  begin({ ...NOBODY, version, environment, features });
}

function begin(found: Session): void {
  forgetResponses();
  forgetHistory();
  feed.stop();
  keepCsrfToken(found.csrf_token);
  session.value = found;
  signed_out_because.value = null;
  // The service has no events for a key that may only send.
  if (found.state === 'signed_out' || !seesSomething()) return;
  feed.start(found.key_id ?? '');
  void recallActivity();
}
