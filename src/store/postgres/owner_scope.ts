/** The rights of a caller, as conditions of the statement itself: a row that the caller may not see is not found. */
import { type RawBuilder, sql } from 'kysely';
import type { OwnerScope, Visibility } from '../../domain/access.ts';

/**
 * A condition for statements over instances, with the parameters that `ownedBy` makes. When an owner is given, the
 * result for an instance without an owner is false, not null.
 */
export const IS_OWNED =
  '($owner_key_id::text IS NULL OR (owner_key_id IS NOT DISTINCT FROM $owner_key_id AND instance_id = coalesce($owner_limit::text, instance_id)))';

/** The parameters of `IS_OWNED`. Without an owner_scope, `IS_OWNED` is true for every instance. */
export function ownedBy(owner_scope: OwnerScope | null | undefined) {
  return { owner_key_id: owner_scope?.key_id ?? null, owner_limit: owner_scope?.instance_id ?? null };
}

/** A condition for queries over one instance `i`. With meetings, no index finds the instances of this condition. */
export function isInstanceVisible({ owner_scope, meeting_ids }: Visibility): RawBuilder<boolean> {
  const [key_id, limit] = [owner_scope?.key_id ?? null, owner_scope?.instance_id ?? null];
  const is_owned = sql<boolean>`(i.owner_key_id = ${key_id}::text AND i.instance_id = coalesce(${limit}::text, i.instance_id))`;
  if (meeting_ids.length === 0) return is_owned;
  return sql<boolean>`(${is_owned} OR EXISTS (SELECT 1 FROM memberships x
    WHERE x.instance_id = i.instance_id AND x.left_at IS NULL AND x.meeting_id = ANY (${meeting_ids}::text[])))`;
}

/** A condition for the instances `i` that a caller sees: for a query that reads the first `rows` of them after an id. */
export function isFirstSeen(visibility: Visibility, after: string, rows: number): RawBuilder<boolean> {
  if (visibility.meeting_ids.length === 0) return isInstanceVisible(visibility);
  return sql<boolean>`i.instance_id IN (${firstSeen(visibility, after, rows)})`;
}

/**
 * The first ids after `after` of the instances that a caller sees, in no order. Reads at most `rows` ids of the owner,
 * and of each meeting.
 */
function firstSeen({ owner_scope, meeting_ids }: Visibility, after: string, rows: number): RawBuilder<string> {
  const [key_id, limit] = [owner_scope?.key_id ?? null, owner_scope?.instance_id ?? null];
  const owned = sql`SELECT instance_id FROM instances
    WHERE owner_key_id = ${key_id}::text AND instance_id = coalesce(${limit}::text, instance_id) AND instance_id > ${after}
    ORDER BY instance_id LIMIT ${rows}`;
  const of_meeting = sql`SELECT instance_id FROM memberships
    WHERE meeting_id = k.meeting_id AND left_at IS NULL AND instance_id > ${after}
    ORDER BY instance_id LIMIT ${rows}`;
  return sql<string>`SELECT instance_id FROM ((${owned}) UNION
    SELECT s.instance_id FROM unnest(${meeting_ids}::text[]) k (meeting_id) CROSS JOIN LATERAL (${of_meeting}) s) seen
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
    WHERE owner_key_id = ${key_id}::text AND instance_id = coalesce(${limit}::text, instance_id)) AND d.delivery_no >= i.first_no)`;
  if (meeting_ids.length === 0) return is_owned;
  return sql<boolean>`(${is_owned} OR d.meeting_id = ANY (${meeting_ids}::text[]))`;
}
