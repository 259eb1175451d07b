import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Meeting } from '@convoke/sdk';
import { inOrderOfIds, type ListQuery, useList } from '../queries.ts';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { Filter, Page } from '../parts/page.tsx';
import { type Column, Rows } from '../parts/rows.tsx';
import { Searched } from '../parts/searched.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { addressOf, filterBy, go, useAsked, usePlace } from '../router.ts';
import { client, may } from '../service.ts';
import { MeetingDetail } from './meeting.tsx';
import { Foreign } from '../parts/foreign.tsx';

const COLUMNS: Column<Meeting>[] = [
  {
    head: 'Meeting',
    sortBy: ({ meeting_id }) => meeting_id,
    cell: ({ meeting_id }) => <Foreign class="clip strong">{meeting_id}</Foreign>,
  },
  {
    head: 'Instances',
    is_wide: true,
    is_number: true,
    sortBy: ({ instance_count }) => instance_count,
    cell: ({ instance_count }) => instance_count,
  },
  {
    head: 'Agents',
    is_wide: true,
    is_number: true,
    sortBy: ({ agent_count }) => agent_count,
    cell: ({ agent_count }) => agent_count,
  },
  {
    head: 'Messages',
    is_wide: true,
    is_number: true,
    sortBy: ({ last_seq }) => last_seq,
    cell: ({ last_seq }) => last_seq.toLocaleString('en'),
  },
  {
    head: 'Pending',
    is_number: true,
    sortBy: ({ pending_deliveries }) => pending_deliveries,
    cell: ({ pending_deliveries }) => (
      <span class={pending_deliveries === 0 ? 'faint' : ''}>{pending_deliveries.toLocaleString('en')}</span>
    ),
  },
  {
    head: 'Last activity',
    is_number: true,
    sortBy: ({ last_activity_at }) => last_activity_at,
    cell: ({ last_activity_at }) => <Ago at={last_activity_at} />,
  },
];

export function Meetings({ meeting_id }: { meeting_id: string | null }): JSX.Element {
  const { query } = usePlace();
  const q = query.get('q') ?? '';
  const [is_opening, setOpening] = useState(false);
  useAsked('new', () => setOpening(may('send') || may('instance')));
  const found: ListQuery<Meeting> = useList(
    `meetings ${q}`,
    (page) => client.listMeetings({ ...page, ...(q !== '' && { q }) }),
    (meeting) => meeting.meeting_id,
    // A search that ended early has read many meetings, so the page does not repeat it by itself.
    (event) => found.searched_to === null && (Boolean(event.meeting_id) || Boolean(event.instance_id)),
    inOrderOfIds<Meeting>((meeting) => meeting.meeting_id),
  );
  const { rows, problem, is_complete, searched_to, more, again } = found;
  const leading = (to?: string): string => addressOf(to === undefined ? ['meetings'] : ['meetings', to], query);
  return (
    <Page
      title="Meetings"
      tools={<Filter label="Filter by id" name="q" value={q} is_first />}
      actions={
        (may('send') || may('instance')) && (
          <button type="button" class="button" onClick={() => setOpening(true)}>
            <Icon name="plus" /> New
          </button>
        )
      }
      detail={meeting_id !== null && <MeetingDetail key={meeting_id} meeting_id={meeting_id} back={leading()} />}
    >
      {rows === null && problem === null && <Skeleton />}
      {problem !== null && !rows?.length && <Failure problem={problem} again={again} />}
      {rows !== null && searched_to !== null && !is_complete && <Searched to={searched_to} is_by_id more={more} />}
      {rows?.length === 0 && problem === null && is_complete && (
        <Empty title={q === '' ? 'No meetings yet' : 'No meetings match'}>
          {q === '' ? (
            <p>A meeting exists as soon as an instance joins it or a message is sent in it.</p>
          ) : (
            <button type="button" class="button" onClick={() => filterBy({ q: null })}>
              Clear the filter
            </button>
          )}
        </Empty>
      )}
      {rows !== null && rows.length > 0 && (
        <Rows
          label="Meetings"
          kind="meetings"
          problem={problem}
          again={again}
          list={`meetings ${q}`}
          // Once all meetings are loaded, the meeting with the latest activity is first.
          rows={is_complete ? rows.toSorted(byActivity) : rows}
          is_order_kept
          narrow_lines={1}
          columns={COLUMNS}
          idOf={(meeting) => meeting.meeting_id}
          href={(meeting) => leading(meeting.meeting_id)}
          nameOf={(meeting) => `Open ${meeting.meeting_id}`}
          selected={meeting_id}
          is_complete={is_complete}
          more={more}
        />
      )}
      {is_opening && <OpenDialog onClose={() => setOpening(false)} />}
    </Page>
  );
}

function byActivity(a: Meeting, b: Meeting): number {
  return a.last_activity_at < b.last_activity_at ? 1 : -1;
}

function OpenDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const [meeting_id, setId] = useState('');
  const open = async (): Promise<void> => {
    onClose();
    go(addressOf(['meetings', meeting_id]));
  };
  return (
    <Dialog title="A new meeting" onClose={onClose}>
      <Form action="Open" onSubmit={open}>
        <TextField
          label="Meeting id"
          value={meeting_id}
          onChange={setId}
          is_required
          is_code
          placeholder="standup-42"
          hint="It begins with the first instance that joins, or the first message."
        />
      </Form>
    </Dialog>
  );
}
