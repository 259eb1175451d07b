import { type HistoryColumns, SPANS, type Span, SpansOfTime, Tally } from '../domain/history.ts';
import type { ClusterStore } from '../store/contract/cluster.ts';
import type { Clock, Timer } from './clock.ts';
import type { AttemptEvent } from './observer.ts';

const TOPIC = 'history';
/** An earlier broadcast of the sender failed, so the other nodes may lack its counts. */
const MISSED_TOPIC = 'history.missed';

export interface HistoryParts {
  clock: Clock;
  /** Null without other nodes. */
  cluster: Pick<ClusterStore, 'broadcast'> | null;
}

/** Times are milliseconds since the epoch, on the wall clock. */
export interface HistoryRead extends Omit<HistoryColumns, 'first_s' | 'end_s'> {
  /** When this process began to count. */
  counting_since: number;
  /** The time since which this process has the counts of all other nodes without a gap. */
  complete_since: number;
  starts_at: number;
  ends_at: number;
}

/**
 * The counts and latencies of the last day, in memory. To count an event costs one addition. Once a second, while
 * something happens, the node adds its counts to the steps of the spans (see `SPANS`). In a cluster, the node also
 * broadcasts these counts. Each other node adds them to the second in which it receives them. So every node has the
 * counts of all nodes.
 */
export class History {
  readonly #clock: Clock;
  readonly #cluster: HistoryParts['cluster'];
  readonly #spans = new SpansOfTime();
  /** The counts of this node since the beginning of `#second`. */
  readonly #present = new Tally();
  #second = 0;
  /** Null while nothing was counted. */
  #closing: Timer | null = null;
  /** Whether a broadcast failed, and no other node knows it yet. */
  #has_failed = false;
  readonly #since: number;
  #complete_since: number;

  constructor({ clock, cluster }: HistoryParts) {
    this.#clock = clock;
    this.#cluster = cluster;
    this.#since = clock.now();
    this.#complete_since = this.#since;
  }

  accepted(messages: number): void {
    if (messages === 0) return;
    this.#present.count('accepted', messages);
    if (this.#closing === null) this.#begin();
  }

  attempted({ attempt, state, accepted_at }: AttemptEvent, wall_ms: number): void {
    this.#present.attempted(attempt.outcome, state, wall_ms - accepted_at);
    if (this.#closing === null) this.#begin();
  }

  /** Deliveries failed without an attempt. */
  failed(deliveries: number): void {
    if (deliveries === 0) return;
    this.#present.count('failed', deliveries);
    if (this.#closing === null) this.#begin();
  }

  #begin(): void {
    const now = this.#clock.now();
    this.#second = Math.floor(now / 1000);
    this.#closing = this.#clock.after((this.#second + 1) * 1000 - now, () => this.#close());
  }

  #close(): void {
    this.#closing?.cancel();
    this.#closing = null;
    this.#spans.add(this.#second, this.#present);
    if (this.#has_failed) this.#broadcast(MISSED_TOPIC, '');
    this.#broadcast(TOPIC, this.#present.text);
    this.#present.clear();
  }

  /**
   * The counts of a broadcast that failed are not sent again: the other nodes may have them, and would count them
   * twice. The next broadcast says instead that counts may be missing.
   */
  #broadcast(topic: string, text: string): void {
    this.#has_failed = false;
    this.#cluster?.broadcast(topic, text).catch(() => (this.#has_failed = true));
  }

  /** Another node counted something. */
  onBroadcast(topic: string, text: string): void {
    if (topic === MISSED_TOPIC) this.onResync();
    const tally = topic === TOPIC ? Tally.parse(text) : null;
    if (tally !== null) this.#spans.add(Math.floor(this.#clock.now() / 1000), tally);
  }

  /** Counts of other nodes may be missing. */
  onResync(): void {
    this.#complete_since = this.#clock.now();
  }

  /**
   * The steps that have ended.
   *
   * @param since_ms leaves out the steps that began before this time
   */
  read(span: Span, since_ms: number | null): HistoryRead {
    const now = this.#clock.now();
    if (this.#closing !== null && this.#second < Math.floor(now / 1000)) this.#close();
    // The steps have times of the steady clock. Somebody may have set the wall clock since the start, so the result has
    // these times converted to the present wall clock.
    const ahead_s = Math.round((this.#clock.wall() - now) / 1000);
    const { step_s } = SPANS[span];
    const counted_s = Math.floor(this.#since / 1000 / step_s) * step_s;
    const since_s = since_ms === null ? counted_s : Math.max(counted_s, since_ms / 1000 - ahead_s);
    const { first_s, end_s, ...columns } = this.#spans.read(span, since_s, now / 1000);
    const seen = (ms: number): number => ms + ahead_s * 1000;
    return {
      counting_since: seen(this.#since),
      complete_since: seen(this.#complete_since),
      starts_at: seen(first_s * 1000),
      ends_at: seen(end_s * 1000),
      ...columns,
    };
  }

  stop(): void {
    if (this.#closing !== null) this.#close();
  }
}
