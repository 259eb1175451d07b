/** Replays events from the store, for a listener that resumes after the memory of events is gone. */
import type { DeliveryReason } from '../domain/delivery.ts';
import type { Attempt } from '../domain/outcome.ts';
import { type FeedEvent, type FeedEventName, STORED_EVENTS } from '../domain/feed_event.ts';
import { endOf, type FeedPosition } from '../domain/feed_position.ts';
import type { DeliveryRow } from '../store/contract/deliveries.ts';
import type { Store } from '../store/store.ts';
import { acceptedEvent, attemptedEvent, settledEvent } from './events.ts';
import { keyOf, textOf } from './memory.ts';
import type { FeedViewer } from './view.ts';

/** The limits of a replay: the most events, and the most bytes of their rows. A page is half a mebibyte at most. */
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
}

/**
 * All stored events after a place in the feed, in order; null when there are too many, or the place is not exact.
 */
export async function replayOf(
  store: Pick<Store, 'messages' | 'deliveries'>,
  from: FeedPosition,
  viewer: FeedViewer,
  now_ms: number,
): Promise<{ events: ReplayedEvent[]; names: FeedEventName[] } | null> {
  if (!from.isExact) return null;
  const messages = await messagesAfter(store, from, viewer);
  if (messages === null) return null;
  const deliveries = await deliveriesChangedAfter(store, from, viewer, now_ms);
  if (deliveries === null) return null;
  const found = [...messages, ...deliveries].toSorted((a, b) => a.at - b.at);
  const position = from;
  const events = found.map(({ event }) => {
    advance(position, event);
    const key = keyOf(event) ?? '';
    return { key, text: textOf(position.textOf(NO_MEMORY, 0), event) };
  });
  return { events, names: [...STORED_EVENTS] };
}

function advance(position: FeedPosition, { name, data }: FeedEvent): void {
  if (name === 'message.accepted') position.accepted(data.message_id);
  else if (name === 'delivery.attempted') position.attempted(data);
  else if (name === 'delivery.settled') position.passed(Date.parse(data.at));
}

async function messagesAfter(
  store: Pick<Store, 'messages'>,
  from: FeedPosition,
  { visibility, meeting_id, instance_id }: FeedViewer,
): Promise<Found[] | null> {
  const meeting_ids = meeting_id === undefined ? visibility?.meeting_ids : [meeting_id];
  if (meeting_ids?.length === 0) return [];
  const { data, has_more } = await store.messages.since(from.message_id, {
    meeting_ids,
    instance_id,
    limit: MESSAGES_MAX,
    chars_max: MESSAGES_CHARS_MAX,
  });
  if (has_more) return null;
  return data.map((head) => ({ at: head.accepted_at, event: acceptedEvent(head, []) }));
}

/** Reads all deliveries, the newest first, because no index finds the deliveries with a late attempt. */
async function deliveriesChangedAfter(
  store: Pick<Store, 'deliveries'>,
  from: FeedPosition,
  { visibility, meeting_id, instance_id }: FeedViewer,
  now_ms: number,
): Promise<Found[] | null> {
  const found: Found[] = [];
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
    if (seen > DELIVERIES_MAX || (has_more && (seen === DELIVERIES_MAX || pages === DELIVERY_PAGES_MAX))) return null;
    for (const row of page.data) found.push(...changesOf(row, from));
  } while (cursor !== undefined);
  return found;
}

function changesOf(row: DeliveryRow, from: FeedPosition): Found[] {
  const found: Found[] = [];
  for (const [i, attempt] of row.attempts.entries()) {
    if (from.wasPublished({ delivery_id: row.delivery_id, ...attempt })) continue;
    const is_last = i === row.attempts.length - 1;
    found.push({
      at: endOf(attempt),
      event: attemptedEvent({ ...row, accepted_at: row.created_at, ...verdictOf(row, attempt, is_last) }, attempt),
    });
  }
  const { instance_id, meeting_id, reason, settled_at } = row;
  if (settled_at !== null && settled_at > from.at && isWithoutAttempt(reason)) {
    const state = reason === 'expired' ? 'failed' : 'cancelled';
    found.push({
      at: settled_at,
      event: settledEvent({ instance_id, meeting_id, state, reason, deliveries: 1 }, settled_at),
    });
  }
  return found;
}

/** The reasons of deliveries that ended without an attempt. */
const WITHOUT_ATTEMPT: ReadonlySet<DeliveryReason> = new Set([
  'expired',
  'instance_deleted',
  'dropped',
  'hop_limit',
  'pair_limit',
]);

function isWithoutAttempt(reason: DeliveryReason | null): reason is DeliveryReason {
  return reason !== null && WITHOUT_ATTEMPT.has(reason);
}

/** The state of the delivery after an attempt. The store has this state only for the last attempt. */
function verdictOf({ state, reason }: DeliveryRow, { outcome }: Attempt, is_last: boolean) {
  const settled_by_it = is_last && reason !== 'expired' && (state === 'delivered' || state === 'failed');
  if (!settled_by_it) return { state: 'pending' as const, reason: null, retry_in_ms: null };
  return { state: outcome === 'ok' ? ('delivered' as const) : state, reason, retry_in_ms: null };
}
