import type { Clock } from '../delivery/clock.ts';
import type { Engine } from '../delivery/engine.ts';
import type { Expiry } from '../delivery/expiry.ts';
import { WAITING_COUNTED_MAX } from '../domain/delivery.ts';
import { isoTime } from '../domain/time.ts';
import { queuedEvent, settledEvent } from '../feed/events.ts';
import type { Feed } from '../feed/feed.ts';
import type { DeliveryRow, DeliveryStore, LaneKey, Recovery, Waiting } from '../store/contract/deliveries.ts';
import type { MessageStore } from '../store/contract/messages.ts';
import type { Author } from './author.ts';
import { orReadAgain } from './in_doubt.ts';
import { orPartDone } from './part_done.ts';

/** The most deliveries that one transaction drops. So a drop of a million deliveries delays nobody. */
const DROP_BATCH = 2_000;
/** The most deliveries that one transaction queues again: other calls of the store wait some 10 ms for it. */
const RECOVER_BATCH = 1_000;
/** After about this time a call responds and leaves the rest to the next call. Our clients wait 10 s. */
const PART_MS_MAX = 2_000;

export interface DeliveryChangesParts {
  store: {
    deliveries: Pick<DeliveryStore, 'get' | 'countWaiting' | 'drop' | 'recover'>;
    messages: Pick<MessageStore, 'last'>;
  };
  engine: Pick<Engine, 'deliveryRetried' | 'dropped'>;
  feed: Pick<Feed, 'publish'>;
  clock: Clock;
  expiry: Pick<Expiry, 'endOfNew'>;
}

/** How many deliveries wait. With `at_least` there are more, which were not counted. */
interface Counted {
  deliveries: number;
  at_least: boolean;
}

export class DeliveryChanges {
  readonly #parts: DeliveryChangesParts;

  constructor(parts: DeliveryChangesParts) {
    this.#parts = parts;
  }

  /**
   * Queues a delivery again. Returns the delivery as it waits for its next attempt; null when there is no such
   * delivery.
   *
   * @throws Problem `delivery_not_retryable`
   */
  async retry(author: Author, delivery_id: string): Promise<DeliveryRow | null> {
    const { store, engine, feed, clock, expiry } = this.#parts;
    const now = clock.now();
    const { deliveries } = author.storeFor();
    const retrying = deliveries.retry(delivery_id, now, expiry.endOfNew(), author.owner_scope);
    const retried = await orReadAgain(retrying, () => void this.#mayBeQueued(delivery_id));
    if (retried === null) return null;
    // This call comes before the read of the row. If the read fails, nothing else makes the engine read the delivery.
    engine.deliveryRetried({ ...retried, delivery_id });
    const { instance_id, meeting_id } = retried;
    feed.publish(queuedEvent({ instance_id, meeting_id, delivery_id, deliveries: 1 }, clock.wall()));
    return orPartDone(store.deliveries.get(delivery_id, now), 'read the delivery: it is queued again');
  }

  /**
   * Call it when a retry is in doubt: the store may have queued the delivery again, in its lane or aside. The author
   * does not wait for this read.
   */
  async #mayBeQueued(delivery_id: string): Promise<void> {
    const { store, engine, clock } = this.#parts;
    const row = await store.deliveries.get(delivery_id, clock.now()).catch(() => null);
    if (row?.state !== 'pending') return;
    const { instance_id, meeting_id } = row;
    for (const aside of [false, true]) engine.deliveryRetried({ instance_id, meeting_id, delivery_id, aside });
  }

