/**
 * The live feed: publishes events as they happen (GET /api/v1/events/).
 *
 * While nobody listens, the feed costs nothing: `is_active` is false, and publishers make no object. Otherwise each
 * event becomes text once, in a memory of the last events that all listeners share. A listener has a position in that
 * memory, and gets the next events when its connection takes more. So a slow listener needs no memory of its own. A
 * listener that falls too far behind is disconnected, and resumes with the id of the last event it has seen. The memory
 * stays for two minutes after the last listener has left.
 */
import { randomBytes } from 'node:crypto';
import type { Clock, Timer } from '../delivery/clock.ts';
import type { FeedData, FeedEvent } from '../domain/feed_event.ts';
import { FeedPosition } from '../domain/feed_position.ts';
import { Problem } from '../domain/problem.ts';
import type { Store } from '../store/store.ts';
import { FeedListener, type FeedSink, type Revocable } from './listener.ts';
import { FeedMemory } from './memory.ts';
import { type ReplayedEvent, replayOf } from './replay.ts';
import { FeedRelay, type BroadcastToNodes } from './relay.ts';
import { FeedView, type FeedViewer } from './view.ts';

/** How long events wait for further events, to be sent together. */
const LINGER_MS = 20;
/** How often listeners are checked, and how often a silent connection gets a comment. */
const TICK_MS = 500;
const HEARTBEAT_MS = 15_000;
/**
 * How long the memory stays after the last listener has left: the listener may have lost its connection, and return.
 */
const MEMORY_KEPT_MS = 120_000;
/**
 * An event that a replay has read from the store may also be published live, but only within this time. The listener
 * skips the live event.
 */
const SKIPPED_MS = 10_000;
/** How long after a stop the connection of a listener that does not read stays open. */
const LAST_WORD_MS = 250;
const RETRY_AFTER_S = 5;

export interface FeedParts {
  clock: Clock;
  store: Pick<Store, 'messages' | 'deliveries' | 'instances'>;
  /** The most listeners at a time. */
  listeners_max: number;
  /** Resolves when the attempts published so far are in the store. */
  written: () => Promise<void>;
  onError: (error: unknown) => void;
}

/** A request for the feed: its filters, and the event after which it continues. */
export interface FeedRequest {
  viewer: FeedViewer;
  /** The id of the last event seen; null: from now on. */
  last_event_id: string | null;
  /** The right to the feed. When the right is no longer valid, the feed ends. */
  standing: Revocable;
}

export class Feed {
  /** Whether there may be a listener, here or on another node. Publishers check this before they make an event. */
  is_active = false;
  readonly #parts: FeedParts;
  readonly #listeners = new Set<FeedListener>();
  /** Listeners that are being opened and are not in `#listeners` yet; they count against the limit. */
  #opening = 0;
  #memory: FeedMemory | null = null;
  /** When the memory was made. */
  #memory_since = 0;
  #memory_until: number | null = null;
  #flush_scheduled = false;
  #tick: Timer | null = null;
  #relay: FeedRelay | null = null;
  #is_stopped = false;

  constructor(parts: FeedParts) {
    this.#parts = parts;
  }

  /** The number of listeners. */
  get listeners(): number {
    return this.#listeners.size;
  }

