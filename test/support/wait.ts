import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';

/** Far longer than anything takes that is waited for, so that a busy machine fails no test. */
export const PATIENCE_MS = 60_000;

/** Between two looks: long enough to leave the processor to those who are looked at. */
const LOOK_EVERY_MS = 5;

/**
 * Reads again and again until what was read holds; answers it.
 *
 * @param what completes "waited in vain for …"
 */
export async function until<T>(what: string, read: () => Promise<T> | T, holds: (value: T) => boolean): Promise<T> {
  const deadline_ms = performance.now() + PATIENCE_MS;
  for (;;) {
    const value = await read();
    if (holds(value)) return value;
    if (performance.now() > deadline_ms) {
      throw new Error(`waited in vain for ${what}; the latest was ${JSON.stringify(value, null, 2)}`);
    }
    await pause(LOOK_EVERY_MS);
  }
}

/** Rejects when what is promised takes too long, and says what it was. */
export async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`waited in vain for ${what}`)), PATIENCE_MS);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** What happened while this process had no processor is seen in the first of them; the rest is for answers to it. */
const TURNS = 100;

/**
 * Rejects when what is promised comes later than a timer of this process and some turns of its loop. A busy machine
 * makes the timer as late as everything else, so that only what waits for longer than that is found.
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
