/** The bytes of an entry apart from its characters. */
const ENTRY_BYTES = 200;
/** A character takes two bytes at most. */
const CHAR_BYTES = 2;

export interface RememberedLimits {
  for_ms: number;
  size_max: number;
  /** The most bytes of all entries together. The newest entry is kept, however large it is. */
  bytes_max: number;
}

/**
 * The results for the ids that were seen most recently, each with the time when it was last seen. A Map keeps the order
 * in which entries are set, so the first entry was not seen for the longest time.
 */
export class Remembered<T> {
  readonly #met = new Map<string, { value: T; at_ms: number; bytes: number }>();
  readonly #limits: RememberedLimits;
  readonly #charsOf: (value: T) => number;
  readonly #now: () => number;
  #bytes = 0;

  /** @param charsOf how many characters of text a value holds */
  constructor(limits: RememberedLimits, charsOf: (value: T) => number, now: () => number) {
    this.#limits = limits;
    this.#charsOf = charsOf;
    this.#now = now;
  }

  set(id: string, value: T): void {
    this.#delete(id);
    const bytes = ENTRY_BYTES + CHAR_BYTES * (id.length + this.#charsOf(value));
    this.#met.set(id, { value, at_ms: this.#now(), bytes });
    this.#bytes += bytes;
    for (const [oldest, { at_ms }] of this.#met) {
      if (oldest === id || (this.#fits() && !this.#isOver(at_ms))) break;
      this.#delete(oldest);
    }
  }

  /** Undefined when the id was never seen, or is forgotten. */
  get(id: string): T | undefined {
    const met = this.#met.get(id);
    if (met === undefined || this.#isOver(met.at_ms)) return undefined;
    this.set(id, met.value);
    return met.value;
  }

  #delete(id: string): void {
    this.#bytes -= this.#met.get(id)?.bytes ?? 0;
    this.#met.delete(id);
  }

  #fits(): boolean {
    return this.#met.size <= this.#limits.size_max && this.#bytes <= this.#limits.bytes_max;
  }

  #isOver(at_ms: number): boolean {
    return this.#now() - at_ms > this.#limits.for_ms;
  }
}
