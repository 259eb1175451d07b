import { StoreError } from '../store/store_error.ts';

/**
 * Waits for a change. A change is in doubt when its result is unknown: the author gets an error, although the store may
 * have made the change. Then `readAgain` makes the engine read again what it has in memory. Only this node needs that:
 * the store notifies all other nodes of each change that it made.
 */
export async function orReadAgain<T>(change: Promise<T>, readAgain: () => void): Promise<T> {
  try {
    return await change;
  } catch (error) {
    if (error instanceof StoreError && error.code === 'IN_DOUBT') readAgain();
    throw error;
  }
}
