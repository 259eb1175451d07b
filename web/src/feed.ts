/** The live feed of the service, one for the whole page. */
import { Watched } from './watched.ts';

/** Something that happened. `gap`: events may have been missed, so everything is to be read again. */
export interface FeedEvent {
  type: string;
  at: string;
  meeting_id?: string;
  instance_id?: string;
  delivery_id?: string;
  seq?: number;
  state?: string;
  accepted_at?: string;
}

export type FeedState = 'connecting' | 'live' | 'broken';

class Feed {
  readonly state = new Watched<FeedState>('connecting');
  readonly #listeners = new Set<(event: FeedEvent) => void>();
  #timer: ReturnType<typeof setInterval> | undefined;

  listen(listener: (event: FeedEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  start(): void {
    this.#timer ??= setInterval(() => this.#tell({ type: 'gap', at: '' }), 2000);
    this.state.value = 'live';
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #tell(event: FeedEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}

export const feed = new Feed();
