import TinyQueue from 'tinyqueue';
import type { Clock, Timer } from '../../src/delivery/clock.ts';
import { WallSteps } from '../../src/delivery/wall_steps.ts';

interface VirtualTimer {
  at: number;
  order: number;
  callback: () => void;
  cancelled: boolean;
}

/** The time at which every test begins, on both clocks. */
export const VIRTUAL_START = Date.parse('2026-01-01T00:00:00.000Z');

/**
 * Time that moves only when a test moves it. Before the next timer fires, everything in flight ends: promises, `soon`,
 * and the calls that were given to `watch`, such as calls of the store. So a test never sleeps, and never guesses how
 * long something takes.
 */
export class VirtualClock implements Clock {
  #now = VIRTUAL_START;
  #wall_ahead_ms = 0;
  #steps = new WallSteps(VIRTUAL_START, VIRTUAL_START);
  #order = 0;
  #timers = new TinyQueue<VirtualTimer>([], (a, b) => a.at - b.at || a.order - b.order);
  #in_flight = 0;
  #epoch = 0;
  #onRest: (() => void) | null = null;

  now(): number {
    return this.#now;
  }

  wall(): number {
    return this.#steps.read(this.#now, this.#now + this.#wall_ahead_ms);
  }

  steadyOf(wall_ms: number): number {
    return this.#steps.steadyOf(wall_ms);
  }

  /** Sets the wall clock. The steady clock does not change. */
  stepWall(ms: number): void {
    this.#wall_ahead_ms += ms;
  }

  /** Called when a process starts: its steady clock begins at the wall clock. */
  startAnew(): void {
    this.#now = this.wall();
    this.#wall_ahead_ms = 0;
    this.#steps = new WallSteps(this.#now, this.#now);
  }

  after(delay_ms: number, callback: () => void): Timer {
    const timer = { at: this.#now + Math.max(0, delay_ms), order: this.#order++, callback, cancelled: false };
    this.#timers.push(timer);
    return { cancel: () => void (timer.cancelled = true) };
  }

  soon(callback: () => void): void {
    const epoch = this.#epoch;
    this.#begin();
    setImmediate(() => {
      this.#end();
      if (epoch === this.#epoch) callback();
    });
  }

  /** Makes time wait for a promise. Returns the same promise, so that the order of microtasks does not change. */
  watch<T>(promise: Promise<T>): Promise<T> {
    this.#begin();
    const end = () => this.#end();
    promise.then(end, end);
    return promise;
  }

  /** How many timers have neither fired nor been cancelled. */
  get timers(): number {
    return this.#timers.data.filter(({ cancelled }) => !cancelled).length;
  }

  /** Forgets all timers, as when a process ends. */
  forgetTimers(): void {
    this.#timers = new TinyQueue<VirtualTimer>([], (a, b) => a.at - b.at || a.order - b.order);
    this.#epoch++;
  }

  /** Waits until everything has happened that can happen without a timer. */
  settle(): Promise<void> {
    return this.advance(0);
  }

  /** Moves time, timer by timer. */
  async advance(ms: number): Promise<void> {
    const target = this.#now + ms;
    while (await this.#fireNext(target));
    this.#now = target;
  }

  /** Moves time, timer by timer, until a condition holds. */
  async advanceUntil(what: string, holds: () => boolean, ms_max: number): Promise<void> {
    const target = this.#now + ms_max;
    for (;;) {
      await this.#rest();
      if (holds()) return;
      if (!(await this.#fireNext(target))) throw new Error(`waited in vain for ${what}`);
    }
  }

  async #fireNext(target: number): Promise<boolean> {
    await this.#rest();
    let next = this.#timers.peek();
    while (next?.cancelled === true) {
      this.#timers.pop();
      next = this.#timers.peek();
    }
    if (next === undefined || next.at > target) return false;
    this.#timers.pop();
    this.#now = next.at;
    next.callback();
    return true;
  }

  #begin(): void {
    this.#in_flight++;
  }

  #end(): void {
    if (--this.#in_flight === 0) this.#onRest?.();
  }

  /** Waits until nothing is in flight. An immediate runs after all microtasks, so nothing starts by itself after it. */
  async #rest(): Promise<void> {
    for (;;) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (this.#in_flight === 0) return;
      await new Promise<void>((resolve) => {
        this.#onRest = resolve;
      });
      this.#onRest = null;
    }
  }
}
