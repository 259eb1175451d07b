import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useQuery } from './queries.ts';
import { feed, type FeedState } from './feed.ts';
import { lost_since } from './lost.ts';
import { Choice } from './parts/choice.tsx';
import { Dialog } from './parts/dialog.tsx';
import { Brand, Icon } from './parts/icons.tsx';
import { Environment, Who } from './parts/who.tsx';
import { LostBanner } from './parts/lost.tsx';
import { Notices } from './parts/notice.tsx';
import { Empty, Skeleton } from './parts/states.tsx';
import { Page } from './parts/page.tsx';
import { UnsavedSecret } from './parts/secret.tsx';
import { is_portal } from './portal.ts';
import { Help, SEARCH_KEY, useShortcuts } from './parts/shortcuts.tsx';
import { TabTitle, titleOf } from './parts/tab.tsx';
import { go, partsOf, usePlace } from './router.ts';
import { HOME, type Section, SECTIONS } from './sections.ts';
import { client, seesSomething, session } from './service.ts';
import { signOut } from './session.ts';
import { choose, theme } from './theme.ts';
import { useObservable } from './observable.ts';
import { Agent } from './views/agent.tsx';
import { Audit } from './views/audit.tsx';
import { Deliveries } from './views/deliveries.tsx';
import { Instances } from './views/instances.tsx';
import { Keys } from './views/keys.tsx';
import { Meetings } from './views/meetings.tsx';
import { Nodes } from './views/nodes.tsx';
import { Now } from './views/now.tsx';
import { Palette } from './views/palette.tsx';
import { SignIn } from './views/sign_in.tsx';
import { Start } from './views/start.tsx';

/** How many sections are at the bottom of a phone; the others are behind "More". */
const FIRST_SECTIONS = 4;

export function App(): JSX.Element {
  return (
    <>
      <OfSession />
      <UnsavedSecret />
    </>
  );
}

function OfSession(): JSX.Element {
  const found = useObservable(session);
  if (found === null) return <Notices />;
  if (found.state !== 'signed_out') return <Frame />;
  return is_portal ? <LinkEnded /> : <SignedOut />;
}

function SignedOut(): JSX.Element {
  const environment = useObservable(session)?.environment ?? null;
  useEffect(() => void (document.title = titleOf('Sign in', environment)), [environment]);
  return (
    <>
      <SignIn />
      <Notices />
    </>
  );
}

function LinkEnded(): JSX.Element {
  useEffect(() => void (document.title = 'Convoke'), []);
  return (
    <main class="sign-in">
      <Empty title="This link has ended.">
        <p>Open it again where you found it. A link lasts for an hour at most.</p>
      </Empty>
    </main>
  );
}

function Frame(): JSX.Element {
  const place = usePlace();
  const [is_help, setHelp] = useState(false);
  const [is_searching, setSearching] = useState(false);
  const main = useRef<HTMLElement>(null);
  const parts = partsOf(place.path);
  const [section = FIRST_SECTION, ...rest] = parts ?? [''];
  const sections = seesSomething() ? SECTIONS.filter(({ is_shown }) => is_shown?.() !== false) : [];
  const is_lost = useObservable(lost_since) !== null;

  useShortcuts({ onHelp: () => setHelp(true), onSearch: () => setSearching(true) });
  // The element with the focus was in the previous view, and is gone.
  useEffect(() => {
    if (document.activeElement === document.body) main.current?.focus();
  }, [section]);

  const link = ({ path, name, icon, key }: Section): JSX.Element => (
    <a
      key={path}
      class="nav-link"
      href={path}
      aria-current={`/${section}` === path ? 'page' : undefined}
      title={`${name} (g ${key})`}
    >
      <Icon name={icon} />
      <span>{name}</span>
    </a>
  );
  return (
    <div class={is_lost ? 'frame is-lost' : 'frame'}>
      <TabTitle />
      <a
        class="skip"
        href={place.path}
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="side">
        <a class="brand" href={HOME}>
          <Brand /> Convoke <Environment />
        </a>
        <button type="button" class="button search-button" onClick={() => setSearching(true)}>
          <Icon name="search" />
          <span>Search</span>
          <kbd aria-hidden="true">{SEARCH_KEY}</kbd>
        </button>
        <nav class="nav" aria-label="Views">
          {sections.slice(0, FIRST_SECTIONS).map(link)}
          {sections.length > FIRST_SECTIONS && <div class="nav-rest">{sections.slice(FIRST_SECTIONS).map(link)}</div>}
          <More
            sections={sections.slice(FIRST_SECTIONS)}
            section={section}
            onHelp={() => setHelp(true)}
            onSearch={() => setSearching(true)}
          />
        </nav>
        <div class="side-end">
          <LiveState />
          <Who />
          <ThemeChoice />
          <div class="side-row">
            <button type="button" class="bare text" onClick={() => setHelp(true)}>
              <Icon name="help" /> Keyboard
            </button>
            <SignOut />
          </div>
        </div>
      </header>
      <main class="main" ref={main} tabIndex={-1}>
        <LostBanner />
        <View section={section} rest={parts === null ? null : rest} />
      </main>
      <Notices />
      {is_searching && <Palette places={sections} onClose={() => setSearching(false)} />}
      {is_help && <Help sections={sections} onClose={() => setHelp(false)} />}
    </div>
  );
}

