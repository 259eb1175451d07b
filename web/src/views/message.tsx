/** A message as the page shows it: its sender, its recipients, and its delivery at each instance. */
import type { JSX } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Delivery } from '@convoke/sdk';
import { Copy } from '../parts/copy.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { StateMark } from '../parts/mark.tsx';
import { Reading } from '../parts/states.tsx';
import { At } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { counted, some, whyInWords } from '../format.ts';
import { indented } from '../json_text.ts';
import type { Line } from './conversation.ts';
import { Attempts, DeliveryStatus, useDelivery } from './delivery.tsx';
import { Answered, Answers, type Thread } from './thread.tsx';
import { Trace } from './trace.tsx';

/**
 * For a message to more instances than this, the page counts the deliveries by state, and marks only those that need
 * attention.
 */
const MARKS_MAX = 24;

interface MessageLineProps {
  line: Line;
  /** Null when they were not read. */
  deliveries: readonly Delivery[] | null;
  names: ReadonlyMap<string, string>;
  thread: Thread | null;
  /** Whether the user got to this message by its address or from another message. */
  is_found: boolean;
  onJump: (message_id: string) => void;
}

/** A message is drawn again only when something about it changed: at 50 messages a second the others cost nothing. */
export function MessageLine(props: MessageLineProps): JSX.Element {
  const { line, deliveries, names, thread, is_found, onJump } = props;
  const answers = thread?.answers.map(({ seq }) => seq).join(' ');
  return useMemo(
    () => <MessageView {...props} />,
    [line, deliveries, names, thread?.answered, answers, is_found, onJump],
  );
}

function MessageView({ line, deliveries, names, thread, is_found, onJump }: MessageLineProps): JSX.Element {
  const { seq, accepted_at, target_agents, from_agent, in_reply_to, from, text, json } = line;
  const { message_id, deliveries_queued } = line;
  const [opened, setOpened] = useState<string | null>(null);
  const [is_raw, setRaw] = useState(false);
  const [is_traced, setTraced] = useState(false);
  const open = deliveries?.find(({ delivery_id }) => delivery_id === opened);
  return (
    <article
      class={is_found ? 'message is-found' : 'message'}
      aria-label={`Message ${seq}`}
      data-seq={seq}
      tabIndex={-1}
    >
      <header class="message-head">
        <a class="seq" href={`#${seq}`} title="The address of this message">
          #{seq}
        </a>
        <Speaker from_agent={from_agent} from={from} />
        {target_agents !== null && target_agents.length > 0 && (
          <span class="message-to">
            to <Foreign>{some(target_agents, 4)}</Foreign>
          </span>
        )}
        <At at={accepted_at} />
        <span class="message-tools">
          <button type="button" class="bare text" aria-pressed={is_raw} onClick={() => setRaw(!is_raw)}>
            JSON<span class="unseen"> of message {seq}</span>
          </button>
          {is_raw && <Copy text={json} what={`the JSON of message ${seq}, as it was sent`} />}
          <button type="button" class="bare text" aria-expanded={is_traced} onClick={() => setTraced(!is_traced)}>
            Trace<span class="unseen"> message {seq}</span>
          </button>
          <Copy text={message_id} what={`the id of message ${seq}`} />
        </span>
      </header>
      {in_reply_to !== undefined && (
        <Answered answered={thread?.answered ?? null} message_id={in_reply_to} onJump={onJump} />
      )}
      {is_raw || text === null ? (
        <pre class="message-json" tabIndex={0} aria-label={`Message ${seq} as JSON`}>
          {indented(json)}
        </pre>
      ) : (
        <Words text={text} seq={seq} />
      )}
      {thread !== null && thread.answers.length > 0 && <Answers answers={thread.answers} onJump={onJump} />}
      <Marks
        deliveries={deliveries}
        names={names}
        message_id={message_id}
        deliveries_queued={deliveries_queued}
        seq={seq}
        opened={opened}
        onOpen={setOpened}
        is_traced={is_traced}
        onTrace={() => setTraced(!is_traced)}
      />
      {is_traced && <Trace message_id={message_id} seq={seq} />}
      {open !== undefined && (
        <DeliveryDetail delivery_id={open.delivery_id} name={names.get(open.instance_id) ?? open.instance_id} />
      )}
    </article>
  );
}

/** How much of a long text is shown before a person opens all of it. */
const FOLDED_CHARS = 1_200;
const FOLDED_LINES = 14;

function Words({ text, seq }: { text: string; seq: number }): JSX.Element {
  const [is_whole, setWhole] = useState(false);
  const beginning = beginningOf(text);
  if (beginning === text) return <p class="message-text">{text}</p>;
  return (
    <>
      <p class="message-text">{is_whole ? text : `${beginning}…`}</p>
      <button type="button" class="bare text fold" aria-expanded={is_whole} onClick={() => setWhole(!is_whole)}>
        {is_whole ? 'Show less' : `Show all ${text.length.toLocaleString('en')} characters`}
        <span class="unseen"> of message {seq}</span>
      </button>
    </>
  );
}

