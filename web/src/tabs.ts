/**
 * The tabs of one browser share a connection: one visible tab leads, and passes the events on to the others. A browser
 * opens at most six connections to a host over HTTP/1.1, so tabs with a connection each would block one another.
 *
 * The tabs agree by messages to one another. A tab claims the lead, and leads when no other tab objects. A leader that
 * is hidden or closed says so. A leader that crashes or hangs gives no sign of life, so after a while another tab
 * claims its place. When two tabs lead, because one of them was too busy to object, the tab that began to lead later
 * stays the leader.
 *
 * A lock of the browser would be simpler, but pages over plain HTTP from another machine have no locks. A SharedWorker
 * is not possible either, because the page permits no Trusted Types policy, and so no URL of a worker.
 */

interface TabsParts<News> {
  /** Called when this tab begins to lead. The returned promise must resolve soon after the signal is aborted. */
  lead: (signal: AbortSignal) => Promise<void>;
  /** Called in the other tabs, with the news of the leader. */
  onNews: (news: News) => void;
  /** The news that the leader sends to a new tab. */
  greeting: () => News;
}

/** How long a claim waits for an objection. */
const OBJECTION_MS = 150;
/** How often the leader gives a sign of life. */
const SIGN_MS = 2000;
/** A leader that gives no sign of life for this long counts as hung. */
const SILENT_MS = 8000;

type Said<News> =
  /** From a new tab that is hidden. The leader greets it. */
  | { kind: 'hello' }
  /** From a tab that wants to lead. Of two such tabs, the one with the lower number leads. */
  | { kind: 'claim'; number: number }
  /** From the leader: its news, and the number of its lead. A later lead has a higher number. */
  | { kind: 'news'; lead: number; news: News }
  /** From a tab that led or claimed, and is hidden now. */
  | { kind: 'bye' };

/** A number that no other tab has, and that is higher than all earlier numbers. */
const nextNumber = (): number => Date.now() + Math.random();

export class Tabs<News extends object> {
  readonly #parts: TabsParts<News>;
  readonly #channel: BroadcastChannel;
  readonly #number = nextNumber();
  /** A hidden tab only listens. */
  #role: 'hidden' | 'waits' | 'claims' | 'leads' = 'hidden';
  /** Aborted when this tab neither claims nor leads any more. */
  #turn: AbortController | null = null;
  /** The number of the latest lead that this tab knows of. A later lead has a higher number. */
  #lead = 0;
  /** When the leader last sent something. */
  #heard_ms = performance.now();
  readonly #watch = setInterval(() => this.#look(), SIGN_MS);
  #looked_ms = performance.now();
  readonly #onVisibility = (): void => {
    if (document.hidden) this.#stepBack('hidden');
    else if (this.#role === 'hidden') this.#claim();
  };

  /** @param name only tabs with the same name share a connection */
  constructor(name: string, parts: TabsParts<News>) {
    this.#parts = parts;
    this.#channel = new BroadcastChannel(name);
    this.#channel.addEventListener('message', ({ data }: MessageEvent<Said<News>>) => this.#hear(data));
    if (document.hidden) this.#say({ kind: 'hello' });
    document.addEventListener('visibilitychange', this.#onVisibility);
    this.#onVisibility();
  }

  /** Sends to the other tabs, if this tab leads. */
  send(news: News): void {
    if (this.#role === 'leads') this.#say({ kind: 'news', lead: this.#lead, news });
  }

  leave(): void {
    document.removeEventListener('visibilitychange', this.#onVisibility);
    clearInterval(this.#watch);
    this.#stepBack('hidden');
    this.#channel.close();
  }

  #say(said: Said<News>): void {
    this.#channel.postMessage(said);
  }

  #hear(said: Said<News>): void {
    switch (said.kind) {
      case 'hello':
        return this.#greet();
      case 'claim':
        if (this.#role === 'claims' && said.number < this.#number) return this.#stepBack('waits');
        if (this.#role === 'claims') return this.#say({ kind: 'claim', number: this.#number });
        return this.#greet();
      case 'news':
        // A leader may have hung. When it continues, the greeting shows it that another tab leads.
        if (said.lead < this.#lead) return this.#greet();
        // Steps back before it takes the new number. Then the last messages that this tab sends as the leader have the
        // lower number, and the other tabs ignore them.
        if (this.#role !== 'hidden') this.#stepBack('waits');
        this.#lead = said.lead;
        return this.#parts.onNews(said.news);
      case 'bye':
        if (this.#role === 'waits') this.#claim();
    }
  }

  #greet(): void {
    this.send(this.#parts.greeting());
  }

  /** Gives a sign of life, or checks that the leader gives signs of life. */
  #look(): void {
    const now_ms = performance.now();
    // If this tab hung, it may have missed the signs of life.
    if (now_ms - this.#looked_ms > 2 * SIGN_MS) this.#heard_ms = now_ms;
    this.#looked_ms = now_ms;
    this.#greet();
    if (this.#role === 'waits' && now_ms - this.#heard_ms >= SILENT_MS) this.#claim();
  }

  #claim(): void {
    const turn = (this.#turn = new AbortController());
    this.#role = 'claims';
    this.#say({ kind: 'claim', number: this.#number });
    setTimeout(() => {
      if (turn.signal.aborted) return;
      this.#role = 'leads';
      this.#lead = Math.max(this.#lead + 1, nextNumber());
      void this.#parts.lead(turn.signal);
    }, OBJECTION_MS);
  }

  #stepBack(role: 'hidden' | 'waits'): void {
    const had_turn = this.#turn !== null;
    this.#turn?.abort();
    this.#turn = null;
    this.#role = role;
    this.#heard_ms = performance.now();
    if (had_turn && role === 'hidden') this.#say({ kind: 'bye' });
  }
}
