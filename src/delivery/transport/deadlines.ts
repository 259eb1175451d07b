import { ListNode, IntrusiveList } from '../intrusive_list.ts';

/**
 * One deadline for many things at once. All of them last equally long, so the order of starting is the order of ending:
 * a list and a single timer do what a timer per push would, for the price of four assignments.
 */
export abstract class DeadlineEntry extends ListNode {
  started_at_ms = 0;

  /** The time is up. Called at most once for each time it was added. */
  abstract expire(): void;
}

/** Timers are not armed closer together than this: whatever falls due in between ends together. */
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

  /** How many are under way. */
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

  /** Disarms the timer: whatever is added no longer expires, and what is under way does so now. */
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
    // What is waited for keeps the process alive by its own socket. The timer is left to lapse when the list
    // is empty: arming it anew for each push is what this class is there to avoid.
    this.#timer = setTimeout(() => setImmediate(() => this.#sweep()), delay_ms).unref();
  }

  /** Runs after a poll for I/O, so that an answer which lay in the socket while this process was busy still counts. */
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
