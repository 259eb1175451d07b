/** The longest Retry-After that counts: a longer one counts as this time. */
export const RETRY_AFTER_MS_MAX = 3_600_000;

/**
 * How long a delivery waits after a bad response, in milliseconds. The delay of the schedule with its jitter; or
 * Retry-After, if that is longer and the status is 429 or 503.
 *
 * @param random a number in [0, 1), for the jitter
 */
export function retryDelayMs(
  response: { status_code: number | null; retry_after: string | null },
  scheduled_ms: number,
  wall_ms: number,
  random: number,
): number {
  const delay_ms = jittered(scheduled_ms, random);
  if (response.status_code !== 429 && response.status_code !== 503) return delay_ms;
  const asked_ms = retryAfterMs(response.retry_after, wall_ms);
  return asked_ms === null ? delay_ms : Math.max(delay_ms, Math.min(asked_ms, RETRY_AFTER_MS_MAX));
}

/** The longest that a delivery can wait after a bad response, in milliseconds. */
export function retryDelayMsMax(retry_schedule_ms: readonly number[]): number {
  return jittered(Math.max(RETRY_AFTER_MS_MAX, ...retry_schedule_ms), 1);
}

/** Changes a delay by up to ±20 %. */
export function jittered(delay_ms: number, random: number): number {
  return Math.round(delay_ms * (0.8 + 0.4 * random));
}

/**
 * The value of a Retry-After header (RFC 9110, section 10.2.3) in milliseconds from now; null when it is not valid.
 * Never NaN, never negative; may be longer than RETRY_AFTER_MS_MAX.
 */
function retryAfterMs(value: string | null, wall_ms: number): number | null {
  if (value === null) return null;
  const text = value.trim();
  if (/^\d+$/.test(text)) return Math.min(Number(text) * 1000, Number.MAX_SAFE_INTEGER);
  // An HTTP date starts with the name of a day. Date.parse would also take other texts, such as "-5" and "1e99".
  if (!/^[A-Za-z]{3,9},? /.test(text)) return null;
  // All three forms of RFC 9110 are in GMT, and the asctime form does not say so.
  const at = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`);
  return Number.isNaN(at) ? null : Math.max(0, at - wall_ms);
}
