import Type from 'typebox';
import { HOP_LIMIT_MAX, PAIR_LIMIT_MAX, PAIR_WINDOW_S_MAX } from '../../domain/guard_rule.ts';
import { CATCH_UPS, MAX_AGE_S_MAX } from '../../domain/catch_up.ts';
import { WAKES } from '../../domain/agents_to_notify.ts';
import { ID_CHARS_MAX } from '../../domain/id.ts';
import {
  agentIds,
  AgentIds,
  AT_LEAST_ONE_FIELD,
  enumOf,
  expected,
  flag,
  instanceId,
  InstanceId,
  MeetingId,
  named,
  nullable,
  text,
  time,
} from './fields.ts';
import { Health, InstanceName } from './instances.ts';
import { cursor, limit } from './page.ts';

export const MeetingIdInput = Type.Union([MeetingId, Type.Integer()], {
  description:
    'The meeting: not `.` or `..`, which no client can put into a path. An integer in digits is taken as this text.',
  examples: ['standup-42'],
  ...expected(`must be a string of 1 to ${ID_CHARS_MAX} characters without control characters, or an integer`),
});

const wakeOf = (description: string) => Type.Optional(enumOf(WAKES, { description }));
const catchUpOf = (description: string) => Type.Optional(enumOf(CATCH_UPS, { description }));
const maxAgeOf = (description: string) =>
  Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: MAX_AGE_S_MAX,
      description,
      ...expected(`must be a whole number from 0 to ${MAX_AGE_S_MAX}`),
    }),
  );

export const JoinMeetingBody = Type.Object(
  {
    instance_id: InstanceId,
    meeting_id: MeetingIdInput,
    agent_ids: agentIds('The agents of the instance that take part; they replace those of an earlier join.'),
    wake: wakeOf(
      'Which messages for these agents are pushed. `all`: every one; `targeted`: only those that name one of them in target_agents; `people`: only those of people. The others are only in the history. When absent, it stays as it is; at the first join it is `all`.',
    ),
    catch_up: catchUpOf(
      'Which of the messages that waited while the machine was away are pushed. `all`: every one; `latest`: only the newest message of agents and the newest of people; the others are cancelled (`superseded`). When absent, it stays as it is; at the first join it is `all`.',
    ),
    max_age_s: maxAgeOf(
      'A message is cancelled (`max_age`) if it is older than this many seconds when it would be pushed next; 0: a message of any age is pushed. When absent, it stays as it is; at the first join it is 0.',
    ),
  },
  {
    ...named('JoinMeetingInput', 'An instance and its agents that take part in a meeting.'),
    additionalProperties: false,
    examples: [{ instance_id: 'laptop-anna', meeting_id: 'standup-42', agent_ids: ['anna-planner'] }],
  },
);

export const UpdateMembershipBody = Type.Object(
  {
    agent_ids: Type.Optional(agentIds('The agents of the instance that take part; they replace the present ones.')),
    wake: wakeOf('Which messages for these agents are pushed: `all`, `targeted` or `people`, as for a join.'),
    catch_up: catchUpOf(
      'Which of the messages that waited while the machine was away are pushed: `all` or `latest`, as for a join.',
    ),
    max_age_s: maxAgeOf(
      'A message is cancelled if it is older than this many seconds when it would be pushed next; 0: a message of any age is pushed.',
    ),
  },
  {
    ...named('UpdateMembershipInput', 'What to change in a membership. An absent field stays as it is.'),
    additionalProperties: false,
    ...AT_LEAST_ONE_FIELD,
    examples: [{ wake: 'targeted' }],
  },
);

export const LeaveMeetingBody = Type.Object(
  { instance_id: InstanceId, meeting_id: MeetingIdInput },
  {
    ...named('LeaveMeetingInput', 'An instance that leaves a meeting.'),
    additionalProperties: false,
    examples: [{ instance_id: 'laptop-anna', meeting_id: 'standup-42' }],
  },
);

export const LeftMeetingSchema = Type.Object(
  {
    instance_id: InstanceId,
    meeting_id: MeetingId,
    left_at: nullable(time('A time.'), 'When it left; null when there was nothing to leave.'),
  },
  named('LeftMeeting', 'The result of leaving a meeting.'),
);

