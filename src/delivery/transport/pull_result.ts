import { outcomeOfStatus } from '../../domain/outcome.ts';
import { describeStatus } from './failures.ts';
import { excerptOf, reportedBody } from './response.ts';
import type { Push, PushResult } from './transport.ts';

/** After so many lost responses with a push, its attempt ends. */
export const LOSSES_MAX = 3;
export const LOST = `the response with the push was lost ${LOSSES_MAX} times`;

/** The result of a push, as a machine reports it: the response of its runtime, or why there is no response. */
export interface PullResult {
  delivery_id: string;
  attempt: number;
  /** Null: the runtime was not reached. */
  status_code: number | null;
  /** Why there is no status, in words; empty when there is one. */
  detail: string;
  retry_after: string | null;
  body: string;
}

/** Judges a result like the response of a receiver. */
export function judgeReported(
  { headers, success_statuses, keeps_body = false }: Push,
  { status_code, detail, retry_after, body }: PullResult,
  duration_ms: number,
): PushResult {
  const empty = emptyResult(duration_ms);
  if (status_code === null) return { ...empty, outcome: 'unreachable', detail };
  const outcome = outcomeOfStatus(status_code, success_statuses);
  return {
    ...empty,
    outcome,
    status_code,
    detail: describeStatus(status_code, outcome),
    response_excerpt: excerptOf([Buffer.from(body)], headers, true),
    retry_after,
    ...(outcome === 'ok' && keeps_body && { kept_body: reportedBody(body) }),
  };
}

/** The result of a push whose machine reported nothing. */
export function unreported(detail: string, duration_ms: number, is_stale: boolean): PushResult {
  return { ...emptyResult(duration_ms), outcome: 'timeout', detail, ...(is_stale && { is_stale }) };
}

function emptyResult(duration_ms: number): Omit<PushResult, 'outcome' | 'detail'> {
  return { status_code: null, duration_ms, stages: [], response_excerpt: '', retry_after: null };
}
