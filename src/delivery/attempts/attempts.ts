import assert from 'node:assert/strict';
import { answeredAgents, type Attempt } from '../../domain/outcome.ts';
import type { Clock } from '../clock.ts';
import type { Lane } from '../lanes/lane.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { LaneMemory } from '../lanes/lane_memory.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { RecipientCache } from '../lanes/recipient_cache.ts';
import type { AsideDeliveries } from '../lanes/aside_deliveries.ts';
import type { Replies } from '../replies/replies.ts';
import type { ReplyAccess } from '../replies/reply_access.ts';
import type { Tracer } from '../tracer.ts';
import { pushOf } from '../transport/push.ts';
import type { PushResult, Transport } from '../transport/transport.ts';
import type { Dispatcher } from './dispatcher.ts';
import type { InFlight } from './in_flight.ts';
import type { Results } from './results.ts';

export interface AttemptsParts {
  clock: Clock;
  transport: Transport;
  memory: LaneMemory;
  recipients: RecipientCache;
  aside_deliveries: AsideDeliveries;
  in_flight: InFlight;
  results: Results;
  dispatcher: Dispatcher;
  replies: Replies;
  reply_access?: ReplyAccess | undefined;
  tracer: Tracer | null;
  user_agent: string;
}

/** An attempt as it is stored. */
function attemptOf(attempt: number, started_wall: number, result: PushResult, before: readonly string[]): Attempt {
  const { duration_ms, outcome, status_code, detail, response_excerpt, answered = [] } = result;
  const started_at = new Date(started_wall).toISOString();
  const answered_agents = [...before, ...answered.flatMap(({ agents }) => agents)];
  return {
    attempt,
    started_at,
    duration_ms,
    outcome,
    status_code,
    detail,
    response_excerpt,
    ...(answered_agents.length > 0 && { answered_agents }),
  };
}

/** The detail of the attempt, followed by the words about the replies that were not sent. */
function inWords(detail: string, unsent: string): string {
  if (unsent === '' || detail === '') return unsent + detail;
  return `${detail}; ${unsent}`;
}

/** Makes attempts: each is one push. */
export class Attempts {
  readonly #clock: Clock;
  readonly #transport: Transport;
  readonly #memory: LaneMemory;
  readonly #recipients: RecipientCache;
  readonly #aside_deliveries: AsideDeliveries;
  readonly #in_flight: InFlight;
  readonly #results: Results;
  readonly #dispatcher: Dispatcher;
  readonly #replies: Replies;
  readonly #reply_access: ReplyAccess | undefined;
  readonly #tracer: Tracer | null;
  readonly #user_agent: string;

  constructor(parts: AttemptsParts) {
    this.#clock = parts.clock;
    this.#transport = parts.transport;
    this.#memory = parts.memory;
    this.#recipients = parts.recipients;
    this.#aside_deliveries = parts.aside_deliveries;
    this.#in_flight = parts.in_flight;
    this.#results = parts.results;
    this.#dispatcher = parts.dispatcher;
    this.#replies = parts.replies;
    this.#reply_access = parts.reply_access;
    this.#tracer = parts.tracer;
    this.#user_agent = parts.user_agent;
  }

  /** Pushes the head of a lane. When the push ends, `Results` applies its result, and the lane continues. */
  start(recipient: Recipient, lane: Lane, head: LaneDelivery): void {
    const { target } = recipient.registration;
    assert(target !== null, 'an instance without a target is never listed');
    lane.begin('attempting');
    const { generation } = lane;
    const started = this.#in_flight.start(recipient, target, this.#clock.now());
    this.#memory.tried(lane, head);
    const started_wall = this.#clock.wall();
    const attempt = head.attempt_count + 1;
    const traced = this.#tracer?.attempt(head, target, attempt, started_wall) ?? null;
    const content = traced === null ? head : { ...head, trace: traced.trace };
    const push = pushOf(content, target, attempt, started_wall, this.#user_agent);
    const answered_before = answeredAgents(head.attempts);
    if (answered_before.length > 0) push.answered_agents = answered_before;
    if (target.replies) {
      push.keeps_body = true;
      Object.assign(push.headers, this.#reply_access?.headersFor(head, target.replier, started_wall));
    }
    /** @param settles how the result changes the delivery; null when it changes nothing */
    const end = (settles: (() => void) | null): void => {
      lane.end();
      if (settles === null) traced?.ended(null);
      else settles();
      this.#goOn(recipient, lane, generation);
      this.#in_flight.resultNoted(recipient);
      this.#dispatcher.run();
    };
    void this.#transport.push(push, target).then((result) => {
      this.#in_flight.end(started);
      if (result === null) return end(null);
      recipient.attemptEnds(this.#clock.now(), result.duration_ms);
      // During a long attempt an agent may think for minutes. That time says nothing about the speed of receivers.
      if (started.kind !== 'long') this.#memory.pushed(result.duration_ms);
      const judged = this.#results.judge(recipient, target, head, result);
      // Made before the replies are stored, so that `settle` does not keep the whole result in memory meanwhile.
      const made = attemptOf(attempt, started_wall, result, answered_before);
      const settle = (words: string): void => {
        made.detail = inWords(made.detail, words);
        this.#results.apply(recipient, lane, head, made, judged);
        traced?.ended(made);
      };
      const isLost = (): boolean => recipient.dropped;
      const unsent = target.replies ? this.#replies.take(head, result, target.replier, isLost) : '';
      if (typeof unsent === 'string') return end(() => settle(unsent));
      // When this node gives up on storing the replies, it does not settle the delivery. So the push is made again, by
      // the next node that holds the partition or after the next start.
      void unsent.then((words) => end(words === null ? null : () => settle(words)));
      // Other lanes of the instance continue meanwhile.
      this.#dispatcher.wake(recipient);
    });
  }

  /**
   * Drops from memory the deliveries that the lane should not keep after the attempt, and lets the lane continue.
   *
   * @param generation the generation of the lane when the attempt started
   */
  #goOn(recipient: Recipient, lane: Lane, generation: number): void {
    if (recipient.dropped) {
      this.#memory.trim(lane, 0);
      return;
    }
    if (lane.generation !== generation) this.#dispatcher.invalidateLane(recipient, lane);
    if (recipient.registration.health.backoff_step > 0) this.#memory.trimAll(recipient);
    else if (lane.held_until > this.#clock.now() && this.#memory.isShareFull) this.#memory.trim(lane, 0);
    if (lane.aside) this.#aside_deliveries.check(recipient);
    else if (lane.is_awaited) {
      lane.is_awaited = false;
      this.#aside_deliveries.schedule(recipient, this.#clock.now());
    }
    this.#recipients.evictIfIdle(recipient, lane);
    this.#dispatcher.offer(recipient, lane);
  }
}
