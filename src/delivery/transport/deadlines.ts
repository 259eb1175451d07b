import { ListNode, IntrusiveList } from '../intrusive_list.ts';

/**
 * Deadlines of equal length for many pushes. Deadlines end in the order in which they start. So one list with one timer
 * is enough, and a push costs four assignments instead of a timer.
 */
export abstract class DeadlineEntry extends ListNode {
  started_at_ms = 0;

  /** Called when the time is up, at most once for each `add`. */
  abstract expire(): void;
}

/** The least time between two sweeps. Deadlines that end between two sweeps end at the second one. */
const SWEEP_INTERVAL_MS_MIN = 5;

export class Deadlines {
  readonly #duration_ms: number;
  readonly #now: () => number;
  readonly #running = new IntrusiveList<DeadlineEntry>();
  #timer: NodeJS.Timeout | null = null;
  #closed = false;

  /** `now` must be monotonic, in milliseconds. */
  constructor(duration_ms: number, now: () => number) {
    this.#duration_ms = duration_ms;
    this.#now = now;
  }

  /** How many deadlines are running. */
  get size(): number {
    return this.#running.size;
  }

  add(entry: DeadlineEntry, now_ms: number): void {
    entry.started_at_ms = now_ms;
    this.#running.add(entry);
    if (this.#timer === null && !this.#closed) this.#arm(this.#duration_ms);
  }

  remove(entry: DeadlineEntry): void {
    this.#running.delete(entry);
  }

  /** Stops the timer. All running deadlines expire now; deadlines that are added later never expire. */
  close(): void {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (const entry of this.#running.toArray()) this.#expire(entry);
  }

  #expire(entry: DeadlineEntry): void {
    if (this.#running.delete(entry)) entry.expire();
  }

  #arm(delay_ms: number): void {
    // The socket of a push keeps the process alive, so this timer need not. The timer stays when the list becomes
    // empty, so that the next push need not start one.
    this.#timer = setTimeout(() => setImmediate(() => this.#sweep()), delay_ms).unref();
  }

  /** Runs after the next poll for I/O, so that a response counts if it arrived while this process was busy. */
  #sweep(): void {
    if (this.#timer === null) return;
    this.#timer = null;
    const started_by_ms = this.#now() - this.#duration_ms;
    let { first } = this.#running;
    while (first !== null && first.started_at_ms <= started_by_ms) {
      this.#expire(first);
      ({ first } = this.#running);
    }
    if (first === null || this.#timer !== null) return;
    this.#arm(Math.max(first.started_at_ms - started_by_ms, SWEEP_INTERVAL_MS_MIN));
  }
}
