import type { Clock } from '../delivery/clock.ts';
import type { Engine } from '../delivery/engine.ts';
import { queuedEvent } from '../feed/events.ts';
import type { Feed } from '../feed/feed.ts';
import type { DeliveryRow, DeliveryStore } from '../store/contract/deliveries.ts';
import type { Author } from './author.ts';

export interface DeliveryChangesParts {
  store: { deliveries: Pick<DeliveryStore, 'get'> };
  engine: Pick<Engine, 'deliveryRetried'>;
  feed: Pick<Feed, 'publish'>;
  clock: Clock;
  /** How long a delivery that is queued again may stay pending. */
  expire_after_ms: number;
}

export class DeliveryChanges {
  readonly #parts: DeliveryChangesParts;

  constructor(parts: DeliveryChangesParts) {
    this.#parts = parts;
  }

  /**
   * Queues a delivery again. Returns it as it is before its next attempt; null when there is no such delivery.
   *
   * @throws Problem `delivery_not_retryable`
   */
  async retry(author: Author, delivery_id: string): Promise<DeliveryRow | null> {
    const { store, engine, feed, clock, expire_after_ms } = this.#parts;
    const now = clock.now();
    const { deliveries } = author.storeFor();
    const retried = await deliveries.retry(delivery_id, now, now + expire_after_ms, author.owner_scope);
    if (retried === null) return null;
    const row = await store.deliveries.get(delivery_id, now);
    engine.deliveryRetried({ ...retried, delivery_id });
    const { instance_id, meeting_id } = retried;
    feed.publish(queuedEvent({ instance_id, meeting_id, delivery_id, deliveries: 1 }, clock.wall()));
    return row;
  }

  /** Queues what failed for an instance since `since_ms` again; null when there is no such instance. */
  async recover(author: Author, instance_id: string, since_ms: number): ReturnType<DeliveryStore['recover']> {
    const { engine, feed, clock, expire_after_ms } = this.#parts;
    const now = clock.now();
    const { deliveries } = author.storeFor();
    const recovered = await deliveries.recover(instance_id, since_ms, now, now + expire_after_ms, author.owner_scope);
    if (recovered === null) return null;
    engine.deliveryRetried({ instance_id, meeting_id: '', aside: true });
    const queued = { instance_id, meeting_id: null, delivery_id: null, deliveries: recovered.recovered };
    if (queued.deliveries > 0) feed.publish(queuedEvent(queued, clock.wall()));
    return recovered;
  }
}
