import { type Clock, systemClock, type Timer } from '../../src/delivery/clock.ts';
import { WallSteps } from '../../src/delivery/wall_steps.ts';

/**
 * The clock of the system, but its steady time is slow. So the pauses and limits of a service are that much longer, and
 * a test on a slow machine can act before they end. The wall clock is that of the system.
 */
export class SlowClock implements Clock {
  readonly #real = systemClock();
  readonly #began = this.#real.now();
  readonly #steps = new WallSteps(this.#began, this.#real.wall());
  readonly #times: number;

  /** @param times how many times longer everything takes */
  constructor(times: number) {
    this.#times = times;
  }

  now(): number {
    return this.#began + Math.round((this.#real.now() - this.#began) / this.#times);
  }

  after(delay_ms: number, callback: () => void): Timer {
    return this.#real.after(delay_ms * this.#times, callback);
  }

  soon(callback: () => void): void {
    this.#real.soon(callback);
  }

  wall(): number {
    return this.#steps.read(this.now(), this.#real.wall());
  }

  steadyOf(wall_ms: number): number {
    return this.#steps.steadyOf(wall_ms);
  }
}
