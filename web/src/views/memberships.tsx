import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { all, ConvokeError, type Instance, type MeetingInstance } from '@convoke/sdk';
import type { FeedEvent } from '../feed.ts';
import { useQuery } from '../queries.ts';
import { AgentTags } from '../parts/agents.tsx';
import { Icon } from '../parts/icons.tsx';
import { HealthMark } from '../parts/mark.tsx';
import { May, MayChange, mayChange } from '../parts/may.tsx';
import { doing } from '../parts/notice.tsx';
import { Reading } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { client } from '../service.ts';
import { InviteButton } from './invite.tsx';
import { JoinDialog } from './join.tsx';
import { Rules } from './rules.tsx';
import { Foreign } from '../parts/foreign.tsx';

/** Everybody who is or was in a meeting; null when the meeting does not exist. */
export async function membersOf(meeting_id: string): Promise<MeetingInstance[] | null> {
  const members: MeetingInstance[] = [];
  try {
    const list = all<MeetingInstance>((page) =>
      client.listMeetingInstances(meeting_id, { include_left: true, limit: 500, ...page }),
    );
    for await (const member of list) members.push(member);
  } catch (error) {
    if (error instanceof ConvokeError && error.code === 'meeting_does_not_exist') return null;
    throw error;
  }
  return members;
}

/**
 * An instance in more meetings than this gets a shortened list, because each meeting costs a request for its members.
 */
const MEETINGS_MAX = 20;

/** The events after which the memberships of an instance may differ. */
const CHANGES = new Set<FeedEvent['name']>(['instance.joined', 'instance.left', 'membership.changed']);

/** The memberships of an instance, including the meetings that it has left. */
async function meetingsOf(instance_id: string): Promise<{ memberships: MeetingInstance[]; has_more: boolean }> {
  const page = await client.listMeetings({ instance_id, include_left: true, limit: MEETINGS_MAX });
  const found = await Promise.all(page.data.map(({ meeting_id }) => membersOf(meeting_id)));
  const memberships = found.flatMap((members) => members?.filter((member) => member.instance_id === instance_id) ?? []);
  return { memberships, has_more: page.next_cursor !== null };
}

export function MeetingsOf({ instance }: { instance: Instance }): JSX.Element {
  const { instance_id, agent_ids } = instance;
  const may_change = mayChange(instance);
  const [is_joining, setJoining] = useState(false);
  const query = useQuery(
    `meetings of ${instance_id}`,
    () => meetingsOf(instance_id),
    (event) => event.instance_id === instance_id && CHANGES.has(event.name),
  );
  const { value, again } = query;
  const leave = (member: MeetingInstance): void =>
    void leaving(member, `It left ${member.meeting_id}.`, again).then(again);
  return (
    <>
      <Reading query={query} lines={2} />
      <ul class="members">
        {value?.memberships.map((member) => {
          const { meeting_id, left_at, agent_ids } = member;
          return (
            <li key={meeting_id} class={left_at === null ? 'member' : 'member has-left'}>
              <a class="member-name" href={addressOf(['meetings', meeting_id])}>
                <Foreign>{meeting_id}</Foreign>
              </a>
              {left_at === null ? (
                <AgentTags agent_ids={agent_ids} />
              ) : (
                <span class="faint">
                  left <Ago at={left_at} />
                </span>
              )}
              {left_at === null && may_change && (
                <button type="button" class="bare text" onClick={() => leave(member)}>
                  Leave<span class="unseen"> {meeting_id}</span>
                </button>
              )}
            </li>
          );
        })}
      </ul>
      {value?.has_more === true && <p class="faint">These are the first {MEETINGS_MAX}; it is in more.</p>}
      {may_change && (
        <button type="button" class="button" onClick={() => setJoining(true)}>
          <Icon name="plus" /> Join a meeting
        </button>
      )}
      {is_joining && (
        <JoinDialog
          instance_id={instance_id}
          agent_ids={agent_ids}
          onClose={() => {
            setJoining(false);
            again();
          }}
        />
      )}
    </>
  );
}

/**
 * Takes an instance out of a meeting. The undo lets the instance join again, with the same rules. Cancelled deliveries
 * stay cancelled.
 */
function leaving(member: MeetingInstance, done: string, again?: () => void): Promise<unknown> {
  const { instance_id, meeting_id, agent_ids, wake, catch_up, max_age_s } = member;
  const rules = {
    ...(wake !== undefined && { wake }),
    ...(catch_up !== undefined && { catch_up }),
    ...(max_age_s !== undefined && { max_age_s }),
  };
  return doing(
    client.leaveMeeting({ instance_id, meeting_id }),
    () => done,
    () => client.joinMeeting({ instance_id, meeting_id, agent_ids, ...rules }).then(again),
  );
}

/** With more members than this, people filter to see the others. */
const MEMBERS_MAX = 50;

/** The present and the past members of a meeting. */
export function Members({
  meeting_id,
  members,
}: {
  meeting_id: string;
  members: readonly MeetingInstance[];
}): JSX.Element {
  const [is_joining, setJoining] = useState(false);
  const [wanted, setWanted] = useState('');
  const present = members.filter(({ left_at }) => left_at === null);
  const gone = members.filter(({ left_at }) => left_at !== null);
  const fitting = [...present, ...gone].filter((member) => fits(member, wanted.toLowerCase()));
  const row = (member: MeetingInstance): JSX.Element => {
    const { instance_id, instance_name, health, agent_ids, left_at } = member;
    return (
      <li key={instance_id} class={left_at === null ? 'member' : 'member has-left'}>
        <HealthMark health={health} />
        <a class="member-name" href={addressOf(['instances', instance_id])} title={instance_id}>
          <Foreign>{instance_name || instance_id}</Foreign>
        </a>
        {left_at === null ? (
          <>
            <AgentTags agent_ids={agent_ids} />
            <MayChange instance_id={instance_id}>
              <Rules member={member} />
              <button type="button" class="bare text" onClick={() => void leaving(member, `${instance_name} left.`)}>
                Leave<span class="unseen">: take {instance_name} out of the meeting</span>
              </button>
            </MayChange>
          </>
        ) : (
          <span class="faint">
            left <Ago at={left_at} />
          </span>
        )}
      </li>
    );
  };
  return (
    <>
      {members.length > MEMBERS_MAX && (
        <input
          type="search"
          class="input members-filter"
          aria-label="Filter the members"
          placeholder={`Find one of ${members.length.toLocaleString('en')}: name, id or agent`}
          value={wanted}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
      )}
      <ul class="members">{fitting.slice(0, MEMBERS_MAX).map(row)}</ul>
      {fitting.length > MEMBERS_MAX && (
        <p class="faint">
          These are the first {MEMBERS_MAX} of {fitting.length.toLocaleString('en')}.
        </p>
      )}
      {fitting.length === 0 && wanted !== '' && <p class="faint">No members match.</p>}
      {present.length === 0 && (
        <p class="faint">No instance is in this meeting: new messages are stored, and no one receives them.</p>
      )}
      <div class="button-row">
        <May scope="instance">
          <button type="button" class="button" onClick={() => setJoining(true)}>
            <Icon name="plus" /> Let an instance join
          </button>
        </May>
        <InviteButton meeting_id={meeting_id} />
      </div>
      {is_joining && <JoinDialog meeting_id={meeting_id} onClose={() => setJoining(false)} />}
    </>
  );
}

function fits({ instance_id, instance_name, agent_ids }: MeetingInstance, wanted: string): boolean {
  return (
    wanted === '' || [instance_id, instance_name, ...agent_ids].some((text) => text.toLowerCase().includes(wanted))
  );
}
