import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Delivery, ListDeliveriesQuery } from '@convoke/sdk';
import { newestFirst, useList } from '../queries.ts';
import { Choice } from '../parts/choice.tsx';
import { State } from '../parts/mark.tsx';
import { seesOthers, useMayChange } from '../parts/may.tsx';
import { Filter, Page } from '../parts/page.tsx';
import { type Column, Rows } from '../parts/rows.tsx';
import { Searched } from '../parts/searched.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { Ago, timeOfDay } from '../parts/time.tsx';
import { addressOf, filterBy, usePlace } from '../router.ts';
import { client, may } from '../service.ts';
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

/** The filters that name an instance, a meeting or a message. The service finds the deliveries of each at once. */
const KEYS = ['instance_id', 'meeting_id', 'message_id'] as const;
/**
 * The filters under "More filters". With one of them the list is a search: the service may have to read many
 * deliveries, one after the other, to find a few.
 */
const SEARCHED = ['text', 'agent_id', 'status_code', 'outcome', 'since', 'until'] as const;
/** All filters in the address of the page. `state` has buttons of its own, and does not make the list a search. */
const ALL = ['state', ...KEYS, ...SEARCHED] as const;

const OUTCOMES = [
  ['', 'Any outcome'],
  ['ok', 'Answered with success'],
  ['bad_status', 'Answered with an error'],
  ['not_200', 'Answered another 2xx'],
  ['gone', 'Answered 410'],
  ['timeout', 'No response in time'],
  ['broken_response', 'Broken response'],
  ['connect_refused', 'Connection refused'],
  ['connect_timeout', 'No connection in time'],
  ['unreachable', 'Not reached'],
  ['dns_failed', 'Host not found'],
  ['tls_failed', 'TLS failed'],
  ['blocked', 'Address not allowed'],
] as const;

const COLUMNS: Column<Delivery>[] = [
  {
    head: 'State',
    sortBy: ({ state }) => state,
    cell: ({ state, waiting_for }) => <State state={state} waiting_for={waiting_for} />,
  },
  {
    head: 'Instance',
    sortBy: ({ instance_id }) => instance_id,
    cell: ({ instance_id }) => <Foreign class="clip">{instance_id}</Foreign>,
  },
  {
    head: 'Meeting',
    sortBy: ({ meeting_id, seq }) => `${meeting_id} ${seq}`,
    cell: ({ meeting_id, seq }) => (
      <span class="clip">
        <Foreign>{meeting_id}</Foreign> <span class="faint">#{seq}</span>
      </span>
    ),
  },
  {
    head: 'What happened',
    is_wide: true,
    cell: (delivery) => <Foreign class="clip">{whatHappened(delivery)}</Foreign>,
  },
  {
    head: 'Attempts',
    is_wide: true,
    is_number: true,
    sortBy: ({ attempt_count }) => attempt_count,
    cell: ({ attempt_count }) => attempt_count,
  },
  {
    head: 'Took',
    sortBy: ({ last_attempt }) => last_attempt?.duration_ms ?? null,
    is_wide: true,
    is_number: true,
    cell: ({ last_attempt }) => (last_attempt === null ? '–' : durationInWords(last_attempt.duration_ms)),
  },
  {
    head: 'Sent',
    is_number: true,
    sortBy: ({ created_at }) => created_at,
    cell: ({ created_at }) => <Ago at={created_at} />,
  },
];

function whatHappened(delivery: Delivery): string {
  const why = whyInWords(delivery);
  if (delivery.last_attempt === null) return why;
  const { last_attempt, next_attempt_at } = delivery;
  const is_ahead = next_attempt_at !== null && Date.parse(next_attempt_at) > Date.now();
  const next = is_ahead ? `next try at ${timeOfDay(next_attempt_at)}` : '';
  return [outcomeInWords(last_attempt), why, next].filter((text) => text !== '').join('; ');
}

