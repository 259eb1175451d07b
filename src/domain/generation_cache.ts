/**
 * What was set of late, by name: of `count_max` at least the latest half. It is kept in two generations, and nothing is ever
 * taken out of either: a Map that forgets the oldest each time moves again and again (see src/delivery/intrusive_list.ts).
 */
export class GenerationCache<V> {
  readonly #generation_max: number;
  #latest = new Map<string, V>();
  #former = new Map<string, V>();

  constructor(count_max: number) {
    this.#generation_max = Math.ceil(count_max / 2);
  }

  get(name: string): V | undefined {
    return this.#latest.get(name) ?? this.#former.get(name);
  }

  set(name: string, value: V): void {
    this.#latest.set(name, value);
    if (this.#latest.size < this.#generation_max) return;
    this.#former = this.#latest;
    this.#latest = new Map();
  }
}
