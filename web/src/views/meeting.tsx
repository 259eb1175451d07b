import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Delivery, MeetingInstance, Message } from '@convoke/sdk';
import { useQuery } from '../queries.ts';
import { Copy } from '../parts/copy.tsx';
import { StateMark } from '../parts/mark.tsx';
import { notify } from '../parts/notice.tsx';
import { Detail } from '../parts/page.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { At } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { counted, some } from '../format.ts';
import { Stopped } from './guard.tsx';
import { PauseButton, Paused, useMeeting } from './brake.tsx';
import { Composer } from './composer.tsx';
import { useConversation } from './conversation.ts';
import { Attempts, DeliveryStatus, useDelivery } from './delivery.tsx';
import { Members, membersOf } from './memberships.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { readable } from './readable.ts';
import { Answered, Answers, type Thread, threadsOf } from './thread.tsx';
import { Trace } from './trace.tsx';

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
  const { value: meeting, again } = useMeeting(meeting_id);
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
        <>
          {meeting !== null && <PauseButton meeting={meeting} again={again} />}
          <a class="button" href={addressOf(['deliveries'], { meeting_id })}>
            Deliveries
          </a>
        </>
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
        {meeting !== null && <Paused meeting={meeting} again={again} />}
        {meeting !== null && <Stopped meeting={meeting} again={again} />}
        <Transcript meeting_id={meeting_id} members={members ?? []} />
        <Composer meeting_id={meeting_id} members={members === null ? null : present} />
      </div>
    </Detail>
  );
}

function Transcript({ meeting_id, members }: { meeting_id: string; members: readonly MeetingInstance[] }): JSX.Element {
  const { messages, deliveries, problem, has_earlier, earlier, back, again } = useConversation(meeting_id);
  const names = new Map(members.map(({ instance_id, instance_name }) => [instance_id, instance_name || instance_id]));
  const threads = useMemo(() => threadsOf(messages ?? []), [messages]);
  const [found, setFound] = useState({ message_id: '', times: 0 });
  const jump = async (message_id: string): Promise<void> => {
    const is_there = await back(message_id);
    if (is_there) setFound(({ times }) => ({ message_id, times: times + 1 }));
    else notify('That message is too far back, or was removed.', { is_bad: true });
  };
  return (
    // A reversed column with a single child stays scrolled to the end, without a script.
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
            thread={threads.get(message.message_id) ?? null}
            found={found.message_id === message.message_id ? found.times : 0}
            onJump={(message_id) => void jump(message_id)}
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
  thread: Thread | null;
  /**
   * Rises when the user jumps to this message from another one; 0 when it is not the last message that they jumped to.
   */
  found: number;
  onJump: (message_id: string) => void;
}

function MessageView(props: MessageViewProps): JSX.Element {
  const { message: record, deliveries, names, thread, found, onJump } = props;
  const { seq, accepted_at, target_agents, from_agent, in_reply_to, message, message_id } = record;
  const [opened, setOpened] = useState<string | null>(null);
  const [is_raw, setRaw] = useState(false);
  const [is_traced, setTraced] = useState(false);
  const { from, text } = readable(message);
  const open = deliveries?.find(({ delivery_id }) => delivery_id === opened);
  const place = useRef<HTMLElement>(null);
  useEffect(() => {
    if (found === 0) return;
    place.current?.scrollIntoView({ block: 'nearest' });
    place.current?.focus({ preventScroll: true });
  }, [found]);
  return (
    <article class={found > 0 ? 'message is-found' : 'message'} aria-label={`Message ${seq}`} tabIndex={-1} ref={place}>
      <header class="message-head">
        <span class="seq">#{seq}</span>
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
          {JSON.stringify(message, null, 2)}
        </pre>
      ) : (
        <p class="message-text">{text}</p>
      )}
      {thread !== null && thread.answers.length > 0 && <Answers answers={thread.answers} onJump={onJump} />}
      <Marks deliveries={deliveries} names={names} message_id={message_id} opened={opened} onOpen={setOpened} />
      {is_traced && <Trace message_id={message_id} seq={seq} />}
      {open !== undefined && (
        <DeliveryDetail delivery_id={open.delivery_id} name={names.get(open.instance_id) ?? open.instance_id} />
      )}
    </article>
  );
}

/** An agent is known by the key of its sender. The name in the message itself is a claim. */
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
  if (deliveries.length === 0) return <p class="marks-none">no one received it</p>;
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
