import type { JSX } from 'preact';
import { useAnswer } from '../answers.ts';
import { Id } from '../parts/copy.tsx';
import { Mark } from '../parts/mark.tsx';
import { Page } from '../parts/page.tsx';
import { Failure, Skeleton } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { client } from '../service.ts';
import { counted } from '../words.ts';

const LATE_MS = 10_000;

/** The nodes on one database, and how the work is shared between them. */
export function Nodes(): JSX.Element {
  const { value, problem, again } = useAnswer('nodes', () => client.listNodes());
  return (
    <Page title="Nodes">
      {value === null && problem === null && <Skeleton />}
      {value === null && problem !== null && <Failure problem={problem} again={again} />}
      <ul class="cards">
        {value?.data.map((node) => {
          const is_late = Date.now() - Date.parse(node.seen_at) > LATE_MS;
          return (
            <li key={node.node_id} class="panel card">
              <h2>
                <Mark kind={node.stopping ? 'off' : is_late ? 'warning' : 'good'} />
                <Id id={node.node_id} what="the node id" />
              </h2>
              <p>
                {node.stopping ? 'is stopping' : is_late ? 'has not been seen for a while' : 'is at work'},{' '}
                {counted(node.partition_count, 'partition')}
              </p>
              <p class="faint">
                {node.address} · {node.version} · up since <Ago at={node.started_at} /> · seen <Ago at={node.seen_at} />
              </p>
            </li>
          );
        })}
      </ul>
    </Page>
  );
}
