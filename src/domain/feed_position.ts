/**
 * A place in the live feed: what Last-Event-ID holds. It is the number of an event in the memory of a node, and beside it
 * what is needed to find the place again in what is stored, when that memory is gone:
 *
 * - the message that was told last: messages are told in the order in which they were accepted;
 * - when the latest attempt that was told ended. Attempts are not told in exactly that order, because it is made of two
 *   clocks: so those that were told within NEAR_MS before it are named, and the others of that time were not told.
 */

/** How far the order in which attempts are told may be from the order of the ends that are stored of them. */
const NEAR_MS = 5;

/** Attempts that are named; where more ended so close together, the place is not found again. */
const NEAR_MAX = 24;

const RADIX = 36;
const TEXT_MAX = 400;
const TEXT = /^([0-9a-z]{1,16})\.([0-9a-z]{1,10})\.([0-9a-v]{0,40})\.([0-9a-z]{1,10})\.([0-9a-z-]*)$/;

/** Stands for the names of attempts that are too many. It is too short to be one. */
const CROWDED = 'x';

/** Enough of an id to tell it from those that were made in the seconds before. */
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
   * @param message_id the message that was told last; null when there is none
   * @param at what ended before this was told
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

  /** Whether the place can be found again in what is stored. */
  get isExact(): boolean {
    return this.#at > this.#crowded_until;
  }

  /** A message was told. */
  accepted(message_id: string): void {
    const message = message_id.slice(MESSAGE_PREFIX.length);
    // Two batches may be stored in the one order and told in the other.
    if (message.length > this.#message.length || message > this.#message) this.#message = message;
    this.#write();
  }

  /** An attempt was told. */
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

  /** Something was told that is stored with this time. */
  passed(at: number): void {
    this.#at = Math.max(this.#at, at);
    this.#forget();
    this.#write();
  }

  /** Whether an attempt, as it is stored, was told before this place. */
  wasTold(stored: EndedAttempt): boolean {
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

  /** @param memory the name of the node's memory of events, and the number of this one in it */
  textOf(memory: string, number: number): string {
    return `${memory}.${number.toString(RADIX)}.${this.#text}`;
  }

  /** Null for what `textOf` did not make. */
  static parse(text: string): { memory: string; number: number; position: FeedPosition } | null {
    const match = text.length > TEXT_MAX ? null : TEXT.exec(text);
    if (match === null) return null;
    const [, memory = '', number = '', message = '', at = '', near = ''] = match;
    const position = new FeedPosition(message === '' ? null : MESSAGE_PREFIX + message, parseInt(at, RADIX));
    if (near === CROWDED) position.#crowded_until = position.#at;
    // They ended no later than in the millisecond that `at` stands for.
    else if (near !== '') position.#near = near.split('-').map((name) => ({ name, end: position.#at + 1 }));
    position.#write();
    return { memory, number: parseInt(number, RADIX), position };
  }
}

function nameOf({ delivery_id, attempt }: Pick<EndedAttempt, 'delivery_id' | 'attempt'>): string {
  return delivery_id.slice(-ID_END_CHARS) + attempt.toString(RADIX);
}
