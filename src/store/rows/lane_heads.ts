/** The facts that decide about the head of a lane, as both engines read them. */
import { type MaybeMissed, MISSED_MAX, missedOf, NO_RULES, type WaitingInLane } from '../../domain/catch_up.ts';
import type { IdCodec } from '../../domain/id.ts';
import type { RulesAtHead, AgentDelivery } from '../contract/deliveries.ts';
import { storedCount, storedTextsJson, storedTextsOrNull, storedTime } from './stored_values.ts';
import type { DeliveriesTable, MessagesTable } from './tables.ts';

export type AgentDeliveryRow = Omit<AgentDelivery, 'message_id' | 'is_unjudged' | 'may_be_left_out'> &
  Pick<DeliveriesTable, 'delivery_no' | 'message_no'> & { is_unjudged: number; may_be_left_out: number };

/**
 * Conditions on a delivery `d`: whether the loop guard counts it, and the flags of `AgentDelivery`. A delivery that
 * expired before an attempt does not count, because it was never judged.
 */
const COUNTS = `d.state <> 'cancelled' AND (d.state <> 'failed' OR d.attempt_count > 0)`;
const MAY_BE_LEFT_OUT = `d.state = 'pending' AND d.aside = 0 AND d.answered_badly = 0`;
const IS_UNJUDGED = `d.state = 'pending' AND d.aside = 0 AND d.attempt_count = 0`;

/**
 * The statement of `ofAgentsBefore`. The lists of agents are long, so only those that are returned are read.
 *
 * @param flag makes a number, 0 or 1, of a condition
 */
export const ofAgentsBefore = (flag: (condition: string) => string): string => `
  WITH recent AS (
    SELECT delivery_no, message_no, meeting_id, seq, octet_length(target_agents) AS bytes, state, created_at, attempt_count,
      answered_badly, aside FROM deliveries
    WHERE instance_id = $instance_id AND delivery_no < $delivery_no ORDER BY delivery_no DESC LIMIT $rows_max
  ), said AS (
    SELECT d.delivery_no, d.seq, m.message_no, m.from_agent, m.hops, d.created_at AS accepted_at,
      ${flag(IS_UNJUDGED)} AS is_unjudged, ${flag(MAY_BE_LEFT_OUT)} AS may_be_left_out,
      sum(d.bytes) OVER (ORDER BY d.seq DESC ROWS UNBOUNDED PRECEDING) AS bytes FROM recent d
      JOIN messages m ON m.message_no = d.message_no
    WHERE d.meeting_id = $meeting_id AND d.seq < $seq AND d.created_at > $since_ms AND ${COUNTS}
      AND coalesce(m.from_agent = $from_agent, m.from_agent IS NOT NULL)
  )
  SELECT s.delivery_no, s.message_no, s.from_agent, s.hops, d.target_agents, s.accepted_at, s.is_unjudged, s.may_be_left_out
  FROM said s JOIN deliveries d ON d.delivery_no = s.delivery_no WHERE s.bytes <= $bytes_max
  ORDER BY s.seq`;

export function agentDeliveryOf({ delivery_no, message_no, ...row }: AgentDeliveryRow, ids: IdCodec): AgentDelivery {
  return {
    ...row,
    message_id: ids.encode('msg', message_no),
    target_agents: storedTextsJson(row.target_agents, 'deliveries', 'target_agents', String(delivery_no)),
    accepted_at: storedTime(row.accepted_at, 'deliveries', 'created_at', String(delivery_no)),
    hops: storedCount(row.hops, 'messages', 'hops', String(message_no)),
    is_unjudged: row.is_unjudged === 1,
    may_be_left_out: row.may_be_left_out === 1,
  };
}

/** A delivery that waits in a lane, as it is stored. */
export type WaitingRow = Pick<DeliveriesTable, 'message_no' | 'seq' | 'expires_at'>;

export function waitingOf({ message_no, seq, expires_at }: WaitingRow, ids: IdCodec): WaitingInLane {
  return { message_id: ids.encode('msg', message_no), seq, expires_at };
}

export const MEMBER = `
  SELECT meeting_id, instance_id, agent_ids, joined_at, left_at, wake, catch_up, max_age_s FROM memberships
  WHERE meeting_id = $meeting_id AND instance_id = $instance_id`;

/** An earlier delivery of the same lane. */
export type EarlierRow = Pick<DeliveriesTable, 'seq' | 'state' | 'reason' | 'answered_badly'>;

/** The result for a membership without rules, which needs no other facts. */
export const WITHOUT_RULES: RulesAtHead = { rules: NO_RULES, newest: null, newest_of_people: null, missed: 0 };

/** Whether the receiver saw a push of the delivery. */
export function wasPushed({ state, reason, answered_badly }: Omit<EarlierRow, 'seq'>): boolean {
  return state === 'delivered' || answered_badly > 0 || reason === 'not_200' || reason === 'gone';
}

/** The deliveries of a lane since the last push. */
export interface SincePush {
  /** The seq of the last push; 0 when none is known. */
  pushed_seq: number;
  /** Messages before this time do not count, because the results of their deliveries may be removed. */
  known_since_ms: number;
  /** The deliveries after the last push. */
  earlier: Iterable<EarlierRow>;
}

/** The messages that may have been missed, the newest first. */
export const BETWEEN = `
  SELECT message_no, seq, target_agents, from_agent FROM messages
  WHERE meeting_id = $meeting_id AND seq > $pushed_seq AND seq < $seq AND accepted_at >= $since_ms
  ORDER BY seq DESC LIMIT ${MISSED_MAX}`;

export type BetweenRow = Pick<MessagesTable, 'message_no' | 'seq' | 'target_agents' | 'from_agent'>;

/**
 * Counts the messages that the instance missed, by the rules of `missedOf`. `between` are the rows of `BETWEEN`, and
 * `earlier` has the deliveries of these messages to the instance.
 */
export function missedIn(
  between: readonly BetweenRow[],
  earlier: Iterable<EarlierRow>,
  { agent_ids }: { agent_ids: readonly string[] },
): number {
  const deliveries = new Map<number, EarlierRow>();
  for (const row of earlier) deliveries.set(row.seq, row);
  const messages = between.map(({ message_no, seq, target_agents, from_agent }): MaybeMissed => ({
    target_agents: storedTextsOrNull(target_agents, 'messages', 'target_agents', String(message_no)),
    from_agent,
    delivery: deliveries.get(seq) ?? null,
  }));
  return missedOf(messages, agent_ids);
}
