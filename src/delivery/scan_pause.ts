/** Of the time, what looks through a whole table takes no more than a part in so many. */
const PART = 50;
const REST_MS_MAX = 600_000;

/**
 * How long to rest after a look through a table, in milliseconds. It takes long where there is much to pass by, and most of
 * all where nothing that is dead can be removed: while a session somewhere is idle in a transaction.
 *
 * @param took_ms how long the look took
 * @param least_ms the rest after a quick one
 */
export function scanPause(took_ms: number, least_ms: number): number {
  return Math.max(least_ms, Math.min(took_ms * PART, REST_MS_MAX));
}
