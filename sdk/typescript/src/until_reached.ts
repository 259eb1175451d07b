import { ConvokeError, isPassing } from './error.ts';
import { pause } from './pause.ts';

const PAUSE_FIRST_MS = 100;
const PAUSE_MS_MAX = 5_000;

export interface UntilReachedOptions {
  /** Aborting it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called with each failure that is waited out. */
  onFailure?: ((error: ConvokeError) => void) | undefined;
  /** How the pauses are made; for tests. Must reject when the signal is aborted. */
  sleep?: ((ms: number, signal: AbortSignal | undefined) => Promise<void>) | undefined;
}

/**
 * Makes a call again and again while Convoke cannot be reached, does not respond in time, or is too busy: after 0.1 s,
 * doubling to 5 s, or when Convoke asks for it. Only for calls that may be carried out twice.
 *
 * @throws ConvokeError when the call is refused
 */
export async function untilReached<T>(
  call: () => Promise<T>,
  { signal, onFailure, sleep = pause }: UntilReachedOptions = {},
): Promise<T> {
  for (let failures = 0; ; failures++) {
    signal?.throwIfAborted();
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof ConvokeError) || !isPassing(error)) throw error;
      onFailure?.(error);
      await sleep(retryPauseMs(failures, error), signal);
    }
  }
}

/** @param failures in a row before this one. Up to half of the pause is left out by chance, so that not all return at once. */
export function retryPauseMs(failures: number, { retry_after_s }: Pick<ConvokeError, 'retry_after_s'>): number {
  const pause_ms = Math.min(PAUSE_FIRST_MS * 2 ** Math.min(failures, 20), PAUSE_MS_MAX) * (0.5 + Math.random() / 2);
  return Math.max(pause_ms, (retry_after_s ?? 0) * 1000);
}
