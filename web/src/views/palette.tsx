/** One search over every id, every text and every view: ⌘K or Ctrl-K. */
import type { JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useState } from 'preact/hooks';
import { ConvokeError, type FoundMessage, type Scope, type SearchPage } from '@convoke/sdk';
import { Dialog } from '../parts/dialog.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { isForInputMethod } from '../keyboard.ts';
import { errorOf, isAway, useQuery } from '../queries.ts';
import { is_portal } from '../portal.ts';
import { addressOf, go } from '../router.ts';
import { client, may } from '../service.ts';
import { readable } from './readable.ts';

/** How many of each kind are shown. */
const SHOWN_MAX = 5;
/** The pause in typing after which the page asks the service. */
const PAUSE_MS = 150;

interface Found {
  to: string;
  kind: string;
  name: string;
  about?: string;
}

interface Action extends Found {
  /** The scopes of which a key needs one; absent: every key may do it. */
  needs?: readonly Scope[];
}

export interface Place {
  path: string;
  name: string;
}

interface PaletteProps {
  /** The views that the user may open. */
  places: readonly Place[];
  onClose: () => void;
}

export function Palette({ places, onClose }: PaletteProps): JSX.Element {
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const [is_wanted, setWanted] = useState(false);
  const list = useId();
  const asked = useSettled(text.trim());
  const { value, problem } = useQuery(
    `palette ${asked}`,
    () => (asked === '' ? Promise.resolve(NOTHING) : search(asked)),
    () => false,
  );
  const refused = problem ?? value?.problem;
  const is_searching = text.trim() !== '' && (asked !== text.trim() || (value === null && problem === null));
  const permitted = ACTIONS.filter(
    ({ to, needs }) => places.some(({ path }) => to.startsWith(path)) && (needs === undefined || mayDo(needs)),
  );
  const all: readonly Found[] = [...permitted, ...places.map(({ path, name }) => ({ to: path, kind: 'Go to', name }))];
  const actions = all.filter(({ name }) => name.toLowerCase().includes(text.trim().toLowerCase()));
  const found = [...(is_searching || text.trim() === '' ? [] : (value?.found ?? [])), ...actions];
  const at = Math.min(chosen, found.length - 1);
  const open = (to: string): void => {
    onClose();
    go(to);
  };
  // A person may press Enter before the results for the text are there. Then the chosen result opens when they are. An
  // effect after the paint would take back an Enter that the person pressed since the results were drawn.
  useLayoutEffect(() => {
    if (is_wanted && found[at] !== undefined) open(found[at].to);
    else if (!is_searching) setWanted(false);
  }, [is_wanted, is_searching]);
  const onKeyDown = (event: KeyboardEvent): void => {
    // The keys choose among the candidates of the input method.
    if (isForInputMethod(event)) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) setChosen(Math.max(0, Math.min(at + step, found.length - 1)));
    // Without this, Escape would only empty the field.
    else if (event.key === 'Escape') onClose();
    else if (event.key === 'Enter') setWanted(true);
    else return;
    event.preventDefault();
  };
  useEffect(() => document.getElementById(`${list}-${at}`)?.scrollIntoView({ block: 'nearest' }), [at]);
  return (
    <Dialog title="Search" onClose={onClose}>
      <input
        type="search"
        class="input"
        role="combobox"
        list={undefined}
        aria-label="An id, or a part of a message"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={at < 0 ? undefined : `${list}-${at}`}
        placeholder={is_portal ? 'Instance or delivery' : 'Message, id, meeting#9, agent'}
        value={text}
        autocomplete="off"
        spellcheck={false}
        onKeyDown={onKeyDown}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
          setWanted(false);
        }}
      />
      <div class="palette" id={list} role="listbox" aria-label="Found">
        {found.map(({ to, kind, name, about }, i) => (
          <a
            key={`${kind} ${to}`}
            id={`${list}-${i}`}
            role="option"
            aria-selected={i === at}
            class="palette-row"
            href={to}
            tabIndex={-1}
            onClick={onClose}
          >
            <span class="faint">{kind}</span>
            <Foreign class="clip">{name}</Foreign>
            {about !== undefined && <Foreign class="clip faint">{about}</Foreign>}
          </a>
        ))}
      </div>
      <p class="hint" role="status">
        {is_searching && 'Searching…'}
        {!is_searching &&
          refused &&
          (isAway(refused) ? 'The service does not respond.' : `No messages were searched: ${refused.detail}`)}
        {!is_searching && !refused && asked !== '' && value?.found.length === 0 && 'Nothing found. '}
        {!is_searching &&
          value?.ended.map(({ kind, to }) => (
            <span key={kind}>
              Not all {kind} were searched.{' '}
              <a href={to} onClick={onClose}>
                Search further
              </a>{' '}
            </span>
          ))}
        {!is_searching && value?.searched_to !== undefined && (
          <>
            Messages were searched back to {new Date(value.searched_to).toLocaleString('en-GB')}.{' '}
            <a href={addressOf(['deliveries'], { text: asked, until: value.searched_to })} onClick={onClose}>
              Search further
            </a>
          </>
        )}
      </p>
    </Dialog>
  );
}

