/**
 * The tabs of one browser take turns: one visible tab leads, and passes on to the others what it learns. A browser opens six
 * connections to a host over HTTP/1.1, so tabs with a connection each would block one another.
 *
 * A lock decides who leads: the browser gives it to the next tab when the leader is hidden, closed, or crashes. A
 * SharedWorker cannot do it, because the page permits no Trusted Types policy, and so no URL of a worker.
 */

interface TabsParts<News> {
  /** Called when this tab leads; it must end soon after the signal. */
  lead: (signal: AbortSignal) => Promise<void>;
  /** Called in the other tabs, with what the leader sends. */
  onNews: (news: News) => void;
  /** What the leader sends to a new tab. */
  greeting: () => News;
}

/** What a new tab sends. */
const HELLO = 'hello';

export class Tabs<News extends object> {
  readonly #name: string;
  readonly #parts: TabsParts<News>;
  /** Null where a browser has no locks, because the page was not loaded securely: each visible tab then leads itself. */
  readonly #channel: BroadcastChannel | null;
  /** While this tab is visible: it leads, or waits for its turn. */
  #turn: AbortController | null = null;
  #leads = false;
  readonly #onVisibility = (): void => (document.hidden ? this.#stepBack() : this.#queue());

  constructor(name: string, parts: TabsParts<News>) {
    this.#name = name;
    this.#parts = parts;
    this.#channel = 'locks' in navigator ? new BroadcastChannel(name) : null;
    this.#channel?.addEventListener('message', ({ data }: MessageEvent<News | typeof HELLO>) => {
      if (data !== HELLO) parts.onNews(data);
      else if (this.#leads) this.send(parts.greeting());
    });
    this.#channel?.postMessage(HELLO);
    document.addEventListener('visibilitychange', this.#onVisibility);
    this.#onVisibility();
  }

  /** Sends to the other tabs; this tab must lead. */
  send(news: News): void {
    this.#channel?.postMessage(news);
  }

  leave(): void {
    document.removeEventListener('visibilitychange', this.#onVisibility);
    this.#stepBack();
    this.#channel?.close();
  }

  #stepBack(): void {
    this.#turn?.abort();
    this.#turn = null;
  }

  #queue(): void {
    if (this.#turn !== null) return;
    const { signal } = (this.#turn = new AbortController());
    const lead = async (): Promise<void> => {
      this.#leads = true;
      await this.#parts.lead(signal).finally(() => (this.#leads = false));
    };
    const led = this.#channel === null ? lead() : navigator.locks.request(this.#name, { signal }, lead);
    // A tab that is hidden before its turn has come does not lead.
    led.catch(() => {});
  }
}
