import type { ConvokeError } from './error.ts';
import { steadyNow } from './steady_now.ts';

const PAUSE_FIRST_MS = 100;
const PAUSE_MS_MAX = 5_000;
/** For this long after a loss of the service, the pauses stay short: a restart takes seconds. */
const SOON_MS = 60_000;
const PAUSE_SOON_MS_MAX = 500;
/** The longest pause that the service may ask for. A mistake in a proxy must not silence a machine for days. */
const ASKED_MS_MAX = 60_000;

/**
 * The pauses before a request is made again: 0.1 s, doubling to 5 s. Up to half of such a pause is left out at random,
 * so that not all machines return together. If the service asks for a longer pause, that pause is used whole, up to a
 * minute.
 *
 * While the service cannot be reached, a pause is at most 0.5 s for the first minute. Such requests cost the service
 * almost nothing, and they find it within half a second of its return. After that, or when the service responds with an
 * error, pauses grow to 5 s.
 */
export class Backoff {
  readonly #now: () => number;
  readonly #random: () => number;
  #pause_ms = PAUSE_FIRST_MS;
  #lost_at_ms: number | null = null;

  constructor(now: () => number = steadyNow, random: () => number = Math.random) {
    this.#now = now;
    this.#random = random;
  }

  /** The service has responded. */
  reset(): void {
    this.#pause_ms = PAUSE_FIRST_MS;
    this.#lost_at_ms = null;
  }

  /** How long to pause after a request that failed. */
  pauseAfter(error: Pick<ConvokeError, 'code' | 'status' | 'retry_after_s'>): number {
    this.#lost_at_ms ??= this.#now();
    const is_soon = isAway(error) && this.#now() - this.#lost_at_ms < SOON_MS;
    const pause_ms = Math.min(this.#pause_ms, is_soon ? PAUSE_SOON_MS_MAX : PAUSE_MS_MAX);
    this.#pause_ms = pause_ms * 2;
    return Math.max(pause_ms * (0.5 + this.#random() / 2), askedPause(error));
  }
}

/** The pause that the service asks for; 0 for a response that is not from Convoke. */
export function askedPause({ code, retry_after_s }: Pick<ConvokeError, 'code' | 'retry_after_s'>): number {
  return code === 'unexpected_response' ? 0 : Math.min((retry_after_s ?? 0) * 1000, ASKED_MS_MAX);
}

/**
 * Whether no response came from the service: there was no connection, the connection broke, or a proxy did not reach the
 * service.
 */
function isAway({ code, status }: Pick<ConvokeError, 'code' | 'status'>): boolean {
  return code === 'unreachable' || status === 502;
}
