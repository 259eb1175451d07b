import type { JSX } from 'preact';
import type { Instance, MeetingInstance } from '@convoke/sdk';
import { some } from '../format.ts';
import { Foreign } from '../parts/foreign.tsx';
import { Mark, type MarkKind } from '../parts/mark.tsx';
import { useQuery } from '../queries.ts';
import { client } from '../service.ts';

/**
 * The most instances of a meeting that are checked. For the others, the page does not show whether they are switched
 * off.
 */
const INSTANCES_MAX = 500;

interface HearersProps {
  meeting_id: string;
  /** Who is in the meeting now. */
  members: readonly MeetingInstance[];
  /** Empty: everybody. */
  targets: readonly string[];
}

/** Which agents will get a message that is sent now: at once, later, or not at all. */
export function Hearers({ meeting_id, members, targets }: HearersProps): JSX.Element {
  const { value } = useQuery(
    `instances in ${meeting_id}`,
    async () => (await client.listInstances({ meeting_id, limit: INSTANCES_MAX })).data,
    (event) => event.name.startsWith('instance.'),
  );
  const instances = new Map(value?.map((instance) => [instance.instance_id, instance]));
  const named = members.filter(({ agent_ids }) =>
    targets.length === 0 ? agent_ids.length > 0 : agent_ids.some((agent_id) => targets.includes(agent_id)),
  );
  return (
    <p class="hearers" id="hearers">
      {named.length === 0 && (
        <span class="hearers-group">
          <Mark kind="off" /> nobody will hear it: no agent to notify
        </span>
      )}
      {KINDS.map(([hearing, mark, words]) => {
        const group = named.filter((member) => hearingOf(member, instances.get(member.instance_id)) === hearing);
        if (group.length === 0) return null;
        return (
          <span key={hearing} class="hearers-group">
            <Mark kind={mark} />
            <span>
              <Foreign>
                {some(
                  group.map(({ instance_name, instance_id }) => instance_name || instance_id),
                  2,
                )}
              </Foreign>{' '}
              {words}
            </span>
          </span>
        );
      })}
    </p>
  );
}

type Hearing = 'now' | 'connection' | 'down' | 'off';

const KINDS: readonly (readonly [Hearing, MarkKind, string])[] = [
  ['now', 'good', 'will hear it'],
  ['connection', 'waiting', 'will hear it when connected'],
  ['down', 'bad', 'will hear it when up again'],
  ['off', 'off', 'will not hear it: switched off'],
];

/** @param instance undefined until it is read */
function hearingOf({ health }: MeetingInstance, instance: Instance | undefined): Hearing {
  if (instance !== undefined && !(instance.is_active && instance.webhook_enabled)) return 'off';
  if (instance?.connected === null) return 'connection';
  return health === 'down' ? 'down' : 'now';
}
