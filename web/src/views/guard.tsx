import type { JSX } from 'preact';
import type { Delivery, Meeting } from '@convoke/sdk';
import { Mark } from '../parts/mark.tsx';
import { useMayChange } from '../parts/may.tsx';
import { doing } from '../parts/notice.tsx';
import { useQuery } from '../queries.ts';
import { addressOf } from '../router.ts';
import { client, may } from '../service.ts';
import { counted } from '../format.ts';

/** The page reads at most this many cancelled deliveries, and then picks those that the loop guard stopped. */
const STOPPED_MAX = 100;
/**
 * How many of the latest deliveries the page searches for stopped deliveries. There is no index of the cancelled
 * deliveries of a meeting, so without a bound the service would read every delivery of the meeting. With 60,000
 * deliveries that took 6 s of the storage.
 */
const LOOKED_THROUGH_MAX = 5_000;
/** For how long the page mentions stopped deliveries. */
const SHOWN_MS = 3_600_000;
const LIMIT_MAX = { hop_limit: 10_000, pair_limit: 1_000 };

/** Says that the loop guard stopped agents here, with the buttons for people who may change that. */
export function Stopped({ meeting, again }: { meeting: Meeting; again: () => void }): JSX.Element | null {
  const { meeting_id, limits, last_seq, instance_count } = meeting;
  const messages = Math.ceil(LOOKED_THROUGH_MAX / Math.max(1, instance_count));
  const query = { meeting_id, state: 'cancelled', after_seq: Math.max(0, last_seq - messages) } as const;
  const { value, again: askAgain } = useQuery(
    `stopped ${meeting_id}`,
    () => client.listDeliveries({ ...query, limit: STOPPED_MAX }),
    (event) => event.meeting_id === meeting_id && event.name.startsWith('delivery.'),
  );
  const stopped = (value?.data ?? []).filter(isStopped);
  const has_more = value?.data.length === STOPPED_MAX && value.next_cursor !== null;
  const [last] = stopped;
  const may_retry = useMayChange(last?.instance_id ?? null);
  if (last === undefined) return null;
  const rule = last.reason === 'hop_limit' ? 'hop_limit' : 'pair_limit';
  const raised = Math.min(2 * limits[rule], LIMIT_MAX[rule]);
  const limit = (to: number | null): Promise<unknown> => client.updateMeeting(meeting_id, { [rule]: to });
  const why =
    rule === 'hop_limit'
      ? `more than ${counted(limits.hop_limit, 'message')} of agents in a row`
      : `more than ${limits.pair_limit} from one agent to another in ${limits.pair_window_s} s`;
  return (
    <div class="brake" role="group" aria-label="Loop guard">
      <Mark kind="warning" />
      <span class="brake-text">
        The loop guard stopped{' '}
        <a href={addressOf(['deliveries'], { meeting_id, state: 'cancelled' })}>{howMany(stopped, has_more)}</a>: {why}.
      </span>
      {may_retry && (
        <button
          type="button"
          class="button"
          onClick={() =>
            void doing(client.retryDelivery(last.delivery_id), () => 'The last one goes through.').then(askAgain)
          }
        >
          Let the last one through
        </button>
      )}
      {may('admin') && raised > limits[rule] && (
        <button
          type="button"
          class="button"
          onClick={() =>
            void doing(
              limit(raised),
              () => `The limit is ${raised}.`,
              // The limit of the meeting itself: null where it has none, and follows the setting.
              () => limit(meeting[rule]).then(again),
            ).then(again)
          }
        >
          Raise the limit to {raised}
        </button>
      )}
    </div>
  );
}

function isStopped({ reason, settled_at }: Delivery): boolean {
  if (reason !== 'hop_limit' && reason !== 'pair_limit') return false;
  return settled_at !== null && Date.now() - Date.parse(settled_at) < SHOWN_MS;
}

function howMany(stopped: readonly Delivery[], has_more: boolean): string {
  return `${counted(stopped.length, 'delivery', 'deliveries')}${has_more ? ' or more' : ''}`;
}
