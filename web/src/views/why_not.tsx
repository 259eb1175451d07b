/** Shows why an instance would not get a message, as the service explains it for each membership. */
import type { JSX } from 'preact';
import type { ExplainQuery, Explanation } from '@convoke/sdk';
import { Foreign } from '../parts/foreign.tsx';
import { Mark, type MarkKind } from '../parts/mark.tsx';
import { Failure, Skeleton } from '../parts/states.tsx';
import { useQuery } from '../queries.ts';
import { addressOf } from '../router.ts';
import { client } from '../service.ts';

/** The most memberships of a meeting that are shown. */
const MEMBERSHIPS_MAX = 100;

const WHY: Record<NonNullable<Explanation['why']>, string> = {
  left: 'it has left the meeting',
  inactive: 'it is paused',
  switched_off: 'it is paused',
  nobody_named: 'the message is for none of its agents',
  is_sender: 'its agent says it',
  wake: 'such messages do not wake it',
  hop_limit: 'the loop guard stops it: too many answers in a row',
  pair_limit: 'the loop guard stops it: too many messages in a short time',
  paused: 'the meeting is paused',
  connection: 'its machine is not connected',
  back_off: 'it is down',
};

const MARKS: Record<Explanation['pushed'], MarkKind> = { now: 'good', later: 'waiting', no: 'off' };

const HEARD: Record<NonNullable<Explanation['wake']>, string> = {
  all: 'new messages',
  targeted: 'only messages that name it,',
  people: 'only messages of people,',
};

/** What an agent of a membership hears now, in words. The prediction is for a message of a person to this agent. */
export function hearsInWords({ pushed, why, wake = 'all' }: Pick<Explanation, 'pushed' | 'why' | 'wake'>): string {
  if (why === null) return `hears ${HEARD[wake]} at once`;
  return pushed === 'later' ? `hears ${HEARD[wake]} later: ${WHY[why]}` : `hears nothing: ${WHY[why]}`;
}

/**
 * Whether the prediction for now may say why a member has no delivery of an earlier message. The loop guard is no such
 * reason: the deliveries that it stops exist.
 */
function mayBeReason({ pushed, why }: Pick<Explanation, 'pushed' | 'why'>): boolean {
  return pushed === 'no' && why !== 'hop_limit' && why !== 'pair_limit';
}

/** Why a member without a delivery of a message has none, as far as the prediction for now says it. */
function whyNotInWords(explanation: Pick<Explanation, 'pushed' | 'why'>): string {
  const { pushed, why } = explanation;
  if (why !== null && mayBeReason(explanation)) return WHY[why];
  const later = 'it joined or was resumed after the message';
  if (why === null) return `${later}, and would hear it now`;
  return pushed === 'later' ? `${later}, and would hear it later: ${WHY[why]}` : later;
}

interface WhyNotProps {
  meeting_id: string;
  /** The message, as it would be sent again. */
  message: Pick<ExplainQuery, 'target_agents' | 'from_agent'>;
  /** The instances that got the message. */
  got: readonly string[];
}

/** For each member that got no delivery: whether it would get one now, and if not, why. */
export function WhyNot({ meeting_id, message, got }: WhyNotProps): JSX.Element {
  const { value, problem, again } = useQuery(
    `why not ${JSON.stringify([meeting_id, message])}`,
    () => client.explain(meeting_id, { ...message, limit: MEMBERSHIPS_MAX }),
    // Most events of an instance name no meeting, such as the event of a pause.
    (event) => event.name !== 'message.accepted' && (event.meeting_id ?? meeting_id) === meeting_id,
  );
  if (value === null) return problem === null ? <Skeleton lines={2} /> : <Failure problem={problem} again={again} />;
  const others = value.data.filter(({ instance_id }) => !got.includes(instance_id));
  return (
    <>
      {value.data.length === 0 && <p class="faint">No instance has ever joined the meeting.</p>}
      {value.data.length > 0 && others.length === 0 && <p class="faint">Every instance of the meeting got it.</p>}
      {others.map(({ instance_id, instance_name, pushed, why }) => (
        <p key={instance_id} class="thread">
          <Mark kind={MARKS[pushed]} />
          <a href={addressOf(['instances', instance_id])}>
            <Foreign class="clip">{instance_name || instance_id}</Foreign>
          </a>
          <span class="faint">{whyNotInWords({ pushed, why })}</span>
        </p>
      ))}
      {others.some(mayBeReason) && (
        <p class="faint">The reasons are those of now. When the message was sent, there may have been others.</p>
      )}
      {value.next_cursor !== null && <p class="faint">These are the first {MEMBERSHIPS_MAX} instances.</p>}
    </>
  );
}
