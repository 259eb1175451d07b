/** The longest delay of setTimeout, some 25 days. setTimeout turns a longer delay into one millisecond. */
export const TIMER_MS_MAX = 2 ** 31 - 1;

/** Resolves after this many milliseconds; rejects with the signal's reason when the signal is aborted first. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      if (signal?.aborted) reject(signal.reason as Error);
      else resolve();
    };
    const timer = setTimeout(end, Math.min(ms, TIMER_MS_MAX));
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });
}
