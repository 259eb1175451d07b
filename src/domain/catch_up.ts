/**
 * Which deliveries are still pushed after their machine was away: see docs/away.md. The rules belong to a membership,
 * and a delivery is judged when it reaches the head of its lane.
 */
import { agentsToNotify, type Wake } from './agents_to_notify.ts';

/**
 * `latest`: of the messages that waited while the machine was away, the newest supersedes the others. See
 * `catchUpReason`.
 */
export const CATCH_UPS = ['all', 'latest'] as const;
export type CatchUp = (typeof CATCH_UPS)[number];

/** The largest `max_age_s`: 30 days. */
export const MAX_AGE_S_MAX = 2_592_000;
/** Missed messages are counted up to this number. */
export const MISSED_MAX = 1_000;

/** The rules of a membership for messages to its agents. */
export interface MemberRules {
  wake: Wake;
  catch_up: CatchUp;
  /**
   * A message that is older than this when it reaches the head of its lane is not pushed; 0: messages of any age are
   * pushed.
   */
  max_age_s: number;
}

export const NO_RULES: Readonly<MemberRules> = { wake: 'all', catch_up: 'all', max_age_s: 0 };

export function hasRules({ wake, catch_up, max_age_s }: MemberRules): boolean {
  return wake !== 'all' || catch_up !== 'all' || max_age_s > 0;
}

export const CATCH_UP_REASONS = ['superseded', 'max_age'] as const;
export type CatchUpReason = (typeof CATCH_UP_REASONS)[number];

/** A delivery that waits in a lane. */
export interface WaitingInLane {
  message_id: string;
  seq: number;
  expires_at: number;
}

/** The newest waiting deliveries of a lane; null when there is none. */
export interface NewestInLane {
  newest: WaitingInLane | null;
  /** The newest of the messages of people. */
  newest_of_people: WaitingInLane | null;
}

/**
 * Why a delivery is not pushed; null when it is pushed. A message of an agent does not supersede a message of a person,
 * so that the question of a person does not disappear behind messages of agents. A message does not supersede an older
 * message that expires later: the newer message could expire first, and then nobody would get either of them.
 *
 * @param head the delivery, the age of its message, and whether it waited while the machine was away
 * @param endOf when a delivery expires
 */
export function catchUpReason(
  head: WaitingInLane & { age_ms: number; has_waited: boolean; is_of_agent: boolean },
  { catch_up, max_age_s }: MemberRules,
  { newest, newest_of_people }: NewestInLane,
  endOf: (waiting: WaitingInLane) => number,
): CatchUpReason | null {
  if (isTooOld(head.age_ms, max_age_s)) return 'max_age';
  if (catch_up !== 'latest' || !head.has_waited) return null;
  const supersedes = (other: WaitingInLane | null): boolean =>
    other !== null && other.seq > head.seq && endOf(other) >= endOf(head);
  return supersedes(newest_of_people) || (head.is_of_agent && supersedes(newest)) ? 'superseded' : null;
}

/**
 * Whether a message has waited longer than the rule of its membership allows. The age is in milliseconds, the rule in
 * seconds; a rule of 0 allows any age.
 */
export function isTooOld(age_ms: number, max_age_s: number): boolean {
  return max_age_s > 0 && age_ms > max_age_s * 1_000;
}

/** A message of the meeting. `missedOf` decides whether the instance has missed it. */
export interface MaybeMissed {
  target_agents: readonly string[] | null;
  from_agent: string | null;
  /** Null when the instance has no delivery of the message. */
  delivery: { state: string; reason: string | null } | null;
}

/**
 * Counts the messages since the last push that were for the agents of a membership and were not pushed: they did not
 * wake the membership, were superseded, became too old, or expired. Counts up to MISSED_MAX.
 */
export function missedOf(messages: Iterable<MaybeMissed>, agent_ids: readonly string[]): number {
  let missed = 0;
  for (const { target_agents, from_agent, delivery } of messages) {
    const targets = target_agents === null ? null : new Set(target_agents);
    if (delivery === null) missed += agentsToNotify(agent_ids, targets, from_agent).length > 0 ? 1 : 0;
    else if (delivery.state === 'failed' && delivery.reason === 'expired') missed++;
    else if (delivery.state === 'cancelled' && isCatchUpReason(delivery.reason)) missed++;
    if (missed === MISSED_MAX) break;
  }
  return missed;
}

export function isCatchUpReason(reason: string | null): reason is CatchUpReason {
  return reason === 'superseded' || reason === 'max_age';
}
