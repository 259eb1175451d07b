/** How far apart batches are. */
export interface Linger {
  /** From the start of one to the start of the next, while many items come. */
  ms: number;
  /** So many that wait go at once. */
  batch_size: number;
}

/** Of each kind of batch. */
export type Lingers = Record<'accept' | 'load' | 'settle', Linger>;

const NONE: Linger = { ms: 0, batch_size: 0 };
/** Of an engine that is glad of each. */
export const NO_LINGER: Lingers = { accept: NONE, load: NONE, settle: NONE };

const NODES_COUNTED_MAX = 4;

/**
 * Nodes share what commits the server can make: the more of them, the larger their linger. They share the senders as
 * well, who may all wait for their answers before they send more: so fewer go at once.
 */
export function perNode({ ms, batch_size }: Linger, nodes: number): Linger {
  const times = Math.min(nodes, NODES_COUNTED_MAX);
  return { ms: ms * times, batch_size: Math.ceil(batch_size / times) };
}

/** Many: more items than so many in about so long. */
const MANY_ITEMS = 50;
const RECENT_MS = 100;

/**
 * When the next batch may start. While many items come, batches keep their distance, so that there is more in each: a commit
 * costs a wait for the disk, however much it is for. Whoever hands batches on asks this, and nobody after him: one who waits
 * for more while all that will come is with him waits in vain.
 */
export class LingerTimer {
  #started_ms = -Infinity;
  /** Items of late: what started longer ago counts for less. */
  #recent_items = 0;

  /** How long a batch of what waits should still wait for more, in milliseconds; 0: it may start. */
  delayMs({ ms, batch_size }: Linger, waiting_items: number, now_ms: number): number {
    if (this.#recent_items < MANY_ITEMS || waiting_items >= batch_size) return 0;
    return Math.max(0, this.#started_ms + ms - now_ms);
  }

  /** A batch starts. */
  onFlush(items: number, now_ms: number): void {
    this.#recent_items = this.#recent_items * Math.exp((this.#started_ms - now_ms) / RECENT_MS) + items;
    this.#started_ms = now_ms;
  }
}
