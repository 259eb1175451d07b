import { setTimeout as pause } from 'node:timers/promises';
import type { PushInHand, PushResult } from '@convoke/sdk';

/** The share of a push's time that may pass until a runtime has restarted. The rest is for the runtime's response. */
const HOLD_SHARE = 0.5;
const HOLD_MS_MAX = 60_000;
const PAUSE_FIRST_MS = 100;
const PAUSE_MS_MAX = 1_000;

/**
 * Gives a push to a runtime. A runtime that restarts refuses connections or responds 503 for some seconds. Meanwhile
 * this process holds the push, and gives it again. So a restart is no failure of the instance, and the meetings stay in
 * order.
 *
 * @param ack_timeout_ms how long the service waits for the result of a push
 * @param ending aborted when this process should end; a held push then goes back at once
 */
export async function holdWhileRestarting<Result extends PushResult>(
  push: Pick<PushInHand, 'signal'>,
  post: () => Promise<Result>,
  ack_timeout_ms: number,
  ending: AbortSignal,
): Promise<Result> {
  const signal = AbortSignal.any([push.signal, ending]);
  const until_ms = performance.now() + Math.min(ack_timeout_ms * HOLD_SHARE, HOLD_MS_MAX);
  for (let pause_ms = PAUSE_FIRST_MS; ; pause_ms = Math.min(pause_ms * 2, PAUSE_MS_MAX)) {
    const result = await post();
    const wait_ms = isRestarting(result) ? Math.max(pause_ms, askedMs(result)) : Infinity;
    if (signal.aborted || performance.now() + wait_ms > until_ms) return result;
    await pause(wait_ms, undefined, { signal }).catch(() => {});
    if (signal.aborted) return result;
  }
}

/** Whether nothing took the push: the runtime is not there, or responds that it is not ready. */
function isRestarting(result: PushResult): boolean {
  return 'not_reached' in result || result.status_code === 503;
}

/** The milliseconds that Retry-After asks for, if it names seconds. */
function askedMs(result: PushResult): number {
  const seconds = 'retry_after' in result ? Number(result.retry_after) : 0;
  return Number.isFinite(seconds) ? seconds * 1000 : 0;
}
