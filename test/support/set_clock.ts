import { type Clock, systemClock, type Timer } from '../../src/delivery/clock.ts';

/** The clock of the system. But a test can set its wall clock, and can let both times jump ahead. */
export class SetClock implements Clock {
  readonly #real = systemClock();
  /** How far the steady time is ahead of the system. */
  #ahead_ms = 0;
  /** How far the wall clock is ahead of the steady time. */
  #stepped_ms = 0;

  now(): number {
    return this.#real.now() + this.#ahead_ms;
  }

  after(delay_ms: number, callback: () => void): Timer {
    return this.#real.after(delay_ms, callback);
  }

  soon(callback: () => void): void {
    this.#real.soon(callback);
  }

  wall(): number {
    return this.#real.wall() + this.#ahead_ms + this.#stepped_ms;
  }

  /** Sets the wall clock. */
  step(ms: number): void {
    this.#stepped_ms += ms;
  }

  /** Moves both times, as if this much time had passed. No timer fires earlier. */
  jump(ms: number): void {
    this.#ahead_ms += ms;
  }
}
