import { setTimeout as pause } from 'node:timers/promises';

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
