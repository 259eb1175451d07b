/** What the feed told, for the page Now: counted for the charts, and the latest kept to be read. */
import { client } from './service.ts';
import { feed, type FeedEvent } from './feed.ts';
import { Rates } from './rates.ts';
import { Watched } from './watched.ts';

const KEPT_EVENTS = 60;
/** The events of a busy second are drawn together. */
const DRAWN_EVERY_MS = 250;

export const rates = new Rates();
export const happened = new Watched<readonly { number: number; event: FeedEvent }[]>([]);

let number = 0;
let waiting: { number: number; event: FeedEvent }[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

/** Follows the feed, and fills the charts with what is on record of the time before. */
export function watchWhatHappens(): void {
  feed.listen((event) => {
    if (event.type === 'gap') return;
    const at_ms = Date.parse(event.at);
    if (event.type === 'message.accepted') rates.count('accepted', at_ms);
    if (event.type === 'delivery.settled' && event.state === 'delivered') {
      rates.count('delivered', at_ms, Math.max(0, at_ms - Date.parse(event.accepted_at ?? event.at)));
    }
    if (event.type === 'delivery.settled' && event.state === 'failed') rates.count('failed', at_ms);
    // Each attempt is in its settlement as well, unless it is tried again: that is worth a line.
    if (event.type === 'delivery.attempted' && event.state !== 'pending') return;
    waiting.push({ number: ++number, event });
    timer ??= setTimeout(draw, DRAWN_EVERY_MS);
  });
}

function draw(): void {
  timer = undefined;
  const events = [...waiting.slice(-KEPT_EVENTS).toReversed(), ...happened.value];
  waiting = [];
  happened.value = events.slice(0, KEPT_EVENTS);
}

/** What was delivered and failed before the page was opened, from the latest deliveries. */
export async function recallWhatHappened(): Promise<void> {
  const { data, next_cursor } = await client.listDeliveries({ limit: 500 });
  const oldest = data.at(-1);
  const messages = new Set<string>();
  for (const { state, created_at, settled_at, message_id } of data) {
    const accepted_ms = Date.parse(created_at);
    if (!messages.has(message_id)) rates.count('accepted', accepted_ms);
    messages.add(message_id);
    if (settled_at === null || (state !== 'delivered' && state !== 'failed')) continue;
    const settled_ms = Date.parse(settled_at);
    rates.count(state, settled_ms, state === 'delivered' ? settled_ms - accepted_ms : undefined);
  }
  // When there are more, the oldest moment may be there in part only.
  rates.knownSince(next_cursor === null ? 0 : Date.parse(oldest?.created_at ?? '') + 1000);
  rates.changed.value += 1;
}

/** An event in words. */
export function sentenceOf(event: FeedEvent): string {
  const { type, meeting_id, instance_id, seq, state } = event;
  const message = `${meeting_id} #${seq}`;
  switch (type) {
    case 'message.accepted':
      return `${message} accepted`;
    case 'delivery.attempted':
      return `${message} to ${instance_id}: attempt failed, tried again later`;
    case 'delivery.settled':
      return `${message} to ${instance_id}: ${state}`;
    case 'instance.registered':
      return `${instance_id} registered`;
    case 'instance.changed':
      return `${instance_id} changed`;
    case 'instance.removed':
      return `${instance_id} deleted`;
    case 'instance.joined':
      return `${instance_id} joined ${meeting_id}`;
    case 'instance.left':
      return `${instance_id} left ${meeting_id}`;
    case 'instance.up':
      return `${instance_id} is up`;
    case 'instance.failing':
      return `${instance_id} is failing`;
    case 'instance.down':
      return `${instance_id} is down`;
    default:
      return type;
  }
}
