/** The latest events of the feed, for the list on the page Now. */
import type { Delivery, FeedEvent as SentEvent, Session } from '@convoke/sdk';
import { feed, type FeedEvent } from './feed.ts';
import { Observable } from './observable.ts';
import { errorOf } from './queries.ts';
import { client, session } from './service.ts';
import { counted, durationInWords, failureInWords } from './format.ts';

const KEPT_EVENTS = 60;
/** Events that arrive close together are drawn together. */
const DRAWN_EVERY_MS = 250;
/** The pause before a service that did not respond is asked again. */
const AGAIN_MS = 2000;

interface ActivityEntry {
  number: number;
  event: FeedEvent;
}

export const activity = new Observable<readonly ActivityEntry[]>([]);
/** Whether the attempts from before this session are in the list. Until then, an empty list may be incomplete. */
export const is_recalled = new Observable(false);

let number = 0;
let waiting: ActivityEntry[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

export function followActivity(): void {
  feed.listen((event) => {
    if (event.sent === null || event.sent.name === 'gap') return;
    waiting.push({ number: ++number, event });
    timer ??= setTimeout(draw, DRAWN_EVERY_MS);
  });
}

function draw(): void {
  timer = undefined;
  const events = [...waiting.slice(-KEPT_EVENTS).toReversed(), ...activity.value];
  waiting = [];
  activity.value = events.slice(0, KEPT_EVENTS);
}

/**
 * Begins the list with the latest attempts, so that the list is not empty after a reload. Removes earlier entries: they
 * are from the previous session, perhaps that of another person.
 */
export async function recallActivity(): Promise<void> {
  const whose = session.value;
  waiting = [];
  activity.value = [];
  is_recalled.value = false;
  const data = await latestDeliveries(whose);
  if (session.value !== whose) return;
  // The feed may have brought some of these deliveries meanwhile.
  const known = new Set([...waiting, ...activity.value].map(({ event }) => event.delivery_id));
  const events = data.map(latestOf).filter((event) => event !== null && !known.has(event.delivery_id)) as FeedEvent[];
  const entries = events.toSorted((a, b) => (a.at < b.at ? 1 : -1)).map((event) => ({ number: ++number, event }));
  activity.value = [...activity.value, ...entries].slice(0, KEPT_EVENTS);
  is_recalled.value = true;
}

/** Asks until the service responds, or until the session is another one. Returns no deliveries after a refusal. */
async function latestDeliveries(whose: Session | null): Promise<Delivery[]> {
  while (session.value === whose) {
    try {
      return (await client.listDeliveries({ limit: KEPT_EVENTS })).data;
    } catch (error) {
      const { status } = errorOf(error);
      if (status !== null && status < 500) return [];
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
  return [];
}

/** The latest attempt of a delivery as an event; null before the first. */
function latestOf(delivery: Delivery): FeedEvent | null {
  const { delivery_id, message_id, meeting_id, seq, instance_id, state, reason, next_attempt_at, last_attempt } =
    delivery;
  if (last_attempt === null || state === 'cancelled') return null;
  const of = { delivery_id, message_id, meeting_id, seq, instance_id, state, reason };
  const { response_excerpt: _, answered_agents: __, ...attempt } = last_attempt;
  // A time that has passed does not say when the next attempt is: the delivery waits for its turn, or for its instance.
  const left_ms = next_attempt_at === null ? 0 : Date.parse(next_attempt_at) - Date.now();
  const retry_in_ms = left_ms > 0 ? left_ms : null;
  const sent: SentEvent = { name: 'delivery.attempted', data: { ...of, ...attempt, retry_in_ms }, id: '' };
  return { name: sent.name, at: attempt.started_at, instance_id, meeting_id, delivery_id, sent };
}

/** An event in words. */
export function sentenceOf({ name, data }: SentEvent): string {
  switch (name) {
    case 'message.accepted':
      return `${data.meeting_id} #${data.seq} for ${counted(data.deliveries_queued, 'instance')}`;
    case 'delivery.attempted': {
      const what = `${data.meeting_id} #${data.seq} to ${data.instance_id}`;
      if (data.state === 'delivered') return `${what} delivered`;
      const again = data.retry_in_ms === null ? '' : `, again in ${durationInWords(data.retry_in_ms)}`;
      return `${what}: ${failureInWords(data)}${again}`;
    }
    case 'delivery.settled':
      return `${counted(data.deliveries, 'delivery', 'deliveries')} to ${data.instance_id} ${data.state}`;
    case 'delivery.queued':
      return `${counted(data.deliveries, 'delivery', 'deliveries')} to ${data.instance_id} queued again`;
    case 'instance.registered':
      return `${data.instance_id} ${data.created ? 'registered' : 'registered again'}`;
    case 'instance.changed':
      return `${data.instance_id} changed: ${data.fields.join(', ')}`;
    case 'instance.connected':
      return `${data.instance_id} pulls${data.address === null ? '' : ` from ${data.address}`}`;
    case 'instance.disconnected':
      return `${data.instance_id} no longer pulls`;
    case 'instance.removed':
      return `${data.instance_id} deleted`;
    case 'instance.joined':
      return `${data.instance_id} joined ${data.meeting_id}`;
    case 'instance.left':
      return `${data.instance_id} left ${data.meeting_id}`;
    case 'membership.changed':
      return `${data.instance_id} changed in ${data.meeting_id}: ${data.fields.join(', ')}`;
    case 'meeting.changed':
      return `${data.meeting_id} ${data.paused ? 'is paused' : 'goes on'}`;
    case 'instance.up':
    case 'instance.failing':
    case 'instance.down':
      return `${data.instance_id} is ${data.health}`;
    case 'gap':
      return 'some events are missing';
  }
}
