import type { ClusterStore } from '../../store/contract/cluster.ts';
import type { Clock } from '../clock.ts';

const TOPIC = 'backlog';
/** A report counts for this long. A node that is still behind reports again before then. */
const REPORT_VALID_MS = 400;
/** The most nodes whose reports are kept. */
const NODES_MAX = 1_000;

/**
 * The number of deliveries that wait in the other nodes of a cluster. A message that this node accepts may have
 * deliveries in the lanes of all nodes, so this node accepts less while other nodes are behind.
 */
export class ClusterBacklog {
  readonly #clock: Clock;
  readonly #cluster: Pick<ClusterStore, 'broadcast'>;
  readonly #node_id: string;
  readonly #reports = new Map<string, { waiting: number; until: number }>();

  constructor(clock: Clock, cluster: Pick<ClusterStore, 'broadcast'>, node_id: string) {
    this.#clock = clock;
    this.#cluster = cluster;
    this.#node_id = node_id;
  }

  /** Deliveries that wait in saturated nodes, as those nodes reported. */
  get others(): number {
    if (this.#reports.size === 0) return 0;
    const now = this.#clock.now();
    let waiting = 0;
    for (const [node_id, report] of this.#reports) {
      if (report.until > now) waiting += report.waiting;
      else this.#reports.delete(node_id);
    }
    return waiting;
  }

  /** Reports to the other nodes that this node is saturated, and how many deliveries wait here. */
  report(waiting: number): void {
    void this.#cluster.broadcast(TOPIC, `${Math.round(waiting)} ${this.#node_id}`).catch(() => {});
  }

  onReport(topic: string, text: string): void {
    if (topic !== TOPIC) return;
    const [, waiting, node_id] = /^(\d{1,12}) (.{1,200})$/.exec(text) ?? [];
    if (node_id === undefined || (this.#reports.size >= NODES_MAX && !this.#reports.has(node_id))) return;
    this.#reports.set(node_id, { waiting: Number(waiting), until: this.#clock.now() + REPORT_VALID_MS });
  }
}
