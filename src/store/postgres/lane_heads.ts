/**
 * The facts that decide what happens to the head of a lane: the messages of agents before it, and the rules of its
 * membership.
 */
import { hasRules, type NewestInLane, type WaitingInLane } from '../../domain/catch_up.ts';
import type { IdCodec } from '../../domain/id.ts';
import type { DeliveryStore } from '../contract/deliveries.ts';
import {
  BETWEEN,
  type BetweenRow,
  type EarlierRow,
  MEMBER,
  missedIn,
  agentDeliveryOf,
  type AgentDeliveryRow,
  waitingOf,
  type WaitingRow,
  WITHOUT_RULES,
  ofAgentsBefore,
} from '../rows/lane_heads.ts';
import { membershipOf } from '../rows/meetings.ts';
import type { MembershipsTable } from '../rows/tables.ts';
import { type Session, statement, withPartition } from './database.ts';
import { partOfLane } from './pending/pending_deliveries.ts';

const OF_AGENTS_BEFORE = statement(ofAgentsBefore((condition) => `(${condition})::int`));

/**
 * Two of the deliveries that wait behind the head and do not expire sooner: the newest, and the newest with a message
 * of a person.
 */
const BEHIND = statement(`
  WITH behind AS (
    ${partOfLane(
      'd.seq, d.expires_at, d.message_no',
      {
        condition:
          'd.partition_no = $partition_no AND d.instance_id = $instance_id AND d.meeting_id = $meeting_id AND d.expires_at >= $expires_at',
        meeting_id: '$meeting_id',
        after_seq: '$seq',
      },
      'DESC',
      '$rows_max',
    )})
  (SELECT message_no, seq, expires_at, 0 AS is_of_person FROM behind ORDER BY seq DESC LIMIT 1)
  UNION ALL
  (SELECT b.message_no, b.seq, b.expires_at, 1 FROM behind b JOIN messages m ON m.message_no = b.message_no WHERE m.from_agent IS NULL ORDER BY b.seq DESC LIMIT 1)`);

/** The deliveries of the lane since its last push: see wasPushed in rows/lane_heads.ts. */
const SINCE_PUSH = statement(`
  WITH recent AS MATERIALIZED (
    SELECT created_at, meeting_id, seq, state, reason, answered_badly FROM deliveries
    WHERE instance_id = $instance_id AND delivery_no < $delivery_no ORDER BY delivery_no DESC LIMIT $rows_max
  ), here AS MATERIALIZED (
    SELECT * FROM recent WHERE meeting_id = $meeting_id
  ), pushed AS (
    SELECT coalesce(max(seq), 0) AS seq FROM here WHERE state = 'delivered' OR answered_badly > 0 OR reason IN ('not_200', 'gone')
  )
  SELECT pushed.seq AS pushed_seq,
    CASE WHEN pushed.seq = 0 AND (SELECT count(*) FROM recent) = $rows_max THEN (SELECT min(created_at) FROM recent) END AS oldest_at,
    (SELECT json_agg(json_build_object('seq', here.seq, 'state', here.state, 'reason', here.reason, 'answered_badly', here.answered_badly))::text
      FROM here WHERE here.seq > pushed.seq) AS earlier
  FROM pushed`);

interface SincePushRow {
  pushed_seq: number;
  oldest_at: number | null;
  /** The deliveries as JSON. */
  earlier: string | null;
}

const FIND_MEMBER = statement(MEMBER);
const FIND_BETWEEN = statement(BETWEEN);

export function laneHeads(
  session: Session,
  ids: IdCodec,
  numberOf: (delivery_id: string) => number,
): Pick<DeliveryStore, 'ofAgentsBefore' | 'rulesAtHead'> {
  return {
    async ofAgentsBefore({ delivery_id, instance_id, meeting_id, seq }, since_ms, { from_agent = null, ...limits }) {
      const delivery_no = delivery_id === null ? Number.MAX_SAFE_INTEGER : numberOf(delivery_id);
      const values = { delivery_no, instance_id, meeting_id, seq, since_ms, from_agent, ...limits };
      return (await session.all<AgentDeliveryRow>(OF_AGENTS_BEFORE, values)).map((row) => agentDeliveryOf(row, ids));
    },
    async rulesAtHead({ delivery_id, instance_id, meeting_id, seq, expires_at }, { known_since_ms, rows_max }) {
      const found = await session.one<MembershipsTable>(FIND_MEMBER, { meeting_id, instance_id });
      const member = found === undefined ? null : membershipOf(found);
      if (member === null || !hasRules(member)) return WITHOUT_RULES;
      const waiting = { ...withPartition(instance_id), meeting_id, seq, expires_at, rows_max };
      const behind = await session.all<WaitingRow & { is_of_person: number }>(BEHIND, waiting);
      const newestOf = (kind: number): WaitingInLane | null => {
        const row = behind.find(({ is_of_person }) => is_of_person === kind);
        return row === undefined ? null : waitingOf(row, ids);
      };
      const newest: NewestInLane = { newest: newestOf(0), newest_of_people: newestOf(1) };
      const delivery_no = numberOf(delivery_id);
      const since = (await session.one<SincePushRow>(SINCE_PUSH, { instance_id, meeting_id, delivery_no, rows_max }))!;
      const { pushed_seq } = since;
      const { wake, catch_up, max_age_s, joined_at } = member;
      const since_ms = Math.max(joined_at, known_since_ms, since.oldest_at ?? 0);
      const between =
        seq - pushed_seq === 1
          ? []
          : await session.all<BetweenRow>(FIND_BETWEEN, { meeting_id, pushed_seq, seq, since_ms });
      const earlier = JSON.parse(since.earlier ?? '[]') as EarlierRow[];
      return { rules: { wake, catch_up, max_age_s }, ...newest, missed: missedIn(between, earlier, member) };
    },
  };
}
