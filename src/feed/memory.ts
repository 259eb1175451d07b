import type { About, FeedEvent, FeedEventName } from '../domain/feed_event.ts';
import type { FeedPosition } from '../domain/feed_position.ts';

/** The most events that are kept: some ten seconds at a thousand messages a second. */
const EVENTS_MAX = 32_768;
const CHARS_MAX = 16 << 20;
/** The most characters that are written at once. */
const CHUNK_CHARS = 65_536;
/**
 * The largest number of joined texts that are kept. A text that was joined for one listener also serves others at the
 * same position.
 */
const CHUNKS_KEPT = 4;

export interface PublishedEvent {
  number: number;
  id: string;
  name: FeedEventName;
  /** The text that is sent to listeners. */
  text: string;
  /**
   * The identity of a message or an attempt: a replay from the store gives the same event the same key. Null for all
   * other events.
   */
  key: string | null;
  about: About;
  /** The characters that the event takes in memory: its text, and the ids of the instances that it is about. */
  chars: number;
}

/** What an id takes in memory beside its characters. */
const ID_CHARS = 16;

/** The last events of a node, numbered from 1, each as the text that all listeners get. */
export class FeedMemory {
  /** Unique to this memory: other nodes, and earlier memories of this node, have other names. */
  readonly name: string;
  readonly #position: FeedPosition;
  #events: PublishedEvent[] = [];
  #first = 1;
  #chars = 0;
  /** The characters of all events so far, dropped events included. */
  #chars_put = 0;
  /**
   * By instance_id: the number of the event that last removed an instance with this id. Older events are about the
   * removed instance.
   */
  readonly #removed = new Map<string, number>();
  readonly #chunks = new Map<string, { bytes: Buffer; next: number }>();

  constructor(name: string, position: FeedPosition) {
    this.name = name;
    this.#position = position;
  }

  get last(): number {
    return this.#first + this.#events.length - 1;
  }

  /** The id of the last event; before the first event, the id of the place at which the memory began. */
  get last_id(): string {
    return this.#events.at(-1)?.id ?? this.#position.textOf(this.name, this.last);
  }

  get chars_put(): number {
    return this.#chars_put;
  }

  /** Whether everything after an event is still here. */
  holdsAfter(number: number): boolean {
    return number >= this.#first - 1 && number <= this.last;
  }

  put(event: FeedEvent): void {
    const key = keyOf(event);
    switch (event.name) {
      case 'message.accepted':
        this.#position.accepted(event.data.message_id);
        break;
      case 'delivery.attempted':
        this.#position.attempted(event.data);
        break;
      case 'delivery.settled':
        this.#position.passed(Date.parse(event.data.at));
        break;
      default:
        break;
    }
    const number = this.last + 1;
    if (event.name === 'instance.removed') this.#removed.set(event.data.instance_id, number);
    const id = this.#position.textOf(this.name, number);
    const text = framed(id, event.name, JSON.stringify(event.data));
    const { about } = event;
    const chars = about.instance_ids.reduce((sum, each) => sum + each.length + ID_CHARS, text.length);
    this.#events.push({ number, id, name: event.name, text, key, about, chars });
    this.#chars += chars;
    this.#chars_put += text.length;
    while (this.#events.length > EVENTS_MAX || (this.#chars > CHARS_MAX && this.#events.length > 1)) this.#dropSome();
  }

  /** Drops an eighth at a time, because each call copies all remaining events. */
  #dropSome(): void {
    const dropped = this.#events.slice(0, Math.ceil(this.#events.length / 8));
    this.#events = this.#events.slice(dropped.length);
    this.#first += dropped.length;
    for (const { chars } of dropped) this.#chars -= chars;
    for (const [instance_id, number] of this.#removed) if (number < this.#first) this.#removed.delete(instance_id);
  }

  /** Events about this id up to the returned number belong to a removed instance; 0 when none was removed. */
  removalOf(instance_id: string): number {
    return this.#removed.get(instance_id) ?? 0;
  }

  get(number: number): PublishedEvent | undefined {
    return this.#events[number - this.#first];
  }

  /**
   * The next part of the events, for listeners that see everything; `next` is the number at which the following part
   * begins.
   */
  chunk(from: number): { bytes: Buffer; next: number } {
    const name = `${from} ${this.last}`;
    const known = this.#chunks.get(name);
    if (known !== undefined) return known;
    let text = '';
    let next = from;
    while (next <= this.last && text.length < CHUNK_CHARS) {
      const event = this.get(next++);
      // An event of the kind `of_an_instance` is only for listeners that asked for one instance.
      if (event !== undefined && event.about.kind !== 'of_an_instance') text += event.text;
    }
    const chunk = { bytes: Buffer.from(text), next };
    if (this.#chunks.size >= CHUNKS_KEPT) this.#chunks.clear();
    this.#chunks.set(name, chunk);
    return chunk;
  }

  /**
   * The next part of the events, for a listener that sees only some of them. A gap ends the part, because after it the
   * listener first learns what it may see.
   */
  chunkOf(from: number, sees: (event: PublishedEvent) => boolean): { bytes: Buffer; next: number } {
    let text = '';
    let next = from;
    while (next <= this.last && text.length < CHUNK_CHARS) {
      const event = this.get(next++);
      if (event !== undefined && sees(event)) text += event.text;
      if (event?.about.kind === 'everybody') break;
    }
    return { bytes: Buffer.from(text), next };
  }
}

/**
 * An event of the stream (WHATWG HTML, section 9.2).
 *
 * @param data JSON, which has no line break in it
 */
export function framed(id: string, name: FeedEventName, data: string): string {
  return `id: ${id}\nevent: ${name}\ndata: ${data}\n\n`;
}

/** The identity of an event, in memory and in the store; null for an event that is no message and no attempt. */
export function keyOf(event: FeedEvent): string | null {
  if (event.name === 'message.accepted') return event.data.message_id;
  if (event.name === 'delivery.attempted') return `${event.data.delivery_id} ${event.data.attempt}`;
  return null;
}
