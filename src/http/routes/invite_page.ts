/** The texts that people read at the link of an invite, on the page and as plain text. */
import type { Invite, InviteState } from '../../domain/invite.ts';
import { isoTime } from '../../domain/time.ts';

/** The texts, by their places in web/invite.html. */
export interface InviteTexts {
  /** `pending` shows the command; any other value hides it. */
  state: InviteState | 'unknown';
  title: string;
  lead: string;
  detail: string;
  command: string;
}

/** The most names that are shown; the others are counted. */
const NAMES_MAX = 5;

/**
 * @param invite null when there is no invite with this link
 * @param state the state of the invite at this moment
 */
export function pageTexts(invite: Invite | null, state: InviteState | null, link: string): InviteTexts {
  if (invite === null || state === null) {
    const lead = 'There is no invite with this link. The link may be incomplete: open the whole link again.';
    return { state: 'unknown', title: 'This service does not know this link', lead, detail: '', command: '' };
  }
  if (state !== 'pending') {
    return {
      state,
      title: 'This link does not work any more',
      lead: endedInWords(invite, state),
      detail: 'Ask the sender of the link for another one.',
      command: '',
    };
  }
  const { agent_ids, meeting_ids, instance_id, expires_at } = invite;
  const where = meeting_ids.length === 1 ? 'the meeting' : 'the meetings';
  return {
    state,
    title: 'An agent of yours is invited',
    lead: `This link lets ${named(agent_ids)} take part in ${where} ${named(meeting_ids)}.`,
    detail: `It works once, until ${inWords(expires_at)}, and the machine becomes the instance ${instance_id}. You may open this page as often as you like.`,
    command: `npx convoke connect ${link}`,
  };
}

/** Why an invite cannot be redeemed. */
export function endedInWords({ redeemed_at, revoked_at, expires_at }: Invite, state: InviteState): string {
  switch (state) {
    case 'redeemed':
      return `It was redeemed at ${inWords(redeemed_at ?? 0)}. If that was not you, tell the sender of the link: they can revoke the key.`;
    case 'revoked':
      return `It was revoked at ${inWords(revoked_at ?? 0)}.`;
    default:
      return `It expired at ${inWords(expires_at)}.`;
  }
}

/** The page as plain text, for a terminal, or while the pages are not built. */
export function words({ state, title, lead, detail, command }: InviteTexts): string {
  const texts = [title, lead, detail].filter((text) => text !== '').join('\n\n');
  if (state !== 'pending') return `${texts}\n`;
  return `${texts}\n\nOn the machine where the agent runs, where Convoke is installed:\n\n  ${command} --to WHERE_THE_AGENT_LISTENS\n`;
}

/** `2026-03-01 09:30 UTC`. */
function inWords(wall_ms: number): string {
  return `${isoTime(wall_ms).slice(0, 16).replace('T', ' ')} UTC`;
}

function named(ids: readonly string[]): string {
  const shown = ids.slice(0, NAMES_MAX).join(', ');
  return ids.length > NAMES_MAX ? `${shown} and ${ids.length - NAMES_MAX} more` : shown;
}
