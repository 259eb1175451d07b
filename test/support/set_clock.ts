import { type Clock, systemClock, type Timer } from '../../src/delivery/clock.ts';

/** The clock of the system. But a test can set its wall clock. */
export class SetClock implements Clock {
  readonly #real = systemClock();
  #ahead_ms = 0;

  now(): number {
    return this.#real.now();
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

  step(ms: number): void {
    this.#ahead_ms += ms;
  }
}