  /** Connects this feed with the feeds of the other nodes. */
  joinNodes(broadcast: BroadcastToNodes): void {
    this.#relay = new FeedRelay(this.#parts.clock, broadcast, {
      listening_since: () => (this.#memory === null ? null : this.#memory_since),
      onEvent: (event) => this.#put(event),
      onLost: () => this.#putGap(),
      onAsked: () => this.#look(),
    });
  }

  /** Takes a broadcast of another node. */
  onBroadcast(topic: string, text: string): void {
    this.#relay?.onBroadcast(topic, text);
  }

  /** Lets the other nodes say at once whether they have listeners. Call it when this node gets their broadcasts. */
  seekListeners(): void {
    this.#relay?.seekListeners();
  }

  /** Broadcasts of other nodes may be missing: their events, and that they have listeners. */
  onResync(): void {
    this.#putGap();
    this.seekListeners();
  }

  /** Publishes an event of this node, also to the other nodes with a listener. */
  publish(event: FeedEvent): void {
    if (!this.is_active) return;
    this.#relay?.pass(event);
    this.#put(event);
  }

  #put(event: FeedEvent): void {
    if (this.#memory === null) return;
    this.#memory.put(event);
    if (this.#flush_scheduled || this.#listeners.size === 0) return;
    this.#flush_scheduled = true;
    this.#parts.clock.after(LINGER_MS, () => {
      this.#flush_scheduled = false;
      for (const listener of this.#listeners) listener.serve();
    });
  }

  #putGap(): void {
    const since = new Date(this.#parts.clock.wall()).toISOString();
    const data: FeedData['gap'] = { since, replayed: [] };
    this.#put({ name: 'gap', data, about: { kind: 'everybody', meeting_id: null, instance_ids: [] } });
  }

  /**
   * Makes a place for a listener; no event is sent before `begin`.
   *
   * @throws Problem `overloaded` when there are `listeners_max` listeners already; `shutting_down`; and the code for a
   * key or a session that ended meanwhile
   */
  async open({ viewer, last_event_id, standing }: FeedRequest): Promise<OpenedFeed> {
    if (this.#is_stopped) throw new Problem('shutting_down', undefined, { retry_after_s: RETRY_AFTER_S });
    const is_full = this.#listeners.size + this.#opening >= this.#parts.listeners_max;
    if (is_full && !this.#makeRoomFor(standing.principal.key_id)) {
      throw new Problem('overloaded', 'The live feed has the most listeners that CONVOKE_MAX_FEED_LISTENERS permits.', {
        retry_after_s: RETRY_AFTER_S,
      });
    }
    this.#opening++;
    let listener: FeedListener | null = null;
    try {
      const memory = await this.#remember();
      const view = new FeedView(viewer, this.#parts);
      // From here on no event is missed, because the memory keeps the events that happen during the reads below.
      listener = new FeedListener({ memory, view, clock: this.#parts.clock, standing });
      this.#listeners.add(listener);
      this.#opening--;
      await view.load(memory);
      const beginning = await this.#beginningOf(listener, memory, viewer, last_event_id);
      if (this.#is_stopped) throw new Problem('shutting_down', undefined, { retry_after_s: RETRY_AFTER_S });
      if (listener.endedBy !== null) throw new Problem(listener.endedBy);
      return new OpenedFeed(this, listener, beginning);
    } catch (error) {
      if (listener === null) this.#opening--;
      else this.leave(listener);
      throw error;
    }
  }

  /**
   * When another key has at least two listeners more than the key that asks, the latest listener of that other key
   * gives up its place. Otherwise one key could keep all other keys from the feed.
   */
  #makeRoomFor(key_id: string | null): boolean {
    const by_key = Map.groupBy(this.#listeners, (listener) => listener.key_id);
    const own = by_key.get(key_id)?.length ?? 0;
    const most = [...by_key.values()].reduce((a, b) => (b.length > a.length ? b : a), []);
    const last = most.length < own + 2 ? undefined : most.findLast(({ hasBegun }) => hasBegun);
    if (last === undefined) return false;
    last.giveUpPlace();
    this.leave(last);
    return true;
  }

  async #beginningOf(
    listener: FeedListener,
    memory: FeedMemory,
    viewer: FeedViewer,
    last_event_id: string | null,
  ): Promise<Beginning> {
    const here = memory.last_id;
    if (last_event_id === null) return { replayed: [], gap: null, id: here };
    const parsed = FeedPosition.parse(last_event_id);
    if (parsed !== null && parsed.memory === memory.name && memory.holdsAfter(parsed.number)) {
      listener.goBackTo(parsed.number);
      return { replayed: [], gap: null, id: null };
    }
    const since = parsed === null ? null : new Date(parsed.position.at).toISOString();
    const nothing: Beginning = { replayed: [], gap: { since, replayed: [] }, id: here };
    // Several nodes publish messages in another order than that of their numbers. So the id of an event does not show
    // which messages were published before it, and a replay could leave some out.
    if (parsed === null || this.#relay !== null) return nothing;
    const { store, clock, written } = this.#parts;
    // Somebody has set the wall clock back. Attempts since then have ended before the place, by their times, and a
    // replay would take them for published.
    if (clock.wall() < parsed.position.at) return nothing;
    await written();
    const replay = await replayOf(store, parsed.position, viewer, clock.now());
    if (replay === null) return nothing;
    listener.skip(new Set(replay.events.map(({ key }) => key)), clock.now() + SKIPPED_MS);
    return { replayed: replay.events, gap: { since, replayed: replay.names }, id: here };
  }

  /** The memory of events; made when there is none. */
  async #remember(): Promise<FeedMemory> {
    if (this.#memory === null) {
      const { clock, store } = this.#parts;
      const last = await store.messages.last();
      // Another call may have made the memory while this call waited.
      if (this.#memory === null) {
        this.#memory = new FeedMemory(nameOfMemory(), new FeedPosition(last, clock.wall()));
        this.#memory_since = clock.now();
      }
    }
    this.#memory_until = null;
    this.#look();
    this.#tick ??= this.#parts.clock.after(TICK_MS, () => this.#onTick());
    this.#relay?.ask();
    return this.#memory;
  }

  leave(listener: FeedListener): void {
    if (!this.#listeners.delete(listener) || this.#listeners.size > 0) return;
    this.#memory_until = this.#parts.clock.now() + MEMORY_KEPT_MS;
  }

  /** Ends the feeds whose key or session has ended. */
  endRevoked(): void {
    for (const listener of this.#listeners) {
      const code = listener.standing.revocationReason();
      if (code === null) continue;
      listener.endStanding(code);
      this.leave(listener);
    }
  }

  #onTick(): void {
    this.#tick = null;
    const now = this.#parts.clock.now();
    this.endRevoked();
    for (const listener of this.#listeners) {
      if (now - listener.written_at >= HEARTBEAT_MS) listener.heartbeat();
      listener.forgetSkipped(now);
      // At most once a tick: a node with too many events makes a gap many times in a second.
      void listener.refresh();
    }
    this.#relay?.tick();
    if (this.#memory_until !== null && now >= this.#memory_until && this.#opening === 0) {
      this.#memory = null;
      this.#memory_until = null;
    }
    this.#look();
    if (this.#is_stopped || !(this.is_active || this.#memory !== null)) return;
    this.#tick ??= this.#parts.clock.after(TICK_MS, () => this.#onTick());
  }

  #look(): void {
    this.is_active = this.#memory !== null || this.#relay?.is_asked === true;
    if (this.is_active && !this.#is_stopped) this.#tick ??= this.#parts.clock.after(TICK_MS, () => this.#onTick());
  }

  /** Ends all feeds at once, and opens no new feeds. */
  stop(): void {
    this.#is_stopped = true;
    for (const listener of this.#listeners) listener.end('end', { code: 'shutting_down' }, LAST_WORD_MS);
    this.#listeners.clear();
    this.#memory = null;
    this.is_active = false;
    this.#tick?.cancel();
    this.#relay?.stop();
  }
}

/** The events that a listener gets before the live events. */
interface Beginning {
  /** The events that were read from the store. */
  replayed: readonly ReplayedEvent[];
  gap: FeedData['gap'] | null;
  /** The id to resume with if no more events follow; null when the listener already has it. */
  id: string | null;
}

/** A place for a listener whose response has not begun. */
export class OpenedFeed {
  readonly #feed: Feed;
  readonly #listener: FeedListener;
  readonly #beginning: Beginning;

  constructor(feed: Feed, listener: FeedListener, beginning: Beginning) {
    this.#feed = feed;
    this.#listener = listener;
    this.#beginning = beginning;
  }

  /** Gives the place back, because the client no longer waits for the response. */
  giveUp(): void {
    this.#feed.leave(this.#listener);
  }

  /** Begins to send events. When the connection closes, the listener leaves the feed. */
  begin(sink: FeedSink): void {
    const { replayed, gap, id } = this.#beginning;
    const texts = replayed.map(({ text }) => text);
    if (gap !== null) texts.push(`id: ${id}\nevent: gap\ndata: ${JSON.stringify(gap)}\n\n`);
    else if (id !== null) texts.push(`id: ${id}\n\n`);
    sink.onClose(() => this.#feed.leave(this.#listener));
    this.#listener.begin(sink, texts);
  }
}

function nameOfMemory(): string {
  return randomBytes(4).readUInt32BE().toString(36);
}
