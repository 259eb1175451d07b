/**
 * The facts that decide about the head of a lane: the messages of agents before it, and the rules of its membership.
 */
import { hasRules, type NewestInLane, type WaitingInLane } from '../../domain/catch_up.ts';
import type { IdCodec } from '../../domain/id.ts';
import type { DeliveryStore, LaneKey } from '../contract/deliveries.ts';
import {
  BETWEEN,
  type BetweenRow,
  type EarlierRow,
  MEMBER,
  missedIn,
  agentDeliveryOf,
  type AgentDeliveryRow,
  type SincePush,
  waitingOf,
  type WaitingRow,
  wasPushed,
  WITHOUT_RULES,
  ofAgentsBefore,
} from '../rows/lane_heads.ts';
import { membershipOf } from '../rows/meetings.ts';
import type { MembershipsTable } from '../rows/tables.ts';
import type { Database } from './database.ts';
import type { Sync } from './sync.ts';

const OF_AGENTS_BEFORE = ofAgentsBefore((condition) => condition);

/** The deliveries behind the head that do not expire sooner than the head, the newest first. */
const BEHIND = `
  SELECT d.message_no, d.seq, d.expires_at, m.from_agent IS NULL AS is_of_person FROM deliveries d JOIN messages m ON m.message_no = d.message_no
  WHERE d.instance_id = $instance_id AND d.meeting_id = $meeting_id AND d.seq > $seq AND d.state = 'pending' AND d.aside = 0
    AND d.expires_at >= $expires_at
  ORDER BY d.seq DESC LIMIT $rows_max`;

/** The deliveries of the instance before the head, the newest first. */
const EARLIER = `
  SELECT created_at, meeting_id, seq, state, reason, answered_badly FROM deliveries
  WHERE instance_id = ? AND delivery_no < ? ORDER BY delivery_no DESC LIMIT ?`;

export function laneHeads(
  db: Database,
  ids: IdCodec,
  numberOf: (delivery_id: string) => number,
): Pick<Sync<DeliveryStore>, 'ofAgentsBefore' | 'rulesAtHead'> {
  /** Reads from the newest delivery to the oldest, and stops at the first message of a person. */
  function newestBehind(values: Record<string, string | number>): NewestInLane {
    let newest: WaitingInLane | null = null;
    for (const row of db.prepare(BEHIND).iterate(values)) {
      const { is_of_person, ...found } = row as unknown as WaitingRow & { is_of_person: number };
      newest ??= waitingOf(found, ids);
      if (is_of_person === 1) return { newest, newest_of_people: waitingOf(found, ids) };
    }
    return { newest, newest_of_people: null };
  }

  function sincePush(lane: LaneKey, delivery_no: number, known_since_ms: number, rows_max: number): SincePush {
    const earlier: EarlierRow[] = [];
    let rows = 0;
    let oldest_at = 0;
    for (const row of db.prepare(EARLIER).iterate(lane.instance_id, delivery_no, rows_max)) {
      const { created_at, meeting_id, ...found } = row as unknown as EarlierRow & {
        created_at: number;
        meeting_id: string;
      };
      rows++;
      oldest_at = created_at;
      if (meeting_id !== lane.meeting_id) continue;
      if (wasPushed(found)) return { pushed_seq: found.seq, known_since_ms, earlier };
      earlier.push(found);
    }
    return {
      pushed_seq: 0,
      known_since_ms: rows < rows_max ? known_since_ms : Math.max(known_since_ms, oldest_at),
      earlier,
    };
  }

  return {
    ofAgentsBefore: ({ delivery_id, instance_id, meeting_id, seq }, since_ms, { from_agent = null, ...limits }) => {
      const delivery_no = delivery_id === null ? Number.MAX_SAFE_INTEGER : numberOf(delivery_id);
      const values = { delivery_no, instance_id, meeting_id, seq, since_ms, from_agent, ...limits };
      return (db.prepare(OF_AGENTS_BEFORE).all(values) as unknown as AgentDeliveryRow[]).map((row) =>
        agentDeliveryOf(row, ids),
      );
    },
    rulesAtHead: ({ delivery_id, instance_id, meeting_id, seq, expires_at }, { known_since_ms, rows_max }) => {
      const lane = { instance_id, meeting_id };
      const found = db.prepare(MEMBER).get(lane) as MembershipsTable | undefined;
      const member = found === undefined ? null : membershipOf(found);
      if (member === null || !hasRules(member)) return WITHOUT_RULES;
      const newest = newestBehind({ ...lane, seq, expires_at, rows_max });
      const { wake, catch_up, max_age_s, joined_at } = member;
      const since = sincePush(lane, numberOf(delivery_id), known_since_ms, rows_max);
      const { pushed_seq, earlier } = since;
      const since_ms = Math.max(joined_at, since.known_since_ms);
      const between = seq - pushed_seq === 1 ? [] : db.prepare(BETWEEN).all({ meeting_id, pushed_seq, seq, since_ms });
      const missed = missedIn(between as unknown as BetweenRow[], earlier, member);
      return { rules: { wake, catch_up, max_age_s }, ...newest, missed };
    },
  };
}
