import { attemptsText } from '../../domain/attempts_text.ts';
import type { DeliveryReason } from '../../domain/delivery.ts';
import type { DeliverySettlement } from '../../store/contract/deliveries.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';

/**
 * The changes that the row of a delivery gets after an attempt, or when the delivery ends without an attempt.
 *
 * @param next_attempt_at steady time; null when there is no next attempt, or when the next attempt waits only for its
 * instance or its lane
 * @param epoch the epoch of the partition: the store ignores a settlement by a node that lost the partition
 */
export function settlementOf(
  delivery: LaneDelivery,
  state: DeliverySettlement['state'],
  reason: DeliveryReason | null,
  next_attempt_at: number | null,
  aside: boolean,
  wall_ms: number,
  epoch: number,
): DeliverySettlement {
  return {
    delivery_id: delivery.delivery_id,
    expires_at: delivery.expires_at,
    state,
    reason,
    attempt_count: delivery.attempt_count,
    answered_badly: delivery.answered_badly,
    attempts: attemptsText(delivery.attempts),
    next_attempt_at,
    aside,
    settled_at: state === 'pending' ? null : wall_ms,
    epoch,
  };
}
