import { ConvokeError } from '@convoke/sdk';
import { type Notification, ProtocolError } from '@modelcontextprotocol/server';
import { wallNow } from '../../wall_clock.ts';
import type { Caller } from '../caller.ts';
import { type StreamParams, wantedOf } from './event_types.ts';
import { eventFailure } from './failures.ts';
import { MeetingNews } from './meeting_news.ts';
import { newestSeq, readPage } from './pages.ts';

/** How often a stream without events shows that it lives. Clients give up after a minute. */
const HEARTBEAT_MS = 15_000;

export interface StreamTo {
  /** The id of the request, which every notification names. */
  id: string | number;
  notify: (notification: Notification) => Promise<void>;
}

/**
 * Sends events as they happen. Resolves to the last frame: when the service stops, when the rights of the client end, and
 * when nobody listens any more.
 *
 * @throws ProtocolError; ConvokeError when the service refuses it. Then no stream begins.
 */
export async function streamEvents(
  caller: Caller,
  params: StreamParams,
  { id, notify }: StreamTo,
  heartbeat_ms = HEARTBEAT_MS,
) {
  const wanted = wantedOf(params);
  const _meta = { 'io.modelcontextprotocol/subscriptionId': id };
  const send = async (kind: string, about: object): Promise<void> => {
    await caller.hasRoom();
    await notify({ method: `notifications/events/${kind}`, params: { ...about, _meta } });
  };
  const { cursor = null, maxAgeMs } = params;
  const oldest_ms = maxAgeMs === undefined ? 0 : wallNow() - maxAgeMs;
  const ended = new AbortController();
  const signal = AbortSignal.any([caller.signal, ended.signal]);
  // The feed is open before the first page is read, so that no message falls between the two.
  const news = await MeetingNews.follow(caller, wanted.meeting_id, signal);
  let is_open = false;
  try {
    let seq = cursor === null ? await newestSeq(caller, wanted.meeting_id) : Number(cursor);
    while (!signal.aborted) {
      news.reset();
      const page = await readPage(caller, wanted, seq, { oldest_ms });
      if (!is_open || page.truncated) {
        const from = page.truncated ? (page.events[0]?.seq ?? page.seq + 1) - 1 : seq;
        await send('active', { cursor: String(from), truncated: page.truncated });
        is_open = true;
      }
      for (const { event, seq: after } of page.events) await send('event', { ...event, cursor: String(after) });
      seq = page.seq;
      if (page.has_more || (await news.wait(heartbeat_ms))) continue;
      await send('heartbeat', { cursor: String(seq) });
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
