import type { Clock, Timer } from '../delivery/clock.ts';
import type { ProblemCode } from '../domain/problem.ts';
import type { FeedMemory, PublishedEvent } from './memory.ts';
import type { FeedView } from './view.ts';

/** The most characters of new events while a connection reads nothing. With more, the connection is cut off. */
const BEHIND_CHARS_MAX = 1 << 20;
/** How long a connection that is cut off may still take its last event. */
const DRAIN_MS = 5_000;
const CHUNK_CHARS = 65_536;

/** The connection of a listener. */
export interface FeedSink {
  /** @returns whether the connection takes more now; if not, `onDrain` calls back once it does */
  write(bytes: Buffer | string): boolean;
  end(last_text: string): void;
  destroy(): void;
  onDrain(callback: () => void): void;
  onClose(callback: () => void): void;
}

/** The right to a feed: a key, a session, or the fact that no key exists. */
export interface Revocable {
  readonly principal: { readonly key_id: string | null };
  /** Why the right is no longer valid; null while it is valid. */
  revocationReason(): ProblemCode | null;
}

interface ListenerParts {
  memory: FeedMemory;
  view: FeedView;
  clock: Clock;
  standing: Revocable;
}

/**
 * A listener: a position in the memory of events, and a connection. The listener writes the events as fast as the
 * connection takes them.
 */
export class FeedListener {
  readonly standing: Revocable;
  readonly #memory: FeedMemory;
  readonly #view: FeedView;
  readonly #clock: Clock;
  #sink: FeedSink | null = null;
  /** The number of the first event that was not written. */
  #next: number;
  /** The keys of the events that a replay has sent. Live events with these keys are skipped. */
  #skipped: Set<string> | null = null;
  #skipped_until = 0;
  /** The number of the last event that may be skipped; null while such events may still be published. */
  #skipped_last: number | null = null;
  /** Events from the store that were not written yet, in chunks. */
  #beginning: string[] = [];
  #is_blocked = false;
  /** The value of `chars_put` of the memory when the connection stopped reading. */
  #blocked_at_chars = 0;
  #ended = false;
  #drain_timer: Timer | null = null;
  #ended_by: ProblemCode | null = null;
  written_at: number;

  constructor({ memory, view, clock, standing }: ListenerParts) {
    this.#memory = memory;
    this.#view = view;
    this.#clock = clock;
    this.standing = standing;
    this.#next = memory.last + 1;
    this.written_at = clock.now();
  }

  /** Whether the response to this listener has begun. */
  get hasBegun(): boolean {
    return this.#sink !== null;
  }

  get key_id(): string | null {
    return this.standing.principal.key_id;
  }

  /** Moves back, so that everything after this event is sent again. */
  goBackTo(number: number): void {
    this.#next = number + 1;
  }

  /** @param until the steady time at which all events with these keys have been published */
  skip(keys: Set<string>, until: number): void {
    this.#skipped = keys;
    this.#skipped_until = until;
  }

  /** Forgets the keys to skip, once the connection has taken every event that may have one of them. */
  forgetSkipped(now: number): void {
    if (now < this.#skipped_until) return;
    this.#skipped_last ??= this.#memory.last;
    if (this.#next > this.#skipped_last) this.#skipped = null;
  }

  begin(sink: FeedSink, beginning: string[]): void {
    this.#sink = sink;
    sink.onDrain(() => {
      this.#is_blocked = false;
      this.serve();
    });
    sink.onClose(() => {
      this.#ended = true;
      this.#drain_timer?.cancel();
    });
    this.#beginning = chunksOf(beginning);
    this.serve();
  }

  /** Writes the next events, until the connection takes no more. */
  serve(): void {
    if (this.#sink === null || this.#ended) return;
    if (this.#is_blocked) {
      if (this.#memory.chars_put - this.#blocked_at_chars > BEHIND_CHARS_MAX) this.#cutOff();
      return;
    }
    while (this.#beginning.length > 0 && !this.#is_blocked) this.#write(this.#beginning.shift() as string);
    while (this.#next <= this.#memory.last && !this.#is_blocked && !this.#view.isStale) {
      if (!this.#memory.holdsAfter(this.#next - 1)) return this.#cutOff();
      const { bytes, next } = this.#isWhole
        ? this.#memory.chunk(this.#next)
        : this.#memory.chunkOf(this.#next, (event) => this.#sees(event));
      this.#next = next;
      if (bytes.length > 0) this.#write(bytes);
    }
  }

  /** Reads again what the listener may see, if it has seen a gap. Until then `serve` writes no later event. */
  async refresh(): Promise<void> {
    if (this.#view.isStale && (await this.#view.refresh(this.#memory))) this.serve();
  }

  get #isWhole(): boolean {
    return this.#view.isWhole && this.#skipped === null;
  }

  #sees(event: PublishedEvent): boolean {
    const sees = this.#view.sees(event);
    return sees && (event.key === null || this.#skipped === null || !this.#skipped.has(event.key));
  }

  #write(bytes: Buffer | string): void {
    this.written_at = this.#clock.now();
    if (this.#sink?.write(bytes) !== false) return;
    this.#is_blocked = true;
    this.#blocked_at_chars = this.#memory.chars_put;
  }

  /**
   * Keeps a silent connection open. Also sends the latest id, so that a listener that sees few events resumes after
   * that id.
   */
  heartbeat(): void {
    if (this.#sink === null || this.#ended || this.#is_blocked || this.#beginning.length > 0) return;
    const id = this.#memory.get(this.#next - 1)?.id;
    this.#write(id === undefined ? ': \n\n' : `: \nid: ${id}\n\n`);
  }

  /** Ends the feed of this listener, because another key needs the place. */
  giveUpPlace(): void {
    this.end('overflow', {
      detail: 'Another key needed this place of the live feed; connect again with Last-Event-ID.',
    });
  }

  #cutOff(): void {
    this.end('overflow', { detail: 'This connection read its events too slowly; connect again with Last-Event-ID.' });
  }

  /** Ends the feed of this listener, because its key or session has ended. */
  endStanding(code: ProblemCode): void {
    this.#ended_by = code;
    this.end('end', { code });
  }

  /** Why the key or session of this listener has ended, perhaps before the feed began; null while it is valid. */
  get endedBy(): ProblemCode | null {
    return this.#ended_by;
  }

  /** @param drain_ms how long the connection may still take its last event */
  end(name: string, data: object, drain_ms = DRAIN_MS): void {
    if (this.#ended) return;
    this.#ended = true;
    const sink = this.#sink;
    if (sink === null) return;
    // The event has no id: a listener resumes with the id of the last event before it.
    sink.end(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
    this.#drain_timer = this.#clock.after(drain_ms, () => sink.destroy());
  }
}

function chunksOf(texts: readonly string[]): string[] {
  const chunks: string[] = [];
  let chunk = '';
  for (const text of texts) {
    chunk += text;
    if (chunk.length < CHUNK_CHARS) continue;
    chunks.push(chunk);
    chunk = '';
  }
  if (chunk !== '') chunks.push(chunk);
  return chunks;
}
