/** The messages of a meeting as events, by the page. The cursor of an event is the seq of its message. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isForSubscriber, type MeetingEvent, meetingEvent } from '../../domain/meeting_event.ts';
import type { Caller } from '../caller.ts';
import { exactly } from '../exact_messages.ts';
import type { Wanted } from './event_types.ts';

/** A page reads at most this many messages, and ends when its messages have this many characters. */
const MESSAGES_MAX = 50;
const CHARS_MAX = 1 << 20;

export interface EventPage {
  /** The events, each with the position after it. */
  events: { event: MeetingEvent; seq: number }[];
  /** The position after the page. */
  seq: number;
  /** Whether events are missing between the position that the caller gave and the page. */
  truncated: boolean;
  has_more: boolean;
}

/** The position after the newest message. */
export async function newestSeq({ client, signal }: Caller, meeting_id: string): Promise<number> {
  return (await client.getMeeting(meeting_id, { signal })).last_seq;
}

/**
 * Reads the events after a position.
 *
 * @param after a seq
 * @param oldest_ms messages from before this time are left out; milliseconds since the epoch
 * @throws ConvokeError when the service refuses the call
 */
export async function readPage(
  caller: Caller,
  { meeting_id, agent }: Wanted,
  after: number,
  { max = MESSAGES_MAX, oldest_ms = 0 }: { max?: number; oldest_ms?: number } = {},
): Promise<EventPage> {
  const limit = Math.min(max, MESSAGES_MAX);
  const { data, has_more } = await caller.client.listRawMessages(
    meeting_id,
    { after_seq: after, limit },
    { signal: caller.signal },
  );
  const [first] = data;
  if (first === undefined) {
    // No message follows: nothing is new, or retention removed what followed, or the store was restored to an earlier
    // state.
    const newest = await newestSeq(caller, meeting_id);
    // A message may have been sent between the two reads: the next page has it.
    const is_lost = newest < after || (newest > after && (await isGone(caller, meeting_id, after)));
    return { events: [], seq: is_lost ? newest : after, truncated: is_lost, has_more: false };
  }
  const page: EventPage = { events: [], seq: after, truncated: first.seq > after + 1, has_more };
  let chars = 0;
  for (const said of data) {
    if (chars > CHARS_MAX) return { ...page, has_more: true };
    page.seq = said.seq;
    if (!isForSubscriber(agent, said)) continue;
    if (Date.parse(said.accepted_at) < oldest_ms) {
      page.truncated = true;
      continue;
    }
    // One message in a turn of the event loop: to read a long one takes 12 ms, even if its event has only a part of it.
    await nextTurn();
    const event = meetingEvent({ meeting_id, ...exactly(said) });
    chars += said.message.text.length;
    page.events.push({ event, seq: said.seq });
  }
  return page;
}

/** Whether no message after this seq is left. */
export async function isGone({ client, signal }: Caller, meeting_id: string, after_seq: number): Promise<boolean> {
  return (await client.listMessages(meeting_id, { after_seq, limit: 1 }, { signal })).data.length === 0;
}
