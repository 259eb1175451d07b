/**
 * Publishes the reports of the engine. Call these functions only while `feed.is_active`: they make objects, which
 * nobody needs otherwise.
 */
import type { AttemptEvent, SuppressedDelivery, SuppressReason } from '../delivery/observer.ts';
import type { Accepted, NewMessage } from '../store/contract/messages.ts';
import { acceptedEvent, attemptedEvent, goneEvent, healthEvent, settledEvent } from './events.ts';
import type { Feed } from './feed.ts';

/**
 * Publishes the new messages of a batch.
 * @param results the results, in the order of the batch
 */
export function publishAccepted(feed: Feed, batch: readonly NewMessage[], results: readonly Accepted[]): void {
  for (const [i, result] of results.entries()) {
    if (result.kind !== 'accepted') continue;
    const target_agents = batch[i]?.target_agents ?? null;
    const instance_ids = result.deliveries.map(({ instance_id }) => instance_id);
    const { message, origin } = result;
    feed.publish(acceptedEvent({ ...message, target_agents, origin }, instance_ids));
  }
}

/** Publishes an attempt and its effects: the new health of its instance, or that the receiver is gone. */
export function publishAttempted(feed: Feed, event: AttemptEvent, wall_ms: number): void {
  const { health_before, health_after, reason } = event;
  feed.publish(attemptedEvent(event, event.attempt));
  const changed = healthEvent(event, health_before, health_after, wall_ms);
  if (changed !== null) feed.publish(changed);
  if (reason === 'gone') feed.publish(goneEvent(event, wall_ms));
}

/** Publishes a delivery that was cancelled before its attempt. */
export function publishSuppressed(
  feed: Feed,
  { instance_id, meeting_id }: SuppressedDelivery,
  reason: SuppressReason,
  wall_ms: number,
): void {
  feed.publish(settledEvent({ instance_id, meeting_id, state: 'cancelled', reason, deliveries: 1 }, wall_ms));
}
