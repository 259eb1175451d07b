import type { Attempt, Outcome } from './outcome.ts';
import { excerptOfText, OUTCOMES } from './outcome.ts';
import { DOWN_AFTER_FAILURES, FAILURE_EXCERPT_CHARS_MAX, healthOf, type InstanceHealth } from './instance.ts';
import { jittered, retryDelayMs } from './retry_delay.ts';

export const DELIVERY_STATES = ['pending', 'delivered', 'failed', 'cancelled'] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

/** Why a delivery failed, or was cancelled. */
export const REASONS_OF = {
  failed: ['not_200', 'gone', 'exhausted', 'expired'],
  cancelled: ['instance_deleted', 'dropped', 'hop_limit', 'pair_limit', 'superseded', 'max_age'],
} as const;
export const DELIVERY_REASONS = [...REASONS_OF.failed, ...REASONS_OF.cancelled] as const;
export type DeliveryReason = (typeof DELIVERY_REASONS)[number];

/** The reasons for which a pending delivery waits. */
export const WAITING_FOR = ['turn', 'retry', 'back_off', 'paused', 'switched_off', 'connection'] as const;
export type WaitingFor = (typeof WAITING_FOR)[number];

/** The most pending deliveries that are counted before a drop: some 20 ms of the store. */
export const WAITING_COUNTED_MAX = 100_000;

/**
 * Whether a settled delivery can be queued again by hand: it failed, or it was cancelled and its instance was not
 * deleted.
 */
export function mayQueueAgain({ state, reason }: { state: string; reason: string | null }): boolean {
  return state === 'failed' || (state === 'cancelled' && reason !== 'instance_deleted');
}

/** After this many bad responses a delivery goes aside and no longer holds its lane. */
export const LANE_HELD_THROUGH_ATTEMPT = 3;

export const BACKOFF_FIRST_MS = 10_000;
export const BACKOFF_MAX_MS = 300_000;

/**
 * The attempts that are kept with a delivery: the first ten and the latest ninety. attempt_count counts all attempts.
 */
const ATTEMPTS_KEPT_FIRST = 10;
const ATTEMPTS_KEPT_LAST = 90;

/** The effect of an attempt's result on its delivery. */
export type Verdict =
  | { state: 'delivered' }
  | { state: 'failed'; reason: Extract<DeliveryReason, 'not_200' | 'gone' | 'exhausted'> }
  /** The receiver gave a bad response: the delivery is tried again after `delay_ms`, in its lane or aside. */
  | { state: 'retry'; delay_ms: number; aside: boolean }
  /** The receiver was not reached: the delivery keeps its place and the instance backs off. */
  | { state: 'not_reached' };

/**
 * Decides the new state of a delivery after an attempt, and when it is retried (the table in docs/delivery.md).
 *
 * @param answered_badly how many attempts got a bad response, this one included
 * @param schedule_ms the delays between attempts with a bad response; their number bounds the retries
 * @param random a number in [0, 1), for the jitter
 */
export function verdictOf(
  result: { outcome: Outcome; status_code: number | null; retry_after: string | null },
  answered_badly: number,
  schedule_ms: readonly number[],
  wall_ms: number,
  random: number,
): Verdict {
  const { outcome } = result;
  if (outcome === 'ok') return { state: 'delivered' };
  if (outcome === 'not_200' || outcome === 'gone') return { state: 'failed', reason: outcome };
  if (!OUTCOMES[outcome].reached) return { state: 'not_reached' };

  const scheduled_ms = schedule_ms[answered_badly - 1];
  if (scheduled_ms === undefined) return { state: 'failed', reason: 'exhausted' };
  const delay_ms = retryDelayMs(result, scheduled_ms, wall_ms, random);
  return { state: 'retry', delay_ms, aside: answered_badly >= LANE_HELD_THROUGH_ATTEMPT };
}

/**
 * The health of an instance after an attempt. The instance backs off when it was not reached. When it is down, it backs
 * off after every failure. Attempts that were in flight when a back-off began do not lengthen the back-off.
 *
 * @param now_ms steady time, as backoff_until
 * @param wall_ms the time that people see
 */
export function healthAfter(
  health: InstanceHealth,
  result: Pick<Attempt, 'outcome' | 'status_code' | 'detail' | 'response_excerpt'>,
  now_ms: number,
  wall_ms: number,
  random: number,
): InstanceHealth {
  const consecutive_failures = result.outcome === 'ok' ? 0 : health.consecutive_failures + 1;
  const last_success_at = result.outcome === 'ok' ? wall_ms : health.last_success_at;
  const is_same = healthOf({ consecutive_failures, last_success_at }) === healthOf(health);
  const health_since = is_same ? health.health_since : wall_ms;
  if (result.outcome === 'ok') {
    return { ...health, consecutive_failures, health_since, last_success_at, backoff_step: 0, backoff_until: null };
  }
  const next: InstanceHealth = {
    ...health,
    consecutive_failures,
    health_since,
    last_failure: {
      at: new Date(wall_ms).toISOString(),
      outcome: result.outcome,
      status_code: result.status_code,
      detail: result.detail,
      ...(result.response_excerpt !== '' && {
        response_excerpt: excerptOfText(result.response_excerpt, FAILURE_EXCERPT_CHARS_MAX),
      }),
    },
  };
  const backs_off = !OUTCOMES[result.outcome].reached || consecutive_failures >= DOWN_AFTER_FAILURES;
  const backing_off_already = health.backoff_until !== null && now_ms < health.backoff_until;
  if (backs_off && !backing_off_already) {
    const delay_ms = Math.min(BACKOFF_FIRST_MS * 2 ** Math.min(health.backoff_step, 20), BACKOFF_MAX_MS);
    next.backoff_step = health.backoff_step + 1;
    next.backoff_until = now_ms + jittered(delay_ms, random);
  }
  return next;
}

/** Whether an instance was up before and after an attempt, so that only the time of its last success changed. */
export function isSuccessAgain(before: InstanceHealth, after: InstanceHealth): boolean {
  return (
    before.last_success_at !== null &&
    before.consecutive_failures === 0 &&
    after.consecutive_failures === 0 &&
    before.backoff_until === null &&
    before.backoff_step === 0
  );
}

/** An instance that backs off, or is down, gets one attempt at a time until an attempt succeeds. */
export function isProbed(health: InstanceHealth): boolean {
  return health.backoff_step > 0 || health.consecutive_failures >= DOWN_AFTER_FAILURES;
}

/**
 * Appends an attempt to the attempts that are kept with the delivery. When there are too many, drops the oldest attempt
 * after the first ten.
 */
export function withAttempt(attempts: readonly Attempt[], attempt: Attempt): Attempt[] {
  const all = [...attempts, attempt];
  if (all.length > ATTEMPTS_KEPT_FIRST + ATTEMPTS_KEPT_LAST) all.splice(ATTEMPTS_KEPT_FIRST, 1);
  return all;
}
