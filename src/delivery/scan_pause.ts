/** A scan of a whole table takes at most a fiftieth of the time, unless it takes more than 12 s. */
const PART = 50;
const PAUSE_MS_MAX = 600_000;

/**
 * How long to pause after a scan of a table, in milliseconds. A scan that passes many rows takes long. It passes the
 * most rows while another session is idle in a transaction, because vacuum then cannot remove dead rows.
 *
 * @param took_ms how long the scan took
 * @param least_ms the pause after a quick scan
 */
export function scanPause(took_ms: number, least_ms: number): number {
  return Math.max(least_ms, Math.min(took_ms * PART, PAUSE_MS_MAX));
}
