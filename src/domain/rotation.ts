import { Problem } from './problem.ts';

/**
 * A value that a rotation replaced: the digest of a token, or a webhook secret. The value still holds before `until`.
 */
export interface Earlier {
  value: string;
  until: number;
}

/**
 * How many earlier values hold at a time. A push has a signature of 48 bytes for each, and each request with a key is
 * compared with each.
 */
export const EARLIER_MAX = 4;

/** The earlier values that hold at a time. */
export function holding(earlier: readonly Earlier[], wall_ms: number): Earlier[] {
  return earlier.filter(({ until }) => wall_ms < until);
}

/**
 * The earlier values after a rotation, the newest first: those that hold keep their ends, because somebody may rely on
 * them. A rotation without overlap ends them all.
 *
 * @param current the value that the rotation replaces; null when nobody can read it any more
 */
export function earlierAfter(
  { current, earlier }: { current: string | null; earlier: readonly Earlier[] },
  overlap_ms: number,
  wall_ms: number,
): Earlier[] {
  const kept = overlap_ms === 0 ? [] : holding(earlier, wall_ms);
  const replaced = current === null ? [] : [{ value: current, until: wall_ms + overlap_ms }];
  return [...replaced, ...kept].slice(0, EARLIER_MAX);
}

/** @throws Problem `overlaps_in_progress` when a rotation would end an earlier value before its time */
export function assertOverlapLeft(earlier: readonly Earlier[], overlap_ms: number, wall_ms: number): void {
  const kept = holding(earlier, wall_ms);
  if (overlap_ms === 0 || kept.length < EARLIER_MAX) return;
  const ends = new Date(Math.min(...kept.map(({ until }) => until))).toISOString();
  throw new Problem(
    'overlaps_in_progress',
    `${EARLIER_MAX} earlier ones still work, the first of them until ${ends}. A rotation with overlap_seconds 0 ends all of them at once.`,
  );
}
