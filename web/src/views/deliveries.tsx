import type { JSX } from 'preact';
import type { Delivery } from '@convoke/sdk';
import { useList } from '../queries.ts';
import { Choice } from '../parts/choice.tsx';
import { State } from '../parts/mark.tsx';
import { Filter, Page } from '../parts/page.tsx';
import { type Column, Rows } from '../parts/rows.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { Ago, timeOfDay } from '../parts/time.tsx';
import { addressOf, filterBy, usePlace } from '../router.ts';
import { client } from '../service.ts';
import { durationInWords, outcomeInWords, whyInWords } from '../format.ts';
import { DeliveryDetail } from './delivery.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { ResendTicked, useTicks, withTicks } from './ticked.tsx';

const STATES = [
  ['', 'All'],
  ['pending', 'Pending'],
  ['failed', 'Failed'],
  ['delivered', 'Delivered'],
  ['cancelled', 'Cancelled'],
] as const;

const FILTERS = ['instance_id', 'meeting_id', 'message_id'] as const;

const COLUMNS: Column<Delivery>[] = [
  { head: 'State', cell: ({ state }) => <State state={state} /> },
  { head: 'Instance', cell: ({ instance_id }) => <Foreign class="clip">{instance_id}</Foreign> },
  {
    head: 'Meeting',
    cell: ({ meeting_id, seq }) => (
      <span class="clip">
        <Foreign>{meeting_id}</Foreign> <span class="faint">#{seq}</span>
      </span>
    ),
  },
  {
    head: 'What happened',
    is_wide: true,
    cell: (delivery) => <span class="clip">{whatHappened(delivery)}</span>,
  },
  { head: 'Attempts', is_wide: true, is_number: true, cell: ({ attempt_count }) => attempt_count },
  {
    head: 'Took',
    is_wide: true,
    is_number: true,
    cell: ({ last_attempt }) => (last_attempt === null ? '–' : durationInWords(last_attempt.duration_ms)),
  },
  { head: 'Sent', is_number: true, cell: ({ created_at }) => <Ago at={created_at} /> },
];

function whatHappened(delivery: Delivery): string {
  const why = whyInWords(delivery);
  if (delivery.last_attempt === null) return why;
  const { last_attempt, next_attempt_at } = delivery;
  const next = next_attempt_at === null ? '' : `next try at ${timeOfDay(next_attempt_at)}`;
  return [outcomeInWords(last_attempt), why, next].filter((text) => text !== '').join('; ');
}

export function Deliveries({ delivery_id }: { delivery_id: string | null }): JSX.Element {
  const { query } = usePlace();
  const state = STATES.find(([value]) => value === query.get('state'))?.[0] ?? '';
  const filters = Object.fromEntries(
    FILTERS.flatMap((name) => (query.get(name) ? [[name, query.get(name) as string]] : [])),
  );
  const key = JSON.stringify([state, filters]);
  const is_filtered = key !== '["",{}]';
  const { rows, problem, is_complete, more, again } = useList(
    `deliveries ${key}`,
    (page) => client.listDeliveries({ ...page, ...filters, ...(state !== '' && { state }) }),
    (delivery) => delivery.delivery_id,
    (event) => Boolean(event.delivery_id) || event.name === 'message.accepted' || event.name.startsWith('instance.'),
  );
  const ticks = useTicks();
  const leading = (to?: string): string => addressOf(to === undefined ? ['deliveries'] : ['deliveries', to], query);
  return (
    <Page
      title="Deliveries"
      tools={
        <>
          <Choice label="State" options={STATES} value={state} onChange={(value) => filterBy({ state: value })} />
          <Filter label="Instance id" name="instance_id" value={filters['instance_id'] ?? ''} is_first />
          <Filter label="Meeting id" name="meeting_id" value={filters['meeting_id'] ?? ''} />
          <Filter label="Message id" name="message_id" value={filters['message_id'] ?? ''} />
          <ResendTicked ticks={ticks} />
        </>
      }
      detail={delivery_id !== null && <DeliveryDetail key={delivery_id} delivery_id={delivery_id} back={leading()} />}
    >
      {rows === null && problem === null && <Skeleton />}
      {problem !== null && !rows?.length && <Failure problem={problem} again={again} />}
      {rows?.length === 0 && problem === null && (
        <Empty title={is_filtered ? 'No deliveries match' : 'No deliveries yet'}>
          {is_filtered ? (
            <>
              <p>Ids are compared exactly.</p>
              <button
                type="button"
                class="button"
                onClick={() => filterBy({ state: null, instance_id: null, meeting_id: null, message_id: null })}
              >
                Clear the filter
              </button>
            </>
          ) : (
            <p>
              A message makes one delivery for each instance in its <a href="/meetings">meeting</a>.
            </p>
          )}
        </Empty>
      )}
      {rows !== null && rows.length > 0 && (
        <Rows
          label="Deliveries"
          kind="deliveries"
          problem={problem}
          list={key}
          rows={rows}
          columns={withTicks(COLUMNS, ticks)}
          idOf={(delivery) => delivery.delivery_id}
          href={(delivery) => leading(delivery.delivery_id)}
          nameOf={({ instance_id, meeting_id, seq }) => `Open the delivery of ${meeting_id} #${seq} to ${instance_id}`}
          selected={delivery_id}
          is_complete={is_complete}
          more={more}
        />
      )}
    </Page>
  );
}
