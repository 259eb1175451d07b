import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { MeetingInstance } from '@convoke/sdk';
import { useQuery } from '../queries.ts';
import { Copy } from '../parts/copy.tsx';
import { Detail } from '../parts/page.tsx';
import { addressOf } from '../router.ts';
import { counted, some } from '../format.ts';
import { Stopped } from './guard.tsx';
import { PauseButton, Paused, useMeeting } from './brake.tsx';
import { Composer } from './composer.tsx';
import { Members, membersOf } from './memberships.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { Failure } from '../parts/states.tsx';
import { Transcript } from './transcript.tsx';

/** The members until they have been read. */
const NOBODY: readonly MeetingInstance[] = [];

export function MeetingDetail({ meeting_id, back }: { meeting_id: string; back: string }): JSX.Element {
  const {
    value: members,
    problem,
    again: readMembers,
  } = useQuery(
    `members ${meeting_id}`,
    async () => (await membersOf(meeting_id)) ?? [],
    // Messages and attempts change nothing about the members. Events of an instance name a meeting only if they concern
    // no other meeting.
    (event) =>
      (event.name.startsWith('instance.') || event.name === 'membership.changed') &&
      (event.meeting_id ?? meeting_id) === meeting_id,
  );
  const { value: meeting, again } = useMeeting(meeting_id);
  const [sent, setSent] = useState(0);
  const [is_open, setOpen] = useState(false);
  const present = members?.filter(({ left_at }) => left_at === null) ?? [];
  return (
    <Detail
      title={
        <>
          <Foreign>{meeting_id}</Foreign> <Copy text={meeting_id} what="the meeting id" />
        </>
      }
      label={`Meeting ${meeting_id}`}
      back={back}
      back_label="Close the meeting"
      actions={
        <>
          {meeting !== null && <PauseButton meeting={meeting} again={again} />}
          <a class="button" href={addressOf(['deliveries'], { meeting_id })}>
            Deliveries
          </a>
        </>
      }
    >
      <div class="meeting">
        <details class="meeting-members" onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>
            <span>{members !== null ? counted(present.length, 'instance') : problem === null ? '…' : 'Members'}</span>
            <span class="faint clip">
              <Foreign>
                {some(
                  present.map(({ instance_name, instance_id }) => instance_name || instance_id),
                  4,
                )}
              </Foreign>
            </span>
          </summary>
          {is_open && members !== null && <Members meeting_id={meeting_id} members={members} />}
          {is_open && members === null && problem !== null && <Failure problem={problem} again={readMembers} />}
        </details>
        {meeting !== null && <Paused meeting={meeting} again={again} />}
        {meeting !== null && <Stopped meeting={meeting} again={again} />}
        <Transcript meeting_id={meeting_id} members={members ?? NOBODY} last_seq={meeting?.last_seq ?? 0} sent={sent} />
        <Composer
          meeting_id={meeting_id}
          members={members === null ? null : present}
          onSent={() => setSent((times) => times + 1)}
        />
      </div>
    </Detail>
  );
}
