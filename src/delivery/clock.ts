import { wallNow } from '../wall_clock.ts';
import { WallSteps } from './wall_steps.ts';

/** A timer that has not fired yet. */
export interface Timer {
  cancel(): void;
}

/**
 * The time of the engine. There are two clocks, because people set the wall clock. Schedules run on the steady clock:
 * when the wall clock is set an hour ahead or back, every retry still starts at the right time.
 */
export interface Clock {
  /**
   * Steady time, in milliseconds since the epoch. It begins with the wall clock's time when the process starts, and
   * nobody can set it.
   */
  now(): number;
  /** The wall clock, for times that people and receivers see. */
  wall(): number;
  /** The steady time of a stored time of the wall clock, even when somebody has set the wall clock since. */
  steadyOf(wall_ms: number): number;
  /** Calls back once, no sooner than after `delay_ms`. */
  after(delay_ms: number, callback: () => void): Timer;
  /** Calls back once, after this thread has handled the events that have already happened. */
  soon(callback: () => void): void;
}

/** The longest delay of setTimeout. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** The clock of this process. Its steady time begins with the time of the wall clock at this call. */
export function systemClock(): Clock {
  const origin_ms = wallNow() - performance.now();
  const now = (): number => Math.round(origin_ms + performance.now());
  const steps = new WallSteps(now(), wallNow());
  return {
    now,
    wall: () => steps.read(now(), wallNow()),
    steadyOf: (wall_ms) => steps.steadyOf(wall_ms),
    after(delay_ms, callback) {
      const timer = setTimeout(callback, Math.min(Math.max(delay_ms, 0), TIMER_MS_MAX));
      return { cancel: () => clearTimeout(timer) };
    },
    soon: (callback) => void setImmediate(callback),
  };
}

/** How busy the event loop of this thread was since the last call, 0 to 1. */
export function eventLoopLoad(): () => number {
  let previous = performance.eventLoopUtilization();
  return () => {
    const present = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(present, previous);
    previous = present;
    return utilization;
  };
}
