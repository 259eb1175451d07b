import type { Lane } from '../lanes/lane.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { Settlements } from './settlements.ts';

/**
 * Two judges (loop_guard.ts, catch_up.ts) decide whether the head of a lane may be pushed. After they have read what
 * they need, they call these methods of the dispatcher.
 */
export interface JudgedDispatcher {
  offer(recipient: Recipient, lane: Lane): void;
  invalidateLane(recipient: Recipient, lane: Lane): void;
  run(): void;
  retryLater(error: unknown, again: () => void): void;
}

export interface HeadReadParts {
  settlements: Pick<Settlements, 'flush'>;
  /**
   * A function, because the engine makes the judges first: the dispatcher needs them, and the judges need the
   * dispatcher only later.
   */
  dispatcher: () => JudgedDispatcher;
}

/**
 * Reads the facts by which a judge decides about the head of a lane, and offers the lane to the dispatcher again. First
 * it waits until all earlier results are on disk. Otherwise the read could count a delivery as pending that is
 * cancelled already.
 *
 * @param take keeps the result of the read; not called when the lane changed meanwhile
 */
export async function readForHead<Read>(
  { settlements, ...parts }: HeadReadParts,
  recipient: Recipient,
  lane: Lane,
  read: () => Promise<Read>,
  take: (found: Read) => void,
): Promise<void> {
  const dispatcher = parts.dispatcher();
  const { generation } = lane;
  lane.begin('judging');
  recipient.loads++;
  // Also false when the recipient was dropped meanwhile, because then the head of the lane must leave memory.
  const isCurrent = (): boolean => lane.generation === generation && !recipient.dropped;
  try {
    await settlements.flush(recipient.instance_id);
    const found = await read();
    lane.end();
    recipient.loads--;
    // When the rows of the lane may have changed since, the lane is read again.
    if (isCurrent()) {
      take(found);
      dispatcher.offer(recipient, lane);
    } else dispatcher.invalidateLane(recipient, lane);
    dispatcher.run();
  } catch (error) {
    lane.end();
    recipient.loads--;
    // Invalidates the lane now, not at the retry. Before the retry, the lane may become empty and leave memory, and a
    // new lane may replace it.
    if (!isCurrent()) dispatcher.invalidateLane(recipient, lane);
    dispatcher.retryLater(error, () => dispatcher.offer(recipient, lane));
  }
}