function beginningOf(text: string): string {
  const lines = text.split('\n', FOLDED_LINES + 1);
  const beginning = lines.length > FOLDED_LINES ? lines.slice(0, FOLDED_LINES).join('\n') : text;
  // A few characters more are not worth a click. Where the cut leaves half of an emoji, that half is removed.
  const is_short = beginning.length <= FOLDED_CHARS * 1.2;
  return is_short
    ? beginning
    : beginning
        .slice(0, FOLDED_CHARS)
        .toWellFormed()
        .replace(/\ufffd$/, '');
}

/** The service checks `from_agent` against the key of the sender. A name in the message itself is only a claim. */
function Speaker({ from_agent, from }: { from_agent: string | undefined; from: string | null }): JSX.Element | null {
  if (from_agent === undefined) return from === null ? null : <Foreign class="message-from">{from}</Foreign>;
  return (
    <>
      <Foreign class="message-from">{from_agent}</Foreign>
      <span class="tag">agent</span>
    </>
  );
}

interface MarksProps {
  deliveries: readonly Delivery[] | null;
  names: ReadonlyMap<string, string>;
  message_id: string;
  deliveries_queued: number;
  seq: number;
  opened: string | null;
  onOpen: (delivery_id: string | null) => void;
  is_traced: boolean;
  onTrace: () => void;
}

/**
 * One mark for each delivery of the message, showing its state. With more than MARKS_MAX deliveries, deliveries that
 * succeeded are only counted.
 */
function Marks(props: MarksProps): JSX.Element {
  const { deliveries, names, message_id, deliveries_queued, seq, opened, onOpen, is_traced, onTrace } = props;
  if (deliveries === null) {
    return (
      <a class="marks-more" href={addressOf(['deliveries'], { message_id })}>
        Deliveries
      </a>
    );
  }
  // The service removes deliveries sooner than messages.
  const removed = deliveries_queued - deliveries.length;
  if (deliveries.length === 0 && removed > 0) {
    return (
      <p class="marks-none">
        It went to {counted(removed, 'instance')}. {removed === 1 ? 'Its delivery is' : 'Its deliveries are'} no longer
        kept.
      </p>
    );
  }
  if (deliveries.length === 0) {
    return (
      <p class="marks-none">
        No one received it{' '}
        <button type="button" class="bare text" aria-expanded={is_traced} onClick={onTrace}>
          Why?<span class="unseen"> No one received message {seq}</span>
        </button>
      </p>
    );
  }
  const fine = deliveries.filter(({ state }) => state === 'delivered');
  const is_crowd = deliveries.length > MARKS_MAX;
  const shown = is_crowd ? deliveries.filter(({ state }) => state !== 'delivered').slice(0, MARKS_MAX) : deliveries;
  return (
    <ul class="marks" aria-label="Deliveries">
      {is_crowd && (
        <li>
          <a class="mark-button" href={addressOf(['deliveries'], { message_id })}>
            <StateMark state="delivered" />
            {fine.length} of {deliveries.length} delivered
          </a>
        </li>
      )}
      {shown.map((delivery) => {
        const { delivery_id, instance_id, state, waiting_for, attempt_count } = delivery;
        const why = whyInWords(delivery);
        const name = names.get(instance_id) ?? instance_id;
        const is_open = opened === delivery_id;
        return (
          <li key={delivery_id}>
            <button
              type="button"
              class="mark-button"
              aria-expanded={is_open}
              title={`${instance_id}: ${state}, ${why === '' ? '' : `${why}, `}${counted(attempt_count, 'attempt')}`}
              onClick={() => onOpen(is_open ? null : delivery_id)}
            >
              <StateMark state={state} waiting_for={waiting_for} />
              <Foreign class="clip">{name}</Foreign>
              <Foreign class="unseen">{`: ${state} ${why}`}</Foreign>
              {attempt_count > 1 && <span class="faint">×{attempt_count}</span>}
            </button>
          </li>
        );
      })}
      {removed > 0 && <li class="marks-none">{counted(removed, 'more is', 'more are')} no longer kept</li>}
    </ul>
  );
}

function DeliveryDetail({ delivery_id, name }: { delivery_id: string; name: string }): JSX.Element {
  const query = useDelivery(delivery_id);
  const { value, again } = query;
  const box = useRef<HTMLDivElement>(null);
  const is_there = value !== null;
  // Does not scroll again after a further attempt: the user may read something else by then.
  useLayoutEffect(() => box.current?.scrollIntoView({ block: 'nearest' }), [is_there]);
  return (
    <div class="delivery-detail" ref={box} role="group" aria-label={`Delivery to ${name}`}>
      <Reading query={query} lines={2} />
      {value !== null && (
        <>
          <DeliveryStatus delivery={value} again={again} />
          <Attempts delivery={value} />
          <a href={addressOf(['deliveries', delivery_id])}>Everything about this delivery</a>
        </>
      )}
    </div>
  );
}
