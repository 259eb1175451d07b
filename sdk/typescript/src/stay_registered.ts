import { ConvokeError } from './error.ts';
import { steadyNow } from './steady_now.ts';

/** When an instance is missing twice within this time, somebody removes it on purpose. */
const ON_PURPOSE_MS = 60_000;

export interface StayRegisteredOptions {
  /** When it is aborted, `takePart` does not run again. */
  signal?: AbortSignal | undefined;
  /** Called with the error before `takePart` runs again. */
  onMissing?: ((error: ConvokeError) => void) | undefined;
  /** The clock; tests replace it. */
  now?: (() => number) | undefined;
}

/**
 * Runs `takePart`, which registers an instance, joins and pulls. Runs it again when the service no longer has the
 * instance: somebody deleted it, or restored a backup from before its registration. When that happens again within a
 * minute, somebody removes the instance on purpose. Then the error is thrown.
 *
 * @throws ConvokeError when the service refuses the instance
 */
export async function stayRegistered(
  takePart: () => Promise<void>,
  { signal, onMissing, now = steadyNow }: StayRegisteredOptions = {},
): Promise<void> {
  let missing_at_ms = -Infinity;
  for (;;) {
    try {
      return await takePart();
    } catch (error) {
      if (!(error instanceof ConvokeError) || error.code !== 'instance_does_not_exist' || signal?.aborted) throw error;
      if (now() - missing_at_ms < ON_PURPOSE_MS) throw error;
      missing_at_ms = now();
      onMissing?.(error);
    }
  }
}
