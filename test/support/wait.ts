import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';

/** How long tests wait for something at most: far longer than necessary, so that no test fails on a busy machine. */
export const WAIT_MS_MAX = 60_000;

/** The pause between two reads. In it the tested program can use the processor. */
const LOOK_EVERY_MS = 5;

/**
 * Reads until the value satisfies a condition; returns that value.
 *
 * @param what completes "waited in vain for …"
 */
export async function until<T>(what: string, read: () => Promise<T> | T, holds: (value: T) => boolean): Promise<T> {
  const deadline_ms = performance.now() + WAIT_MS_MAX;
  for (;;) {
    const value = await read();
    if (holds(value)) return value;
    if (performance.now() > deadline_ms) {
      throw new Error(`waited in vain for ${what}; the latest was ${JSON.stringify(value, null, 2)}`);
    }
    await pause(LOOK_EVERY_MS);
  }
}

/** Rejects when a promise takes too long, with a text that names it. */
export async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`waited in vain for ${what}`)), WAIT_MS_MAX);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * How many turns of the event loop to wait. In the first turn this process sees what happened while it had no
 * processor; the other turns leave time for responses to that.
 */
const TURNS = 100;

/**
 * Rejects when a promise settles later than a timer of this process and some turns of its event loop. A busy machine
 * delays the timer as much as everything else, so this finds only promises that wait for longer than `timer_ms`.
 */
export async function beforeTimer<T>(what: string, timer_ms: number, promise: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(async () => {
    for (let turns = 0; turns < TURNS; turns++) await turn();
    late.reject(new Error(`${what} took longer than a timer of ${timer_ms} ms`));
  }, timer_ms);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
