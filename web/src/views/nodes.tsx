import type { JSX } from 'preact';
import type { ServiceNode } from '@convoke/sdk';
import { usePoll, useQuery } from '../queries.ts';
import { Id } from '../parts/copy.tsx';
import { Mark, type MarkKind } from '../parts/mark.tsx';
import { Detail, Facts, Page } from '../parts/page.tsx';
import { type Column, Rows } from '../parts/rows.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { client } from '../service.ts';
import { Foreign } from '../parts/foreign.tsx';

/** The page asks as often as a node renews its lease, because the feed has no events about nodes. */
const ASK_EVERY_MS = 3000;

const MARKS: Record<ServiceNode['state'], MarkKind> = { up: 'good', stopping: 'off', lost: 'bad' };

const STATES: Record<ServiceNode['state'], string> = {
  up: 'up',
  stopping: 'stopping: it releases its partitions',
  lost: 'lost: nothing from it for 15 s, so the others take over',
};

const COLUMNS: Column<ServiceNode>[] = [
  {
    head: 'Node',
    sortBy: ({ node_id }) => node_id,
    cell: ({ node_id, state, address }) => (
      <span class="named">
        <Mark kind={MARKS[state]} />
        <span class="named-text">
          <Foreign class="named-name">{node_id}</Foreign>
          <Foreign class="named-id">{address}</Foreign>
        </span>
        {state !== 'up' && <span class="tag">{state}</span>}
      </span>
    ),
  },
  {
    head: 'Version',
    is_wide: true,
    sortBy: ({ version }) => version,
    cell: ({ version }) => <span class="clip">{version}</span>,
  },
  {
    head: 'Partitions',
    is_number: true,
    sortBy: ({ partitions }) => partitions,
    cell: ({ partitions }) => `${partitions} of 64`,
  },
  {
    head: 'Last seen',
    is_wide: true,
    is_number: true,
    sortBy: ({ last_seen_at }) => last_seen_at,
    cell: ({ last_seen_at }) => <Ago at={last_seen_at} />,
  },
  {
    head: 'Started',
    is_wide: true,
    is_number: true,
    sortBy: ({ started_at }) => started_at,
    cell: ({ started_at }) => <Ago at={started_at} />,
  },
];

/** The processes that share the work, and the share of each process. */
export function Nodes({ node_id }: { node_id: string | null }): JSX.Element {
  const { value, problem, again } = useQuery('nodes', () => client.listNodes());
  usePoll(again, ASK_EVERY_MS);
  const chosen = value?.data.find((node) => node.node_id === node_id);
  return (
    <Page
      title="Nodes"
      detail={
        chosen !== undefined ? (
          <NodeDetail key={chosen.node_id} node={chosen} />
        ) : (
          node_id !== null && value !== null && <Missing node_id={node_id} />
        )
      }
    >
      {value === null && problem === null && <Skeleton />}
      {problem !== null && value === null && <Failure problem={problem} again={again} />}
      {value !== null && (
        <Rows
          label="Nodes"
          kind="nodes"
          problem={problem}
          again={again}
          list="nodes"
          rows={value.data}
          columns={COLUMNS}
          idOf={(node) => node.node_id}
          href={(node) => addressOf(['nodes', node.node_id])}
          nameOf={(node) => `Open ${node.node_id}, ${node.state}`}
          selected={node_id}
          is_complete
          more={() => {}}
        />
      )}
    </Page>
  );
}

function Missing({ node_id }: { node_id: string }): JSX.Element {
  return (
    <Detail title={<Foreign>{node_id}</Foreign>} label={`Node ${node_id}`} back="/nodes" back_label="Close the node">
      <Empty title="There is no such node">
        <p>A node that is started again has a new id, and one that has stopped is not listed.</p>
      </Empty>
    </Detail>
  );
}

function NodeDetail({ node }: { node: ServiceNode }): JSX.Element {
  return (
    <Detail
      title={<Foreign>{node.node_id}</Foreign>}
      label={`Node ${node.node_id}`}
      back="/nodes"
      back_label="Close the node"
    >
      <div class="detail-block">
        <Facts
          facts={[
            ['Node id', <Id id={node.node_id} what="the node id" />],
            ['State', STATES[node.state]],
            ['Address', <Id id={node.address} what="the address" />],
            ['Partitions', `${node.partitions} of 64`],
            ['Version', node.version],
            ['Last seen', <Ago at={node.last_seen_at} />],
            ['Started', <Ago at={node.started_at} />],
          ]}
        />
        <p class="faint">
          Each instance belongs to one of 64 partitions. The node that holds the partition delivers to the instance. A
          lost node delivers nothing; the others take its partitions over by themselves.
        </p>
      </div>
    </Detail>
  );
}