const ACTIONS: readonly Action[] = [
  { to: '/deliveries?state=failed', kind: 'Show', name: 'Failed deliveries' },
  { to: '/deliveries?state=pending', kind: 'Show', name: 'Pending deliveries' },
  { to: '/instances?health=down', kind: 'Show', name: 'Instances that are down' },
  { to: '/instances?new', kind: 'Do', name: 'Register an instance', needs: ['instance'] },
  { to: '/meetings?new', kind: 'Do', name: 'Begin a meeting', needs: ['send', 'instance'] },
  { to: '/keys?new', kind: 'Do', name: 'Make a key', needs: ['admin'] },
];

/** A portal link does none of the actions that need a scope. */
const mayDo = (needs: readonly Scope[]): boolean => !is_portal && needs.some(may);

interface Results {
  found: Found[];
  searched_to?: string | undefined;
  /** The lists whose search ended before it had read all ids, and the page that searches on. */
  ended: { kind: string; to: string }[];
  /** Why no messages were searched. */
  problem: ConvokeError | null;
}

const NOTHING: Results = { found: [], ended: [], problem: null };

/** Everything that has this id or this text. A part that is refused or fails hides none of the others. */
async function search(text: string): Promise<Results> {
  const none: SearchPage<never> = { data: [], next_cursor: null };
  const place = /^(.+?)\s*#(\d{1,15})$/.exec(text);
  const is_id = /^(?:msg|dlv)_\S+$/.test(text);
  const reads = may('read');
  const limit = SHOWN_MAX;
  const [by_id, keys, instances, meetings, hosts, messages] = await Promise.all([
    !reads
      ? none
      : is_id
        ? client.findMessages({ id: text }).catch(() => none)
        : place !== null
          ? client.findMessages({ meeting_id: place[1] as string, seq: Number(place[2]) }).catch(() => none)
          : none,
    may('admin') && /^[a-z0-9]{12}$/.test(text)
      ? client.getKey(text).then(
          (key) => [key],
          () => [],
        )
      : [],
    is_id ? none : client.listInstances({ q: text, limit }).catch(() => none),
    is_id || !reads ? none : client.listMeetings({ q: text, limit }).catch(() => none),
    // The portal has no pages of agents.
    is_id || is_portal ? none : client.listInstances({ agent_id: text, limit: 1 }).catch(() => none),
    is_id || !reads ? none : client.findMessages({ text, limit }).catch(errorOf),
  ]);
  const found_messages = messages instanceof ConvokeError ? none : messages;
  const agent = { to: addressOf(['agents', text]), kind: 'Agent', name: text, about: 'what it was sent' };
  const results = {
    found: [
      ...by_id.data.map(messageFound),
      ...(text.startsWith('dlv_') ? [{ to: addressOf(['deliveries', text]), kind: 'Delivery', name: text }] : []),
      ...keys.map(({ key_id, name }) => ({
        to: addressOf(['keys', key_id]),
        kind: 'Key',
        name: name ?? key_id,
        about: key_id,
      })),
      ...hosts.data.map(() => agent),
      ...instances.data.map(({ instance_id, instance_name }) => ({
        to: addressOf(['instances', instance_id]),
        kind: 'Instance',
        name: instance_name || instance_id,
        about: instance_id,
      })),
      ...meetings.data.map(({ meeting_id }) => ({
        to: addressOf(['meetings', meeting_id]),
        kind: 'Meeting',
        name: meeting_id,
      })),
      ...found_messages.data.map(messageFound),
    ],
    searched_to: found_messages.searched_to,
    ended: [
      ...(instances.searched_to === undefined
        ? []
        : [{ kind: 'instances', to: addressOf(['instances'], { q: text }) }]),
      ...(meetings.searched_to === undefined ? [] : [{ kind: 'meetings', to: addressOf(['meetings'], { q: text }) }]),
    ],
    problem: messages instanceof ConvokeError ? messages : null,
  };
  if (results.found.length > 0 || is_id || is_portal) return results;
  // An instance takes part in a meeting also for agents that it does not list.
  const sent = await client.listDeliveries({ agent_id: text, limit: 1 }).catch(() => none);
  return { ...results, found: sent.data.map(() => agent) };
}

function messageFound({ meeting_id, seq, message, deliveries_queued }: FoundMessage): Found {
  const { text } = readable(message);
  return {
    to: `${addressOf(['meetings', meeting_id])}#${seq}`,
    kind: 'Message',
    name: text ?? JSON.stringify(message),
    about: `${meeting_id} #${seq}${deliveries_queued === 0 ? ', no one received it' : ''}`,
  };
}

/** A text that nobody has changed for a while. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}
