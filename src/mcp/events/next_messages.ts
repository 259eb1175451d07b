/**
 * The messages that streams of a meeting send next. Streams of one meeting read the same messages at the same time: one
 * of them reads, and all take the result. While its client does not read, a stream holds only its position.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type MeetingEvent, meetingEvent } from '../../domain/meeting_event.ts';
import { Turnstile } from '../../http/turnstile.ts';
import type { Caller } from '../caller.ts';
import { exactly } from '../exact_messages.ts';
import { newestSeq, isGone } from './pages.ts';

/**
 * How many messages one read takes. They are few, because a message of 190 KB that is a list of `{}` is parsed in 12
 * ms, and takes 4 MB of memory.
 */
const MESSAGES_MAX = 2;
/** How many reads of all streams are in progress at a time. */
const READS_MAX = 2;
/** How many streams have a message in memory at a time, from its read until it is sent. */
const IN_HAND_MAX = 8;
/** The characters of messages that are kept for other streams, and for how long. */
const KEPT_CHARS_MAX = 2 << 20;
const KEPT_MS = 2_000;
/** How many characters all streams send in one turn of the event loop. */
const TURN_CHARS_MAX = 256 << 10;

/** A message as streams send it. */
export interface NextMessage {
  event: MeetingEvent;
  seq: number;
  accepted_at: string;
  target_agents: readonly string[] | null;
  from_agent?: string | undefined;
  /** The characters of its event as JSON. */
  chars: number;
}

export interface Next {
  /** Null when nothing follows. */
  message: NextMessage | null;
  /** The position after the message. */
  seq: number;
  /** Whether messages are missing before the message. */
  truncated: boolean;
}

interface Read {
  /** Calls of `after` and reads share one count. A read began after a call if it has a higher number than the call. */
  begun: number;
  next: Promise<Next>;
}

export class NextMessages {
  readonly #reads = new Map<string, Read>();
  readonly #kept = new Map<string, { next: Next; chars: number }>();
  #kept_chars = 0;
  #questions = 0;
  readonly #reads_at_a_time = new Turnstile(READS_MAX);
  readonly #in_hand = new Turnstile(IN_HAND_MAX);
  #turn: Promise<void> | null = null;
  #turn_chars = 0;
  #forgetting = false;

  /**
   * The message after a position. The caller must have the right to read the meeting, because another caller may have
   * read the message.
   *
   * @param after a seq
   * @throws ConvokeError when the service refuses the call
   */
  async after(caller: Caller, meeting_id: string, after: number): Promise<Next> {
    const question = ++this.#questions;
    const place = placeOf(meeting_id, after);
    for (;;) {
      const kept = this.#kept.get(place);
      if (kept !== undefined) return kept.next;
      const read = this.#reads.get(place);
      if (read === undefined) return this.#begin(caller, meeting_id, after).next;
      // The failure of another caller, who may have left, says nothing about this caller.
      const next = await read.next.catch(() => null);
      // A read that found nothing may have begun before the newest message was sent. So it counts only if it began
      // after this call.
      if (next !== null && (next.message !== null || read.begun > question)) return next;
      caller.signal.throwIfAborted();
    }
  }

  /**
   * Runs the work of a stream from the read of a message until the message is sent. Waits first until fewer than
   * `IN_HAND_MAX` streams have a message.
   */
  inHand<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#in_hand.pass(work);
  }

  /** Resolves when this many characters may be sent. So no turn of the event loop gets long, even with many streams. */
  async turn(chars: number): Promise<void> {
    while (this.#turn_chars >= TURN_CHARS_MAX) await this.#turn;
    this.#turn ??= nextTurn().then(() => {
      this.#turn = null;
      this.#turn_chars = 0;
    });
    this.#turn_chars += chars;
  }

  #begin(caller: Caller, meeting_id: string, after: number): Read {
    const place = placeOf(meeting_id, after);
    const next = this.#reads_at_a_time
      .pass(() => this.#read(caller, meeting_id, after))
      .finally(() => this.#reads.delete(place));
    const read = { begun: ++this.#questions, next };
    this.#reads.set(place, read);
    return read;
  }

  async #read(caller: Caller, meeting_id: string, after: number): Promise<Next> {
    const { client, signal } = caller;
    const { data } = await client.listRawMessages(meeting_id, { after_seq: after, limit: MESSAGES_MAX }, { signal });
    let position = after;
    let first: Next | null = null;
    for (const said of data) {
      const { seq, accepted_at, target_agents, from_agent } = said;
      const event = meetingEvent({ meeting_id, ...exactly(said) });
      const chars = JSON.stringify(event).length;
      const message = { event, seq, accepted_at, target_agents, from_agent, chars };
      const next = { message, seq, truncated: seq > position + 1 };
      this.#keep(placeOf(meeting_id, position), next, chars);
      first ??= next;
      position = seq;
    }
    if (first !== null) return first;
    // Retention removed the messages that followed, or the store was restored to an earlier state.
    const newest = await newestSeq(caller, meeting_id);
    // A message may have been sent between the two reads: the next read has it.
    const is_lost = newest < after || (newest > after && (await isGone(caller, meeting_id, after)));
    return { message: null, seq: is_lost ? newest : after, truncated: is_lost };
  }

  #keep(place: string, next: Next, chars: number): void {
    if (this.#kept.has(place)) return;
    this.#kept.set(place, { next, chars });
    this.#kept_chars += chars;
    for (const [oldest, { chars: freed }] of this.#kept) {
      if (this.#kept_chars <= KEPT_CHARS_MAX) break;
      this.#kept.delete(oldest);
      this.#kept_chars -= freed;
    }
    if (this.#forgetting) return;
    this.#forgetting = true;
    // Retention may remove a kept message, or a restored store may not have it. So all kept messages are forgotten
    // after KEPT_MS.
    setTimeout(() => {
      this.#kept.clear();
      this.#kept_chars = 0;
      this.#forgetting = false;
    }, KEPT_MS).unref();
  }
}

const placeOf = (meeting_id: string, after: number): string => `${after} ${meeting_id}`;
