import type { JSX } from 'preact';
import type { Delivery, ListDeliveriesQuery } from '@convoke/sdk';
import { usePoll, useQuery } from '../queries.ts';
import { useHeld, usePointed } from '../parts/held.ts';
import { StateMark } from '../parts/mark.tsx';
import { Failure, Skeleton } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { client } from '../service.ts';
import { durationInWords, outcomeInWords, whyInWords } from '../format.ts';
import { Foreign } from '../parts/foreign.tsx';

const SEARCH_AGAIN_MS = 10_000;

interface DeliveryListProps {
  query: ListDeliveriesQuery;
  most: number;
  /** The column that the list leaves out, because it has the same value for all deliveries. */
  without: 'instance' | 'meeting';
}

function stateInWords(delivery: Delivery): string {
  const { state, last_attempt } = delivery;
  if (state === 'pending') return whyInWords(delivery) || state;
  return state === 'failed' && last_attempt !== null ? `${state}: ${outcomeInWords(last_attempt)}` : state;
}

/** A few deliveries, the newest first, one line each. */
export function DeliveryList({ query, most, without }: DeliveryListProps): JSX.Element {
  // The service reads delivery after delivery for an agent, unless it knows the instance. Such a search is not made
  // again with every event.
  const is_search = query.agent_id !== undefined && query.instance_id === undefined;
  const { value, problem, again } = useQuery(
    `latest ${JSON.stringify(query)}`,
    () => client.listDeliveries({ ...query, limit: most }),
    // A pause of a meeting changes why its deliveries wait.
    (event) =>
      !is_search &&
      (event.name === 'meeting.changed' ||
        ((query.instance_id === undefined || event.instance_id === query.instance_id) &&
          (query.meeting_id === undefined || event.meeting_id === query.meeting_id))),
  );
  usePoll(() => is_search && again(), SEARCH_AGAIN_MS);
  const { is_pointed, pointing } = usePointed();
  const { rows } = useHeld({
    list: JSON.stringify([query, value === null]),
    fresh: value?.data ?? [],
    idOf: ({ delivery_id }) => delivery_id,
    is_held: is_pointed,
    is_complete: true,
  });
  if (value === null) return problem === null ? <Skeleton lines={3} /> : <Failure problem={problem} again={again} />;
  if (value.data.length === 0) return <p class="faint">No deliveries yet</p>;
  return (
    <ul class="short-list" {...pointing}>
      {rows.slice(0, most).map((delivery) => (
        <li key={delivery.delivery_id}>
          <a class="short-row" href={addressOf(['deliveries', delivery.delivery_id])}>
            <StateMark state={delivery.state} waiting_for={delivery.waiting_for} />
            <Foreign class="clip">{without === 'instance' ? delivery.meeting_id : delivery.instance_id}</Foreign>
            <span class="faint">#{delivery.seq}</span>
            <Foreign class="clip grow">{stateInWords(delivery)}</Foreign>
            {delivery.last_attempt !== null && (
              <span class="faint">{durationInWords(delivery.last_attempt.duration_ms)}</span>
            )}
            <Ago at={delivery.created_at} />
          </a>
        </li>
      ))}
    </ul>
  );
}
