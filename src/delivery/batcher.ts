import type { Clock } from './clock.ts';

interface Waiting<Item, Result> {
  item: Item;
  weight: number;
  resolve: (result: Result) => void;
  reject: (error: unknown) => void;
}

export interface BatcherOptions {
  /** Asked before each batch; at least one item goes. */
  items_max: () => number;
  weight_max: number;
  /** Batches under way at a time: while they are, the next one grows. Where it is gathered there: as much as that many full ones. */
  flights_max: number;
  /**
   * Whether those who take batches gather them too, because they wait for a disk or a server. What waited here they could not
   * count, and would wait for in vain.
   */
  is_gathered_there?: boolean;
  /** How long a batch gathers; 0: what arrives in one turn of the event loop. */
  linger_ms: number;
  /** While it answers true nothing is flushed; `poke` looks again. */
  isPaused?: () => boolean;
}

/** Gathers items that arrive together and hands them on together; each gets its own result. */
export class Batcher<Item, Result> {
  readonly #clock: Clock;
  readonly #options: BatcherOptions;
  readonly #flush: (items: Item[]) => Promise<Result[]>;
  #waiting: Waiting<Item, Result>[] = [];
  #waiting_weight = 0;
  #flights = 0;
  #flying = { items: 0, weight: 0 };
  #scheduled = false;

  constructor(clock: Clock, options: BatcherOptions, flush: (items: Item[]) => Promise<Result[]>) {
    this.#clock = clock;
    this.#options = options;
    this.#flush = flush;
  }

  /** The weight of what was added and is not handed on yet. */
  get waiting_weight(): number {
    return this.#waiting_weight;
  }

  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#flights === 0;
  }

  add(item: Item, weight: number): Promise<Result> {
    const { promise, resolve, reject } = Promise.withResolvers<Result>();
    this.#waiting.push({ item, weight, resolve, reject });
    this.#waiting_weight += weight;
    this.poke();
    return promise;
  }

  /** Looks whether a batch can go. */
  poke(): void {
    if (this.#scheduled || this.#waiting.length === 0 || !this.#hasRoom()) return;
    if (this.#options.isPaused?.() === true) return;
    this.#scheduled = true;
    const run = (): void => {
      this.#scheduled = false;
      void this.#run();
    };
    if (this.#options.linger_ms > 0) this.#clock.after(this.#options.linger_ms, run);
    else this.#clock.soon(run);
  }

  #hasRoom(): boolean {
    const { flights_max, items_max, weight_max, is_gathered_there = false } = this.#options;
    if (!is_gathered_there) return this.#flights < flights_max;
    return this.#flying.items < flights_max * items_max() && this.#flying.weight < flights_max * weight_max;
  }

  async #run(): Promise<void> {
    const batch = this.#take();
    const weight = batch.reduce((sum, waiting) => sum + waiting.weight, 0);
    this.#flights++;
    this.#flying.items += batch.length;
    this.#flying.weight += weight;
    this.poke();
    try {
      const results = await this.#flush(batch.map((waiting) => waiting.item));
      for (const [i, waiting] of batch.entries()) waiting.resolve(results[i] as Result);
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
    } finally {
      this.#flights--;
      this.#flying.items -= batch.length;
      this.#flying.weight -= weight;
      this.poke();
    }
  }

  #take(): Waiting<Item, Result>[] {
    const items_max = this.#options.items_max();
    let count = 0;
    let weight = 0;
    for (const waiting of this.#waiting) {
      if (count > 0 && (count >= items_max || weight + waiting.weight > this.#options.weight_max)) break;
      weight += waiting.weight;
      count++;
    }
    this.#waiting_weight -= weight;
    return this.#waiting.splice(0, count);
  }
}
