import type { JSX } from 'preact';
import type { DropDeliveriesInput } from '@convoke/sdk';
import { Dialog, Form } from '../parts/dialog.tsx';
import { notify } from '../parts/notice.tsx';
import { Reading } from '../parts/states.tsx';
import { useQuery } from '../queries.ts';
import { client, inThisSession } from '../service.ts';
import { counted } from '../format.ts';

/** Counts the waiting deliveries, and drops them when the user confirms. */
export function DropDialog({ of, onClose }: { of: DropDeliveriesInput; onClose: () => void }): JSX.Element {
  const query = useQuery(`waiting ${of.instance_id ?? ''} ${of.meeting_id ?? ''}`, () =>
    client.dropDeliveries({ ...of, dry_run: true }),
  );
  const { value } = query;
  const drop = async (): Promise<void> => {
    let dropped = 0;
    const parts = client.dropping(of);
    // Checks after each part that the session is still the same: the next person must not drop the rest.
    for (let part = await inThisSession(parts.next()); part.done !== true; part = await inThisSession(parts.next()))
      dropped = part.value;
    notify(`${counted(dropped, 'delivery', 'deliveries')} dropped.`);
    onClose();
  };
  return (
    <Dialog title="Drop pending deliveries?" onClose={onClose}>
      <Reading query={query} lines={2} />
      {value !== null && (
        <Form action="Drop" is_dangerous is_ready={value.deliveries > 0} onSubmit={drop}>
          <p>
            {value.deliveries === 0
              ? 'Nothing waits.'
              : `${value.at_least === true ? 'At least ' : ''}${counted(value.deliveries, 'delivery waits', 'deliveries wait')}. Dropped ones are cancelled and stay on record.`}{' '}
            The messages stay in the history.
          </p>
        </Form>
      )}
    </Dialog>
  );
}
