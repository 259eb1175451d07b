import { pushBodyHead } from '../../domain/push_body.ts';
import type { QueuedDelivery } from '../../store/contract/deliveries.ts';

/**
 * A delivery in memory. The text of its message has become the first part of the push's body (`body_head`), and all
 * deliveries of the message share this part.
 */
export interface LaneDelivery extends Omit<QueuedDelivery, 'message'> {
  body_head: Uint8Array;
  /**
   * True when acceptance does not wait for this delivery: it was read from the table, or its message is wide, and no
   * attempt on it has started since.
   */
  is_backlog: boolean;
  /** How many messages the instance missed before this delivery; 0 when that is not counted. */
  missed: number;
}

/**
 * Makes a row from the table into a delivery in memory. An earlier process with a wrong clock may have written the time
 * of the next attempt, but no delivery waits beyond `latest_due`.
 *
 * @param latest_due the latest time at which a delivery written now can be due, in milliseconds of steady time
 */
export function laneDeliveryOf({ message, ...row }: QueuedDelivery, latest_due: number): LaneDelivery {
  const next_attempt_at = row.next_attempt_at === null ? null : Math.min(row.next_attempt_at, latest_due);
  return { ...row, next_attempt_at, body_head: pushBodyHead(row.meeting_id, message), is_backlog: true, missed: 0 };
}
