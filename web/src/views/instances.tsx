import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Instance, ListInstancesQuery } from '@convoke/sdk';
import { inOrderOfIds, type ListQuery, useList } from '../queries.ts';
import { Choice } from '../parts/choice.tsx';
import { Icon } from '../parts/icons.tsx';
import { HealthMark } from '../parts/mark.tsx';
import { Filter, Page } from '../parts/page.tsx';
import { type Column, Rows } from '../parts/rows.tsx';
import { Searched } from '../parts/searched.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { addressOf, filterBy, useAsked, usePlace } from '../router.ts';
import { is_portal } from '../portal.ts';
import { client, may } from '../service.ts';
import { failureInWords, onOneLine, outcomeInWords, some } from '../format.ts';
import { InstanceDetail } from './instance.tsx';
import { isPaused } from './pause.tsx';
import { RegisterDialog } from './register.tsx';
import { ConnectionTag } from '../parts/connection.tsx';
import { Foreign } from '../parts/foreign.tsx';

const HEALTHS = [
  ['', 'All'],
  ['up', 'Up'],
  ['failing', 'Failing'],
  ['down', 'Down'],
  ['unknown', 'Not tried'],
  ['paused', 'Paused'],
] as const;

const COLUMNS: Column<Instance>[] = [
  {
    head: 'Instance',
    sortBy: ({ instance_name, instance_id }) => instance_name || instance_id,
    cell: (instance) => (
      <span class="named">
        <HealthMark health={instance.health} is_paused={isPaused(instance)} />
        <span class="named-text">
          <Foreign class="named-name">{instance.instance_name || instance.instance_id}</Foreign>
          <Foreign class="named-id">{instance.instance_id}</Foreign>
        </span>
        <ConnectionTag instance={instance} />
        {isPaused(instance) && <span class="tag">paused</span>}
      </span>
    ),
  },
  { head: 'Agents', is_wide: true, cell: ({ agent_ids }) => <Foreign class="clip">{some(agent_ids)}</Foreign> },
  {
    head: 'Last failure',
    is_wide: true,
    cell: ({ last_failure, health }) =>
      last_failure === null || health === 'up' ? (
        <span class="faint">–</span>
      ) : (
        <Foreign class="clip">{lastFailureInWords(last_failure)}</Foreign>
      ),
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
    head: 'Last success',
    is_wide: true,
    is_number: true,
    sortBy: ({ last_success_at }) => last_success_at,
    cell: ({ last_success_at }) => <Ago at={last_success_at} />,
  },
];

function lastFailureInWords(failure: NonNullable<Instance['last_failure']>): string {
  const answer = onOneLine(failure.response_excerpt ?? '');
  return answer === '' ? failureInWords(failure) : `${outcomeInWords(failure)}: ${answer}`;
}

/** A paused instance is shown as paused, and not with the health that it had; the counts of the page Now do the same. */
function queryOf(health: (typeof HEALTHS)[number][0]): ListInstancesQuery {
  if (health === '') return {};
  return health === 'paused' ? { paused: true } : { paused: false, health };
}

export function Instances({ instance_id }: { instance_id: string | null }): JSX.Element {
  const { query } = usePlace();
  const q = query.get('q') ?? '';
  const health = HEALTHS.find(([value]) => value === query.get('health'))?.[0] ?? '';
  const [is_registering, setRegistering] = useState(false);
  const may_register = may('instance') && !is_portal;
  useAsked('new', () => setRegistering(may_register));
  const part = { ...queryOf(health), ...(q !== '' && { q }) };
  const found: ListQuery<Instance> = useList(
    `instances ${health} ${q}`,
    (page) => client.listInstances({ ...page, ...part }),
    (instance) => instance.instance_id,
    // A search that ended early has read many instances, so the page does not repeat it by itself.
    (event) => found.searched_to === null && (Boolean(event.instance_id) || event.name === 'message.accepted'),
    inOrderOfIds<Instance>((instance) => instance.instance_id),
  );
  const { rows, problem, is_complete, searched_to, more, again } = found;
  const leading = (to?: string): string => addressOf(to === undefined ? ['instances'] : ['instances', to], query);
  return (
    <Page
      title="Instances"
      tools={
        <>
          <Filter label="Filter by id or name" name="q" value={q} is_first />
          <Choice label="Health" options={HEALTHS} value={health} onChange={(value) => filterBy({ health: value })} />
        </>
      }
      actions={
        may_register && (
          <button type="button" class="button primary" onClick={() => setRegistering(true)}>
            <Icon name="plus" /> Register
          </button>
        )
      }
      detail={instance_id !== null && <InstanceDetail key={instance_id} instance_id={instance_id} back={leading()} />}
    >
      {rows === null && problem === null && <Skeleton />}
      {problem !== null && !rows?.length && <Failure problem={problem} again={again} />}
      {rows !== null && searched_to !== null && !is_complete && <Searched to={searched_to} is_by_id more={more} />}
      {rows?.length === 0 && problem === null && is_complete && (
        <Empty title={q === '' && health === '' ? 'No instances yet' : 'No instances match'}>
          {q !== '' || health !== '' ? (
            <button type="button" class="button" onClick={() => filterBy({ q: null, health: null })}>
              Clear the filter
            </button>
          ) : is_portal ? (
            <p>Your access shows none yet.</p>
          ) : (
            <p>
              Register one here, or follow the <a href="/start">guide</a>.
            </p>
          )}
        </Empty>
      )}
      {rows !== null && rows.length > 0 && (
        <Rows
          label="Instances"
          kind="instances"
          problem={problem}
          again={again}
          list={`instances ${health} ${q}`}
          rows={rows}
          columns={COLUMNS}
          idOf={(instance) => instance.instance_id}
          href={(instance) => leading(instance.instance_id)}
          nameOf={(instance) => `Open ${instance.instance_name || instance.instance_id}`}
          selected={instance_id}
          is_complete={is_complete}
          more={more}
        />
      )}
      {is_registering && <RegisterDialog onClose={() => setRegistering(false)} />}
    </Page>
  );
}
