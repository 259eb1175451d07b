import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Meeting } from '@convoke/sdk';
import { Mark } from '../parts/mark.tsx';
import { doing } from '../parts/notice.tsx';
import { type Query, useQuery } from '../queries.ts';
import { client, may } from '../service.ts';
import { counted } from '../format.ts';
import { DropDialog } from './drop.tsx';

interface BrakeProps {
  meeting: Meeting;
  again: () => void;
}

/** A meeting without its members; no value while the meeting does not exist. */
export function useMeeting(meeting_id: string): Query<Meeting> {
  return useQuery(
    `meeting ${meeting_id}`,
    () => client.getMeeting(meeting_id),
    (event) => event.meeting_id === meeting_id,
  );
}

export function PauseButton({ meeting, again }: BrakeProps): JSX.Element | null {
  if (meeting.paused || !may('admin')) return null;
  const undo = (): Promise<void> => client.updateMeeting(meeting.meeting_id, { paused: false }).then(again);
  return (
    <button
      type="button"
      class="button"
      title="Nothing of this meeting is pushed until somebody resumes it"
      onClick={() =>
        void doing(
          client.updateMeeting(meeting.meeting_id, { paused: true }),
          () => 'Paused: nothing is pushed.',
          undo,
        ).then(again)
      }
    >
      Pause
    </button>
  );
}

/** Says that a meeting is paused, with the buttons for people who may change that. */
export function Paused({ meeting, again }: BrakeProps): JSX.Element | null {
  const [is_dropping, setDropping] = useState(false);
  const { meeting_id, paused, pending_deliveries } = meeting;
  if (!paused) return null;
  const undo = (): Promise<void> => client.updateMeeting(meeting_id, { paused: true }).then(again);
  const waiting =
    pending_deliveries === 0 ? 'nothing waits' : counted(pending_deliveries, 'delivery waits', 'deliveries wait');
  return (
    <div class="brake" role="group" aria-label="Pause">
      <Mark kind="warning" />
      <span class="brake-text">This meeting is paused: nothing is pushed, and {waiting}.</span>
      {may('admin') && (
        <>
          <button
            type="button"
            class="button primary"
            onClick={() =>
              void doing(client.updateMeeting(meeting_id, { paused: false }), () => 'It goes on.', undo).then(again)
            }
          >
            Resume
          </button>
          <button type="button" class="button" onClick={() => setDropping(true)}>
            Drop pending…
          </button>
        </>
      )}
      {is_dropping && (
        <DropDialog
          of={{ meeting_id }}
          onClose={() => {
            setDropping(false);
            again();
          }}
        />
      )}
    </div>
  );
}
