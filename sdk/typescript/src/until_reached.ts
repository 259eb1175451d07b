import { Backoff } from './backoff.ts';
import { ConvokeError, isWaitedOut } from './error.ts';
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
 * Repeats a call while Convoke cannot be reached, does not respond in time, or is too busy, and while something else
 * responds in its place. The first pause is 0.1 s, and each further pause is twice as long. In the first minute without
 * a connection a pause is at most 0.5 s, otherwise at most 5 s. If Convoke asks for a longer pause, that pause is used,
 * up to a minute. Only for calls that may be carried out twice.
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
      if (!(error instanceof ConvokeError) || !isWaitedOut(error)) throw error;
      onFailure?.(error);
      await sleep(backoff.pauseAfter(error), signal);
    }
  }
}
