import { Fragment, type JSX } from 'preact';
import type { Attempt, Delivery, DeliveryPush, DeliveryWithAttempts } from '@convoke/sdk';
import { useRef } from 'preact/hooks';
import type { FeedEvent } from '../feed.ts';
import { useQuery } from '../queries.ts';
import { AgentTags } from '../parts/agents.tsx';
import { Id } from '../parts/copy.tsx';
import { Mark, State } from '../parts/mark.tsx';
import { useMayChange } from '../parts/may.tsx';
import { doing } from '../parts/notice.tsx';
import { Detail, Facts } from '../parts/page.tsx';
import { Reading } from '../parts/states.tsx';
import { Ago, At } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { client, may } from '../service.ts';
import { counted, durationInWords, outcomeInWords, pauseInWords, whyInWords } from '../format.ts';
import { AttemptRequest, DeliveryRequest, useDeliveryPush } from './delivery_request.tsx';
import { Excerpt } from './diagnosis.tsx';
import { Foreign } from '../parts/foreign.tsx';

export function useDelivery(delivery_id: string) {
  const read = useRef<Delivery | null>(null);
  return useQuery(
    `delivery ${delivery_id}`,
    async () => {
      const delivery = await client.getDelivery(delivery_id);
      read.current = delivery;
      return delivery;
    },
    (event) => (event.delivery_id ? event.delivery_id === delivery_id : mayConcern(event, read.current)),
  );
}

/**
 * Whether an event that names no delivery may concern this delivery. Such an event says that many deliveries were
 * settled or queued at once, or that an instance or a meeting changed. The reason for which the delivery waits may then
 * be another one.
 *
 * @param delivery null until it was read
 */
function mayConcern({ name, instance_id, meeting_id }: FeedEvent, delivery: Delivery | null): boolean {
  if (name === 'message.accepted') return false;
  if (delivery === null) return true;
  if (name === 'delivery.queued') return instance_id === delivery.instance_id;
  if (delivery.state !== 'pending') return false;
  return name === 'meeting.changed' ? meeting_id === delivery.meeting_id : instance_id === delivery.instance_id;
}

export function DeliveryDetail({ delivery_id, back }: { delivery_id: string; back: string }): JSX.Element {
  const query = useDelivery(delivery_id);
  const { value, again } = query;
  return (
    <Detail title="Delivery" label={`Delivery ${delivery_id}`} back={back} back_label="Close the delivery">
      <Reading query={query} />
      {value !== null && <DeliveryBody delivery={value} again={again} />}
    </Detail>
  );
}

function DeliveryBody({ delivery: value, again }: { delivery: DeliveryWithAttempts; again: () => void }): JSX.Element {
  const push = useDeliveryPush(value);
  return (
    <>
      <div class="detail-block">
        <DeliveryStatus delivery={value} again={again} />
      </div>
      <div class="detail-block">
        <h3>Attempts</h3>
        <Attempts delivery={value} push={push.value} />
      </div>
      <div class="detail-block">
        <Facts
          facts={[
            ['Delivery id', <Id id={value.delivery_id} what="the delivery id" />],
            [
              'To',
              <Id id={value.instance_id} what="the instance id" href={addressOf(['instances', value.instance_id])} />,
            ],
            ['Agents', <AgentTags agent_ids={value.target_agents} />],
            [
              'Meeting',
              <Id
                id={value.meeting_id}
                what="the meeting id"
                {...(may('read') && { href: addressOf(['meetings', value.meeting_id]) })}
              />,
            ],
            [
              'Message',
              <Id
                id={value.message_id}
                what="the message id"
                href={addressOf(['deliveries'], { message_id: value.message_id })}
              />,
            ],
            ['Accepted', <At at={value.created_at} />],
            ['Settled', value.settled_at === null ? <span class="faint">not yet</span> : <At at={value.settled_at} />],
          ]}
        />
      </div>
      <div class="detail-block">
        <h3>Request</h3>
        <DeliveryRequest query={push} />
      </div>
    </>
  );
}

