import { setTimeout as pause } from 'node:timers/promises';
import { ConnectionLost, isCollision } from './connection.ts';

/** How long a call tries to reach the database before it fails. A restart of the database takes less time. */
export const RETRY_WINDOW_MS = 5_000;
export const RETRY_PAUSE_MS = 100;

/**
 * Runs a function again while the database is unreachable, or when two transactions collided. The function must be safe
 * to run twice.
 *
 * @param isOver returns true to stop trying
 * @throws the error of the last try
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