/** The view at the address without a path. */
const FIRST_SECTION = is_portal ? 'instances' : '';
/** The views that a link shows. */
const OF_PORTAL = new Set(['instances', 'deliveries']);

function View({ section, rest }: { section: string; rest: string[] | null }): JSX.Element {
  const [id = null] = rest ?? [];
  if (!seesSomething()) return <SeesNothing />;
  if (rest !== null && rest.length <= 1 && (!is_portal || OF_PORTAL.has(section))) {
    switch (section) {
      case '':
        return <Home />;
      case 'now':
        return <Now />;
      case 'start':
        return <Start />;
      case 'meetings':
        return <Meetings meeting_id={id} />;
      case 'instances':
        return <Instances instance_id={id} />;
      case 'deliveries':
        return <Deliveries delivery_id={id} />;
      case 'agents':
        if (id !== null) return <Agent key={id} agent_id={id} />;
        break;
      case 'keys':
        return <Keys key_id={id} />;
      case 'nodes':
        return <Nodes node_id={id} />;
      case 'audit':
        return <Audit seq={id} />;
    }
  }
  return (
    <Page title="Nothing here">
      <Empty title="There is no page at this address">
        <p>
          <a href={HOME}>{is_portal ? 'See your instances' : 'See what happens now'}</a>
        </p>
      </Empty>
    </Page>
  );
}

/** In place of every view, for a key that may only send: every request of the views would be refused. */
function SeesNothing(): JSX.Element {
  return (
    <Page title="Convoke">
      <Empty title="Your key may only send">
        <p>It sends messages through the API, and sees nothing here. To see something, sign in with another key.</p>
      </Empty>
    </Page>
  );
}

/** Goes to the guide while there is no instance and no meeting, and otherwise to the page Now. */
function Home(): JSX.Element {
  const { value, problem } = useQuery('is empty', async () => {
    const [instances, meetings] = await Promise.all([
      client.listInstances({ limit: 1 }),
      client.listMeetings({ limit: 1 }),
    ]);
    return instances.data.length + meetings.data.length === 0;
  });
  useEffect(() => {
    if (value !== null) go(value ? '/start' : '/now', { replace: true });
    else if (problem !== null) go('/now', { replace: true });
  }, [value, problem]);
  return (
    <Page title="Convoke">
      <Skeleton />
    </Page>
  );
}

const LIVE_WORDS: Record<Exclude<FeedState, 'off'>, string> = {
  connecting: 'Connecting',
  live: 'Live',
  broken: 'Not connected',
};

function LiveState(): JSX.Element | null {
  const state = useObservable(feed.state);
  if (state === 'off') return null;
  return (
    <p class={`live live-${state}`} role="status">
      <span class="live-sign" aria-hidden="true" />
      {LIVE_WORDS[state]}
    </p>
  );
}

function ThemeChoice(): JSX.Element {
  return (
    <Choice
      label="Theme"
      options={[
        ['system', 'Auto'],
        ['light', 'Light'],
        ['dark', 'Dark'],
      ]}
      value={useObservable(theme)}
      onChange={choose}
    />
  );
}

function SignOut(): JSX.Element | null {
  if (useObservable(session)?.state !== 'signed_in' || is_portal) return null;
  return (
    <button type="button" class="bare text" onClick={() => void signOut()}>
      <Icon name="out" /> Sign out
    </button>
  );
}

interface MoreProps {
  sections: readonly Section[];
  section: string;
  onHelp: () => void;
  onSearch: () => void;
}

/** On a phone: the sections that do not fit at the bottom. */
function More({ sections, section, onHelp, onSearch }: MoreProps): JSX.Element {
  const [is_open, setOpen] = useState(false);
  const is_current = sections.some(({ path }) => path === `/${section}`);
  return (
    <div class="nav-more">
      <button
        type="button"
        class="nav-link"
        aria-current={is_current ? 'page' : undefined}
        onClick={() => setOpen(true)}
      >
        <Icon name="more" />
        <span>More</span>
      </button>
      {is_open && (
        <Dialog title="More" onClose={() => setOpen(false)}>
          <div class="more-links">
            {sections.map(({ path, name, icon }) => (
              <a key={path} class="nav-link" href={path} onClick={() => setOpen(false)}>
                <Icon name={icon} />
                <span>{name}</span>
              </a>
            ))}
          </div>
          <div class="more-end">
            <LiveState />
            <Who />
            <ThemeChoice />
            <button
              type="button"
              class="bare text"
              onClick={() => {
                setOpen(false);
                onSearch();
              }}
            >
              <Icon name="search" /> Search
            </button>
            <button
              type="button"
              class="bare text"
              onClick={() => {
                setOpen(false);
                onHelp();
              }}
            >
              <Icon name="help" /> Keyboard
            </button>
            <SignOut />
          </div>
        </Dialog>
      )}
    </div>
  );
}
