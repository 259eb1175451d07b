/** A button beside an advice that does what the advice says: with one click, or by opening the field to change. */
import type { JSX } from 'preact';
import type { Instance, Outcome, UpdateInstanceInput } from '@convoke/sdk';
import { doesPull } from '../parts/connection.tsx';
import { mayChange } from '../parts/may.tsx';
import { doing } from '../parts/notice.tsx';
import { is_portal } from '../portal.ts';
import { client } from '../service.ts';

interface AdviceActionProps {
  instance: Instance;
  result: { outcome: Outcome; status_code: number | null };
  again: () => void;
  onEdit: () => void;
}

export function AdviceAction({ instance, result, again, onEdit }: AdviceActionProps): JSX.Element | null {
  if (doesPull(instance) || !mayChange(instance)) return null;
  const update = (changes: UpdateInstanceInput): Promise<unknown> =>
    client.updateInstance(instance.instance_id, changes);
  const undo = (): Promise<void> => update({ success_statuses: '200' }).then(again);
  if (result.outcome === 'not_200' && instance.success_statuses === '200') {
    return (
      <button
        type="button"
        class="button"
        onClick={() =>
          void doing(
            update({ success_statuses: '2xx' }),
            () => 'Every 2xx counts as delivered from now on.',
            undo,
          ).then(again)
        }
      >
        Count every 2xx as delivered
      </button>
    );
  }
  const label = editInWords(result);
  return label === null ? null : (
    <button type="button" class="button" onClick={onEdit}>
      {label}
    </button>
  );
}

/** The setting that the advice names; null when it names none, or when a portal link may not change the setting. */
function editInWords({ outcome, status_code }: AdviceActionProps['result']): string | null {
  if (outcome === 'timeout') return 'Give it more time…';
  if (is_portal) return null;
  if (outcome === 'bad_status') {
    if (status_code === 401 || status_code === 403) return 'Set its headers…';
    const is_path = status_code === 404 || status_code === 405 || status_code === 415;
    return is_path || (status_code !== null && status_code < 400) ? 'Change its URL…' : null;
  }
  return ['dns_failed', 'connect_refused', 'connect_timeout', 'unreachable', 'tls_failed', 'blocked'].includes(outcome)
    ? 'Change its URL…'
    : null;
}
