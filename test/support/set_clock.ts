import { type Clock, systemClock, type Timer } from '../../src/delivery/clock.ts';
import { WallSteps } from '../../src/delivery/wall_steps.ts';

/**
 * The clock of the system. But a test can set its wall clock, can let both times jump ahead, and can have a slow steady
 * time, so that a limit on it ends later. Unlike those of a `SlowClock`, the timers are not slow.
 */
export class SetClock implements Clock {
  readonly #real = systemClock();
  readonly #began = this.#real.now();
  readonly #steps = new WallSteps(this.#began, this.#real.wall());
  readonly #times: number;
  /** How far the steady time is ahead of the system. */
  #ahead_ms = 0;
  /** How far the wall clock is ahead of the steady time. */
  #stepped_ms = 0;

  /** @param times how many times longer the steady time takes */
  constructor(times = 1) {
    this.#times = times;
  }

  now(): number {
    return this.#began + Math.round((this.#real.now() - this.#began) / this.#times) + this.#ahead_ms;
  }

  after(delay_ms: number, callback: () => void): Timer {
    return this.#real.after(delay_ms, callback);
  }

  soon(callback: () => void): void {
    this.#real.soon(callback);
  }

  wall(): number {
    return this.#steps.read(this.now(), this.#real.wall() + this.#ahead_ms + this.#stepped_ms);
  }

  steadyOf(wall_ms: number): number {
    return this.#steps.steadyOf(wall_ms);
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
