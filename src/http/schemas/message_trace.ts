import Type from 'typebox';
import { DeliverySchema } from './deliveries.ts';
import { madeId, MeetingId, named, nullable, time } from './fields.ts';
import { MessageSchema, seqGiven } from './messages.ts';
import { limit } from './page.ts';

const { message_id, seq, from_agent, in_reply_to, hops } = MessageSchema.properties;

const MessageBriefSchema = Type.Object(
  {
    message_id,
    seq,
    accepted_at: time('When it was stored.'),
    from_agent,
    in_reply_to,
    hops,
    excerpt: Type.String({ description: 'The first 200 characters of its JSON text.' }),
  },
  named('MessageBrief', 'A message of a thread, with the beginning of its text.'),
);

export const MessageTraceSchema = Type.Object(
  {
    ...MessageSchema.properties,
    meeting_id: MeetingId,
    trace_id: Type.Optional(
      Type.String({
        description: 'The trace that it belongs to, as in its traceparent: docs/traces.md; absent when there is none.',
        examples: ['4bf92f3577b34da6a3ce929d0e0e4736'],
      }),
    ),
    answered: Type.Array(MessageBriefSchema, {
      description:
        'The messages that led to this one, at most 50. The first is the message that this one answers; each further one is answered by the one before it.',
    }),
    answers: Type.Array(MessageBriefSchema, {
      description: 'Its answers among the next 1,000 messages of its meeting, in the order of seq.',
    }),
    next_answers_after: nullable(
      Type.Integer({ description: 'A seq.' }),
      'Give it as answers_after to look for answers in the messages that follow; null when there are none.',
    ),
    deliveries: Type.Array(DeliverySchema, { description: 'Its deliveries, newest first.' }),
    deliveries_cursor: nullable(
      Type.String({ description: 'A place in the list.' }),
      'Give it as cursor when you list the deliveries of this message, to get the others; null when there are none.',
    ),
  },
  named('MessageTrace', 'A message, the chain that led to it, its answers, and each of its deliveries.'),
);

export const MessageParams = Type.Object({ message_id: madeId('The id of a message.') });

export const GetMessageQuery = Type.Object(
  {
    limit,
    answers_after: seqGiven(
      'Look for answers in the messages that follow this seq. Absent: in those that follow the message itself.',
    ),
  },
  { additionalProperties: false },
);
