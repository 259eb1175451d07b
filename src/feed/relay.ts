/**
 * The live feed over several nodes. A node with a listener broadcasts from time to time that it has a listener. The
 * nodes that got this broadcast in the last 15 s broadcast their events, several in one text. A node that has too many
 * events drops some and broadcasts `lost`.
 *
 * A node that begins to broadcast its events says so. It may have dropped events before, because it has just started,
 * or because it did not get the broadcasts of the listeners for a while. So for everybody who listened before, events
 * are missing.
 */
import type { Clock, Timer } from '../delivery/clock.ts';
import { type FeedEvent, feedEventsIn } from '../domain/feed_event.ts';
import { packedTexts } from '../domain/packed_texts.ts';
import { BROADCAST_BYTES_MAX } from '../store/contract/cluster.ts';

/** Broadcasts a text of at most BROADCAST_BYTES_MAX to all other nodes. */
export type BroadcastToNodes = (topic: string, text: string) => Promise<void>;

const ASKING = 'feed.ask';
const EVENTS = 'feed.events';
const LOST = 'lost';
const BEGUN = 'feed.begun';
/** A node asks the other nodes whether they have listeners. */
const SEEKING = 'feed.seek';

const ASK_EVERY_MS = 5_000;
const ASKED_FOR_MS = 15_000;
const LINGER_MS = 50;
/**
 * The other nodes begin to broadcast their events when somebody begins to listen here. During this time, such a
 * beginning does not count as a loss.
 */
const BEGINNING_MS = 1_000;
/** The most bytes of events that wait to be broadcast. Further events are lost. */
const BYTES_MAX = 256 << 10;

/** The most bytes of one event: with the two brackets of a list around it, it still fits into one broadcast. */
const EVENT_BYTES_MAX = BROADCAST_BYTES_MAX - 2;

interface RelayParts {
  /** Since when somebody listens to this node, on the steady clock; null: nobody listens. */
  listening_since: () => number | null;
  /** An event of another node. */
  onEvent: (event: FeedEvent) => void;
  /** Events of another node are missing. */
  onLost: () => void;
  /** Another node has a listener. */
  onAsked: () => void;
}

export class FeedRelay {
  readonly #clock: Clock;
  readonly #broadcast: BroadcastToNodes;
  readonly #parts: RelayParts;
  #asked_until = 0;
  #ask_at = 0;
  #texts: string[] = [];
  #bytes = 0;
  #has_lost = false;
  /** Whether this node has begun to broadcast its events, and no other node knows it yet. */
  #has_begun = false;
  #timer: Timer | null = null;
  #is_flushing = false;
  #is_stopped = false;

  constructor(clock: Clock, broadcast: BroadcastToNodes, parts: RelayParts) {
    this.#clock = clock;
    this.#broadcast = broadcast;
    this.#parts = parts;
  }

  get is_asked(): boolean {
    return this.#clock.now() < this.#asked_until;
  }

  /** Asks the other nodes for their events, because somebody begins to listen here. */
  ask(): void {
    this.#ask_at = this.#clock.now() + ASK_EVERY_MS;
    // When the request gets lost, `tick` repeats it.
    this.#broadcast(ASKING, '').catch(() => {});
  }

  /** Lets the other nodes ask at once, because their requests may not have reached this node. */
  seekListeners(): void {
    // When this broadcast gets lost, the next request comes within 5 s.
    this.#broadcast(SEEKING, '').catch(() => {});
  }

  tick(): void {
    if (this.#parts.listening_since() !== null && this.#clock.now() >= this.#ask_at) this.ask();
  }

  onBroadcast(topic: string, text: string): void {
    if (topic === ASKING) return this.#onAsked();
    const since = this.#parts.listening_since();
    if (since === null) return;
    if (topic === SEEKING) this.ask();
    else if (topic === BEGUN && this.#clock.now() >= since + BEGINNING_MS) this.#parts.onLost();
    else if (topic === EVENTS && text === LOST) this.#parts.onLost();
    else if (topic === EVENTS) for (const event of feedEventsIn(text)) this.#parts.onEvent(event);
  }

  #onAsked(): void {
    if (!this.is_asked) {
      this.#has_begun = true;
      this.#schedule();
    }
    this.#asked_until = this.#clock.now() + ASKED_FOR_MS;
    this.#parts.onAsked();
  }

  /** Broadcasts an event of this node, if another node has asked for events. */
  pass(event: FeedEvent): void {
    if (!this.is_asked) return;
    const text = JSON.stringify(event);
    if (Buffer.byteLength(text) <= EVENT_BYTES_MAX) this.#add(text);
    else if (event.name === 'message.accepted') {
      for (const part of withoutRecipients(event)) this.#add(JSON.stringify(part));
    } else this.#has_lost = true;
    this.#schedule();
  }

  #add(text: string): void {
    const bytes = Buffer.byteLength(text);
    if (bytes > EVENT_BYTES_MAX || this.#bytes + bytes > BYTES_MAX) this.#has_lost = true;
    else {
      this.#texts.push(text);
      this.#bytes += bytes;
    }
  }

  #schedule(): void {
    if (this.#is_flushing || this.#is_stopped) return;
    this.#timer ??= this.#clock.after(LINGER_MS, () => void this.#flush());
  }

  async #flush(): Promise<void> {
    this.#timer = null;
    this.#is_flushing = true;
    const texts = this.#texts;
    const has_lost = this.#has_lost;
    const has_begun = this.#has_begun;
    this.#texts = [];
    this.#bytes = 0;
    this.#has_lost = false;
    this.#has_begun = false;
    try {
      if (has_begun) await this.#broadcast(BEGUN, '');
      for (const text of packedTexts(texts, BROADCAST_BYTES_MAX)) await this.#broadcast(EVENTS, text);
      if (has_lost) await this.#broadcast(EVENTS, LOST);
    } catch {
      this.#has_lost = true;
    }
    this.#is_flushing = false;
    if (this.#texts.length > 0 || this.#has_lost || this.#has_begun) this.#schedule();
  }

  stop(): void {
    this.#is_stopped = true;
    this.#timer?.cancel();
  }
}

/**
 * The event for a message to many instances, without their ids: with them, the event would not fit into a broadcast.
 * Only listeners that asked for one instance need the ids, so these listeners get a gap too.
 */
function withoutRecipients({ about, ...event }: FeedEvent & { name: 'message.accepted' }): FeedEvent[] {
  const gap: FeedEvent = {
    name: 'gap',
    data: { since: event.data.accepted_at, replayed: [] },
    about: { ...about, kind: 'of_an_instance', instance_ids: [] },
  };
  return [{ ...event, about: { ...about, instance_ids: [] } }, gap];
}
