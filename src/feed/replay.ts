/** Replays events from the store, for a listener that resumes after the memory of events is gone. */
import type { Attempt } from '../domain/outcome.ts';
import { type FeedEvent, type FeedEventName, STORED_EVENTS } from '../domain/feed_event.ts';
import { endOf, type FeedPosition } from '../domain/feed_position.ts';
import type { DeliveryRow } from '../store/contract/deliveries.ts';
import type { Store } from '../store/store.ts';
import { acceptedEvent, attemptedEvent, settledEvent } from './events.ts';
import { framed, keyOf } from './memory.ts';
import type { FeedViewer } from './view.ts';

/**
 * The limits of a replay: the most rows, the most characters of the messages, and the most characters of the events.
 * Each listener holds its events until its client has read them. A page of deliveries is half a mebibyte at most.
 * MESSAGES_SCAN also counts the messages that the listener does not get: other calls of the store wait some 5 ms for
 * them.
 */
const CHARS_MAX = 2 << 20;
const MESSAGES_SCAN = 20_000;
const MESSAGES_MAX = 2_000;
const MESSAGES_CHARS_MAX = 4 << 20;
const DELIVERIES_MAX = 5_000;
const DELIVERIES_PAGE = 500;
const DELIVERY_PAGES_MAX = 20;

/**
 * Stands in the id of a replayed event where other ids have the name of a memory. A listener that resumes with such an
 * id finds no memory, and gets a replay from the store.
 */
const NO_MEMORY = '0';

export interface ReplayedEvent {
  key: string;
  text: string;
}

interface Found {
  at: number;
  event: FeedEvent;
  /** The data of the event as JSON. */
  data: string;
}

/** The events of a replay, in any order. */
class FoundEvents {
  readonly #found: Found[] = [];
  #chars = 0;

  add(at: number, event: FeedEvent): void {
    const data = JSON.stringify(event.data);
    this.#chars += data.length;
    this.#found.push({ at, event, data });
  }

  get isTooLong(): boolean {
    return this.#chars > CHARS_MAX;
  }

  inOrder(): Found[] {
    return this.#found.toSorted((a, b) => a.at - b.at);
  }
}

/**
 * All stored events after a place in the feed, in order; null when there are too many, or the store cannot find the
 * place.
 */
export async function replayOf(
  store: Pick<Store, 'messages' | 'deliveries'>,
  from: FeedPosition,
  viewer: FeedViewer,
  now_ms: number,
): Promise<{ events: ReplayedEvent[]; names: FeedEventName[] } | null> {
  if (!from.isExact) return null;
  const found = new FoundEvents();
  if (!(await addMessagesAfter(found, store, from, viewer))) return null;
  if (!(await addDeliveriesChangedAfter(found, store, from, viewer, now_ms))) return null;
  const position = from;
  const events = found.inOrder().map(({ event, data }) => {
    advance(position, event);
    const key = keyOf(event) ?? '';
    return { key, text: framed(position.textOf(NO_MEMORY, 0), event.name, data) };
  });
  return { events, names: [...STORED_EVENTS] };
}

function advance(position: FeedPosition, { name, data }: FeedEvent): void {
  if (name === 'message.accepted') position.accepted(data.message_id);
  else if (name === 'delivery.attempted') position.attempted(data);
  else if (name === 'delivery.settled') position.passed(Date.parse(data.at));
}

/** @returns whether all messages were added */
async function addMessagesAfter(
  found: FoundEvents,
  store: Pick<Store, 'messages'>,
  from: FeedPosition,
  { visibility, meeting_id, instance_id }: FeedViewer,
): Promise<boolean> {
  const visible = visibility?.meeting_ids;
  const asked = meeting_id === undefined ? visible : [meeting_id];
  const meeting_ids = visible === undefined ? asked : asked?.filter((each) => visible.includes(each));
  if (meeting_ids?.length === 0) return true;
  const { data, has_more } = await store.messages.since(from.message_id, {
    meeting_ids,
    instance_id,
    scan: MESSAGES_SCAN,
    limit: MESSAGES_MAX,
    chars_max: MESSAGES_CHARS_MAX,
  });
  for (const head of data) found.add(head.accepted_at, acceptedEvent(head, []));
  return !has_more && !found.isTooLong;
}

/**
 * Reads all deliveries, the newest first, because no index finds the deliveries with an attempt after `from`.
 *
 * @returns whether all changes were added
 */
async function addDeliveriesChangedAfter(
  found: FoundEvents,
  store: Pick<Store, 'deliveries'>,
  from: FeedPosition,
  { visibility, meeting_id, instance_id }: FeedViewer,
  now_ms: number,
): Promise<boolean> {
  let seen = 0;
  let pages = 0;
  let cursor: string | undefined;
  do {
    const filter = { meeting_id, instance_id, limit: DELIVERIES_PAGE, cursor };
    const page = await store.deliveries.list(filter, now_ms, visibility);
    seen += page.data.length;
    cursor = page.next_cursor ?? undefined;
    pages++;
    const has_more = cursor !== undefined;
    if (seen > DELIVERIES_MAX || (has_more && (seen === DELIVERIES_MAX || pages === DELIVERY_PAGES_MAX))) return false;
    for (const row of page.data) addChangesOf(row, found, from);
    if (found.isTooLong) return false;
  } while (cursor !== undefined);
  return true;
}

function addChangesOf(row: DeliveryRow, found: FoundEvents, from: FeedPosition): void {
  for (const [i, attempt] of row.attempts.entries()) {
    if (from.wasPublished({ delivery_id: row.delivery_id, ...attempt })) continue;
    const is_last = i === row.attempts.length - 1;
    const attempted = { ...row, accepted_at: row.created_at, ...shownVerdictOf(row, attempt, is_last) };
    found.add(endOf(attempt), attemptedEvent(attempted, attempt));
  }
  const { instance_id, meeting_id, reason, settled_at } = row;
  if (settled_at === null || settled_at <= from.at || reason === null) return;
  // All other settled deliveries ended with an attempt, whose event says how.
  if (row.state === 'cancelled' || reason === 'expired') {
    const state = reason === 'expired' ? 'failed' : 'cancelled';
    found.add(settled_at, settledEvent({ instance_id, meeting_id, state, reason, deliveries: 1 }, settled_at));
  }
}

/** The state of the delivery after an attempt. The store shows it only for the last attempt: before, it was pending. */
function shownVerdictOf({ state, reason }: DeliveryRow, { outcome }: Attempt, is_last: boolean) {
  const settled_by_it = is_last && reason !== 'expired' && (state === 'delivered' || state === 'failed');
  if (!settled_by_it) return { state: 'pending' as const, reason: null, retry_in_ms: null };
  return { state: outcome === 'ok' ? ('delivered' as const) : state, reason, retry_in_ms: null };
}
