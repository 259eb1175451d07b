/** Memberships as both engines read them. */
import { Problem } from '../../domain/problem.ts';
import type { Membership } from '../contract/meetings.ts';
import { storedTexts } from './stored_values.ts';

/** The bytes of the long columns of `s`. */
export const MEMBERSHIP_BYTES = 'octet_length(s.agent_ids)';

export function membershipOf(row: Omit<Membership, 'agent_ids'> & { agent_ids: string }): Membership {
  const { meeting_id, instance_id, agent_ids, joined_at, left_at } = row;
  const row_key = JSON.stringify([meeting_id, instance_id]);
  return {
    meeting_id,
    instance_id,
    agent_ids: storedTexts(agent_ids, 'memberships', 'agent_ids', row_key),
    joined_at,
    left_at,
  };
}

/** @returns why the instance cannot join */
export function notRegistered(instance_id: string): Problem {
  return new Problem(
    'instance_does_not_exist',
    `No instance ${JSON.stringify(instance_id)} is registered; register it before it joins a meeting.`,
  );
}
