/** The message that a message answers, and its own answers. */
import type { JSX } from 'preact';
import { Foreign } from '../parts/foreign.tsx';
import type { Line } from './conversation.ts';

export interface Thread {
  /** Null when the message answers no other message, or one that is not loaded. */
  answered: Line | null;
  answers: Line[];
}

/**
 * The threads by message_id. A message has a thread when it answers one of these messages, or when one of these
 * messages answers it.
 */
export function threadsOf(messages: readonly Line[]): ReadonlyMap<string, Thread> {
  const by_id = new Map(messages.map((message) => [message.message_id, message]));
  const threads = new Map<string, Thread>();
  const threadOf = (message_id: string): Thread => {
    let thread = threads.get(message_id);
    if (thread === undefined) threads.set(message_id, (thread = { answered: null, answers: [] }));
    return thread;
  };
  for (const message of messages) {
    const answered = message.in_reply_to === undefined ? undefined : by_id.get(message.in_reply_to);
    if (answered === undefined) continue;
    threadOf(message.message_id).answered = answered;
    threadOf(answered.message_id).answers.push(message);
  }
  return threads;
}

type Jump = (message_id: string) => void;

interface AnsweredProps {
  /** Null when the answered message is not loaded. */
  answered: Line | null;
  message_id: string;
  onJump: Jump;
}

export function Answered({ answered, message_id, onJump }: AnsweredProps): JSX.Element {
  if (answered === null) {
    return (
      <p class="thread">
        answers{' '}
        <button type="button" class="thread-place" onClick={() => onJump(message_id)}>
          an earlier message
        </button>
      </p>
    );
  }
  return (
    <p class="thread">
      answers <Place message={answered} onJump={onJump} />
      <Foreign class="clip">{answered.text ?? ''}</Foreign>
    </p>
  );
}

/** How many answers to one message are shown at most: the first ones. */
const ANSWERS_MAX = 12;

export function Answers({ answers, onJump }: { answers: readonly Line[]; onJump: Jump }): JSX.Element {
  return (
    <p class="thread thread-answers">
      answered by
      {answers.slice(0, ANSWERS_MAX).map((message) => (
        <Place key={message.message_id} message={message} onJump={onJump} />
      ))}
      {answers.length > ANSWERS_MAX && `and ${answers.length - ANSWERS_MAX} more`}
    </p>
  );
}

function Place({ message, onJump }: { message: Line; onJump: Jump }): JSX.Element {
  const { seq, message_id, from_agent } = message;
  const from = from_agent ?? message.from;
  return (
    <button type="button" class="thread-place" onClick={() => onJump(message_id)}>
      #{seq}
      {from !== null && <Foreign class="clip">{from}</Foreign>}
    </button>
  );
}