export const MembershipSchema = Type.Object(
  {
    meeting_id: MeetingId,
    instance_id: InstanceId,
    agent_ids: AgentIds,
    joined_at: time('When the instance last joined.'),
    left_at: nullable(time('A time.'), 'When it left; null while the instance is in the meeting.'),
    wake: wakeOf('Which messages for these agents are pushed; absent: all.'),
    catch_up: catchUpOf('Which of the messages that waited while the machine was away are pushed; absent: all.'),
    max_age_s: maxAgeOf('How old a message may be when it would be pushed next, in seconds; absent: any age.'),
  },
  named('Membership', 'An instance in a meeting, with the agents that take part.'),
);

export const MeetingInstanceSchema = Type.Object(
  {
    ...MembershipSchema.properties,
    instance_name: InstanceName,
    health: Health,
  },
  named('MeetingInstance', 'A membership, with the name of its instance and its health.'),
);

const guardLimit = (maximum: number, what: string) =>
  Type.Optional(
    Type.Union([Type.Integer({ minimum: 0, maximum }), Type.Null()], {
      description: `${what} 0 switches the rule off, null takes the setting of the service.`,
      ...expected(`must be a whole number from 0 to ${maximum}, or null`),
    }),
  );

const ownLimit = (what: string) =>
  nullable(Type.Integer(), `${what}, as it was set for this meeting; null: it was not.`);

const GuardLimitsSchema = Type.Object(
  {
    hop_limit: Type.Integer({ description: 'Messages of agents that answer each other, in a row; 0: any number.' }),
    pair_limit: Type.Integer({ description: 'Messages from one agent to one other in the window; 0: any number.' }),
    pair_window_s: Type.Integer({ description: 'The window, in seconds; 0: no limit of pairs.' }),
  },
  named('GuardLimits', 'The limits of the loop guard that are in force.'),
);

export const MeetingSchema = Type.Object(
  {
    meeting_id: MeetingId,
    last_seq: Type.Integer({ description: 'How many messages were ever sent in it.' }),
    instance_count: Type.Integer({ description: 'Instances in the meeting now.' }),
    agent_count: Type.Integer({ description: 'Agents in the meeting now, over all instances.' }),
    pending_deliveries: Type.Integer({ description: 'Deliveries of its messages that are not settled yet.' }),
    paused: Type.Boolean({ description: 'Whether its deliveries wait until somebody resumes it.' }),
    hop_limit: ownLimit('The limit of messages in a row'),
    pair_limit: ownLimit('The limit of messages from one agent to one other'),
    pair_window_s: ownLimit('The window of pair_limit in seconds'),
    limits: GuardLimitsSchema,
    created_at: time('The first join or message.'),
    last_activity_at: time('The last join, leave or message.'),
  },
  named('Meeting', 'A conversation. It exists as soon as an instance joins it or a message is sent in it.'),
);

export const UpdateMeetingBody = Type.Object(
  {
    paused: flag('True: the deliveries of the meeting wait until it is set to false.'),
    hop_limit: guardLimit(HOP_LIMIT_MAX, 'Messages of agents that answer each other, in a row.'),
    pair_limit: guardLimit(PAIR_LIMIT_MAX, 'Messages from one agent to one other within the window.'),
    pair_window_s: guardLimit(PAIR_WINDOW_S_MAX, 'The window of pair_limit, in seconds.'),
  },
  {
    ...named('UpdateMeetingInput', 'What to change in a meeting. An absent field stays as it is.'),
    additionalProperties: false,
    ...AT_LEAST_ONE_FIELD,
    examples: [{ paused: true }],
  },
);

export const ListMeetingsQuery = Type.Object(
  {
    q: text('Part of the id.'),
    instance_id: Type.Optional(instanceId('Only meetings that this instance is in.')),
    include_left: flag('With instance_id: also those that it has left.'),
    limit,
    cursor,
  },
  { additionalProperties: false },
);

export const ListMeetingInstancesQuery = Type.Object(
  { include_left: flag('Also those that have left.'), limit, cursor },
  { additionalProperties: false },
);

export const MeetingParams = Type.Object({ meeting_id: MeetingId });

export const MembershipParams = Type.Object({ meeting_id: MeetingId, instance_id: InstanceId });
