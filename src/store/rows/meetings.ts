/** Memberships as both engines read them. */
import { Problem } from '../../domain/problem.ts';
import type { CandidateRow, Membership } from '../contract/meetings.ts';
import type { MembershipsTable } from './tables.ts';
import { storedTexts, storedWake } from './stored_values.ts';

/** The bytes of the long columns of `s`. */
export const MEMBERSHIP_BYTES = 'octet_length(s.agent_ids)';

export function membershipOf(row: MembershipsTable): Membership {
  const { meeting_id, instance_id, agent_ids, joined_at, left_at, wake } = row;
  return {
    meeting_id,
    instance_id,
    agent_ids: memberAgents(agent_ids, meeting_id, instance_id),
    joined_at,
    left_at,
    wake: storedWake(wake, meeting_id, instance_id),
  };
}

/** A membership with what both engines read of its instance. */
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
    wake: storedWake(row.wake, meeting_id, instance_id),
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
