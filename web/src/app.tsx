import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useQuery } from './queries.ts';
import { feed, type FeedState } from './feed.ts';
import { beginPrefix, endPrefix, isPrefixed, isWriting } from './keyboard.ts';
import { lost_since } from './lost.ts';
import { Choice } from './parts/choice.tsx';
import { Dialog } from './parts/dialog.tsx';
import { Brand, Icon, type IconName } from './parts/icons.tsx';
import { Environment, Who } from './parts/who.tsx';
import { LostBanner } from './parts/lost.tsx';
import { Notices } from './parts/notice.tsx';
import { Empty, Skeleton } from './parts/states.tsx';
import { Page } from './parts/page.tsx';
import { is_portal } from './portal.ts';
import { TabTitle, titleOf } from './parts/tab.tsx';
import { go, partsOf, usePlace } from './router.ts';
import { client, may, session } from './service.ts';
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

interface Section {
  path: string;
  name: string;
  icon: IconName;
  /** The key that opens the section, pressed after `g`. */
  key: string;
  is_shown?: () => boolean;
}

const isAdmin = (): boolean => may('admin');
/** A single node has no page of nodes: the page would show only that node. */
const isShared = (): boolean => !is_portal && may('read') && session.value?.features.cluster === true;
/** A link of the portal shows instances and their deliveries. */
const isOwn = (): boolean => !is_portal;
/** Without the scope `read` a key sees its own instances and their deliveries. */
const isReader = (): boolean => !is_portal && may('read');

const SECTIONS: readonly Section[] = [
  { path: '/now', name: 'Now', icon: 'now', key: 'n', is_shown: isOwn },
  { path: '/meetings', name: 'Meetings', icon: 'meetings', key: 'm', is_shown: isReader },
  { path: '/instances', name: 'Instances', icon: 'instances', key: 'i' },
  { path: '/deliveries', name: 'Deliveries', icon: 'deliveries', key: 'd' },
  { path: '/keys', name: 'Keys', icon: 'keys', key: 'k', is_shown: isAdmin },
  { path: '/audit', name: 'Audit', icon: 'audit', key: 'a', is_shown: isAdmin },
  { path: '/nodes', name: 'Nodes', icon: 'nodes', key: 'o', is_shown: isShared },
  { path: '/start', name: 'Guide', icon: 'start', key: 's', is_shown: isOwn },
];
const HOME = is_portal ? '/instances' : '/now';
const IS_MAC = /Mac|iPhone|iPad/.test(navigator.userAgent);
/** How many sections are at the bottom of a phone; the others are behind "More". */
const FIRST_SECTIONS = 4;

export function App(): JSX.Element {
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
  const [section = '', ...rest] = parts ?? [''];
  const sections = SECTIONS.filter(({ is_shown }) => is_shown?.() !== false);
  const is_lost = useObservable(lost_since) !== null;

  useShortcuts({ onHelp: () => setHelp(true), onSearch: () => setSearching(true) });
  // The element with the focus is gone with the previous view.
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
          <kbd aria-hidden="true">{IS_MAC ? '⌘K' : 'Ctrl K'}</kbd>
        </button>
        <nav class="nav" aria-label="Views">
          {sections.slice(0, FIRST_SECTIONS).map(link)}
          <div class="nav-rest">{sections.slice(FIRST_SECTIONS).map(link)}</div>
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

/** The views that a link shows. */
const OF_PORTAL = new Set(['', 'instances', 'deliveries']);

function View({ section, rest }: { section: string; rest: string[] | null }): JSX.Element {
  const [id = null] = rest ?? [];
  if (rest !== null && rest.length <= 1 && (!is_portal || OF_PORTAL.has(section))) {
    switch (section) {
      case '':
        return is_portal ? <Instances instance_id={null} /> : <Home />;
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

/** Goes to the guide while no instance is registered, and otherwise to the page Now. */
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

const LIVE_WORDS: Record<FeedState, string> = { connecting: 'Connecting', live: 'Live', broken: 'Not connected' };

function LiveState(): JSX.Element {
  const state = useObservable(feed.state);
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

function useShortcuts({ onHelp, onSearch }: { onHelp: () => void; onSearch: () => void }): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k' && !event.altKey && !event.shiftKey) {
        event.preventDefault();
        if (document.querySelector('dialog[open]') === null) onSearch();
        return;
      }
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector('dialog[open]') !== null) return;
      if (event.key === 'Escape') return leave(event);
      if (isWriting(event.target)) return;
      if (isPrefixed()) {
        endPrefix();
        const section = SECTIONS.find(({ key }) => key === event.key);
        if (section === undefined) return;
        event.preventDefault();
        return go(section.path);
      }
      if (event.key === 'g') beginPrefix();
      if (event.key === '?') onHelp();
      if (event.key === '/') {
        event.preventDefault();
        const filter = document.querySelector<HTMLInputElement>('[data-filter="first"]');
        filter?.focus();
        filter?.select?.();
      }
    };
    document.addEventListener('keydown', onKeyDown);
    return () => document.removeEventListener('keydown', onKeyDown);
  }, []);
}

/** Escape first leaves the field with the cursor. Pressed again, it closes what is open beside the list. */
function leave(event: KeyboardEvent): void {
  if (isWriting(event.target)) return (event.target as HTMLElement).blur();
  const detail = document.querySelector<HTMLElement>('.detail[data-back]');
  if (detail === null) return;
  go(detail.dataset['back'] as string);
  // The focus returns to the row that opened the detail, if the list still shows that row.
  document.querySelector<HTMLElement>('.row.is-selected .row-link')?.focus();
}

function Help({ sections, onClose }: { sections: readonly Section[]; onClose: () => void }): JSX.Element {
  const keys: readonly (readonly [readonly string[], string])[] = [
    ...sections.map(({ key, name }) => [['g', key], name] as const),
    [[IS_MAC ? '⌘K' : 'Ctrl K'], 'Search every id and message'],
    [['/'], 'To the filter'],
    [['j'], 'Next row, also with the arrow keys'],
    [['k'], 'Row before'],
    [['Enter'], 'Open the row'],
    [['Esc'], 'Close what is open'],
    [['?'], 'This help'],
  ];
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="shortcuts">
        {keys.map(([pressed, what]) => (
          <div key={what}>
            <dt>
              {pressed.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p class="hint">
        The API is described at <a href="/docs/">/docs/</a>.
      </p>
    </Dialog>
  );
}
