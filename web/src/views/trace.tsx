import type { JSX } from 'preact';
import type { MessageTrace } from '@convoke/sdk';
import { counted, some, whyInWords } from '../format.ts';
import { Id } from '../parts/copy.tsx';
import { StateMark } from '../parts/mark.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { Reading } from '../parts/states.tsx';
import { useQuery } from '../queries.ts';
import { addressOf } from '../router.ts';
import { client } from '../service.ts';
import { firstTargets } from './first_targets.ts';
import { WhyNot } from './why_not.tsx';

type Brief = MessageTrace['answered'][number];

/** The most deliveries of a message that are listed. */
const DELIVERIES_MAX = 100;

/** The messages that led to a message, its answers, and the agents that it woke. */
export function Trace({ message_id, seq }: { message_id: string; seq: number }): JSX.Element {
  const query = useQuery(
    `trace ${message_id}`,
    () => client.getMessage(message_id, { limit: DELIVERIES_MAX }),
    // A change of an instance or of the meeting changes why a delivery waits.
    ({ name }) =>
      name === 'message.accepted' ||
      name === 'meeting.changed' ||
      name.startsWith('delivery.') ||
      name.startsWith('instance.'),
  );
  const { value } = query;
  return (
    <div class="delivery-detail" role="group" aria-label={`Trace of message ${seq}`}>
      <Reading query={query} lines={2} />
      {value !== null && (
        <>
          <Briefs title="What led to it" empty="It answers nothing." briefs={value.answered.toReversed()} />
          <Briefs title="What answers it" empty="Nothing answers it yet." briefs={value.answers} />
          <Woken trace={value} />
          {value.trace_id !== undefined && (
            <>
              <h4>Trace</h4>
              <p class="thread">
                <Id id={value.trace_id} what="the trace id" />
              </p>
            </>
          )}
          <h4>Whom it did not wake, and why</h4>
          {value.deliveries.length < value.deliveries_queued ? (
            <p class="faint">
              Not known: only {value.deliveries.length} of its {value.deliveries_queued.toLocaleString('en')} deliveries
              are listed.
            </p>
          ) : (
            <WhyNot
              meeting_id={value.meeting_id}
              message={messageOf(value)}
              got={value.deliveries.map(({ instance_id }) => instance_id)}
            />
          )}
        </>
      )}
    </div>
  );
}

function messageOf({ target_agents, from_agent }: MessageTrace) {
  return {
    ...(target_agents !== null && target_agents.length > 0 && { target_agents: firstTargets(target_agents) }),
    ...(from_agent !== undefined && { from_agent }),
  };
}

function Briefs({ title, empty, briefs }: { title: string; empty: string; briefs: readonly Brief[] }): JSX.Element {
  return (
    <>
      <h4>{title}</h4>
      {briefs.length === 0 && <p class="faint">{empty}</p>}
      {briefs.map(({ message_id, seq, from_agent, excerpt }) => (
        <p key={message_id} class="thread">
          #{seq} {from_agent !== undefined && <Foreign class="clip">{from_agent}</Foreign>}
          <Foreign class="clip">{excerpt}</Foreign>
        </p>
      ))}
    </>
  );
}

function Woken({ trace }: { trace: MessageTrace }): JSX.Element {
  const { deliveries, deliveries_queued, deliveries_cursor, message_id } = trace;
  return (
    <>
      <h4>Whom it woke</h4>
      {deliveries_queued === 0 && <p class="faint">No one received it.</p>}
      {deliveries.map((delivery) => (
        <p key={delivery.delivery_id} class="thread">
          <StateMark state={delivery.state} waiting_for={delivery.waiting_for} />
          <a href={addressOf(['deliveries', delivery.delivery_id])}>
            <Foreign class="clip">{delivery.instance_id}</Foreign>
          </a>
          <Foreign class="clip">{some(delivery.target_agents, 4)}</Foreign>
          <Foreign class="faint">{whyInWords(delivery) || delivery.state}</Foreign>
        </p>
      ))}
      {deliveries_cursor !== null && (
        <a href={addressOf(['deliveries'], { message_id })}>
          All of them: it went to {counted(deliveries_queued, 'instance')}
        </a>
      )}
      {deliveries_cursor === null && deliveries_queued > deliveries.length && (
        <p class="faint">
          It went to {counted(deliveries_queued, 'instance')}. Deliveries that are missing here are no longer kept.
        </p>
      )}
    </>
  );
}
