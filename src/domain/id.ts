/** Ids that come from users (instance_id, meeting_id, agent ids): design section 3. */
export const ID_CHARS_MAX = 200;
export const AGENT_IDS_MAX = 1000;

/** Drops repeated ids; the first of each stays where it was. */
export function uniqueIds(ids: readonly string[]): string[] {
  return ids.length < 2 ? [...ids] : [...new Set(ids)];
}

/**
 * Numbers for messages and deliveries, rising in the order in which they are taken: milliseconds times 4096, so that a new
 * data file does not repeat the numbers of an old one. They stay below 2^53 until the year 2093.
 */
const EPOCH_MS = Date.UTC(2024, 0, 1);
const NUMBERS_PER_MS = 4096;

export class NumberSource {
  readonly #now: () => number;
  #last: number;

  /**
   * @param now milliseconds since the epoch; when it steps back, the numbers go on from the last one
   * @param last the highest number in use
   */
  constructor(now: () => number, last: number) {
    this.#now = now;
    this.#last = last;
  }

  /** The first of `count` numbers that follow one another. */
  take(count: number): number {
    const first = Math.max(this.#last + 1, (this.#now() - EPOCH_MS) * NUMBERS_PER_MS);
    this.#last = first + count - 1;
    return first;
  }
}

const TAG_CHARS = 8;
const NUMBER_CHARS = 11;
const RADIX = 32;

export type IdPrefix = 'msg' | 'dlv';

/**
 * Ids as they are told to others: prefix, the tag of the data file, the number. The tag is there because receivers
 * recognise a repeated delivery by its id: two data files must not make the same one.
 */
export class IdCodec {
  readonly #tag: string;

  /** @param tag see `makeTag` */
  constructor(tag: string) {
    this.#tag = tag;
  }

  encode(prefix: IdPrefix, number: number): string {
    return `${prefix}_${this.#tag}${number.toString(RADIX).padStart(NUMBER_CHARS, '0')}`;
  }

  /** Null for what `encode` did not make. */
  decode(prefix: IdPrefix, id: string): number | null {
    const number = parseInt(id.slice(-NUMBER_CHARS), RADIX);
    return Number.isSafeInteger(number) && this.encode(prefix, number) === id ? number : null;
  }
}

/** @param random a number in [0, 1) */
export function makeTag(random: () => number): string {
  return Array.from({ length: TAG_CHARS }, () => Math.floor(random() * RADIX).toString(RADIX)).join('');
}
