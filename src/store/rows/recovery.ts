/**
 * The deliveries that are queued again, and the messages that an instance missed while it was switched off, as both
 * engines select and count them.
 */
import { agentsToNotify } from '../../domain/agents_to_notify.ts';
import type { Membership } from '../contract/meetings.ts';
import type { Span } from '../contract/deliveries.ts';
import { storedTextsOrNull } from './stored_values.ts';

/** The most characters of lists of agents that are read for one meeting. */
const LISTS_CHARS_MAX = 1 << 20;

/**
 * The failed deliveries of an instance that ended in the period, in the order in which they ended.
 *
 * @param failed the failed deliveries, as a table with a condition
 * @param ended_at the column with the time
 */
export const failedIn = (failed: string, ended_at: string): string => `
  SELECT delivery_no FROM ${failed}
  AND instance_id = $instance_id AND ${ended_at} >= $since_ms AND ${ended_at} <= $until_ms AND delivery_no >= $first_no
  ORDER BY ${ended_at}, delivery_no LIMIT $limit`;

/**
 * Makes settled deliveries pending again, aside and due now. Bad responses are counted from 0 again.
 *
 * @param also what else an engine sets
 */
export const requeue = (also = ''): string => `
  UPDATE deliveries SET state = 'pending', reason = NULL, aside = 1, answered_badly = 0, next_attempt_at = $now_ms, expires_at = $expires_at, settled_at = NULL${also}
  WHERE `;

/** Ends the back-off of an instance, because deliveries that people queue again should be attempted at once. */
export const RESET_BACKOFF =
  'UPDATE instances SET backoff_step = 0, backoff_until = NULL WHERE instance_id = $instance_id';

/** The memberships that an instance has now. `Missed` counts messages in the meetings of these memberships. */
export const PRESENT = `
  SELECT meeting_id, instance_id, agent_ids, joined_at, left_at, wake, catch_up, max_age_s FROM memberships
  WHERE instance_id = $instance_id AND left_at IS NULL ORDER BY meeting_id LIMIT $rows_max`;

/**
 * Reads the newest messages of a meeting. Returns how many messages it read, the time of the oldest of them, and those
 * messages of the period that have no delivery to the instance.
 *
 * @param last_of_message the number of the last delivery of the message `m`
 */
export const messagesWithout = (last_of_message: string): string => `
  WITH recent AS MATERIALIZED (
    SELECT m.message_no, m.seq, m.accepted_at, ${last_of_message} AS last_no FROM messages m
    WHERE m.meeting_id = $meeting_id ORDER BY m.seq DESC LIMIT $rows_max
  ), seen AS MATERIALIZED (
    SELECT count(*) AS read_count, min(accepted_at) AS oldest_at FROM recent
  ), missing AS (
    SELECT m.message_no, m.seq, m.from_agent, m.target_agents, coalesce(length(m.target_agents), 0) AS chars,
      sum(coalesce(length(m.target_agents), 0)) OVER (ORDER BY m.seq DESC) AS chars_read
    FROM recent r JOIN messages m ON m.message_no = r.message_no
    WHERE r.accepted_at >= $since_ms AND r.accepted_at <= $until_ms AND NOT EXISTS (
      SELECT 1 FROM deliveries d WHERE d.instance_id = $instance_id AND d.delivery_no > r.message_no AND d.delivery_no <= r.last_no)
  )
  SELECT seen.read_count, seen.oldest_at, missing.message_no, missing.from_agent, missing.target_agents,
    (SELECT count(*) FROM missing) AS missing_count
  FROM seen LEFT JOIN missing ON missing.chars_read - missing.chars < ${LISTS_CHARS_MAX}`;

/** A row of `messagesWithout`; message_no is null when there is no such message. */
export interface WithoutRow {
  read_count: number;
  oldest_at: number | null;
  message_no: number | null;
  from_agent: string | null;
  target_agents: string | null;
  missing_count: number;
}

/**
 * Counts the messages that the memberships of an instance missed, meeting by meeting, until `rows_max` rows were read.
 */
export class Missed {
  readonly #span: Span;
  #rows_left: number;
  #messages = 0;
  #at_least = false;

  constructor(span: Span, rows_max: number) {
    this.#span = span;
    this.#rows_left = rows_max;
  }

  get rows_left(): number {
    return this.#rows_left;
  }

  get result(): { messages: number; at_least: boolean } {
    return { messages: this.#messages, at_least: this.#at_least };
  }

  /**
   * The time in which messages count for a membership. It begins with the join: earlier messages were not for this
   * instance.
   */
  spanOf({ joined_at }: Membership): Span {
    return { since_ms: Math.max(this.#span.since_ms, joined_at), until_ms: this.#span.until_ms };
  }

  /** Some memberships were not read, so the instance may have missed more messages. */
  stop(): void {
    this.#at_least = true;
  }

  /** @param rows what `messagesWithout` found with `rows_left` as its limit */
  add({ agent_ids, wake }: Membership, { since_ms }: Span, rows: readonly WithoutRow[]): void {
    const { read_count, oldest_at, missing_count } = rows[0]!;
    const messages = rows.filter(({ message_no }) => message_no !== null);
    for (const { message_no, target_agents, from_agent } of messages) {
      const targets = storedTextsOrNull(target_agents, 'messages', 'target_agents', String(message_no));
      const named = targets === null ? null : new Set(targets);
      if (agentsToNotify(agent_ids, named, from_agent, wake).length > 0) this.#messages++;
    }
    const is_cut = read_count === this.#rows_left && oldest_at !== null && oldest_at >= since_ms;
    if (is_cut || missing_count > messages.length) this.#at_least = true;
    // A membership without messages costs a read, too.
    this.#rows_left = Math.max(0, this.#rows_left - Math.max(1, read_count));
  }
}
