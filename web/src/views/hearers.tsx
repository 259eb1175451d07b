import type { JSX } from 'preact';
import type { Explanation } from '@convoke/sdk';
import { some } from '../format.ts';
import { Foreign } from '../parts/foreign.tsx';
import { Mark, type MarkKind } from '../parts/mark.tsx';
import { useQuery } from '../queries.ts';
import { client } from '../service.ts';
import { firstTargets } from './first_targets.ts';

/** The most memberships of a meeting that are shown. */
const MEMBERSHIPS_MAX = 500;

interface HearersProps {
  meeting_id: string;
  /** Empty: everybody. */
  targets: readonly string[];
}

/** Which agents will get a message that a person sends now: at once, later, or not at all. */
export function Hearers({ meeting_id, targets: chosen }: HearersProps): JSX.Element {
  const targets = firstTargets(chosen);
  const is_whole = targets.length === chosen.length;
  const query = { target_agents: targets, limit: MEMBERSHIPS_MAX };
  const { value } = useQuery(
    `hearers ${JSON.stringify([meeting_id, ...targets])}`,
    () => client.explain(meeting_id, query),
    ({ name }) => name.startsWith('instance.') || name === 'meeting.changed' || name === 'membership.changed',
  );
  const rows = value?.data.filter((row) => isFor(row, targets)) ?? [];
  const groups = KINDS.flatMap((kind) => groupsOf(kind, rows.filter(kind.is)));
  return (
    <p class="hearers" id="hearers">
      {value !== null && groups.length === 0 && is_whole && (
        <span class="hearers-group">
          <Mark kind="off" /> No one will hear it: no agent to notify
        </span>
      )}
      {groups.map(({ mark, words, who }) => (
        <span key={words} class="hearers-group">
          <Mark kind={mark} />
          <span>
            <Foreign>
              {some(
                who.map(({ instance_name, instance_id }) => instance_name || instance_id),
                2,
              )}
            </Foreign>{' '}
            {words}
          </span>
        </span>
      ))}
      {value !== null && !is_whole && (
        <span>
          This is about the first {targets.length} of the {chosen.length.toLocaleString('en')} chosen agents.
        </span>
      )}
      {value !== null && value.next_cursor !== null && <span>These are the first {MEMBERSHIPS_MAX} instances.</span>}
    </p>
  );
}

/**
 * Whether an instance hosts one of the targets. The `why` of its row does not show that: during a pause, `why` names the
 * pause even for an instance that hosts none of the targets.
 */
function isFor({ agent_ids }: Explanation, targets: readonly string[]): boolean {
  return targets.length === 0 || agent_ids.some((agent_id) => targets.includes(agent_id));
}

interface Group {
  mark: MarkKind;
  words: string;
  who: Explanation[];
}

/** The instances of a kind, grouped by the effect that the rules of their memberships may have on a waiting message. */
function groupsOf({ mark, words, may_wait = false }: Kind, rows: readonly Explanation[]): Group[] {
  const groups = new Map<string, Group>();
  for (const row of rows) {
    const unless = may_wait ? unlessOf(row.may_become ?? []) : '';
    const group = groups.get(unless) ?? { mark, words: words + unless, who: [] };
    group.who.push(row);
    groups.set(unless, group);
  }
  return [...groups.values()];
}

/** There are no words for what the loop guard does, because it stops no message of a person. */
const UNLESS: Partial<Record<NonNullable<Explanation['may_become']>[number], string>> = {
  superseded: 'a newer message comes first',
  max_age: 'it is too old by then',
};

function unlessOf(may_become: NonNullable<Explanation['may_become']>): string {
  const words = may_become.flatMap((reason) => UNLESS[reason] ?? []);
  return words.length === 0 ? '' : `, unless ${words.join(' or ')}`;
}

interface Kind {
  is: (row: Explanation) => boolean;
  mark: MarkKind;
  words: string;
  /** The message waits, so the rules of the membership may leave it out. */
  may_wait?: boolean;
}

/** Memberships that have ended, and those without an agent that the message is for, are not shown. */
const KINDS: readonly Kind[] = [
  { is: ({ pushed }) => pushed === 'now', mark: 'good', words: 'will hear it' },
  {
    is: ({ why }) => why === 'paused',
    mark: 'waiting',
    words: 'will hear it when the meeting is resumed',
    may_wait: true,
  },
  { is: ({ why }) => why === 'connection', mark: 'waiting', words: 'will hear it when connected', may_wait: true },
  { is: ({ why }) => why === 'back_off', mark: 'bad', words: 'will hear it when up again', may_wait: true },
  {
    is: ({ why }) => why === 'inactive' || why === 'switched_off',
    mark: 'off',
    words: 'will not hear it: paused',
  },
  { is: ({ why }) => why === 'wake', mark: 'off', words: 'will not be woken: it is in the history' },
];

/** Why a message that was just sent made no delivery. */
export async function whyNobody(meeting_id: string, targets: readonly string[]): Promise<string> {
  const nobody = 'no instance in this meeting has an agent to notify';
  const query = { target_agents: firstTargets(targets), limit: MEMBERSHIPS_MAX };
  const { data } = await client.explain(meeting_id, query).catch(() => ({ data: [] }));
  const paused = data.filter((row) => (row.why === 'inactive' || row.why === 'switched_off') && isFor(row, targets));
  if (paused.length === 0) return nobody;
  const names = some(paused.map(({ instance_name, instance_id }) => instance_name || instance_id));
  return `${names} ${paused.length === 1 ? 'is' : 'are'} paused`;
}
