/** The events of the feed for the page Now: counts for the charts, and the latest events for the list. */
import type { FeedEvent as SentEvent } from '@convoke/sdk';
import { feed, type FeedEvent } from './feed.ts';
import { Rates } from './rates.ts';
import { client } from './service.ts';
import { Observable } from './observable.ts';
import { counted, durationInWords, failureInWords } from './format.ts';

const KEPT_EVENTS = 60;
/** Events that arrive close together are drawn together. */
const DRAWN_EVERY_MS = 250;
/** The most messages whose time is remembered until they are delivered. */
const ACCEPTED_MAX = 20_000;

interface ActivityEntry {
  number: number;
  event: FeedEvent;
}

export const rates = new Rates();
export const activity = new Observable<readonly ActivityEntry[]>([]);

/** When each message was accepted, by its id. */
const accepted = new Map<string, number>();
let number = 0;
let waiting: ActivityEntry[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

function remember(message_id: string, accepted_ms: number): void {
  accepted.set(message_id, accepted_ms);
  if (accepted.size > ACCEPTED_MAX) accepted.delete(accepted.keys().next().value as string);
}

/** Follows the feed. */
export function followActivity(): void {
  feed.listen((event) => {
    if (event.sent === null) return;
    count(event.sent);
    if (!isWorthALine(event.sent)) return;
    waiting.push({ number: ++number, event });
    timer ??= setTimeout(draw, DRAWN_EVERY_MS);
  });
}

function count({ name, data }: SentEvent): void {
  if (name === 'message.accepted') {
    const accepted_ms = Date.parse(data.accepted_at);
    remember(data.message_id, accepted_ms);
    rates.count('accepted', accepted_ms);
  } else if (name === 'delivery.attempted' && data.state !== 'pending') {
    const ended_ms = Date.parse(data.started_at) + data.duration_ms;
    const accepted_ms = accepted.get(data.message_id);
    const took_ms = accepted_ms === undefined ? undefined : Math.max(0, ended_ms - accepted_ms);
    rates.count(data.state, ended_ms, data.state === 'delivered' ? took_ms : undefined);
  } else if (name === 'delivery.settled' && data.state === 'failed') {
    rates.count('failed', Date.parse(data.at), undefined, data.deliveries);
  }
}

function isWorthALine({ name }: SentEvent): boolean {
  return name !== 'gap';
}

function draw(): void {
  timer = undefined;
  const events = [...waiting.slice(-KEPT_EVENTS).toReversed(), ...activity.value];
  waiting = [];
  activity.value = events.slice(0, KEPT_EVENTS);
}

/** Counts the deliveries that ended before the page was opened, from the latest deliveries. */
export async function recallActivity(): Promise<void> {
  const since_ms = Date.now();
  const { data, next_cursor } = await client.listDeliveries({ limit: 500 });
  for (const { state, created_at, settled_at, message_id } of data) {
    const accepted_ms = Date.parse(created_at);
    if (accepted_ms < since_ms && !accepted.has(message_id)) rates.count('accepted', accepted_ms);
    remember(message_id, accepted_ms);
    if (settled_at === null || (state !== 'delivered' && state !== 'failed')) continue;
    const settled_ms = Date.parse(settled_at);
    if (settled_ms < since_ms)
      rates.count(state, settled_ms, state === 'delivered' ? settled_ms - accepted_ms : undefined);
  }
  const oldest = data.at(-1);
  // If there are more pages, the oldest second may be incomplete.
  rates.knownSince(next_cursor === null || oldest === undefined ? 0 : Date.parse(oldest.created_at) + 1000);
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
