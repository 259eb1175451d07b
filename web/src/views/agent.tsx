/**
 * An agent: the instances that list it, whether it gets the messages of its meetings and why not, and its deliveries.
 */
import type { JSX } from 'preact';
import type { Instance, Meeting } from '@convoke/sdk';
import { HealthMark, Mark } from '../parts/mark.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { Page } from '../parts/page.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { useQuery } from '../queries.ts';
import { addressOf } from '../router.ts';
import { client, may } from '../service.ts';
import { HEALTH_WORDS } from '../format.ts';
import { DeliveryList } from './delivery_list.tsx';
import { isPaused } from './pause.tsx';
import { hearsInWords } from './why_not.tsx';

const INSTANCES_MAX = 5;
/** The page makes one more request for each meeting. */
const MEETINGS_MAX = 20;
const DELIVERIES_MAX = 20;

export function Agent({ agent_id }: { agent_id: string }): JSX.Element {
  const { value, problem, again } = useQuery(
    `agent ${agent_id}`,
    () => client.listInstances({ agent_id, limit: INSTANCES_MAX }),
    (event) => event.name.startsWith('instance.'),
  );
  const [only, another] = value?.data ?? [];
  const deliveries_of = only !== undefined && another === undefined ? only : null;
  return (
    <Page title={`Agent ${agent_id}`}>
      <div class="agent-page">
        {value === null && (problem === null ? <Skeleton /> : <Failure problem={problem} again={again} />)}
        {value?.data.length === 0 && (
          <Empty title="No instance lists this agent">
            <p>
              It gets messages only in a meeting where an instance takes part for it without listing it. The page of
              each meeting shows the agents there. Agent ids are compared exactly.{' '}
              <a href="/instances">See the instances</a>
            </p>
          </Empty>
        )}
        {value?.data.map((instance) => (
          <Host key={instance.instance_id} instance={instance} agent_id={agent_id} />
        ))}
        {value !== null && value.next_cursor !== null && (
          <p class="faint">These are the first {INSTANCES_MAX} instances that list it.</p>
        )}
        {value !== null && (
          <section>
            <h2>
              What it was sent
              {deliveries_of !== null && (
                <>
                  {' through '}
                  <Foreign>{deliveries_of.instance_name || deliveries_of.instance_id}</Foreign>
                </>
              )}
            </h2>
            <DeliveryList
              query={{
                agent_id,
                // The service finds the deliveries of one instance without reading those of other instances.
                ...(deliveries_of !== null && { instance_id: deliveries_of.instance_id }),
              }}
              most={DELIVERIES_MAX}
              without="instance"
            />
            <a href={addressOf(['deliveries'], { agent_id })}>All deliveries for this agent</a>
          </section>
        )}
      </div>
    </Page>
  );
}

function Host({ instance, agent_id }: { instance: Instance; agent_id: string }): JSX.Element {
  const { instance_id, instance_name, health } = instance;
  const { value, problem, again } = useQuery(
    `meetings for an agent at ${instance_id}`,
    () => client.listMeetings({ instance_id, include_left: true, limit: MEETINGS_MAX }),
    (event) => event.instance_id === instance_id && event.name.startsWith('instance.'),
  );
  return (
    <section aria-label={`Hosted by ${instance_name || instance_id}`}>
      <h2>
        <HealthMark health={health} is_paused={isPaused(instance)} />{' '}
        <a href={addressOf(['instances', instance_id])}>
          <Foreign>{instance_name || instance_id}</Foreign>
        </a>{' '}
        <span class="faint">{isPaused(instance) ? 'paused' : HEALTH_WORDS[health]}</span>
      </h2>
      {value === null && (problem === null ? <Skeleton lines={2} /> : <Failure problem={problem} again={again} />)}
      {value?.data.length === 0 && (
        <p class="faint">
          It gets no messages through this instance, which is in no meeting. Add the instance on the page of a meeting.
        </p>
      )}
      <ul class="short-list">
        {value?.data.map((meeting) => (
          <InMeeting key={meeting.meeting_id} meeting={meeting} instance_id={instance_id} agent_id={agent_id} />
        ))}
      </ul>
      {value !== null && value.next_cursor !== null && (
        <p class="faint">These are the first {MEETINGS_MAX} meetings.</p>
      )}
    </section>
  );
}

interface InMeetingProps {
  meeting: Meeting;
  instance_id: string;
  agent_id: string;
}

function InMeeting({ meeting: { meeting_id }, instance_id, agent_id }: InMeetingProps): JSX.Element | null {
  const { value } = useQuery(
    `hears ${JSON.stringify([meeting_id, instance_id, agent_id])}`,
    () => client.explain(meeting_id, { target_agents: [agent_id], instance_id }),
    (event) => event.instance_id === instance_id || event.name === 'meeting.changed',
  );
  const found = value?.data[0];
  return (
    <li class="in-meeting">
      <a class="short-row grow" href={addressOf(['meetings', meeting_id])}>
        <Mark
          kind={
            found === undefined ? 'off' : found.why === null ? 'good' : found.pushed === 'later' ? 'waiting' : 'off'
          }
        />
        <Foreign class="clip">{meeting_id}</Foreign>
        <span class="grow">
          {found !== undefined &&
            (found.why === 'nobody_named'
              ? 'gets no messages through this instance: it is not among its agents in this meeting'
              : hearsInWords(found))}
        </span>
      </a>
      {may('send') && found !== undefined && found.why !== 'left' && found.why !== 'nobody_named' && (
        <a class="button" href={addressOf(['meetings', meeting_id], { to: agent_id })}>
          Write
          <span class="unseen">
            {' '}
            to it in <Foreign>{meeting_id}</Foreign>
          </span>
        </a>
      )}
    </li>
  );
}
