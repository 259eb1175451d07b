import { setImmediate as nextTurn } from 'node:timers/promises';
import { ConvokeError } from '@convoke/sdk';
import { type Notification, ProtocolError } from '@modelcontextprotocol/server';
import { isForSubscriber } from '../../domain/meeting_event.ts';
import { wallNow } from '../../wall_clock.ts';
import type { Caller } from '../caller.ts';
import { type StreamParams, wantedOf } from './event_types.ts';
import { eventFailure } from './failures.ts';
import { MeetingNews } from './meeting_news.ts';
import type { NextMessages } from './next_messages.ts';
import { newestSeq } from './pages.ts';

/** How often a stream without events shows that it lives. Clients give up after a minute. */
const HEARTBEAT_MS = 15_000;

export interface StreamTo {
  /** The id of the request, which every notification names. */
  id: string | number;
  notify: (notification: Notification) => Promise<void>;
  /** Shared by all streams of the process. */
  messages: NextMessages;
}

/**
 * Sends events as they happen. Resolves to the last frame when the service stops, when the rights of the client end,
 * and when nobody listens any more.
 *
 * @throws ProtocolError; ConvokeError when the service refuses the call. Then no stream begins.
 */
export async function streamEvents(
  caller: Caller,
  params: StreamParams,
  { id, notify, messages }: StreamTo,
  heartbeat_ms = HEARTBEAT_MS,
) {
  const wanted = wantedOf(params);
  const _meta = { 'io.modelcontextprotocol/subscriptionId': id };
  const send = (kind: string, about: object): Promise<void> =>
    notify({ method: `notifications/events/${kind}`, params: { ...about, _meta } });
  const { cursor = null, maxAgeMs } = params;
  const oldest_ms = maxAgeMs === undefined ? 0 : wallNow() - maxAgeMs;
  const ended = new AbortController();
  const signal = AbortSignal.any([caller.signal, ended.signal]);
  let is_open = false;
  let truncated = false;
  try {
    // The feed opens before the first message is read, so that no message is missed between the two.
    const news = await MeetingNews.follow(caller, wanted.meeting_id, signal);
    // The service refuses this call when the key may not read the meeting. The check is needed here, because streams
    // share the messages that one of them has read.
    const newest = await newestSeq(caller, wanted.meeting_id);
    let seq = cursor === null ? newest : Number(cursor);
    const open = async (from: number): Promise<void> => {
      if (is_open && !truncated) return;
      await send('active', { cursor: String(from), truncated });
      is_open = true;
      truncated = false;
    };
    /** Sends the next message, if one follows. */
    const sendNext = async (): Promise<boolean> => {
      const { message, seq: position, truncated: is_missing } = await messages.after(caller, wanted.meeting_id, seq);
      const is_old = message !== null && Date.parse(message.accepted_at) < oldest_ms;
      truncated ||= is_missing || (is_old && isForSubscriber(wanted.agent, message));
      if (!truncated) await open(seq);
      seq = position;
      if (message === null) await open(seq);
      else if (!is_old && isForSubscriber(wanted.agent, message)) {
        await open(seq - 1);
        await messages.turn(message.chars);
        await send('event', { ...message.event, cursor: String(seq) });
      }
      return message !== null;
    };
    while (!signal.aborted) {
      // Messages that were sent are in the response after a turn of the event loop.
      await nextTurn();
      // Waits before the read, so that no message is in memory while the client does not read.
      await caller.hasRoom();
      news.reset();
      const has_sent = await messages.inHand(sendNext);
      if (!has_sent && !(await news.wait(heartbeat_ms))) await send('heartbeat', { cursor: String(seq) });
      news.assertOpen();
    }
  } catch (error) {
    const failure = eventFailure(error);
    const is_stopping = error instanceof ConvokeError && error.code === 'shutting_down';
    if (!is_open || !(failure instanceof ProtocolError)) {
      if (!caller.signal.aborted) throw failure;
    } else if (!is_stopping && !caller.signal.aborted) {
      const { code, message, data } = failure;
      await send('terminated', { error: { code, message, data } });
    }
  } finally {
    ended.abort();
  }
  return { resultType: 'complete', _meta };
}
