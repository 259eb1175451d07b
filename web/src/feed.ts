/** The live feed of the service, one for the whole page. */
import type { FeedEvent as SentEvent } from '@convoke/sdk';
import { client } from './service.ts';
import { Observable } from './observable.ts';

/** An event, and whom or what it concerns. `gap`: events are missing, so everything must be read again. */
export interface FeedEvent {
  name: SentEvent['name'];
  at: string;
  instance_id?: string | null;
  meeting_id?: string | null;
  delivery_id?: string | null;
  sent: SentEvent | null;
}

export type FeedState = 'connecting' | 'live' | 'broken';

/** A page in the background closes its connection after this time, because a browser opens only a few to one host. */
const HIDDEN_MS_MAX = 20_000;
/** How soon it tries again after a refusal that looks final, because the service may be in the middle of an upgrade. */
const REFUSED_MS = 10_000;

class Feed {
  readonly state = new Observable<FeedState>('connecting');
  readonly #listeners = new Set<(event: FeedEvent) => void>();
  #following: AbortController | null = null;
  #last_event_id: string | undefined;
  #is_wanted = false;

  constructor() {
    let timer: ReturnType<typeof setTimeout> | undefined;
    document.addEventListener('visibilitychange', () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => this.#leave(), HIDDEN_MS_MAX);
      else if (this.#is_wanted) this.#follow();
    });
  }

  /** Calls back with every event until the returned function is called. */
  listen(listener: (event: FeedEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  start(): void {
    this.#is_wanted = true;
    this.#follow();
  }

  /** The next session may belong to another person: they must not get the events of this one. */
  stop(): void {
    this.#is_wanted = false;
    this.#last_event_id = undefined;
    this.#leave();
  }

  #leave(): void {
    this.#following?.abort();
    this.#following = null;
  }

  #follow(): void {
    if (this.#following !== null) return;
    const following = new AbortController();
    this.#following = following;
    this.#run(following)
      .catch(() => {
        if (this.#following !== following) return;
        this.state.value = 'broken';
        setTimeout(() => {
          if (this.#following !== following) return;
          this.#following = null;
          if (this.#is_wanted) this.#follow();
        }, REFUSED_MS);
      })
      .catch(() => {});
  }

  async #run({ signal }: AbortController): Promise<void> {
    const onConnection = (state: 'connected' | 'reconnecting'): void => {
      this.state.value = state === 'connected' ? 'live' : 'broken';
      // Data that the page read before the connection was open may have changed since then.
      if (state === 'connected') this.#publish({ name: 'gap', at: '', sent: null });
    };
    const query = this.#last_event_id === undefined ? {} : { last_event_id: this.#last_event_id };
    for await (const sent of client.events(query, { signal, onConnection })) {
      this.#last_event_id = sent.id;
      this.#publish(eventOf(sent));
    }
  }

  #publish(event: FeedEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}

function eventOf(sent: SentEvent): FeedEvent {
  const data: { at?: string; accepted_at?: string; started_at?: string } & Partial<FeedEvent> = sent.data as object;
  const { instance_id, meeting_id, delivery_id } = data;
  const at = data.at ?? data.accepted_at ?? data.started_at ?? '';
  return { name: sent.name, at, instance_id, meeting_id, delivery_id, sent } as FeedEvent;
}

export const feed = new Feed();
