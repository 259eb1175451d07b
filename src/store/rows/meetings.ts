/** Memberships as both engines read them. */
import { Problem } from '../../domain/problem.ts';
import type { CandidateRow, GivenRules, Membership } from '../contract/meetings.ts';
import type { MembershipsTable } from './tables.ts';
import type { MemberRules } from '../../domain/catch_up.ts';
import { storedCatchUp, storedCount, storedTexts, storedWake } from './stored_values.ts';

/**
 * The counts of a meeting `m` cost a search for each of its memberships. So each membership takes 32 bytes of a page: a
 * page of meetings has at most 16,384 memberships, or a single meeting.
 */
export const MEETING_BYTES = '(SELECT 32 * count(*) FROM memberships s WHERE s.meeting_id = m.meeting_id)';

/** The bytes of the long columns of `s`. */
export const MEMBERSHIP_BYTES = 'octet_length(s.agent_ids)';

export function membershipOf(row: MembershipsTable): Membership {
  const { meeting_id, instance_id, agent_ids, joined_at, left_at } = row;
  return {
    meeting_id,
    instance_id,
    agent_ids: memberAgents(agent_ids, meeting_id, instance_id),
    joined_at,
    left_at,
    ...rulesOf(row),
  };
}

export function rulesOf(row: Pick<MembershipsTable, 'meeting_id' | 'instance_id' | keyof MemberRules>): MemberRules {
  const { meeting_id, instance_id } = row;
  return {
    wake: storedWake(row.wake, meeting_id, instance_id),
    catch_up: storedCatchUp(row.catch_up, meeting_id, instance_id),
    max_age_s: storedCount(row.max_age_s, 'memberships', 'max_age_s', JSON.stringify([meeting_id, instance_id])),
  };
}

/** The rules that a join gives, as columns; null where a rule is not given. */
export function givenRules({ wake, catch_up, max_age_s }: GivenRules) {
  return { wake: wake ?? null, catch_up: catch_up ?? null, max_age_s: max_age_s ?? null };
}

/** A membership, with the columns of its instance that both engines read. */
type CandidateColumns = Omit<MembershipsTable, 'joined_at'> & {
  instance_name: string;
  is_active: number;
  webhook_enabled: number;
  backing_off: number | null;
  unconnected: number | null;
};

export function candidateOf(row: CandidateColumns): CandidateRow {
  const { meeting_id, instance_id, instance_name, left_at } = row;
  return {
    instance_id,
    instance_name,
    agent_ids: memberAgents(row.agent_ids, meeting_id, instance_id),
    ...rulesOf(row),
    left_at,
    is_active: row.is_active === 1,
    webhook_enabled: row.webhook_enabled === 1,
    unconnected: row.unconnected === 1,
    backing_off: row.backing_off === 1,
  };
}

function memberAgents(agent_ids: string, meeting_id: string, instance_id: string): string[] {
  return storedTexts(agent_ids, 'memberships', 'agent_ids', JSON.stringify([meeting_id, instance_id]));
}

/** @returns why the instance cannot join */
export function notRegistered(instance_id: string): Problem {
  return new Problem(
    'instance_does_not_exist',
    `No instance ${JSON.stringify(instance_id)} is registered; register it before it joins a meeting.`,
  );
}
