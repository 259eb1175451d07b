import type { ClusterStore } from '../store/store.ts';
import type { Clock } from './clock.ts';

const TOPIC = 'backlog';
/** What a node told counts for so long; while it is behind, it tells again before. */
const TOLD_MS = 400;
/** Nodes that are listened to. */
const NODES_MAX = 1_000;

/** What waits in the other nodes of a cluster: whatever a node accepts goes into the lanes of all of them. */
export class Backlogs {
  readonly #clock: Clock;
  readonly #cluster: Pick<ClusterStore, 'tell'> | null;
  readonly #node_id: string;
  readonly #told = new Map<string, { waiting: number; until: number }>();

  constructor(clock: Clock, cluster: Pick<ClusterStore, 'tell'> | null, node_id: string) {
    this.#clock = clock;
    this.#cluster = cluster;
    this.#node_id = node_id;
  }

  /** Deliveries that wait in other nodes which have no time to spare, as far as these told. */
  get others(): number {
    if (this.#told.size === 0) return 0;
    const now = this.#clock.now();
    let waiting = 0;
    for (const [node_id, told] of this.#told) {
      if (told.until > now) waiting += told.waiting;
      else this.#told.delete(node_id);
    }
    return waiting;
  }

  /** Tells the others that so much waits here, and that this node has no time to spare. */
  tell(waiting: number): void {
    void this.#cluster?.tell(TOPIC, `${Math.round(waiting)} ${this.#node_id}`).catch(() => {});
  }

  hear(topic: string, text: string): void {
    if (topic !== TOPIC) return;
    const [, waiting, node_id] = /^(\d{1,12}) (.{1,200})$/.exec(text) ?? [];
    if (node_id === undefined || (this.#told.size >= NODES_MAX && !this.#told.has(node_id))) return;
    this.#told.set(node_id, { waiting: Number(waiting), until: this.#clock.now() + TOLD_MS });
  }
}
