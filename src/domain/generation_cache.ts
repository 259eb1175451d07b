/**
 * The values that were set most recently, by name: at least half of `count_max`, and at most `count_max`. The cache has
 * two generations, and forgets the older one as a whole. If the cache removed the oldest entry for each new entry, the
 * Map would copy its content again and again (see src/delivery/intrusive_list.ts).
 */
export class GenerationCache<V> {
  readonly #generation_max: number;
  #latest = new Map<string, V>();
  #previous = new Map<string, V>();

  constructor(count_max: number) {
    this.#generation_max = Math.ceil(count_max / 2);
  }

  get(name: string): V | undefined {
    return this.#latest.get(name) ?? this.#previous.get(name);
  }

  set(name: string, value: V): void {
    this.#latest.set(name, value);
    if (this.#latest.size < this.#generation_max) return;
    this.#previous = this.#latest;
    this.#latest = new Map();
  }
}
