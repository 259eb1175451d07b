import Type from 'typebox';
import { TRACESTATE_CHARS_MAX } from '../../domain/trace_context.ts';
import { agentId, agentIds, enumOf, expected, JsonObject, JUDGED_APART, MeetingId, named, time } from './fields.ts';
import { MeetingIdInput } from './meetings.ts';
import { message_id } from './messages.ts';
import { ProblemSchema } from './problem.ts';

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

const SEND_FIELDS = {
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
};

export const SendMessageBody = Type.Object(SEND_FIELDS, {
  ...named('SendMessageInput', 'A message and its recipients.'),
  additionalProperties: false,
  examples: [
    { message: { content: 'Good morning', created_at: '2026-03-01T09:30:00.000Z' } },
    { message: { content: 'Only for you' }, target_agents: ['anna-planner'] },
    { message: { content: 'Done' }, from_agent: 'anna-planner', in_reply_to: 'msg_7f3k9q2m00r3vljl5tg00' },
  ],
});

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

const idempotencyKey = (what: string) =>
  Type.Optional(
    Type.String({
      pattern: '^[\\x21-\\x7e]([\\x20-\\x7e]{0,253}[\\x21-\\x7e])?$',
      description:
        'For 24 hours, a repeat by the same API key gets the first result; a send with another API key is another message. 1 to 255 printable ASCII characters.',
      ...expected(`must be ${what} of 1 to 255 printable ASCII characters`),
    }),
  );

/**
 * The schema does not check these headers: many programs and proxies add them by themselves, and no message may fail
 * because of a trace.
 */
const TRACE_HEADERS = {
  traceparent: Type.Optional(
    Type.String({
      description:
        'The trace that the message belongs to, as in W3C Trace Context. Every push of the message has it, or its continuation when the service takes part in the trace. One that cannot be read is ignored.',
    }),
  ),
  tracestate: Type.Optional(
    Type.String({ description: 'The state of that trace. One that cannot be read is ignored.' }),
  ),
};

export const SendHeaders = Type.Object({ 'idempotency-key': idempotencyKey('one header'), ...TRACE_HEADERS });

/** Headers of a request with many messages. They hold for the items without a traceparent of their own. */
export const SendManyHeaders = Type.Object(TRACE_HEADERS);

export const SentHeaders = {
  'idempotency-replayed': enumOf(['true'] as const, {
    description: 'Present when an earlier send with the same Idempotency-Key stored the message.',
  }),
};

/** The most messages in one request. */
export const MESSAGES_MAX = 500;

/** The route refuses ids of zeros: a pattern that excludes them is beyond the regular expressions of some clients. */
export const TRACEPARENT_EXPECTED =
  'must be a traceparent of W3C Trace Context: 00-, 32, 16 and 2 hexadecimal digits, and neither id all zeros';

export const SendMessagesItem = Type.Object(
  {
    meeting_id: MeetingIdInput,
    ...SEND_FIELDS,
    idempotency_key: idempotencyKey('a text'),
    traceparent: Type.Optional(
      Type.String({
        pattern: '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$',
        description:
          'The trace that the message belongs to, as in the header of the same name. Absent: that of the request.',
        examples: ['00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'],
        ...expected(TRACEPARENT_EXPECTED),
      }),
    ),
    tracestate: Type.Optional(
      Type.String({
        pattern: `^[\\x20-\\x7e]{0,${TRACESTATE_CHARS_MAX}}$`,
        description: 'The state of that trace. One that cannot be read is ignored.',
        ...expected(`must be a tracestate of at most ${TRACESTATE_CHARS_MAX} printable ASCII characters`),
      }),
    ),
  },
  {
    ...named('SendMessagesItem', 'One of many messages, with its meeting.'),
    additionalProperties: false,
    examples: [{ meeting_id: 'standup-42', message: { content: 'Good morning' }, idempotency_key: 'order-1001' }],
  },
);

export const SendMessagesBody = Type.Object(
  {
    messages: Type.Array(SendMessagesItem, {
      minItems: 1,
      maxItems: MESSAGES_MAX,
      description: `At most ${MESSAGES_MAX}; the body has at most 4 MiB. An item that is not valid fails alone.`,
      ...expected(`must be a list of 1 to ${MESSAGES_MAX} messages`),
      ...JUDGED_APART,
    }),
  },
  { ...named('SendMessagesInput', 'Messages of one meeting or of several.'), additionalProperties: false },
);

export const SendResultSchema = Type.Object(
  {
    status: Type.Integer({
      description: 'The status that a send of this message alone would get: 201 when it is stored.',
    }),
    message: Type.Optional(SentMessageSchema),
    replayed: Type.Optional(
      Type.Boolean({ description: 'Present when an earlier send with the same idempotency_key stored the message.' }),
    ),
    problem: Type.Optional(ProblemSchema),
    retry_after_s: Type.Optional(
      Type.Integer({ minimum: 0, description: 'With a status 429 or 503: when to send it again, in seconds.' }),
    ),
  },
  named('SendResult', 'The result of one of many messages: `message` when it is stored, otherwise `problem`.'),
);

export const SentMessagesSchema = Type.Object(
  { results: Type.Array(SendResultSchema, { description: 'In the order of the list.' }) },
  named('SentMessages', 'The results of many messages.'),
);
