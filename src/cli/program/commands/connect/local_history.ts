import type { PastMessage } from '../../../../domain/runtimes/runtime.ts';
import { HISTORY_MAX } from '../../../../domain/runtimes/words.ts';

/** The largest number of remembered meetings. The meeting that has been silent for longest is forgotten first. */
const MEETINGS_MAX = 200;
/** The most characters of the history in one request. */
const HISTORY_CHARS_MAX = 64 << 10;

/** A message that this machine got, or an answer of it that the service has not pushed back to it. */
interface Kept extends PastMessage {
  is_answer?: true;
}

/**
 * The messages that this machine got since `convoke connect` began, and its answers. They replace the history of the
 * meeting for a runtime whose key may not read messages.
 */
export class LocalHistory {
  readonly #meetings = new Map<string, Kept[]>();

  /** The newest messages before a seq that fit into a request, the oldest of them first. */
  before(meeting_id: string, seq: number, limit: number): PastMessage[] {
    const messages = this.#meetings.get(meeting_id) ?? [];
    return newest(messages.filter((message) => message.seq < seq).slice(-limit));
  }

  /**
   * Adds a message that was pushed. A message that was pushed before keeps its place.
   *
   * An answer of an agent is pushed to the other agents of this machine. It then replaces the answer that was kept, so
   * that no agent sees it twice.
   */
  add(meeting_id: string, pushed: PastMessage): void {
    const kept = this.#meetings.get(meeting_id) ?? [];
    if (kept.some(({ seq, is_answer }) => seq === pushed.seq && is_answer !== true)) return;
    const own = kept.find((each) => each.is_answer === true && each.seq < pushed.seq && isSame(each, pushed));
    const others = kept.filter((each) => each !== own);
    // The push names only agents of this machine, but the answer was for everybody.
    const target_agents = own === undefined ? pushed.target_agents : own.target_agents;
    // Adds the message after the others were cut: a message that is being answered takes no room from the messages
    // before it.
    this.#keep(meeting_id, [...newest(others), { ...pushed, target_agents }]);
  }

  /** Adds answers of agents to a message. An answer replaces an earlier answer of its agent to the same message. */
  answer(meeting_id: string, seq: number, answers: readonly Omit<PastMessage, 'seq'>[]): void {
    if (answers.length === 0) return;
    const others = (this.#meetings.get(meeting_id) ?? []).filter(
      (each) =>
        each.is_answer !== true ||
        each.seq !== seq ||
        answers.every(({ from_agent }) => from_agent !== each.from_agent),
    );
    // An answer has the number of the message that it answers, because only the service knows the number of the answer.
    const added = answers.map((answer): Kept => ({ seq, ...answer, is_answer: true }));
    this.#keep(meeting_id, newest(inOrder([...others, ...added])));
  }

  #keep(meeting_id: string, messages: readonly Kept[]): void {
    this.#meetings.delete(meeting_id);
    this.#meetings.set(meeting_id, inOrder(messages).slice(-HISTORY_MAX));
    const [oldest] = this.#meetings.keys();
    if (this.#meetings.size > MEETINGS_MAX && oldest !== undefined) this.#meetings.delete(oldest);
  }
}

/** The newest messages that fit into a request, the oldest first. */
export function newest<Message extends PastMessage>(messages: readonly Message[]): Message[] {
  let chars = 0;
  const kept = messages
    .toReversed()
    .filter(({ message }) => (chars += JSON.stringify(message).length) <= HISTORY_CHARS_MAX);
  return kept.toReversed();
}

function inOrder(messages: readonly Kept[]): Kept[] {
  return messages.toSorted((a, b) => a.seq - b.seq);
}

function isSame(one: PastMessage, other: PastMessage): boolean {
  return one.from_agent === other.from_agent && JSON.stringify(one.message) === JSON.stringify(other.message);
}
