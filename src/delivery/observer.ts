import type { DeliveryReason } from '../domain/delivery.ts';
import type { InstanceHealth } from '../domain/instance.ts';
import type { CatchUpReason } from '../domain/catch_up.ts';
import type { GuardReason } from '../domain/guard_rule.ts';
import type { Attempt } from '../domain/outcome.ts';
import type { LaneKey, QueuedDelivery } from '../store/contract/deliveries.ts';
import type { Accepted, NewMessage } from '../store/contract/messages.ts';

/** Gets the reports of the engine, for logs, metrics and the feed. */
export interface Observer {
  /**
   * `results` has an item for each message of the batch. `messages` counts the new messages, `deliveries` their
   * deliveries.
   */
  accepted(messages: number, deliveries: number, batch: readonly NewMessage[], results: readonly Accepted[]): void;
  attempted(event: AttemptEvent): void;
  /** Deliveries ended without an attempt. `lane` is given when all of them are of one lane. */
  settled(state: 'failed' | 'cancelled', reason: DeliveryReason, deliveries: number, lane?: LaneKey): void;
  /** An instance was removed: the next instance with this id may be of somebody else. */
  removed(instance_id: string): void;
  /** A rule stopped a delivery: it is cancelled. */
  suppressed(delivery: SuppressedDelivery, reason: SuppressReason): void;
  /** A reply of an agent was stored, or not. */
  replied(way: ReplyWay, result: ReplyResult): void;
  /** The storage failed. The engine keeps its unwritten results, and tries again. */
  storageFailed(error: unknown): void;
}

/** Why a delivery was stopped: by the loop guard, or by the rules of its membership. */
export type SuppressReason = GuardReason | CatchUpReason;

/** How a reply arrives: in the response to a push, or later with a token. */
export type ReplyWay = (typeof REPLY_WAYS)[number];
export const REPLY_WAYS = ['response', 'later'] as const;

/** The result of a reply. `repeated`: an earlier attempt or request stored the reply, for example before a crash. */
export type ReplyResult = (typeof REPLY_RESULTS)[number];
export const REPLY_RESULTS = ['stored', 'repeated', 'refused'] as const;

export type SuppressedDelivery = Pick<
  QueuedDelivery,
  'delivery_id' | 'message_id' | 'meeting_id' | 'seq' | 'instance_id' | 'origin'
>;

export interface AttemptEvent {
  delivery_id: string;
  message_id: string;
  meeting_id: string;
  seq: number;
  instance_id: string;
  attempt: Attempt;
  /** The state of the delivery after the attempt. */
  state: 'delivered' | 'failed' | 'pending';
  reason: DeliveryReason | null;
  /** The delay before the next attempt; null when there is none, or when the instance backs off. */
  retry_in_ms: number | null;
  accepted_at: number;
  /**
   * The health of the instance before the attempt; the same object as `health_after` when the attempt changed nothing.
   */
  health_before: InstanceHealth;
  health_after: InstanceHealth;
}
