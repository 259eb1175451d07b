/** Ids that come from users (instance_id, meeting_id, agent ids): design section 3. */
export const ID_CHARS_MAX = 200;
export const AGENT_IDS_MAX = 1000;

/** Drops repeated ids; the first of each stays where it was. */
export function uniqueIds(ids: readonly string[]): string[] {
  return ids.length < 2 ? [...ids] : [...new Set(ids)];
}

/** Crockford's base 32: sorts like the number, has no I, L, O, U. */
const DIGITS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

function base32(value: number, length: number): string {
  let text = '';
  for (let i = 0; i < length; i++) {
    text = DIGITS[value % 32] + text;
    value = Math.floor(value / 32);
  }
  return text;
}

const COUNTER_LIMIT = 32 ** 6;
const RANDOM_CHARS = 10;

/**
 * Makes ids of our own that sort by the order in which they were made, as ULIDs do:
 * 10 characters of milliseconds, 6 of a counter, 10 of randomness chosen once per process.
 * When the clock steps back, the ids go on from the latest millisecond seen.
 */
export class IdSource {
  readonly #now: () => number;
  readonly #tail: string;
  #ms = 0;
  #ms_text = '';
  #counter = 0;

  /**
   * @param now milliseconds since the epoch
   * @param random a number in [0, 1)
   */
  constructor(now: () => number, random: () => number) {
    this.#now = now;
    let tail = '';
    for (let i = 0; i < RANDOM_CHARS; i++) tail += DIGITS[Math.floor(random() * 32)];
    this.#tail = tail;
  }

  /** @param prefix `msg` or `dlv` */
  next(prefix: string): string {
    const ms = this.#now();
    if (ms > this.#ms || this.#counter + 1 >= COUNTER_LIMIT) {
      this.#ms = Math.max(ms, this.#ms + 1);
      this.#ms_text = base32(this.#ms, 10);
      this.#counter = 0;
    } else {
      this.#counter++;
    }
    return `${prefix}_${this.#ms_text}${base32(this.#counter, 6)}${this.#tail}`;
  }
}
