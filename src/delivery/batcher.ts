import type { Linger } from '../store/linger.ts';
import type { Clock, Timer } from './clock.ts';
import { AdaptiveLinger } from './adaptive_linger.ts';

interface Waiting<Item, Result> {
  item: Item;
  weight: number;
  /** True: the item goes into the batch of the previous item, even if that batch then exceeds its limits. */
  is_joined: boolean;
  resolve: (result: Result) => void;
  reject: (error: unknown) => void;
}

export interface BatcherOptions<Item> {
  /** The most items in a batch, read before each batch. The first item of a batch goes in even if it counts as more. */
  items_max: () => number;
  /**
   * Makes a function for one batch. The function says as how many items one item counts. The batcher calls the function
   * with the items in their order. The last item of these calls may stay out of the batch. Without `sizer`, each item
   * counts as one.
   */
  sizer?: () => (item: Item) => number;
  weight_max: number;
  /** The most batches in flight. While they are in flight, the next batch grows. */
  in_flight_max: number;
  /**
   * Whether the consumer, which `flush` calls, merges the batches that wait for it. If so, the batcher does not limit
   * the batches in flight. It limits the items in flight and their weight, to what `in_flight_max` full batches have.
   */
  consumer_coalesces?: boolean;
  /** How long a batch lingers; a full batch starts at once. Read before each batch. */
  linger?: () => Linger;
  /** While this returns true, the batcher flushes nothing. When it no longer does, the owner calls `flushIfReady`. */
  isPaused?: () => boolean;
}

/**
 * Collects items that arrive in one turn of the event loop, or while a batch lingers, and flushes them together. Each
 * item gets its own result.
 */
export class Batcher<Item, Result> {
  readonly #clock: Clock;
  readonly #options: BatcherOptions<Item>;
  readonly #flush: (items: Item[]) => Promise<Result[]>;
  #waiting: Waiting<Item, Result>[] = [];
  #waiting_weight = 0;
  #in_flight = 0;
  /** The batches in flight. `rejectInFlight` can reject the callers of their items before the batches end. */
  readonly #batches_in_flight: Waiting<Item, Result>[][] = [];
  /** How many items are in flight, and the sum of their weights. One item may count as several items: see `sizer`. */
  #size_in_flight = { items: 0, weight: 0 };
  #scheduled = false;
  /** Null when batches do not linger. */
  readonly #linger: AdaptiveLinger | null;
  /** The timer that ends the linger of the next batch; null while no batch lingers. */
  #timer: Timer | null = null;

  constructor(clock: Clock, options: BatcherOptions<Item>, flush: (items: Item[]) => Promise<Result[]>) {
    this.#clock = clock;
    this.#options = options;
    this.#linger = options.linger === undefined ? null : new AdaptiveLinger(options.linger);
    this.#flush = flush;
  }

  /** The weight of the items that are not flushed yet. */
  get waiting_weight(): number {
    return this.#waiting_weight;
  }

  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#in_flight === 0;
  }

  /**
   * @param is_joined keeps the item in the batch of the item that was added just before, in the same turn of the event
   * loop
   */
  add(item: Item, weight: number, is_joined = false): Promise<Result> {
    const { promise, resolve, reject } = Promise.withResolvers<Result>();
    this.#waiting.push({ item, weight, is_joined, resolve, reject });
    this.#waiting_weight += weight;
    this.#linger?.onAdd(this.#in_flight > 0);
    this.flushIfReady();
    return promise;
  }

  /** Rejects the callers of items that are not flushed yet, and drops the items. */
  rejectWaiting(error: unknown): void {
    for (const waiting of this.#waiting.splice(0)) waiting.reject(error);
    this.#waiting_weight = 0;
  }

  /** Rejects the callers of flushed items at once. What `flush` returns for these items later has no effect. */
  rejectInFlight(error: unknown): void {
    for (const batch of this.#batches_in_flight) {
      for (const waiting of batch) waiting.reject(error);
    }
  }

  /** Flushes a batch if one is ready. */
  flushIfReady(): void {
    if (this.#scheduled || this.#waiting.length === 0 || !this.#hasRoom()) return;
    if (this.#options.isPaused?.() === true) return;
    this.#scheduled = true;
    this.#clock.soon(() => {
      this.#scheduled = false;
      const delay_ms = this.#delayMs();
      if (delay_ms <= 0) return void this.#run();
      this.#timer ??= this.#clock.after(delay_ms, () => {
        this.#timer = null;
        // A busy thread fires the timer late. So the batch does not start at once: the items that arrived in the
        // meantime join it first.
        this.flushIfReady();
      });
    });
  }

  /** How long the next batch still lingers, in milliseconds; 0 or less: it starts now, as a full batch always does. */
  #delayMs(): number {
    const { items_max, weight_max } = this.#options;
    const waiting = this.#waiting.length;
    const delay_ms = this.#linger?.delayMs(waiting, this.#in_flight > 0, this.#clock.now()) ?? 0;
    return waiting >= items_max() || this.#waiting_weight >= weight_max ? 0 : delay_ms;
  }

  #hasRoom(): boolean {
    const { in_flight_max, items_max, weight_max, consumer_coalesces = false } = this.#options;
    if (!consumer_coalesces) return this.#in_flight < in_flight_max;
    return (
      this.#size_in_flight.items < in_flight_max * items_max() &&
      this.#size_in_flight.weight < in_flight_max * weight_max
    );
  }

  async #run(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    const { batch, items, weight } = this.#take();
    // The batch is empty when `rejectWaiting` has taken out all items since the batch was scheduled.
    if (batch.length === 0) return;
    this.#in_flight++;
    this.#batches_in_flight.push(batch);
    this.#size_in_flight.items += items;
    this.#size_in_flight.weight += weight;
    this.#linger?.onFlush(batch.length, this.#size_in_flight.items, this.#waiting.length, this.#clock.now());
    this.flushIfReady();
    try {
      const results = await this.#flush(batch.map((waiting) => waiting.item));
      for (const [i, waiting] of batch.entries()) waiting.resolve(results[i] as Result);
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
    } finally {
      this.#in_flight--;
      this.#batches_in_flight.splice(this.#batches_in_flight.indexOf(batch), 1);
      this.#size_in_flight.items -= items;
      this.#size_in_flight.weight -= weight;
      this.flushIfReady();
    }
  }

  #take(): { batch: Waiting<Item, Result>[]; items: number; weight: number } {
    const { weight_max, sizer } = this.#options;
    const items_max = this.#options.items_max();
    const sizeOf = sizer?.();
    let count = 0;
    let items = 0;
    let weight = 0;
    for (const waiting of this.#waiting) {
      const size = sizeOf?.(waiting.item) ?? 1;
      const is_full = items + size > items_max || weight + waiting.weight > weight_max;
      if (count > 0 && is_full && !waiting.is_joined) break;
      weight += waiting.weight;
      items += size;
      count++;
    }
    this.#waiting_weight -= weight;
    return { batch: this.#waiting.splice(0, count), items, weight };
  }
}
