import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Delivery, MeetingInstance, Message } from '@convoke/sdk';
import { useQuery } from '../queries.ts';
import { Copy } from '../parts/copy.tsx';
import { StateMark } from '../parts/mark.tsx';
import { Detail } from '../parts/page.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { At } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { counted, some } from '../format.ts';
import { Composer } from './composer.tsx';
import { useConversation } from './conversation.ts';
import { Attempts, DeliveryStatus, useDelivery } from './delivery.tsx';
import { Members, membersOf } from './memberships.tsx';
import { Foreign } from '../parts/foreign.tsx';

/**
 * For a message to more instances than this, the page counts them by state, and marks only those that need attention.
 */
const MARKS_MAX = 24;

export function MeetingDetail({ meeting_id, back }: { meeting_id: string; back: string }): JSX.Element {
  const { value: members } = useQuery(
    `members ${meeting_id}`,
    async () => (await membersOf(meeting_id)) ?? [],
    (event) => event.meeting_id === meeting_id || event.name.startsWith('instance.'),
  );
  const present = members?.filter(({ left_at }) => left_at === null) ?? [];
  return (
    <Detail
      title={
        <>
          <Foreign>{meeting_id}</Foreign> <Copy text={meeting_id} what="the meeting id" />
        </>
      }
      label={`Meeting ${meeting_id}`}
      back={back}
      back_label="Close the meeting"
      actions={
        <a class="button" href={addressOf(['deliveries'], { meeting_id })}>
          Deliveries
        </a>
      }
    >
      <div class="meeting">
        <details class="meeting-members">
          <summary>
            <span>{members === null ? '…' : counted(present.length, 'instance')}</span>
            <span class="faint clip">
              {some(
                present.map(({ instance_name, instance_id }) => instance_name || instance_id),
                4,
              )}
            </span>
          </summary>
          {members !== null && <Members meeting_id={meeting_id} members={members} />}
        </details>
        <Transcript meeting_id={meeting_id} members={members ?? []} />
        <Composer meeting_id={meeting_id} agent_ids={[...new Set(present.flatMap(({ agent_ids }) => agent_ids))]} />
      </div>
    </Detail>
  );
}

function Transcript({ meeting_id, members }: { meeting_id: string; members: readonly MeetingInstance[] }): JSX.Element {
  const { messages, deliveries, problem, has_earlier, earlier, again } = useConversation(meeting_id);
  const names = new Map(members.map(({ instance_id, instance_name }) => [instance_id, instance_name || instance_id]));
  return (
    // A reversed column with a single child: so it stays scrolled to the end, without a script.
    <div class="transcript" tabIndex={0} role="log" aria-label="Messages" aria-live="off">
      <div class="transcript-lines">
        {messages === null && problem === null && <Skeleton />}
        {problem !== null && <Failure problem={problem} again={again} />}
        {messages?.length === 0 && (
          <Empty title="No messages here yet.">
            <p>Write the first message below.</p>
          </Empty>
        )}
        {has_earlier && (
          <button type="button" class="button earlier" onClick={() => void earlier()}>
            Earlier messages
          </button>
        )}
        {messages?.map((message) => (
          <MessageView
            key={message.message_id}
            message={message}
            deliveries={deliveries.get(message.message_id) ?? null}
            names={names}
          />
        ))}
      </div>
    </div>
  );
}

interface MessageViewProps {
  message: Message;
  /** Null when they were not read. */
  deliveries: readonly Delivery[] | null;
  names: ReadonlyMap<string, string>;
}

function MessageView({ message: record, deliveries, names }: MessageViewProps): JSX.Element {
  const { seq, accepted_at, target_agents, message, message_id } = record;
  const [opened, setOpened] = useState<string | null>(null);
  const [is_raw, setRaw] = useState(false);
  const { from, text } = readable(message);
  const open = deliveries?.find(({ delivery_id }) => delivery_id === opened);
  return (
    <article class="message" aria-label={`Message ${seq}`}>
      <header class="message-head">
        <span class="seq">#{seq}</span>
        {from !== null && <Foreign class="message-from">{from}</Foreign>}
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
          <Copy text={message_id} what={`the id of message ${seq}`} />
        </span>
      </header>
      {is_raw || text === null ? (
        <pre class="message-json" tabIndex={0} aria-label={`Message ${seq} as JSON`}>
          {JSON.stringify(message, null, 2)}
        </pre>
      ) : (
        <p class="message-text">{text}</p>
      )}
      <Marks deliveries={deliveries} names={names} message_id={message_id} opened={opened} onOpen={setOpened} />
      {open !== undefined && (
        <DeliveryDetail delivery_id={open.delivery_id} name={names.get(open.instance_id) ?? open.instance_id} />
      )}
    </article>
  );
}

interface MarksProps {
  deliveries: readonly Delivery[] | null;
  names: ReadonlyMap<string, string>;
  message_id: string;
  opened: string | null;
  onOpen: (delivery_id: string | null) => void;
}

/** One mark for each instance that got the message, showing the state of the delivery. */
function Marks({ deliveries, names, message_id, opened, onOpen }: MarksProps): JSX.Element {
  if (deliveries === null) {
    return (
      <a class="marks-more" href={addressOf(['deliveries'], { message_id })}>
        Deliveries
      </a>
    );
  }
  if (deliveries.length === 0) return <p class="marks-none">went to nobody</p>;
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
      {shown.map(({ delivery_id, instance_id, state, attempt_count }) => {
        const name = names.get(instance_id) ?? instance_id;
        const is_open = opened === delivery_id;
        return (
          <li key={delivery_id}>
            <button
              type="button"
              class="mark-button"
              aria-expanded={is_open}
              title={`${instance_id}: ${state}, ${counted(attempt_count, 'attempt')}`}
              onClick={() => onOpen(is_open ? null : delivery_id)}
            >
              <StateMark state={state} />
              <Foreign class="clip">{name}</Foreign>
              <span class="unseen">: {state}</span>
              {attempt_count > 1 && <span class="faint">×{attempt_count}</span>}
            </button>
          </li>
        );
      })}
    </ul>
  );
}

function DeliveryDetail({ delivery_id, name }: { delivery_id: string; name: string }): JSX.Element {
  const { value, problem, again } = useDelivery(delivery_id);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => box.current?.scrollIntoView({ block: 'nearest' }), [value]);
  return (
    <div class="delivery-detail" ref={box} role="group" aria-label={`Delivery to ${name}`}>
      {problem !== null && value === null && <Failure problem={problem} again={again} />}
      {value === null && problem === null && <Skeleton lines={2} />}
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

const SPEAKER = ['sender', 'author', 'from_agent', 'name', 'role', 'from'];
const SPEECH = ['content', 'text', 'body', 'message'];

/** The sender and the text, where a message has them in the usual fields. */
function readable(message: Record<string, unknown>): { from: string | null; text: string | null } {
  const textAt = (names: readonly string[]): string | null => {
    for (const name of names) {
      const value = message[name];
      if (typeof value === 'string' && value !== '') return value;
    }
    return null;
  };
  return {
    from: textAt(SPEAKER),
    text: textAt(SPEECH),
  };
}
