/**
 * What was made of the ids met last, with the time they were last met: the longest unseen is first, because that is the order
 * in which a Map keeps what is set.
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

  /** Undefined when the id is not known, or not any more. */
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
