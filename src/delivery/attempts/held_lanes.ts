import type { Clock } from '../clock.ts';
import type { Expiry } from '../expiry.ts';
import type { Lane } from '../lanes/lane.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { TimerQueue } from '../timer_queue.ts';

/** Holds lanes until the next attempt on their head is due. */
export class HeldLanes {
  readonly #clock: Clock;
  readonly #timers: TimerQueue;
  readonly #expiry: Expiry;
  readonly #onDue: (recipient: Recipient, lane: Lane) => void;

  /** @param onDue called when a held lane may continue */
  constructor(clock: Clock, timers: TimerQueue, expiry: Expiry, onDue: (recipient: Recipient, lane: Lane) => void) {
    this.#clock = clock;
    this.#timers = timers;
    this.#expiry = expiry;
    this.#onDue = onDue;
  }

  /**
   * Holds a lane: no attempt on its deliveries starts before its head is due. When the head expires sooner, the lane
   * continues then: the head fails, and the next delivery follows.
   *
   * @param due_at when the next attempt on the head is due
   */
  hold(recipient: Recipient, lane: Lane, head: LaneDelivery, due_at: number): void {
    lane.held_until = Math.min(due_at, this.#expiry.endOf(head, this.#clock.now()));
    this.#wake(recipient, lane);
  }

  /**
   * Sets a timer for the end of the hold, unless the lane has a timer that fires by then. Nothing cancels a timer, so a
   * lane that is read and held again and again must not get a timer for each hold.
   */
  #wake(recipient: Recipient, lane: Lane): void {
    const at = lane.held_until;
    if (lane.wakes_at <= at) return;
    lane.wakes_at = at;
    this.#timers.schedule(at, () => {
      if (lane.wakes_at !== at) return;
      lane.wakes_at = Infinity;
      if (lane.held_until <= this.#clock.now()) this.#onDue(recipient, lane);
      else if (!lane.is_paused && !recipient.dropped) this.#wake(recipient, lane);
    });
  }
}
