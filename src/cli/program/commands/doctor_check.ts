type Finding = 'ok' | 'warn' | 'fail';

/** One line of `convoke doctor`. */
export interface Check {
  check: string;
  finding: Finding;
  /** The result of the check, in words. */
  detail: string;
  /** What to do about it; empty when all is well. */
  advice: string;
}

/** A check that found nothing wrong. */
export function ok(check: string, detail: string): Check {
  return { check, finding: 'ok', detail, advice: '' };
}
