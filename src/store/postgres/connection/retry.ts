import { setTimeout as pause } from 'node:timers/promises';
import { ConnectionLost, isCollision } from './connection.ts';

/** How long a call looks for the database before it fails: a restart is over by then. */
export const RETRY_WINDOW_MS = 5_000;
export const RETRY_PAUSE_MS = 100;

/**
 * Runs it again while the database is away, or another transaction is in its way: for what may be run twice.
 *
 * @param isOver whether it is of no use to go on
 * @throws what the last one threw
 */
export async function withRetry<T>(run: () => Promise<T>, isOver: () => boolean = () => false): Promise<T> {
  const until_ms = performance.now() + RETRY_WINDOW_MS;
  for (;;) {
    try {
      return await run();
    } catch (error) {
      const again = isCollision(error) || error instanceof ConnectionLost;
      if (!again || isOver() || performance.now() > until_ms) throw error;
      if (error instanceof ConnectionLost) await pause(RETRY_PAUSE_MS);
    }
  }
}
