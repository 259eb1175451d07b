import { invalidField, Problem } from './problem.ts';

/**
 * The agent that sent a message, and the message that it answers. A message without both has null in place of its
 * origin.
 */
export interface MessageOrigin {
  /** The agent that sent the message; null: a person, or a program that is no agent. */
  from_agent: string | null;
  /** The message_id of the answered message, in the same meeting; null when the sender names none. */
  in_reply_to: string | null;
  /** See `hopsOf`. */
  hops: number;
}

/**
 * A message without in_reply_to counts as an answer to the previous message, if the previous message was accepted less
 * than this time before.
 */
export const FOLLOWS_MS = 600_000;

/**
 * How many messages of agents in a row led to this message, itself included; 0 for a message without an agent.
 * @param answered the hops of the message that in_reply_to names; null when there is no in_reply_to
 * @param before the previous message of its meeting; null when there is none
 */
export function hopsOf(
  from_agent: string | null,
  answered: number | null,
  before: { hops: number; accepted_at: number } | null,
  wall_ms: number,
): number {
  if (from_agent === null) return 0;
  if (answered !== null) return answered + 1;
  return before !== null && wall_ms - before.accepted_at < FOLLOWS_MS ? before.hops + 1 : 1;
}

/**
 * The fields from_agent, in_reply_to and hops. As the specification wants, from_agent and in_reply_to are absent when
 * the sender did not give them.
 */
export function originFields(origin: MessageOrigin | null): {
  from_agent?: string;
  in_reply_to?: string;
  hops?: number;
} {
  if (origin === null) return {};
  const { from_agent, in_reply_to, hops } = origin;
  return { ...(from_agent !== null && { from_agent }), ...(in_reply_to !== null && { in_reply_to }), hops };
}

/** The field that makes the store refuse a message. */
export type RefusedField = 'from_agent' | 'in_reply_to';

/**
 * The response to the sender of a refused message. The response does not show whether such an agent or message exists
 * elsewhere.
 */
export function refusalOf(field: RefusedField): Problem {
  if (field === 'in_reply_to') return invalidField(field, 'must be the message_id of a message of this meeting');
  const message = 'must be an agent of an instance of this key that takes part in the meeting';
  return new Problem('not_permitted', `${field} ${message}`, { errors: [{ path: field, message }] });
}
