import TinyQueue from 'tinyqueue';
import type { Clock, Timer } from './clock.ts';

/** Callbacks at points of steady time, all on one timer. */
export class TimerQueue {
  readonly #clock: Clock;
  readonly #queue = new TinyQueue<{ at: number; wake: () => void }>([], (a, b) => a.at - b.at);
  #timer: Timer | null = null;
  #timer_at = Infinity;
  #stopped = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `wake` at a time. Nothing cancels a call, so `wake` itself checks whether there is still something to do. */
  schedule(at: number, wake: () => void): void {
    if (this.#stopped) return;
    this.#queue.push({ at, wake });
    this.#arm();
  }

  #arm(): void {
    const next = this.#queue.peek();
    if (next === undefined || next.at >= this.#timer_at) return;
    this.#timer?.cancel();
    this.#timer_at = next.at;
    this.#timer = this.#clock.after(next.at - this.#clock.now(), () => this.#fire());
  }

  #fire(): void {
    this.#timer = null;
    this.#timer_at = Infinity;
    const now = this.#clock.now();
    for (let next = this.#queue.peek(); next !== undefined && next.at <= now; next = this.#queue.peek()) {
      this.#queue.pop();
      next.wake();
    }
    this.#arm();
  }

  /** Drops all callbacks, and cancels the timer, which would keep the process alive. */
  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
    this.#queue.length = 0;
    this.#queue.data = [];
  }
}
