/** RFC 3339, section 5.6: a date, a time, and the offset from UTC. */
const TIME = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:Z|[+-](\d{2}):(\d{2}))$/i;

/**
 * The first and the last time that Convoke accepts. Between them the year in UTC has four digits, so a client can give
 * every time that Convoke returned.
 */
const FIRST_MS = Date.parse('0000-01-01T00:00:00.000Z');
const LAST_MS = Date.parse('9999-12-31T23:59:59.999Z');

/**
 * Whether a text is a time that Convoke can store. Date.parse accepts days that do not exist (30 February becomes 2
 * March), and returns NaN for a leap second. A database stores NaN as NULL, and a key with NULL as its end would never
 * end.
 */
export function isTime(text: string): boolean {
  const match = TIME.exec(text);
  const at = Date.parse(text);
  if (match === null || !(at >= FIRST_MS && at <= LAST_MS)) return false;
  const [year = 0, month = 0, day = 0, hours = 0, minutes = 0, seconds = 0] = match.slice(1, 7).map(Number);
  const as_utc = new Date(0);
  as_utc.setUTCFullYear(year, month - 1, day);
  as_utc.setUTCHours(hours, minutes, seconds);
  const [offset_hours = 0, offset_minutes = 0] = match.slice(7).map((part) => Number(part ?? 0));
  return (
    as_utc.getUTCDate() === day &&
    as_utc.getUTCMonth() === month - 1 &&
    hours <= 23 &&
    minutes <= 59 &&
    seconds <= 59 &&
    offset_hours <= 23 &&
    offset_minutes <= 59
  );
}

/** How far from 1970 a Date can be, in either direction, in milliseconds. */
const TIME_MAX = 8_640_000_000_000_000;

/** A stored time as text. A damaged row may hold a number that is no date: the nearest date replaces it. */
export const isoTime = (ms: number): string => new Date(Math.max(-TIME_MAX, Math.min(ms, TIME_MAX))).toISOString();
export const isoTimeOrNull = (ms: number | null): string | null => (ms === null ? null : isoTime(ms));
