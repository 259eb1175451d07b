import { LEASE_MS, LEASE_WATCHED_MS } from '../../../domain/partition.ts';

/** The columns of a node that show whether it is alive. */
export interface SeenNode {
  node_no: number;
  /** Changes with each renewal. */
  seen_at: number;
  /** Whether its lease has ended, by the clock of the database. */
  is_lapsed: boolean;
}

interface Watched {
  seen_at: number;
  since_ms: number;
  is_gone: boolean;
}

/**
 * Decides which nodes are gone: those that did not renew for LEASE_WATCHED_MS, by this node's own clock. So
 * nothing happens when somebody sets the clock of the database. When this node sees another node for the first time,
 * the clock of the database says whether the lease of that node has ended. So a node that starts after a long pause of
 * all nodes need not wait.
 */
export class WatchedNodes {
  readonly #now_ms: () => number;
  #watched = new Map<number, Watched>();
  #looked_ms = -Infinity;

  /** @param now_ms reads a clock that nobody can set */
  constructor(now_ms: () => number) {
    this.#now_ms = now_ms;
  }

  /** Takes the rows of all nodes, and updates this node's knowledge of them. */
  look(nodes: readonly SeenNode[]): void {
    const now_ms = this.#now_ms();
    // This node did not look for a long time. Perhaps the database was away, and no node could renew. So this node
    // watches each of them from now on.
    const was_away = now_ms - this.#looked_ms > LEASE_MS;
    this.#looked_ms = now_ms;
    const watched = new Map<number, Watched>();
    for (const { node_no, seen_at, is_lapsed } of nodes) {
      const known = this.#watched.get(node_no);
      if (known === undefined) watched.set(node_no, { seen_at, since_ms: now_ms, is_gone: is_lapsed });
      else if (known.seen_at !== seen_at) watched.set(node_no, { seen_at, since_ms: now_ms, is_gone: false });
      else {
        const since_ms = was_away ? now_ms : known.since_ms;
        const is_gone = known.is_gone || now_ms - since_ms >= LEASE_WATCHED_MS;
        watched.set(node_no, { seen_at, since_ms, is_gone });
      }
    }
    this.#watched = watched;
  }

  isGone({ node_no, seen_at, is_lapsed }: SeenNode): boolean {
    const known = this.#watched.get(node_no);
    return known?.seen_at === seen_at ? known.is_gone : known === undefined && is_lapsed;
  }
}
