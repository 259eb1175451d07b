/**
 * A place in the live feed, as Last-Event-ID holds it: the number of an event in the memory of a node. When the node no
 * longer has that memory, two more facts find the place in the store:
 *
 * - the last published message: messages are published in the order in which they were accepted;
 * - the end of the latest published attempt. Attempts are not published in exactly the order of their ends, because two
 *   clocks measure the ends. So the place also names each published attempt that ended less than NEAR_MS before the
 *   latest one.
 */

/** An attempt may be published after an attempt whose stored end is up to this much later. */
const NEAR_MS = 5;

/** The most attempts that a place names. When more of them end so close together, the store cannot find the place. */
const NEAR_MAX = 24;

const RADIX = 36;
const TEXT_MAX = 400;
const TEXT = /^([0-9a-z]{1,16})\.([0-9a-z]{1,10})\.([0-9a-v]{0,40})\.([0-9a-z]{1,10})\.([0-9a-z-]*)$/;

/** Replaces the names when there are too many attempts. Every name is longer, so this text cannot be a name. */
const CROWDED = 'x';

/** How many of the last characters of an id are kept: enough to distinguish it from all ids of the last few seconds. */
const ID_END_CHARS = 5;

const MESSAGE_PREFIX = 'msg_';

/** An attempt as it is stored. */
export interface EndedAttempt {
  delivery_id: string;
  attempt: number;
  started_at: string;
  duration_ms: number;
}

/** When an attempt ended, in milliseconds since the epoch. */
export function endOf({ started_at, duration_ms }: Pick<EndedAttempt, 'started_at' | 'duration_ms'>): number {
  return Date.parse(started_at) + duration_ms;
}

export class FeedPosition {
  #message: string;
  #at: number;
  #near: { name: string; end: number }[] = [];
  #crowded_until = 0;
  #text = '';

  /**
   * @param message_id the last published message; null when there is none
   * @param at attempts that ended before this time were published
   */
  constructor(message_id: string | null, at: number) {
    this.#message = message_id === null ? '' : message_id.slice(MESSAGE_PREFIX.length);
    this.#at = Math.floor(at);
    this.#write();
  }

  get message_id(): string | null {
    return this.#message === '' ? null : MESSAGE_PREFIX + this.#message;
  }

  get at(): number {
    return this.#at;
  }

  /** Whether the store can find the place. */
  get isExact(): boolean {
    return this.#at > this.#crowded_until;
  }

  /** Notes that a message was published. */
  accepted(message_id: string): void {
    const message = message_id.slice(MESSAGE_PREFIX.length);
    // Batches may be published in another order than the order in which they were stored. So the highest id counts.
    if (message.length > this.#message.length || message > this.#message) this.#message = message;
    this.#write();
  }

  /** Notes that an attempt was published. */
  attempted(ended: EndedAttempt): void {
    const end = endOf(ended);
    this.#at = Math.max(this.#at, Math.floor(end));
    this.#near.push({ name: nameOf(ended), end });
    this.#forget();
    if (this.#near.length > NEAR_MAX) {
      this.#crowded_until = this.#at + NEAR_MS;
      this.#near = [];
    }
    this.#write();
  }

  /** Notes that an event with this stored time was published. */
  passed(at: number): void {
    this.#at = Math.max(this.#at, at);
    this.#forget();
    this.#write();
  }

  /** Whether a stored attempt was published before this place. */
  wasPublished(stored: EndedAttempt): boolean {
    const end = endOf(stored);
    if (end <= this.#at - NEAR_MS) return true;
    const name = nameOf(stored);
    return this.#near.some((near) => near.name === name);
  }

  #forget(): void {
    const from = this.#at - NEAR_MS;
    if (this.#near.some(({ end }) => end <= from)) this.#near = this.#near.filter(({ end }) => end > from);
  }

  #write(): void {
    const near = this.isExact ? this.#near.map(({ name }) => name).join('-') : CROWDED;
    this.#text = `${this.#message}.${this.#at.toString(RADIX)}.${near}`;
  }

  /**
   * @param memory the name of the node's memory of events
   * @param number the number of the event in that memory
   */
  textOf(memory: string, number: number): string {
    return `${memory}.${number.toString(RADIX)}.${this.#text}`;
  }

  /** Null for text that `textOf` did not make. */
  static parse(text: string): { memory: string; number: number; position: FeedPosition } | null {
    const match = text.length > TEXT_MAX ? null : TEXT.exec(text);
    if (match === null) return null;
    const [, memory = '', number = '', message = '', at = '', near = ''] = match;
    const position = new FeedPosition(message === '' ? null : MESSAGE_PREFIX + message, parseInt(at, RADIX));
    if (near === CROWDED) position.#crowded_until = position.#at;
    // The text does not say when these attempts ended. So `parse` takes the latest possible time for all of them: the
    // end of the millisecond `at`.
    else if (near !== '') position.#near = near.split('-').map((name) => ({ name, end: position.#at + 1 }));
    position.#write();
    return { memory, number: parseInt(number, RADIX), position };
  }
}

function nameOf({ delivery_id, attempt }: Pick<EndedAttempt, 'delivery_id' | 'attempt'>): string {
  return delivery_id.slice(-ID_END_CHARS) + attempt.toString(RADIX);
}
