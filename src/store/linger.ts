/** How long batches wait to grow. */
export interface Linger {
  /** The least time from the start of one batch to the start of the next, in milliseconds, while many items arrive. */
  ms: number;
  /** When this many items wait, the batch starts at once. */
  batch_size: number;
}

/** How long batches of each kind linger. */
export type Lingers = Record<'accept' | 'load' | 'settle', Linger>;

const NONE: Linger = { ms: 0, batch_size: 0 };
/** The lingers of an engine that gains nothing when batches linger: each batch starts at once. */
export const NO_LINGER: Lingers = { accept: NONE, load: NONE, settle: NONE };

const NODES_COUNTED_MAX = 4;

/**
 * How long a batch lingers on one of several nodes.
 *
 * The nodes share the commits that the database server can make. So with more nodes, each node lingers longer. The
 * nodes also share the senders. Each sender waits for its response before it sends again, so a node with few senders
 * never has many waiting items. So with more nodes, fewer waiting items start a batch at once.
 */
export function perNode({ ms, batch_size }: Linger, nodes: number): Linger {
  const times = Math.min(nodes, NODES_COUNTED_MAX);
  return { ms: ms * times, batch_size: Math.ceil(batch_size / times) };
}

/** Batches linger while at least MANY_ITEMS items arrive within about RECENT_MS. */
const MANY_ITEMS = 50;
const RECENT_MS = 100;

/**
 * When the next batch may start. While many items arrive, batches linger and grow, because a commit waits for the disk
 * once, however many items it holds. When items pass several stages that make batches, only the first stage may linger.
 * The second would wait for items that the first holds back.
 */
export class LingerTimer {
  #started_ms = -Infinity;
  /** How many items came recently. The older an item is, the less it counts. */
  #recent_items = 0;

  /** How long the waiting items should still linger, in milliseconds; 0: the batch may start. */
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
