import type { PastMessage } from '../../../../domain/runtimes/runtime.ts';
import { HISTORY_MAX } from '../../../../domain/runtimes/words.ts';

/** The largest number of remembered meetings. The meeting that has been silent for longest is forgotten first. */
const MEETINGS_MAX = 200;

/**
 * The messages that this machine got since `convoke connect` began, and its answers. They replace the history of the
 * meeting for a runtime whose key may not read messages.
 */
export class LocalHistory {
  readonly #meetings = new Map<string, PastMessage[]>();

  /** The newest messages before a seq, the oldest of them first. */
  before(meeting_id: string, seq: number, limit: number): PastMessage[] {
    const messages = this.#meetings.get(meeting_id) ?? [];
    return messages.filter((message) => message.seq < seq).slice(-limit);
  }

  /**
   * Adds a message that was pushed, and the answers of its agents. A message that was pushed before keeps its place.
   */
  add(meeting_id: string, pushed: PastMessage, answers: readonly Omit<PastMessage, 'seq'>[]): void {
    const { seq } = pushed;
    const others = (this.#meetings.get(meeting_id) ?? []).filter((message) => message.seq !== seq);
    // An answer has the number of the message that it answers, because only the service knows the number of the answer.
    const messages = [...others, pushed, ...answers.map((answer) => ({ seq, ...answer }))];
    this.#meetings.delete(meeting_id);
    this.#meetings.set(meeting_id, messages.toSorted((a, b) => a.seq - b.seq).slice(-HISTORY_MAX));
    const [oldest] = this.#meetings.keys();
    if (this.#meetings.size > MEETINGS_MAX && oldest !== undefined) this.#meetings.delete(oldest);
  }
}