  /**
   * Queues deliveries of an instance again, at most `limit` of a period. One call does a part: call it again with the
   * same `of` until `done`. A delivery that was queued again is pending; if it fails again, its new time of failure is
   * after the period. So no later step queues it twice, and a stop between two steps loses no delivery. Null when there
   * is no such instance.
   *
   * Deliveries that are given by `delivery_ids` are all queued in one step. With a second step, a delivery that failed
   * again in between would be queued twice.
   */
  async recover(author: Author, of: Recovery, limit = Infinity): Promise<{ recovered: number; done: boolean } | null> {
    const { store, clock, expiry } = this.#parts;
    const ends_at = clock.now() + PART_MS_MAX;
    const chosen = 'delivery_ids' in of ? of.delivery_ids.length : null;
    // Without its `until`, a repetition would also queue what failed meanwhile.
    const next = 'until_ms' in of ? `repeat the call with "until": "${isoTime(of.until_ms)}"` : null;
    let recovered = 0;
    // The first step writes the audit entry for all steps.
    let step: Pick<DeliveryStore, 'recover'> = author.storeFor().deliveries;
    for (;;) {
      const now = clock.now();
      const most = chosen ?? Math.min(RECOVER_BATCH, limit - recovered);
      const recovering = step.recover(of, most, now, expiry.endOfNew(), author.owner_scope);
      const made = await orPartDone(
        orReadAgain(recovering, () => this.#recovered(of.instance_id, 0)),
        recovered === 0 ? null : next,
      );
      if (made === null) return null;
      step = store.deliveries;
      recovered += made.recovered;
      this.#recovered(of.instance_id, made.recovered);
      if (chosen !== null || made.recovered < most) return { recovered, done: true };
      if (recovered >= limit || clock.now() >= ends_at) return { recovered, done: false };
      author.assertStanding();
    }
  }

  #recovered(instance_id: string, deliveries: number): void {
    const { engine, feed, clock } = this.#parts;
    engine.deliveryRetried({ instance_id, meeting_id: '', aside: true });
    const queued = { instance_id, meeting_id: null, delivery_id: null, deliveries };
    if (deliveries > 0) feed.publish(queuedEvent(queued, clock.wall()));
  }

  /** How many deliveries `drop` would cancel now, and its `up_to`. */
  async countWaiting(
    author: Author,
    of: Partial<LaneKey>,
    up_to?: string,
  ): Promise<Counted & { up_to: string | null }> {
    const waiting = await this.#waiting(of, up_to);
    return { ...(await this.#counted(waiting, author)), up_to: waiting.up_to };
  }

  async #counted(waiting: Waiting, { owner_scope }: Author): Promise<Counted> {
    const { deliveries } = this.#parts.store;
    const found = await deliveries.countWaiting(waiting, WAITING_COUNTED_MAX + 1, owner_scope);
    return { deliveries: Math.min(found, WAITING_COUNTED_MAX), at_least: found > WAITING_COUNTED_MAX };
  }

  async #waiting(of: Partial<LaneKey>, up_to: string | undefined): Promise<Waiting> {
    return { ...of, up_to: up_to ?? (await this.#parts.store.messages.last()) };
  }

  /**
   * Cancels pending deliveries of an instance, of a meeting, or of a lane. One call does a part: call again with its
   * `up_to` until `done`. A message that is sent after the first call keeps its deliveries. A push in flight may still
   * arrive.
   *
   * @param up_to the message_id of the last message whose deliveries are cancelled; absent: the last one that is stored
   */
  async drop(
    author: Author,
    of: Partial<LaneKey>,
    up_to?: string,
  ): Promise<{ deliveries: number; up_to: string | null; done: boolean }> {
    const { store, engine, feed, clock } = this.#parts;
    const ends_at = clock.now() + PART_MS_MAX;
    const waiting = await this.#waiting(of, up_to);
    // The audit entry of the first part has the count for all parts.
    const counted = up_to === undefined ? await this.#counted(waiting, author) : {};
    let deliveries = 0;
    // The first step writes the audit entry for all steps.
    let step: Pick<DeliveryStore, 'drop'> = author.storeFor({ details: { ...of, ...counted } }).deliveries;
    for (;;) {
      const dropping = step.drop(waiting, DROP_BATCH, clock.wall(), author.owner_scope);
      const lanes = await orPartDone(
        orReadAgain(dropping, () => void engine.dropped(of, 0)),
        deliveries === 0 ? null : `repeat the call with "up_to": "${waiting.up_to}"`,
      );
      step = store.deliveries;
      const dropped = lanes.reduce((sum, { count }) => sum + count, 0);
      deliveries += dropped;
      if (dropped > 0) await engine.dropped(of, dropped);
      for (const { count, ...lane } of lanes) {
        feed.publish(settledEvent({ ...lane, state: 'cancelled', reason: 'dropped', deliveries: count }, clock.wall()));
      }
      const part = { deliveries, up_to: waiting.up_to };
      if (dropped < DROP_BATCH) return { ...part, done: true };
      if (clock.now() >= ends_at) return { ...part, done: false };
      author.assertStanding();
    }
  }
}
