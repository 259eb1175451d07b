/**
 * The tabs of one browser take turns: one visible tab leads, and passes on to the others what it learns. A browser opens six
 * connections to a host over HTTP/1.1, so tabs with a connection each would block one another.
 *
 * A lock decides who leads: the browser gives it to the next tab when the leader is hidden, closed, or crashes. A leader
 * that hangs keeps its lock, so a tab that hears no sign of it for a while takes the lock from it. A
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

/** How often the leader gives a sign of life. */
const SIGN_MS = 2000;
/** After this time without a sign, a leader hangs. */
const SILENT_MS = 8000;

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
  /** When the leader last sent something. */
  #heard_ms = performance.now();
  readonly #watch = setInterval(() => this.#look(), SIGN_MS);
  #looked_ms = performance.now();
  readonly #onVisibility = (): void => (document.hidden ? this.#stepBack() : this.#queue());

  constructor(name: string, parts: TabsParts<News>) {
    this.#name = name;
    this.#parts = parts;
    this.#channel = 'locks' in navigator ? new BroadcastChannel(name) : null;
    this.#channel?.addEventListener('message', ({ data }: MessageEvent<News | typeof HELLO>) => {
      if (data === HELLO) {
        if (this.#leads) this.send(parts.greeting());
        return;
      }
      this.#heard_ms = performance.now();
      // A leader that hung and goes on does not know yet that this tab leads.
      if (!this.#leads) parts.onNews(data);
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
    clearInterval(this.#watch);
    this.#stepBack();
    this.#channel?.close();
  }

  /** Gives a sign of life, or looks whether the leader gives one. */
  #look(): void {
    const now_ms = performance.now();
    // A tab that hung itself may have missed the signs.
    if (now_ms - this.#looked_ms > 2 * SIGN_MS) this.#heard_ms = now_ms;
    this.#looked_ms = now_ms;
    if (this.#leads) return this.send(this.#parts.greeting());
    if (this.#channel === null || this.#turn === null || now_ms - this.#heard_ms < SILENT_MS) return;
    this.#heard_ms = now_ms;
    this.#stepBack();
    this.#queue({ steal: true });
  }

  #stepBack(): void {
    this.#turn?.abort();
    this.#turn = null;
  }

  #queue(options: LockOptions = {}): void {
    if (this.#turn !== null) return;
    const turn = (this.#turn = new AbortController());
    const { signal } = turn;
    this.#heard_ms = performance.now();
    const lead = async (): Promise<void> => {
      this.#leads = true;
      await this.#parts.lead(signal).finally(() => (this.#leads = false));
    };
    const led =
      this.#channel === null ? lead() : navigator.locks.request(this.#name, options.steal ? options : { signal }, lead);
    led.catch(() => {
      // A tab that is hidden before its turn has come does not lead. A tab that lost the lock to another tab waits
      // again.
      if (signal.aborted || this.#turn !== turn) return;
      this.#stepBack();
      this.#queue();
    });
  }
}
