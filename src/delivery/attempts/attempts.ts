import assert from 'node:assert/strict';
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
import type { Observer } from '../events.ts';
import type { Lane } from '../lanes/lane.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { LaneMemory } from '../lanes/lane_memory.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { RecipientCache } from '../lanes/recipient_cache.ts';
import type { Registrations } from '../lanes/registrations.ts';
import type { Retries } from '../lanes/retries.ts';
import { pushOf } from '../transport/push.ts';
import type { Target } from '../transport/target.ts';
import type { PushResult, Transport } from '../transport/transport.ts';
import type { Dispatcher } from './dispatcher.ts';
import type { InFlight } from './in_flight.ts';
import { settlementOf } from './settlement.ts';
import type { Settlements } from './settlements.ts';

export interface AttemptsParts {
  clock: Clock;
  /** A number in [0, 1). */
  random: () => number;
  transport: Transport;
  observer: Observer;
  settlements: Settlements;
  memory: LaneMemory;
  recipients: RecipientCache;
  registrations: Registrations;
  retries: Retries;
  in_flight: InFlight;
  dispatcher: Dispatcher;
  /** Delays between attempts that were answered badly. */
  retry_schedule_ms: readonly number[];
  user_agent: string;
}

/** Makes attempts: one POST each. What it means for the delivery and for the instance is decided in src/domain. */
export class Attempts {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #transport: Transport;
  readonly #observer: Observer;
  readonly #settlements: Settlements;
  readonly #memory: LaneMemory;
  readonly #recipients: RecipientCache;
  readonly #registrations: Registrations;
  readonly #retries: Retries;
  readonly #in_flight: InFlight;
  readonly #dispatcher: Dispatcher;
  readonly #retry_schedule_ms: readonly number[];
  readonly #user_agent: string;

  constructor(parts: AttemptsParts) {
    this.#clock = parts.clock;
    this.#random = parts.random;
    this.#transport = parts.transport;
    this.#observer = parts.observer;
    this.#settlements = parts.settlements;
    this.#memory = parts.memory;
    this.#recipients = parts.recipients;
    this.#registrations = parts.registrations;
    this.#retries = parts.retries;
    this.#in_flight = parts.in_flight;
    this.#dispatcher = parts.dispatcher;
    this.#retry_schedule_ms = parts.retry_schedule_ms;
    this.#user_agent = parts.user_agent;
  }

  /** Pushes the head of a lane. When that ends, the result is on its way to the disk, and the lane goes on. */
  start(recipient: Recipient, lane: Lane, head: LaneDelivery): void {
    const { target } = recipient.registration;
    assert(target !== null, 'an instance without a target is never listed');
    lane.begin('attempting');
    const { generation } = lane;
    const is_in_turn = this.#in_flight.start(recipient, this.#clock.now());
    this.#memory.tried(lane, head);
    const started_wall = this.#clock.wall();
    const attempt = head.attempt_count + 1;
    void this.#transport.push(pushOf(head, target, attempt, started_wall, this.#user_agent)).then((result) => {
      this.#in_flight.end(recipient, is_in_turn, this.#clock.now(), result.duration_ms);
      this.#memory.pushed(result.duration_ms);
      lane.end();
      this.#conclude(
        recipient,
        target,
        lane,
        head,
        {
          attempt,
          started_at: new Date(started_wall).toISOString(),
          duration_ms: result.duration_ms,
          outcome: result.outcome,
          status_code: result.status_code,
          detail: result.detail,
          response_excerpt: result.response_excerpt,
        },
        result,
      );
      this.#goOn(recipient, lane, generation);
      this.#in_flight.conclude(recipient);
      this.#dispatcher.run();
    });
  }

  /** What the attempt made of the delivery and of the instance. */
  #conclude(
    recipient: Recipient,
    target: Target,
    lane: Lane,
    delivery: LaneDelivery,
    attempt: Attempt,
    result: PushResult,
  ): void {
    const now = this.#clock.now();
    const wall = this.#clock.wall();
    delivery.attempt_count++;
    delivery.attempts = withAttempt(delivery.attempts, attempt);
    const verdict = verdictOf(result, delivery.answered_badly + 1, this.#retry_schedule_ms, wall, this.#random());
    const health_before = this.#learn(recipient, target, result, now, wall);
    this.#apply(recipient, lane, delivery, verdict, now);
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
      health_after: recipient.registration.health,
    });
  }

  /** @returns the health before */
  #learn(recipient: Recipient, target: Target, result: PushResult, now: number, wall: number): InstanceHealth {
    const { registration } = recipient;
    const health_before = registration.health;
    const health = healthAfter(health_before, result, now, wall, this.#random());
    recipient.learn(target, health, result.outcome === 'gone');
    if (isSuccessAgain(health_before, registration.health)) this.#settlements.markSucceeded(recipient);
    else this.#settlements.markDirty(recipient);
    this.#registrations.wakeAfterBackoff(recipient);
    return health_before;
  }

  #apply(recipient: Recipient, lane: Lane, delivery: LaneDelivery, verdict: Verdict, now: number): void {
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
          this.#retries.schedule(recipient, again_at);
        } else {
          this.#dispatcher.holdUntil(recipient, lane, again_at);
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

  /** What is next for the lane. @param generation of the lane when the attempt started */
  #goOn(recipient: Recipient, lane: Lane, generation: number): void {
    if (recipient.dropped) {
      this.#memory.trim(lane, 0);
      return;
    }
    if (lane.generation !== generation) this.#dispatcher.invalidateLane(recipient, lane);
    if (recipient.registration.health.backoff_step > 0) this.#memory.trimAll(recipient);
    else if (lane.held_until > this.#clock.now() && this.#memory.isShareFull) this.#memory.trim(lane, 0);
    if (lane.aside) this.#retries.check(recipient);
    this.#recipients.evictIfIdle(recipient, lane);
    this.#dispatcher.offer(recipient, lane);
  }
}
