/** A timer that has not fired yet. */
export interface Timer {
  cancel(): void;
}

/**
 * Time, as the engine sees it. There are two clocks, because people set the one and not the other:
 * schedules are kept on the steady one, so that an hour's step of the wall clock makes nothing early and nothing stuck.
 */
export interface Clock {
  /** Steady: milliseconds since the epoch as they were when the process started, and from then on never stepped. */
  now(): number;
  /** What the wall clock says; for what people and receivers see. */
  wall(): number;
  /** Calls back once, no sooner than after `delay_ms`. */
  after(delay_ms: number, callback: () => void): Timer;
  /** Calls back when what has already happened has been handled. */
  soon(callback: () => void): void;
}

/** setTimeout takes no more. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export function systemClock(): Clock {
  const origin_ms = Date.now() - performance.now();
  return {
    now: () => Math.round(origin_ms + performance.now()),
    wall: Date.now,
    after(delay_ms, callback) {
      const timer = setTimeout(callback, Math.min(Math.max(delay_ms, 0), TIMER_MS_MAX));
      return { cancel: () => clearTimeout(timer) };
    },
    soon: (callback) => void setImmediate(callback),
  };
}

/** Longer ago says nothing of now. */
const LOAD_WINDOW_MS_MAX = 1_000;

/**
 * How busy this thread's event loop was since it was last asked, 0 to 1. When that is long ago, 1 until it is asked again:
 * whoever asks has a reason to think so.
 */
export function eventLoopLoad(): () => number {
  let former = performance.eventLoopUtilization();
  let asked_at = performance.now();
  return () => {
    const now = performance.now();
    const present = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(present, former);
    const fresh = now - asked_at <= LOAD_WINDOW_MS_MAX;
    former = present;
    asked_at = now;
    return fresh ? utilization : 1;
  };
}
