import Type from 'typebox';
import { DELIVERY_REASONS, DELIVERY_STATES, WAITING_COUNTED_MAX, WAITING_FOR } from '../../domain/delivery.ts';
import {
  agentId,
  agentIds,
  AT_LEAST_ONE_FIELD,
  enumOf,
  expected,
  flag,
  instanceId,
  InstanceId,
  madeId,
  meetingId,
  MeetingId,
  named,
  nullable,
  OutcomeSchema,
  time,
  timeInput,
} from './fields.ts';
import { seqGiven } from './messages.ts';
import { cursor, limit, searchPageOf, textSearched } from './page.ts';

const DeliveryState = enumOf(
  DELIVERY_STATES,
  named('DeliveryState', 'The state of a delivery. Every state but `pending` is final.'),
);

const DeliveryReason = enumOf(
  DELIVERY_REASONS,
  named(
    'DeliveryReason',
    'Why a delivery failed or was cancelled. `not_200`: a 2xx that does not count; `gone`: 410; `exhausted`: too many bad responses; `expired`: not reached for too long; `instance_deleted`: its instance was deleted; `dropped`: somebody dropped the waiting deliveries; `hop_limit`, `pair_limit`: the loop guard stopped agents that answer each other; `superseded`, `max_age`: it waited while its machine was away, and was not the newest message, or was too old.',
  ),
);

const WaitingFor = enumOf(
  WAITING_FOR,
  named(
    'WaitingFor',
    'Why a pending delivery waits. It waits for its `turn` in the lane or for the response to its attempt (`turn`), the time of its next attempt (`retry`), the `back_off` of its instance, a meeting that is `paused`, an instance that is `switched_off`, or the `connection` of a machine that pulls.',
  ),
);

const AttemptSchema = Type.Object(
  {
    attempt: Type.Integer({ description: 'The number of the attempt, from 1.' }),
    started_at: time('When it began.'),
    duration_ms: Type.Number({ description: 'How long it took.' }),
    outcome: OutcomeSchema,
    status_code: nullable(Type.Integer(), 'The status of the response; null when no status line arrived.'),
    detail: Type.String({
      description:
        'The failure, in words. Empty after a success, unless a reply in the response could not be sent: then it says why.',
    }),
    response_excerpt: Type.String({ description: 'The beginning of the response body.' }),
    answered_agents: Type.Optional(
      Type.Array(Type.String(), {
        description:
          'Only for an instance with a runtime: the agents that have answered, in this attempt or earlier. A retry asks the others.',
      }),
    ),
  },
  named('Attempt', 'One HTTP POST made for a delivery.'),
);

export const DeliverySchema = Type.Object(
  {
    delivery_id: Type.String({
      description: 'The id of the delivery, and the webhook-id of every attempt.',
      examples: ['dlv_7f3k9q2m00r3vljl5tg01'],
    }),
    message_id: Type.String({ description: 'The message that it delivers.' }),
    meeting_id: MeetingId,
    seq: Type.Integer({ description: 'The number of the message in its meeting.' }),
    instance_id: InstanceId,
    target_agents: agentIds('The agents of the instance to notify.'),
    state: DeliveryState,
    reason: nullable(DeliveryReason, 'Why it failed or was cancelled; null otherwise.'),
    waiting_for: nullable(WaitingFor, 'Why a pending delivery is not delivered yet; null once it is settled.'),
    attempt_count: Type.Integer({ description: 'How many attempts were made.' }),
    next_attempt_at: nullable(
      time('A time.'),
      'The earliest time of the next attempt; null unless the delivery is pending and retried.',
    ),
    created_at: time('When the message was accepted.'),
    settled_at: nullable(time('A time.'), 'When it left `pending`.'),
    last_attempt: nullable(AttemptSchema, 'The latest attempt; null before the first.'),
  },
  named('Delivery', 'One message on its way to one instance.'),
);

export const DeliveryWithAttemptsSchema = Type.Object(
  {
    ...DeliverySchema.properties,
    attempts: Type.Array(AttemptSchema, {
      description: 'The attempts that were made: the first ten and the latest ninety.',
    }),
  },
  named('DeliveryWithAttempts', 'A delivery, with its attempts.'),
);

export const ListDeliveriesQuery = Type.Object(
  {
    instance_id: Type.Optional(instanceId('Only deliveries to this instance.')),
    meeting_id: Type.Optional(meetingId('Only deliveries of messages of this meeting.')),
    message_id: Type.Optional(madeId('Only deliveries of this message.')),
    after_seq: seqGiven('With meeting_id: only deliveries of the messages that follow this one.'),
    before_seq: seqGiven('With meeting_id: only deliveries of the messages before this one.'),
    state: Type.Optional(DeliveryState),
    since: Type.Optional(
      timeInput('Only deliveries of messages that were sent at or after this time.', '2026-03-01T09:30:00Z'),
    ),
    until: Type.Optional(
      timeInput('Only deliveries of messages that were sent before this time.', '2026-03-01T09:30:00Z'),
    ),
    status_code: Type.Optional(
      Type.Integer({
        minimum: 100,
        maximum: 999,
        description: 'Only deliveries with an attempt that got this status.',
        ...expected('must be a whole number from 100 to 999'),
      }),
    ),
    outcome: Type.Optional(OutcomeSchema),
    agent_id: Type.Optional(agentId('Only deliveries for this agent, in all meetings.')),
    text: textSearched,
    limit,
    cursor,
  },
  { additionalProperties: false },
);

export const DeliveryPageSchema = searchPageOf(DeliverySchema);

export const DeliveryParams = Type.Object({ delivery_id: madeId('The id of a delivery.') });

export const DropDeliveriesBody = Type.Object(
  {
    instance_id: Type.Optional(instanceId('Drops the deliveries that wait for this instance.')),
    meeting_id: Type.Optional(
      meetingId('Drops the deliveries that wait in this meeting; with instance_id, only those for that instance.'),
    ),
    up_to: Type.Optional(
      madeId('Drops no deliveries of messages after this one. Absent: none of messages that are sent from now on.'),
    ),
    dry_run: flag('Only count the deliveries that would be dropped.'),
  },
  {
    ...named('DropDeliveriesInput', 'Which pending deliveries to cancel.'),
    additionalProperties: false,
    ...AT_LEAST_ONE_FIELD,
    examples: [{ meeting_id: 'standup-42', dry_run: true }],
  },
);

export const DroppedSchema = Type.Object(
  {
    deliveries: Type.Integer({ description: 'How many were dropped, or would be.' }),
    up_to: nullable(
      madeId('A message_id.'),
      'The last message whose deliveries are dropped: when `done` is false, the next call gives it as `up_to`. Null while no message is stored.',
    ),
    dry_run: Type.Boolean({ description: 'Whether they were only counted.' }),
    done: Type.Boolean({ description: 'False when more may be left: call again, with this `up_to`.' }),
    at_least: Type.Optional(
      Type.Boolean({ description: `Only with dry_run: true when there are more than ${WAITING_COUNTED_MAX}.` }),
    ),
  },
  named('DroppedDeliveries', 'How many pending deliveries were dropped.'),
);
