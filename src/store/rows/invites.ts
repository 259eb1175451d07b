/** Invites as both engines read them. */
import type { Invite } from '../../domain/invite.ts';
import { Problem } from '../../domain/problem.ts';
import { INVITES_PENDING_MAX } from '../contract/invites.ts';
import type { Weighed } from './page.ts';
import { storedTexts } from './stored_values.ts';
import type { InvitesTable } from './tables.ts';

/** The bytes of the long columns of an invite. */
export const INVITE_BYTES = 'octet_length(meeting_ids) + octet_length(agent_ids)';

export function inviteOf(stored: InvitesTable & Partial<Weighed>): Invite {
  const { row_bytes: _, ...row } = stored;
  const { invite_id } = row;
  return {
    ...row,
    // If the stored list is damaged, `storedTexts` returns an empty list, so the invite allows no meeting.
    meeting_ids: storedTexts(row.meeting_ids, 'invites', 'meeting_ids', invite_id),
    agent_ids: storedTexts(row.agent_ids, 'invites', 'agent_ids', invite_id),
  };
}

/** @throws Problem `quota_exceeded` */
export function assertRoomForInvite(pending: number): void {
  if (pending < INVITES_PENDING_MAX) return;
  throw new Problem('quota_exceeded', `${INVITES_PENDING_MAX} invites can be redeemed already: revoke some of them.`);
}
