import { StoreError } from '../store/store_error.ts';

/**
 * Waits for a change. When the change is in doubt, the author hears that it failed, but the store may have made it all
 * the same. Then `readAgain` tells the engine to read again what it has in memory. With several nodes only this node
 * needs that: the store notifies the other nodes of each change that it made.
 */
export async function orReadAgain<T>(change: Promise<T>, readAgain: () => void): Promise<T> {
  try {
    return await change;
  } catch (error) {
    if (error instanceof StoreError && error.code === 'IN_DOUBT') readAgain();
    throw error;
  }
}