export function DeliveryStatus({
  delivery,
  again,
}: {
  delivery: DeliveryWithAttempts;
  again: () => void;
}): JSX.Element {
  const { delivery_id, state, waiting_for, next_attempt_at } = delivery;
  const why = whyInWords(delivery);
  const is_open = state === 'pending' || state === 'failed';
  const can_retry = useMayChange(is_open ? delivery.instance_id : null);
  return (
    <div class="status-line">
      <State state={state} waiting_for={waiting_for} />
      {why !== '' && <Foreign>{why}</Foreign>}
      {next_attempt_at !== null && (
        <span class="faint">
          {Date.parse(next_attempt_at) > Date.now() ? (
            <>
              next try <Ago at={next_attempt_at} />
            </>
          ) : (
            'its next try is due'
          )}
        </span>
      )}
      {can_retry && (
        <button
          type="button"
          class="button"
          onClick={() => void doing(client.retryDelivery(delivery_id), () => 'Queued again.').then(again)}
        >
          Retry now
        </button>
      )}
    </div>
  );
}

interface AttemptsProps {
  delivery: DeliveryWithAttempts;
  /** The request of the delivery, shown beside each response; absent: only the responses are shown. */
  push?: DeliveryPush | null;
}

export function Attempts({ delivery: { attempts, attempt_count }, push = null }: AttemptsProps): JSX.Element {
  if (attempt_count === 0) return <p class="faint">No attempts yet</p>;
  const longest_ms = Math.max(1, ...attempts.map(({ duration_ms }) => duration_ms));
  return (
    <ol class="attempts">
      {attempts.map((attempt, i) => (
        <Fragment key={attempt.attempt}>
          <Gap before={attempts[i - 1]} after={attempt} />
          <AttemptView attempt={attempt} longest_ms={longest_ms} push={push} />
        </Fragment>
      ))}
    </ol>
  );
}

/** The pauses of the default settings are longer. After a shorter pause, somebody asked for the attempt. */
const PAUSE_MS_MIN = 500;

/** How long a delivery waited between two attempts, and why. */
function Gap({ before, after }: { before: Attempt | undefined; after: Attempt }): JSX.Element | null {
  if (before === undefined) return null;
  const waited_ms = Date.parse(after.started_at) - Date.parse(before.started_at) - before.duration_ms;
  const missing = after.attempt - before.attempt - 1;
  return (
    <li class="attempt-gap">
      {missing > 0
        ? `${counted(missing, 'attempt')} in between ${missing === 1 ? 'is' : 'are'} not kept`
        : `${durationInWords(Math.max(0, waited_ms))} later${waited_ms < PAUSE_MS_MIN ? '' : `: ${pauseInWords(before)}`}`}
    </li>
  );
}

interface AttemptViewProps {
  attempt: Attempt;
  longest_ms: number;
  push: DeliveryPush | null;
}

function AttemptView({ attempt, longest_ms, push }: AttemptViewProps): JSX.Element {
  const is_good = attempt.outcome === 'ok';
  return (
    <li class="attempt">
      <span class="attempt-head">
        <Mark kind={is_good ? 'good' : 'bad'} />
        <span class="faint">{attempt.attempt}</span>
        <span class="grow">{outcomeInWords(attempt)}</span>
        <meter class="bar" min={0} max={longest_ms} value={attempt.duration_ms} aria-hidden="true" />
        <span class="attempt-took">{durationInWords(attempt.duration_ms)}</span>
        <At at={attempt.started_at} />
      </span>
      {attempt.detail !== '' && attempt.detail !== outcomeInWords(attempt) && (
        <Foreign class="attempt-detail">{attempt.detail}</Foreign>
      )}
      {attempt.response_excerpt !== '' && <Excerpt text={attempt.response_excerpt} />}
      {push !== null && <AttemptRequest push={push} attempt={attempt} />}
    </li>
  );
}
