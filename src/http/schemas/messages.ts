import Type from 'typebox';
import { agentIds, enumOf, expected, JsonObject, MeetingId, named, nullable, time } from './fields.ts';
import { limit } from './page.ts';

const message_id = Type.String({ description: 'The key of a message.', examples: ['msg_7f3k9q2m00r3vljl5tg00'] });

export const SendMessageBody = Type.Object(
  {
    message: JsonObject,
    target_agents: Type.Optional(agentIds('Push only to these agents; empty or absent: to all agents of the meeting.')),
  },
  {
    ...named('SendMessageInput', 'A message, and whom it is for.'),
    additionalProperties: false,
    examples: [
      { message: { content: 'Good morning', created_at: '2026-03-01T09:30:00.000Z' } },
      { message: { content: 'Only for you' }, target_agents: ['anna-planner'] },
    ],
  },
);

export const SentMessageSchema = Type.Object(
  {
    message_id,
    meeting_id: MeetingId,
    seq: Type.Integer({ description: 'The number of the message in its meeting, from 1.' }),
    accepted_at: time('When it was stored.'),
    deliveries_queued: Type.Integer({ description: 'To how many instances it goes.' }),
  },
  named('SentMessage', 'The answer to a send: the message and its deliveries are on disk.'),
);

export const MessageSchema = Type.Object(
  {
    message_id,
    seq: Type.Integer({ description: 'The number of the message in its meeting, from 1.' }),
    accepted_at: time('When it was stored.'),
    target_agents: nullable(agentIds('Agent ids.'), 'The agents it was for; null when it went to all of the meeting.'),
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
    has_more: Type.Boolean({ description: 'Whether there are more in the direction that was asked for.' }),
  },
  named('MessagePage', 'Messages that follow each other.'),
);

const seq = (description: string) =>
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
    after_seq: seq('The messages that follow this one.'),
    before_seq: seq('The messages that come just before this one. Neither: the latest.'),
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

/** Headers of the answer to a send. */
export const SentHeaders = {
  'idempotency-replayed': enumOf(['true'] as const, {
    description: 'There when the message was stored before, by a send with the same Idempotency-Key.',
  }),
};
