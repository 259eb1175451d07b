/** A message of a meeting as an event of the MCP Events extension (SEP-3415). */
import { agentsToNotify, isForEverybody } from './agents_to_notify.ts';
import { madeAt } from './id.ts';
import { isoTime } from './time.ts';

export const MEETING_MESSAGE = 'meeting.message';

/** The most bytes of a message in an event. The whole event must fit into 256 KiB, because receivers take no more. */
const MESSAGE_BYTES_MAX = 192 << 10;
/**
 * When a message is longer, the event has only its beginning: at most this many characters. A character has three bytes
 * at most.
 */
const PART_CHARS_MAX = 16_000;

/** A message, from the history or from a push. */
export interface EventSource {
  meeting_id: string;
  message_id: string;
  seq: number;
  from_agent?: string | null | undefined;
  in_reply_to?: string | null | undefined;
  message: Record<string, unknown>;
}

/** An `EventOccurrence`, without the cursor. */
export interface MeetingEvent {
  /** The message_id, so a subscriber that polls and one that gets pushes see the same id. */
  eventId: string;
  name: typeof MEETING_MESSAGE;
  timestamp: string;
  data: Record<string, unknown>;
}

export function meetingEvent(source: EventSource): MeetingEvent {
  const { meeting_id, message_id, seq, from_agent = null, in_reply_to = null, message } = source;
  const text = JSON.stringify(message);
  const is_long = Buffer.byteLength(text) > MESSAGE_BYTES_MAX;
  return {
    eventId: message_id,
    name: MEETING_MESSAGE,
    timestamp: isoTime(madeAt(message_id)),
    data: {
      meeting_id,
      message_id,
      seq,
      ...(from_agent !== null && { from_agent }),
      ...(in_reply_to !== null && { in_reply_to }),
      ...(is_long
        ? { part: { text: text.slice(0, PART_CHARS_MAX).toWellFormed(), from_char: 0, chars: text.length } }
        : { message }),
    },
  };
}

/**
 * Whether a subscription gets a message. A subscription without an agent gets messages for everybody. A subscription
 * with an agent gets the messages that this agent would get.
 */
export function isForSubscriber(
  agent: string | null,
  { target_agents, from_agent }: { target_agents: readonly string[] | null; from_agent?: string | undefined },
): boolean {
  if (agent === null) return isForEverybody(target_agents);
  return agentsToNotify([agent], target_agents === null ? null : new Set(target_agents), from_agent ?? null).length > 0;
}
