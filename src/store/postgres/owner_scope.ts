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

/** A condition for queries over the instances `i`. */
export function isInstanceVisible({ owner_scope, meeting_ids }: Visibility): RawBuilder<boolean> {
  const [key_id, limit] = [owner_scope?.key_id ?? null, owner_scope?.instance_id ?? null];
  const is_owned = sql<boolean>`(i.owner_key_id = ${key_id}::text AND i.instance_id = coalesce(${limit}::text, i.instance_id))`;
  if (meeting_ids.length === 0) return is_owned;
  return sql<boolean>`(${is_owned} OR i.instance_id IN
    (SELECT instance_id FROM memberships WHERE left_at IS NULL AND meeting_id = ANY (${meeting_ids}::text[])))`;
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
