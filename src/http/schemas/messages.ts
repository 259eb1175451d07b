import Type from 'typebox';
import { agentId, agentIds, enumOf, expected, JsonObject, MeetingId, named, nullable, time } from './fields.ts';
import { limit } from './page.ts';

const message_id = Type.String({ description: 'The key of a message.', examples: ['msg_7f3k9q2m00r3vljl5tg00'] });

const EXPIRES_IN_S_MAX = 31_536_000;

/** The id of a message as a sender gives it. The store refuses an id that no message has. */
const MessageIdGiven = Type.String({
  maxLength: 100,
  pattern: '^msg_[0-9a-v]+$',
  description:
    'The message_id of the message in the same meeting that it answers. Pushes have it in the header `convoke-in-reply-to`.',
  examples: ['msg_7f3k9q2m00r3vljl5tg00'],
  ...expected('must be the message_id of a message of this meeting'),
});

export const SendMessageBody = Type.Object(
  {
    message: JsonObject,
    target_agents: Type.Optional(
      agentIds('Push only to these agents; empty or absent: to all agents of the meeting but from_agent.'),
    ),
    from_agent: Type.Optional(
      agentId(
        'The agent that says it; absent: a person, or a program that is no agent. A key with the scope `instance` may name only agents of its own instances that take part in the meeting. Pushes say it in the header `convoke-from-agent`.',
      ),
    ),
    in_reply_to: Type.Optional(MessageIdGiven),
    expires_in_s: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: EXPIRES_IN_S_MAX,
        description:
          'After this many seconds it is no longer pushed: a delivery that is still pending fails with the reason `expired`. The limit of the service (CONVOKE_EXPIRE_AFTER) holds when it is shorter.',
        ...expected(`must be a whole number of seconds from 1 to ${EXPIRES_IN_S_MAX}`),
      }),
    ),
  },
  {
    ...named('SendMessageInput', 'A message, and whom it is for.'),
    additionalProperties: false,
    examples: [
      { message: { content: 'Good morning', created_at: '2026-03-01T09:30:00.000Z' } },
      { message: { content: 'Only for you' }, target_agents: ['anna-planner'] },
      { message: { content: 'Done' }, from_agent: 'anna-planner', in_reply_to: 'msg_7f3k9q2m00r3vljl5tg00' },
    ],
  },
);

export const SentMessageSchema = Type.Object(
  {
    message_id,
    meeting_id: MeetingId,
    seq: Type.Integer({ description: 'The number of the message in its meeting, from 1.' }),
    accepted_at: time('When it was stored.'),
    deliveries_queued: Type.Integer({ description: 'How many instances get it.' }),
  },
  named('SentMessage', 'The response to a send: the message and its deliveries are on disk.'),
);

export const MessageSchema = Type.Object(
  {
    message_id,
    seq: Type.Integer({ description: 'The number of the message in its meeting, from 1.' }),
    accepted_at: time('When it was stored.'),
    target_agents: nullable(agentIds('Agent ids.'), 'The agents that it is for; null: all agents of the meeting.'),
    from_agent: Type.Optional(agentId('The agent that says it; absent: a person, or a program that is no agent.')),
    in_reply_to: Type.Optional(
      Type.String({
        description: 'The message_id that it answers; absent: the sender named none. That message may be gone.',
        examples: ['msg_7f3k9q2m00r3vljl5tg00'],
      }),
    ),
    hops: Type.Optional(
      Type.Integer({
        description:
          'How many messages of agents in a row led to it, itself included; 0 for a person. Absent when it has neither from_agent nor in_reply_to.',
      }),
    ),
    message: JsonObject,
  },
  named(
    'Message',
    'A message of the history of a meeting, as it was written: a parser whose numbers are doubles drops digits of long ones.',
  ),
);

export const MessagePageSchema = Type.Object(
  {
    data: Type.Array(MessageSchema, { description: 'In the order of seq.' }),
    has_more: Type.Boolean({ description: 'Whether there are more in the requested direction.' }),
  },
  named('MessagePage', 'Consecutive messages.'),
);

export const seqGiven = (description: string) =>
  Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: Number.MAX_SAFE_INTEGER,
      description,
      ...expected('must be a whole number, 0 or more'),
    }),
  );

export const ListMessagesQuery = Type.Object(
  {
    after_seq: seqGiven('The messages that follow this one.'),
    before_seq: seqGiven('The messages that come just before this one. Neither: the latest.'),
    limit,
  },
  { additionalProperties: false },
);

export const SendHeaders = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      pattern: '^[\\x21-\\x7e]([\\x20-\\x7e]{0,253}[\\x21-\\x7e])?$',
      description:
        'For 24 hours, a repeat by the same API key gets the first result; a send with another API key is another message. 1 to 255 printable ASCII characters.',
      ...expected('must be one header of 1 to 255 printable ASCII characters'),
    }),
  ),
});

/** Headers of the response to a send. */
export const SentHeaders = {
  'idempotency-replayed': enumOf(['true'] as const, {
    description: 'Present when an earlier send with the same Idempotency-Key stored the message.',
  }),
};
