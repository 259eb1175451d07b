import Type from 'typebox';
import { agentId, agentIds, expected, JsonObject, named, nullable, time } from './fields.ts';
import { limit } from './page.ts';

export const message_id = Type.String({
  description: 'The id of a message.',
  examples: ['msg_7f3k9q2m00r3vljl5tg00'],
});

export const MessageSchema = Type.Object(
  {
    message_id,
    seq: Type.Integer({ description: 'The number of the message in its meeting, from 1.' }),
    accepted_at: time('When it was stored.'),
    deliveries_queued: Type.Integer({
      description: 'How many instances get it. Their deliveries are removed sooner than the message.',
    }),
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
    'A message in the history of a meeting, exactly as it was written. A JSON parser that reads numbers as doubles drops digits of long numbers.',
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
    before_seq: seqGiven(
      'The messages that come just before this one. With neither after_seq nor before_seq: the latest.',
    ),
    limit,
  },
  { additionalProperties: false },
);
