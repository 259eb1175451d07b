import { type Clock, systemClock, type Timer } from '../../src/delivery/clock.ts';

/** The clock of the system, but a test can let both of its times jump ahead. */
export class AheadClock implements Clock {
  readonly #real = systemClock();
  #ahead_ms: number;

  constructor(ahead_ms = 0) {
    this.#ahead_ms = ahead_ms;
  }

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
    return this.#real.wall() + this.#ahead_ms;
  }

  jump(ms: number): void {
    this.#ahead_ms += ms;
  }
}
