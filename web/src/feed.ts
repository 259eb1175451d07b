/** The live feed of the service, one for all tabs of the browser. */
import type { ConvokeError, FeedEvent as SentEvent } from '@convoke/sdk';
import { client, noteEnd } from './service.ts';
import { Observable } from './observable.ts';
import { Tabs } from './tabs.ts';

/**
 * An event, with the meeting or the instance that it concerns. `gap`: events are missing, so everything must be read
 * again.
 */
export interface FeedEvent {
  name: SentEvent['name'];
  at: string;
  instance_id?: string | null;
  meeting_id?: string | null;
  delivery_id?: string | null;
  sent: SentEvent | null;
}

/** `off`: nobody is signed in, or only somebody who may see no events. */
export type FeedState = 'off' | 'connecting' | 'live' | 'broken';

/** The message that the tab with the connection sends to the other tabs. */
interface News {
  state: FeedState;
  events: FeedEvent[];
}

/**
 * How soon the page tries again, even after a refusal that looks final: the service may be in the middle of an upgrade.
 */
const REFUSED_MS = 10_000;

class Feed {
  readonly state = new Observable<FeedState>('off');
  readonly #listeners = new Set<(event: FeedEvent) => void>();
  #tabs: Tabs<News> | null = null;
  #last_event_id: string | undefined;
  /** The events that the other tabs do not know yet. */
  #unsent: FeedEvent[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Calls back with every event until the returned function is called. */
  listen(listener: (event: FeedEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** @param whose names the person; only tabs of the same person share a connection */
  start(whose: string): void {
    this.state.value = 'connecting';
    this.#tabs = new Tabs<News>(`convoke.feed ${whose}`, {
      lead: (signal) => this.#lead(signal),
      onNews: (news) => this.#take(news),
      greeting: () => ({ state: this.state.value, events: [] }),
    });
  }

  /** The next session may belong to another person, who must not get the events of this session. */
  stop(): void {
    this.#tabs?.leave();
    this.#tabs = null;
    this.#last_event_id = undefined;
    this.state.value = 'off';
  }

  /** Holds the connection until the signal ends it. */
  async #lead(signal: AbortSignal): Promise<void> {
    // Until another tab leads, nobody follows the feed.
    const pause = (): void => {
      if (this.state.value === 'live') this.#publish('connecting');
      this.#send();
    };
    pause();
    signal.addEventListener('abort', pause);
    while (!signal.aborted) {
      await this.#run(signal).catch(() => {
        if (!signal.aborted) this.#publish('broken');
      });
      await passed(REFUSED_MS, signal);
    }
  }

  async #run(signal: AbortSignal): Promise<void> {
    const onConnection = (state: 'connected' | 'reconnecting', error: ConvokeError | null): void => {
      noteEnd(error?.code ?? null);
      this.#publish(state === 'connected' ? 'live' : 'broken');
    };
    const query = this.#last_event_id === undefined ? {} : { last_event_id: this.#last_event_id };
    for await (const sent of client.events(query, { signal, onConnection })) {
      // The next leader asks for the events that this leader leaves out.
      if (signal.aborted) return;
      this.#publish(this.state.value, eventOf(sent));
    }
  }

  /** Publishes in this tab at once. Events that arrive in the same moment go to the other tabs together. */
  #publish(state: FeedState, ...events: FeedEvent[]): void {
    this.#take({ state, events });
    this.#unsent.push(...events);
    this.#timer ??= setTimeout(() => this.#send(), 0);
  }

  #send(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#tabs?.send({ state: this.state.value, events: this.#unsent });
    this.#unsent = [];
  }

  #take({ state, events }: News): void {
    const is_new = state === 'live' && this.state.value !== 'live';
    this.state.value = state;
    // Data that the page read before the connection was open may have changed since then.
    if (is_new) this.#pass({ name: 'gap', at: '', sent: null });
    for (const event of events) this.#pass(event);
  }

  #pass(event: FeedEvent): void {
    if (event.sent !== null) this.#last_event_id = event.sent.id;
    for (const listener of this.#listeners) listener(event);
  }
}

/** Resolves after a time, or when the signal is aborted. */
function passed(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function eventOf(sent: SentEvent): FeedEvent {
  const data: { at?: string; accepted_at?: string; started_at?: string } & Partial<FeedEvent> = sent.data as object;
  const { instance_id, meeting_id, delivery_id } = data;
  const at = data.at ?? data.accepted_at ?? data.started_at ?? '';
  return { name: sent.name, at, instance_id, meeting_id, delivery_id, sent } as FeedEvent;
}

export const feed = new Feed();
