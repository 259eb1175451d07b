/** How far apart batches are. */
export interface Distance {
  /** From the start of one to the start of the next, while many items come. */
  ms: number;
  /** So many that wait go at once. */
  items: number;
}

/** Many: more items than so many in about so long. */
const MANY_ITEMS = 50;
const RECENT_MS = 100;

/**
 * When the next batch may start. While many items come, batches keep their distance, so that there is more in each: a commit
 * costs a wait for the disk, however much it is for. Whoever hands batches on asks this, and nobody after him: one who waits
 * for more while all that will come is with him waits in vain.
 */
export class Spacing {
  #started_ms = -Infinity;
  /** Items of late: what started longer ago counts for less. */
  #recent_items = 0;

  /** How long a batch of what waits should still wait for more, in milliseconds; 0: it may start. */
  rest({ ms, items }: Distance, waiting_items: number, now_ms: number): number {
    if (this.#recent_items < MANY_ITEMS || waiting_items >= items) return 0;
    return Math.max(0, this.#started_ms + ms - now_ms);
  }

  /** A batch starts. */
  started(items: number, now_ms: number): void {
    this.#recent_items = this.#recent_items * Math.exp((this.#started_ms - now_ms) / RECENT_MS) + items;
    this.#started_ms = now_ms;
  }
}
