/** The rights of a caller, as conditions of the statement itself: a row that the caller may not see is not found. */
import { type RawBuilder, sql } from 'kysely';
import type { OwnerScope, Visibility } from '../../domain/access.ts';

/**
 * A condition for statements over instances, with the parameters that `ownedBy` makes. The condition uses `IS`, not
 * `=`. So when an owner is given, the result for an instance without an owner is 0, not NULL.
 */
export const IS_OWNED =
  '($owner_key_id IS NULL OR (owner_key_id IS $owner_key_id AND instance_id = coalesce($owner_limit, instance_id)))';

/** The parameters of `IS_OWNED`. Without an owner_scope, `IS_OWNED` is true for every instance. */
export function ownedBy(owner_scope: (Pick<OwnerScope, 'instance_id'> & { key_id: string | null }) | null | undefined) {
  return { owner_key_id: owner_scope?.key_id ?? null, owner_limit: owner_scope?.instance_id ?? null };
}

/** A condition for queries over one instance `i`. With meetings, no index finds the instances of this condition. */
export function isInstanceVisible({ owner_scope, meeting_ids }: Visibility): RawBuilder<boolean> {
  const [key_id, limit] = [owner_scope?.key_id ?? null, owner_scope?.instance_id ?? null];
  const is_owned = sql<boolean>`(i.owner_key_id = ${key_id} AND i.instance_id = coalesce(${limit}, i.instance_id))`;
  if (meeting_ids.length === 0) return is_owned;
  return sql<boolean>`(${is_owned} OR EXISTS (SELECT 1 FROM memberships x
    WHERE x.instance_id = i.instance_id AND x.left_at IS NULL AND x.meeting_id IN (SELECT value FROM json_each(${JSON.stringify(meeting_ids)}))))`;
}

/** A condition for the instances `i` that a caller sees: for a query that reads the first `rows` of them after an id. */
export function isFirstSeen(visibility: Visibility, after: string, rows: number): RawBuilder<boolean> {
  if (visibility.meeting_ids.length === 0) return isInstanceVisible(visibility);
  return sql<boolean>`i.instance_id IN (${firstSeen(visibility, after, rows)})`;
}

/** Every text is less than a blob. */
const AFTER_ALL = "x''";

/**
 * The first ids after `after` of the instances that a caller sees, in no order. Reads at most `rows` ids of the owner,
 * and of each meeting: the upper bound in a meeting is its last id that can be among them.
 */
function firstSeen({ owner_scope, meeting_ids }: Visibility, after: string, rows: number): RawBuilder<string> {
  const [key_id, limit] = [owner_scope?.key_id ?? null, owner_scope?.instance_id ?? null];
  const owned = sql`SELECT instance_id FROM instances
    WHERE owner_key_id = ${key_id} AND instance_id = coalesce(${limit}, instance_id) AND instance_id > ${after}
    ORDER BY instance_id LIMIT ${rows}`;
  const last_of_meeting = sql`SELECT x.instance_id FROM memberships x
    WHERE x.meeting_id = k.value AND x.left_at IS NULL AND x.instance_id > ${after}
    ORDER BY x.instance_id LIMIT 1 OFFSET ${rows - 1}`;
  return sql<string>`SELECT instance_id FROM (SELECT * FROM (${owned}) UNION
    SELECT s.instance_id FROM json_each(${JSON.stringify(meeting_ids)}) k CROSS JOIN memberships s
    WHERE s.meeting_id = k.value AND s.left_at IS NULL AND s.instance_id > ${after}
      AND s.instance_id <= coalesce((${last_of_meeting}), ${sql.raw(AFTER_ALL)}))
    ORDER BY instance_id LIMIT ${rows}`;
}

/**
 * A condition for queries over the deliveries `d` and their instances `i`, which may be missing. An owner sees only the
 * deliveries that were made since the instance was registered, because an earlier instance with the same id may have
 * had another owner.
 */
export function isDeliveryVisible({ owner_scope, meeting_ids }: Visibility): RawBuilder<boolean> {
  const [key_id, limit] = [owner_scope?.key_id ?? null, owner_scope?.instance_id ?? null];
  // Uses the index of the owner, then the index of each instance, because other owners may have a million deliveries.
  const is_owned = sql<boolean>`(d.instance_id IN (SELECT instance_id FROM instances
    WHERE owner_key_id = ${key_id} AND instance_id = coalesce(${limit}, instance_id)) AND d.delivery_no >= i.first_no)`;
  if (meeting_ids.length === 0) return is_owned;
  return sql<boolean>`(${is_owned} OR d.meeting_id IN (SELECT value FROM json_each(${JSON.stringify(meeting_ids)})))`;
}
