import { wallNow } from '../../wall_clock.ts';
import type { Caller } from '../caller.ts';
import { type PollParams, wantedOf } from './event_types.ts';
import { newestSeq, readPage } from './pages.ts';

/** How long a client waits until it asks again. */
const NEXT_POLL_MS = 5_000;

/**
 * The events after a cursor.
 *
 * @throws ProtocolError; ConvokeError when the service refuses the call
 */
export async function pollEvents(caller: Caller, params: PollParams) {
  const wanted = wantedOf(params);
  const { cursor = null, maxAgeMs, maxEvents } = params;
  const about = { resultType: 'complete', nextPollMs: NEXT_POLL_MS };
  if (cursor === null) {
    const seq = await newestSeq(caller, wanted.meeting_id);
    return { ...about, events: [], cursor: String(seq), truncated: false, hasMore: false };
  }
  const page = await readPage(caller, wanted, Number(cursor), {
    ...(maxEvents !== undefined && { max: maxEvents }),
    ...(maxAgeMs !== undefined && { oldest_ms: wallNow() - maxAgeMs }),
  });
  return {
    ...about,
    events: page.events.map(({ event }) => event),
    cursor: String(page.seq),
    truncated: page.truncated,
    hasMore: page.has_more,
  };
}
