import type { JSX } from 'preact';
import type { OpenSession } from '@convoke/sdk';
import { useList } from '../queries.ts';
import { Dialog } from '../parts/dialog.tsx';
import { doing } from '../parts/notice.tsx';
import { Failure, Skeleton } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { client } from '../service.ts';
import { signOut } from '../session.ts';

/** Lists who is signed in, and can end each session. */
export function SessionsDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const { rows, problem, is_complete, more, again } = useList(
    'sessions',
    (page) => client.listSessions(page),
    ({ session_id }) => session_id,
    () => false,
  );
  const end = async ({ session_id, is_current }: OpenSession): Promise<void> => {
    if (is_current) return signOut();
    await doing(client.endSession(session_id), () => 'The session is ended.');
    again();
  };
  return (
    <Dialog title="Who is signed in" onClose={onClose}>
      <p>A session ends with its key, or with the token that began it. Here you can end it at once.</p>
      {rows === null && problem === null && <Skeleton />}
      {problem !== null && <Failure problem={problem} again={again} />}
      {rows?.length === 0 && <p class="faint">Nobody is signed in on a page.</p>}
      <ul class="members" aria-label="Sessions">
        {rows?.map((session) => (
          <li key={session.session_id} class="member">
            <span class="member-name">
              {session.key_id === null ? 'by a sign-in link' : <>by the key {session.key_id}</>}
            </span>
            {session.is_current && <span class="tag">this one</span>}
            <span class="faint">
              since <Ago at={session.created_at} />
            </span>
            <button
              type="button"
              class="bare"
              aria-label={`End the session ${session.session_id}`}
              onClick={() => void end(session)}
            >
              End
            </button>
          </li>
        ))}
      </ul>
      {!is_complete && (
        <button type="button" class="button" onClick={more}>
          More
        </button>
      )}
    </Dialog>
  );
}
