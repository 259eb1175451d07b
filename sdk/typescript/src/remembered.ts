/**
 * The results for the ids that were seen most recently, each with the time when it was last seen. The first one was not
 * seen for the longest time, because a Map keeps the order in which entries are set.
 */
export class Remembered<T> {
  readonly #met = new Map<string, { value: T; at_ms: number }>();
  readonly #for_ms: number;
  readonly #size_max: number;
  readonly #now: () => number;

  constructor(for_ms: number, size_max: number, now: () => number) {
    this.#for_ms = for_ms;
    this.#size_max = size_max;
    this.#now = now;
  }

  set(id: string, value: T): void {
    this.#met.delete(id);
    this.#met.set(id, { value, at_ms: this.#now() });
    for (const [oldest, { at_ms }] of this.#met) {
      if (this.#met.size <= this.#size_max && !this.#isOver(at_ms)) break;
      this.#met.delete(oldest);
    }
  }

  /** Undefined when the id was never seen, or is forgotten. */
  get(id: string): T | undefined {
    const met = this.#met.get(id);
    if (met === undefined || this.#isOver(met.at_ms)) return undefined;
    this.set(id, met.value);
    return met.value;
  }

  #isOver(at_ms: number): boolean {
    return this.#now() - at_ms > this.#for_ms;
  }
}
