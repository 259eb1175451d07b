import {
  type DeliveryReason,
  healthAfter,
  isSuccessAgain,
  type Verdict,
  verdictOf,
  withAttempt,
} from '../../domain/delivery.ts';
import type { InstanceHealth } from '../../domain/instance.ts';
import type { Attempt } from '../../domain/outcome.ts';
import type { DeliverySettlement } from '../../store/contract/deliveries.ts';
import type { Clock } from '../clock.ts';
import type { Observer } from '../observer.ts';
import type { Lane } from '../lanes/lane.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { LaneMemory } from '../lanes/lane_memory.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { Registrations } from '../lanes/registrations.ts';
import type { AsideDeliveries } from '../lanes/aside_deliveries.ts';
import type { Target } from '../transport/target.ts';
import type { PushResult } from '../transport/transport.ts';
import type { HeldLanes } from './held_lanes.ts';
import { settlementOf } from './settlement.ts';
import type { Settlements } from './settlements.ts';

export interface ResultsParts {
  clock: Clock;
  /** A number in [0, 1). */
  random: () => number;
  observer: Observer;
  settlements: Settlements;
  memory: LaneMemory;
  registrations: Registrations;
  aside_deliveries: AsideDeliveries;
  held_lanes: HeldLanes;
  /** Delays between attempts that got a bad response. */
  retry_schedule_ms: readonly number[];
}

/** What a result means for its delivery, and the health of the instance before and after the result. */
export interface Judged {
  verdict: Verdict;
  now: number;
  health_before: InstanceHealth;
  health_after: InstanceHealth;
}

/** Applies the results of attempts to deliveries and instances. The decisions are in src/domain. */
export class Results {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #observer: Observer;
  readonly #settlements: Settlements;
  readonly #memory: LaneMemory;
  readonly #registrations: Registrations;
  readonly #aside_deliveries: AsideDeliveries;
  readonly #held_lanes: HeldLanes;
  readonly #retry_schedule_ms: readonly number[];

  constructor(parts: ResultsParts) {
    this.#clock = parts.clock;
    this.#random = parts.random;
    this.#observer = parts.observer;
    this.#settlements = parts.settlements;
    this.#memory = parts.memory;
    this.#registrations = parts.registrations;
    this.#aside_deliveries = parts.aside_deliveries;
    this.#held_lanes = parts.held_lanes;
    this.#retry_schedule_ms = parts.retry_schedule_ms;
  }

  /**
   * An attempt ended. The health of the instance changes at once. So the next result is judged by the new health, even
   * when it comes from another lane.
   */
  judge(recipient: Recipient, target: Target, delivery: LaneDelivery, result: PushResult): Judged {
    const now = this.#clock.now();
    const wall = this.#clock.wall();
    const verdict = verdictOf(result, delivery.answered_badly + 1, this.#retry_schedule_ms, wall, this.#random());
    const health_before = this.#learn(recipient, target, result, now, wall);
    return { verdict, now, health_before, health_after: recipient.registration.health };
  }

  /** Changes the delivery according to its result. If the response has replies, the caller stores them first. */
  apply(recipient: Recipient, lane: Lane, delivery: LaneDelivery, attempt: Attempt, judged: Judged): void {
    const { verdict, now, health_before, health_after } = judged;
    delivery.attempt_count++;
    delivery.attempts = withAttempt(delivery.attempts, attempt);
    this.#applyVerdict(recipient, lane, delivery, verdict, now);
    this.#observer.attempted({
      delivery_id: delivery.delivery_id,
      message_id: delivery.message_id,
      meeting_id: delivery.meeting_id,
      seq: delivery.seq,
      instance_id: delivery.instance_id,
      attempt,
      state: verdict.state === 'delivered' || verdict.state === 'failed' ? verdict.state : 'pending',
      reason: verdict.state === 'failed' ? verdict.reason : null,
      retry_in_ms: verdict.state === 'retry' ? verdict.delay_ms : null,
      accepted_at: delivery.accepted_at,
      health_before,
      health_after,
    });
  }

  /** @returns the health before the result */
  #learn(recipient: Recipient, target: Target, result: PushResult, now: number, wall: number): InstanceHealth {
    const { registration } = recipient;
    const health_before = registration.health;
    if (result.is_stale === true) return health_before;
    const health = healthAfter(health_before, result, now, wall, this.#random());
    recipient.learn(target, health, result.outcome === 'gone', now);
    if (isSuccessAgain(health_before, registration.health)) this.#settlements.markSucceeded(recipient);
    else this.#settlements.markDirty(recipient);
    this.#registrations.wakeAfterBackoff(recipient);
    return health_before;
  }

  #applyVerdict(recipient: Recipient, lane: Lane, delivery: LaneDelivery, verdict: Verdict, now: number): void {
    switch (verdict.state) {
      case 'delivered':
        this.#settle(recipient, delivery, 'delivered', null, null, lane.aside);
        this.#memory.takeHead(lane);
        break;
      case 'failed':
        this.#settle(recipient, delivery, 'failed', verdict.reason, null, lane.aside);
        this.#memory.takeHead(lane);
        break;
      case 'retry': {
        delivery.answered_badly++;
        const again_at = now + verdict.delay_ms;
        delivery.next_attempt_at = again_at;
        const steps_aside = lane.aside || verdict.aside;
        this.#settle(recipient, delivery, 'pending', null, again_at, steps_aside);
        if (steps_aside) {
          this.#memory.takeHead(lane);
          this.#aside_deliveries.schedule(recipient, again_at);
        } else {
          this.#held_lanes.hold(recipient, lane, delivery, again_at);
        }
        break;
      }
      case 'not_reached':
        this.#settle(recipient, delivery, 'pending', null, delivery.next_attempt_at, lane.aside);
        break;
    }
  }

  #settle(
    recipient: Recipient,
    delivery: LaneDelivery,
    state: DeliverySettlement['state'],
    reason: DeliveryReason | null,
    next_attempt_at: number | null,
    aside: boolean,
  ): void {
    const { epoch } = recipient.partition;
    this.#settlements.add(settlementOf(delivery, state, reason, next_attempt_at, aside, this.#clock.wall(), epoch));
  }
}
