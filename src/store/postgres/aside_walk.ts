/** Reads deliveries aside in the order of their index, in bounded steps: an instance may have a million of them. */
import { partitionOf } from '../../domain/partition.ts';
import type { PendingAside } from '../contract/deliveries.ts';
import { ASIDE_READ_MAX, type DueAside, type numberedPlace, type PlacedRow } from '../rows/deliveries.ts';
import { type Session, statement, withPartition } from './database.ts';

/**
 * The first deliveries of an instance that follow a place and are not of paused meetings. When the read ended before it
 * found so many, the last row is the delivery at which it ended. `found` has no ORDER BY: it keeps the order of `part`,
 * and ends the read when it has enough. All is one statement, because others change deliveries between two statements.
 */
const WALK = statement(`
  WITH part AS MATERIALIZED (
    SELECT d.delivery_no, d.instance_id, d.next_attempt_at,
      (SELECT t.paused = 1 FROM meeting_settings t WHERE t.meeting_id = d.meeting_id) IS TRUE AS is_paused
    FROM noted_deliveries d
    WHERE d.partition_no = $partition_no AND d.instance_id = $instance_id AND d.aside = 1
      AND (d.next_attempt_at, d.delivery_no) > ($next_attempt_at::bigint, $delivery_no::bigint)
    ORDER BY d.next_attempt_at, d.delivery_no LIMIT ${ASIDE_READ_MAX}
  ), found AS MATERIALIZED (
    SELECT delivery_no, instance_id, next_attempt_at FROM part WHERE NOT is_paused LIMIT $found_max::bigint
  )
  SELECT found.*, false AS is_end FROM found
  UNION ALL (
    SELECT delivery_no, instance_id, next_attempt_at, true FROM part
    WHERE (SELECT count(*) FROM found) < $found_max OFFSET ${ASIDE_READ_MAX - 1})`);

/**
 * Jumps from instance to instance in the index, one partition after the other, and does not read every row. Without
 * ORDER BY it ends at the limit: the partitions come in the order of the list, and each recursion in that of the index.
 */
const PENDING_ASIDE = statement(`
  SELECT found.* FROM unnest($partitions::smallint[], $after_ids::text[]) AS p(partition_no, after_id)
    CROSS JOIN LATERAL (
      WITH RECURSIVE aside AS (
        (SELECT partition_no, instance_id, next_attempt_at FROM noted_deliveries
         WHERE partition_no = p.partition_no AND instance_id > p.after_id AND aside = 1
         ORDER BY instance_id, next_attempt_at LIMIT 1)
        UNION ALL
        SELECT following.* FROM aside CROSS JOIN LATERAL (
          SELECT d.partition_no, d.instance_id, d.next_attempt_at FROM noted_deliveries d
          WHERE d.partition_no = aside.partition_no AND d.instance_id > aside.instance_id AND d.aside = 1
          ORDER BY d.instance_id, d.next_attempt_at LIMIT 1) following)
      SELECT instance_id, next_attempt_at AS next_at FROM aside) found
  LIMIT $limit`);

/** The next due deliveries of the instance of a place. */
export async function dueAside(
  session: Session,
  place: ReturnType<typeof numberedPlace>,
  now_ms: number,
  limit: number,
): Promise<DueAside> {
  const values = { ...place, ...withPartition(place.instance_id), found_max: limit + 1 };
  const rows = await session.all<PlacedRow & { is_end: boolean }>(WALK, values);
  const found = rows.filter(({ is_end }) => !is_end);
  const due = found.filter(({ next_attempt_at }) => next_attempt_at <= now_ms).slice(0, limit);
  const following = found[due.length] ?? null;
  return { due, following, ended_at: following === null ? (rows.find(({ is_end }) => is_end) ?? null) : null };
}

/** Instances with deliveries aside. */
export function pendingAside(
  session: Session,
  after: string | null,
  limit: number,
  of_partitions: readonly number[],
): Promise<PendingAside[]> {
  const first = after === null ? 0 : partitionOf(after);
  const partitions = of_partitions.filter((partition_no) => partition_no >= first).toSorted((a, b) => a - b);
  const after_ids = partitions.map((partition_no) => (partition_no === first ? (after ?? '') : ''));
  return session.all<PendingAside>(PENDING_ASIDE, { partitions, after_ids, limit });
}
