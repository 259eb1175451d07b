import { Backoff } from './backoff.ts';
import { ConvokeError, isPassing } from './error.ts';
import { pause } from './pause.ts';

export interface UntilReachedOptions {
  /** Aborting it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called with each failure after which the call is repeated. */
  onFailure?: ((error: ConvokeError) => void) | undefined;
  /** Makes the pauses; tests replace it. Must reject when the signal is aborted. */
  sleep?: ((ms: number, signal: AbortSignal | undefined) => Promise<void>) | undefined;
  /** The clock of the pauses; tests replace it. */
  now?: (() => number) | undefined;
}

/**
 * Repeats a call while Convoke cannot be reached, does not respond in time, or is too busy. The pauses are 0.1 s,
 * doubling to 0.5 s in the first minute of a service that is not there, and otherwise to 5 s, or the pause that Convoke
 * asks for. Only for calls that may be carried out twice.
 *
 * @throws ConvokeError when the call is refused
 */
export async function untilReached<T>(
  call: () => Promise<T>,
  { signal, onFailure, sleep = pause, now }: UntilReachedOptions = {},
): Promise<T> {
  const backoff = new Backoff(now);
  for (;;) {
    signal?.throwIfAborted();
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof ConvokeError) || !isPassing(error)) throw error;
      onFailure?.(error);
      await sleep(backoff.pauseAfter(error), signal);
    }
  }
}