export function Deliveries({ delivery_id }: { delivery_id: string | null }): JSX.Element {
  const { query } = usePlace();
  const state = STATES.find(([value]) => value === query.get('state'))?.[0] ?? '';
  const valueOf = (name: (typeof ALL)[number]): string => query.get(name) ?? '';
  // While a person types a status, it has fewer than three digits. Such a status does not filter yet.
  const isGiven = (name: (typeof ALL)[number]): boolean =>
    name === 'status_code' ? /^[1-9]\d\d$/.test(valueOf(name)) : valueOf(name) !== '';
  const filters = Object.fromEntries(
    [...KEYS, ...SEARCHED].flatMap((name) => (isGiven(name) ? [[name, valueOf(name)]] : [])),
  );
  const key = JSON.stringify([state, filters]);
  const is_filtered = key !== '["",{}]';
  // A search reads many deliveries. So the page does not repeat the search with every event of the live feed.
  const is_search = SEARCHED.some(isGiven);
  const { rows, problem, is_complete, searched_to, more, again } = useList(
    `deliveries ${key}`,
    (page) => client.listDeliveries({ ...page, ...(filters as ListDeliveriesQuery), ...(state !== '' && { state }) }),
    (delivery) => delivery.delivery_id,
    // Whether an event of the live feed may change the list. The page cannot look for a delivery_id, because an event
    // about many deliveries names none of them. `meeting.changed` counts, because a pause of the meeting changes why
    // its deliveries wait.
    ({ name }) =>
      !is_search &&
      (name.startsWith('delivery.') ||
        name.startsWith('instance.') ||
        name === 'message.accepted' ||
        name === 'meeting.changed'),
    newestFirst<Delivery>(({ created_at }) => created_at),
  );
  /**
   * Whether "More filters" is open. It stays open when somebody empties the last of its filters, for example to type
   * another value.
   */
  const [is_open, setOpen] = useState(is_search);
  const ticks = useTicks();
  // In a list of several instances the page does not ask who owns each of them, because it would need a request for
  // each.
  const is_own = useMayChange(filters['instance_id'] ?? null);
  const may_tick = is_own || (may('instance') && !seesOthers());
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
          <details
            class="more-filters"
            open={is_open || is_search}
            onToggle={({ currentTarget }) => setOpen(currentTarget.open)}
          >
            <summary>More filters</summary>
            {may('read') && <Filter label="Text of the message" name="text" value={valueOf('text')} />}
            <Filter label="Agent id" name="agent_id" value={valueOf('agent_id')} />
            <Filter label="Status, such as 500" name="status_code" value={valueOf('status_code')} />
            <label class="filter">
              <span class="unseen">Outcome of an attempt</span>
              <select
                class="input"
                value={valueOf('outcome')}
                onChange={(event) => filterBy({ outcome: event.currentTarget.value })}
              >
                {OUTCOMES.map(([value, text]) => (
                  <option key={value} value={value}>
                    {text}
                  </option>
                ))}
              </select>
            </label>
            <TimeFilter label="Sent at or after" name="since" value={valueOf('since')} />
            <TimeFilter label="Sent before" name="until" value={valueOf('until')} />
          </details>
          <ResendTicked ticks={ticks} />
        </>
      }
      detail={delivery_id !== null && <DeliveryDetail key={delivery_id} delivery_id={delivery_id} back={leading()} />}
    >
      {rows === null && problem === null && <Skeleton />}
      {problem !== null && !rows?.length && <Failure problem={problem} again={again} />}
      {rows !== null && (is_search || rows.length === 0 || searched_to !== null) && !is_complete && (
        <Searched to={searched_to} more={more} />
      )}
      {rows?.length === 0 && problem === null && is_complete && (
        <Empty title={is_filtered ? 'No deliveries match' : 'No deliveries yet'}>
          {is_filtered ? (
            <>
              <p>Ids are compared exactly.</p>
              <button
                type="button"
                class="button"
                onClick={() => filterBy(Object.fromEntries(ALL.map((name) => [name, null])))}
              >
                Clear the filter
              </button>
            </>
          ) : (
            <p>
              A message makes one delivery for each instance in its{' '}
              {may('read') ? <a href="/meetings">meeting</a> : 'meeting'}.
            </p>
          )}
        </Empty>
      )}
      {rows !== null && rows.length > 0 && (
        <Rows
          label="Deliveries"
          kind="deliveries"
          problem={problem}
          again={again}
          list={key}
          rows={rows}
          columns={withTicks(COLUMNS, ticks, may_tick ? rows : [])}
          idOf={(delivery) => delivery.delivery_id}
          href={(delivery) => leading(delivery.delivery_id)}
          nameOf={({ instance_id, meeting_id, seq }) => `Open the delivery of ${meeting_id} #${seq} to ${instance_id}`}
          selected={delivery_id}
          is_complete={is_complete}
          more={more}
          is_sorted_as_loaded={is_search}
        />
      )}
    </Page>
  );
}

/**
 * A filter whose value is a time. The address of the page has the time in UTC, and the field shows it in the time zone
 * of the reader.
 */
function TimeFilter({ label, name, value }: { label: string; name: string; value: string }): JSX.Element {
  const at = new Date(value);
  const is_time = value !== '' && !Number.isNaN(at.getTime());
  const local = is_time ? new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : '';
  return (
    <label class="filter filter-time">
      <span class="faint">{label}</span>
      <input
        type="datetime-local"
        class="input"
        value={local}
        onChange={({ currentTarget }) =>
          filterBy({ [name]: currentTarget.value === '' ? null : new Date(currentTarget.value).toISOString() })
        }
      />
    </label>
  );
}
