import assert from 'node:assert/strict';
import type { Clock } from '../clock.ts';
import type { Lane } from '../lanes/lane.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { LaneMemory } from '../lanes/lane_memory.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { RecipientCache } from '../lanes/recipient_cache.ts';
import type { Retries } from '../lanes/retries.ts';
import { pushOf } from '../transport/push.ts';
import type { Transport } from '../transport/transport.ts';
import type { Dispatcher } from './dispatcher.ts';
import type { InFlight } from './in_flight.ts';
import type { Results } from './results.ts';

export interface AttemptsParts {
  clock: Clock;
  transport: Transport;
  memory: LaneMemory;
  recipients: RecipientCache;
  retries: Retries;
  in_flight: InFlight;
  results: Results;
  dispatcher: Dispatcher;
  user_agent: string;
}

/** Makes attempts: one POST each. */
export class Attempts {
  readonly #clock: Clock;
  readonly #transport: Transport;
  readonly #memory: LaneMemory;
  readonly #recipients: RecipientCache;
  readonly #retries: Retries;
  readonly #in_flight: InFlight;
  readonly #results: Results;
  readonly #dispatcher: Dispatcher;
  readonly #user_agent: string;

  constructor(parts: AttemptsParts) {
    this.#clock = parts.clock;
    this.#transport = parts.transport;
    this.#memory = parts.memory;
    this.#recipients = parts.recipients;
    this.#retries = parts.retries;
    this.#in_flight = parts.in_flight;
    this.#results = parts.results;
    this.#dispatcher = parts.dispatcher;
    this.#user_agent = parts.user_agent;
  }

  /** Pushes the head of a lane. When that ends, the result is on its way to the disk, and the lane goes on. */
  start(recipient: Recipient, lane: Lane, head: LaneDelivery): void {
    const { target } = recipient.registration;
    assert(target !== null, 'an instance without a target is never listed');
    lane.begin('attempting');
    const { generation } = lane;
    const kind = this.#in_flight.start(recipient, target, this.#clock.now());
    this.#memory.tried(lane, head);
    const started_wall = this.#clock.wall();
    const attempt = head.attempt_count + 1;
    const push = pushOf(head, target, attempt, started_wall, this.#user_agent);
    void this.#transport.push(push, target).then((result) => {
      this.#in_flight.end(recipient, kind);
      lane.end();
      if (result !== null) {
        const { duration_ms, outcome, status_code, detail, response_excerpt } = result;
        recipient.moved(this.#clock.now(), duration_ms);
        // How long agents think says nothing about how fast receivers are.
        if (kind !== 'in_hand') this.#memory.pushed(duration_ms);
        const started_at = new Date(started_wall).toISOString();
        const made = { attempt, started_at, duration_ms, outcome, status_code, detail, response_excerpt };
        this.#results.apply(recipient, target, lane, head, made, result);
      }
      this.#goOn(recipient, lane, generation);
      this.#in_flight.conclude(recipient);
      this.#dispatcher.run();
    });
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
