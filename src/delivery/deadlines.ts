/**
 * One deadline for many things at once. All of them last equally long, so the order of starting is the order of ending:
 * a list and a single timer do what a timer per push would, for the price of four assignments.
 */
export abstract class Expiring {
  started_at_ms = 0;
  /** Links of the list; null while it is on none. */
  expires_before: Expiring | null = null;
  expires_after: Expiring | null = null;

  /** The time is up. Called at most once for each time it was added. */
  abstract expire(): void;
}

/** Timers are not armed closer together than this: whatever falls due in between ends together. */
const SWEEP_INTERVAL_MS_MIN = 5;

export class Deadlines {
  readonly #duration_ms: number;
  readonly #now: () => number;
  #first: Expiring | null = null;
  #last: Expiring | null = null;
  #timer: NodeJS.Timeout | null = null;

  /** `now` must be monotonic, in milliseconds. */
  constructor(duration_ms: number, now: () => number) {
    this.#duration_ms = duration_ms;
    this.#now = now;
  }

  add(entry: Expiring, now_ms: number): void {
    entry.started_at_ms = now_ms;
    entry.expires_after = this.#last;
    if (this.#last === null) this.#first = entry;
    else this.#last.expires_before = entry;
    this.#last = entry;
    if (this.#timer === null) this.#arm(this.#duration_ms);
  }

  remove(entry: Expiring): void {
    const { expires_before: later, expires_after: earlier } = entry;
    if (earlier === null && this.#first !== entry) return;
    if (earlier === null) this.#first = later;
    else earlier.expires_before = later;
    if (later === null) this.#last = earlier;
    else later.expires_after = earlier;
    entry.expires_before = entry.expires_after = null;
  }

  /** Disarms the timer; whatever is listed no longer expires. */
  close(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#first = this.#last = null;
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
    while (this.#first !== null && this.#first.started_at_ms <= started_by_ms) {
      const entry = this.#first;
      this.remove(entry);
      entry.expire();
    }
    if (this.#first === null || this.#timer !== null) return;
    this.#arm(Math.max(this.#first.started_at_ms - started_by_ms, SWEEP_INTERVAL_MS_MIN));
  }
}
