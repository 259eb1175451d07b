/**
 * The attempts of a delivery as they are stored: the JSON text of a list of objects.
 *
 * Nearly every delivery succeeds at its first attempt. As an object, this attempt takes more room than the rest of the
 * row. So it is stored in a short form: `[started_at, duration_ms, status_code]`, with the time in milliseconds. If the
 * response had a body, the beginning of the body follows.
 */
import type { Attempt } from './outcome.ts';

/** The length of `2026-11-22T10:20:30.400Z`. */
const ISO_CHARS = 24;

/** The text that is stored for the attempts of a delivery: in the short form for a single success, otherwise JSON. */
export function attemptsText(attempts: readonly Attempt[]): string {
  const [first] = attempts;
  if (first === undefined || attempts.length > 1 || !isFirstSuccess(first)) return JSON.stringify(attempts);
  const { started_at, duration_ms, status_code, response_excerpt } = first;
  const start = `[${Date.parse(started_at)},${duration_ms},${status_code}`;
  return response_excerpt === '' ? `${start}]` : `${start},${JSON.stringify(response_excerpt)}]`;
}

/**
 * The same attempts as a list of objects, which every version of Convoke can read. Earlier versions cannot read the
 * short form.
 */
export function fullAttemptsText(text: string): string {
  const short = /^\[-?\d/.test(text) ? firstSuccessOf(JSON.parse(text)) : null;
  return short === null ? text : JSON.stringify([short]);
}

/** Reads the short form. Null when the value is something else. */
export function firstSuccessOf(value: unknown): Attempt | null {
  if (!Array.isArray(value) || value.length < 3 || value.length > 4) return null;
  const [started_ms, duration_ms, status_code, response_excerpt = ''] = value as unknown[];
  const started = new Date(Number.isSafeInteger(started_ms) ? (started_ms as number) : NaN);
  if (Number.isNaN(started.getTime()) || !Number.isFinite(duration_ms)) return null;
  if (!Number.isSafeInteger(status_code) || typeof response_excerpt !== 'string') return null;
  return {
    attempt: 1,
    started_at: started.toISOString(),
    duration_ms: duration_ms as number,
    outcome: 'ok',
    status_code: status_code as number,
    detail: '',
    response_excerpt,
  };
}

/**
 * Whether the short form keeps all facts of an attempt. A look at the length of the time is enough: `toISOString` made
 * the time, so its milliseconds give the same text again. To make that text here and compare it would take longer than
 * the rest of the function.
 */
function isFirstSuccess({ attempt, started_at, outcome, status_code, detail, answered_agents }: Attempt): boolean {
  return (
    attempt === 1 &&
    outcome === 'ok' &&
    status_code !== null &&
    detail === '' &&
    answered_agents === undefined &&
    started_at.length === ISO_CHARS
  );
}
