/** The push to a webhook_url, as OpenAPI describes it: the event of the specification. */
import Type from 'typebox';
import { agentIds, JsonObject, MeetingId } from './fields.ts';

// The schema has no title, so that it becomes no component. oapi-codegen drops components that only a webhook names,
// and then the client that it makes does not compile.
export const PushBody = Type.Object(
  {
    event: Type.Unsafe<'new_message'>({ type: 'string', enum: ['new_message'], description: 'Always `new_message`.' }),
    meeting_id: MeetingId,
    message: JsonObject,
    target_agents: agentIds('The agents of this instance to notify.'),
    timestamp: Type.String({ description: 'The created_at of the message; empty when it has none.' }),
  },
  { description: 'The body of a push: one message, for the agents of one instance.' },
);

const header = (name: string, required: boolean, description: string, schema: Type.TSchema = Type.String()) => ({
  in: 'header',
  name,
  required,
  description,
  schema,
});

const PUSH_HEADERS = [
  header('webhook-id', true, 'The delivery, the same on every attempt. Skip a push that you have handled.'),
  header(
    'webhook-timestamp',
    true,
    'When this attempt was made, in seconds since 1970. Refuse a time that is off by more than 5 minutes.',
  ),
  header(
    'webhook-signature',
    true,
    'Standard Webhooks v1: `v1,` and the base64 of HMAC-SHA256 over webhook-id, a full stop, webhook-timestamp, a full stop and the body. While a rotated secret overlaps, two signatures with a space between.',
  ),
  header('idempotency-key', true, 'The same as webhook-id.'),
  header('convoke-message-id', true, 'The message. The signature does not cover it.'),
  header(
    'convoke-seq',
    true,
    'The number of the message in its meeting, from 1. The signature does not cover it.',
    Type.Integer(),
  ),
  header(
    'convoke-attempt',
    true,
    'The number of the attempt, from 1. The signature does not cover it.',
    Type.Integer(),
  ),
  header(
    'convoke-from-agent',
    false,
    'The agent that says the message, percent-encoded UTF-8; absent when the sender named none. The signature does not cover it.',
  ),
  header(
    'convoke-in-reply-to',
    false,
    'The message_id that the message answers; absent when the sender named none. The signature does not cover it.',
  ),
  header(
    'convoke-hops',
    false,
    'How many messages of agents in a row led to this one, itself included; 0 for a person. Present with either of the two headers above. The signature does not cover it.',
    Type.Integer(),
  ),
  header(
    'convoke-test',
    false,
    '`true` on the sample push of a webhook test. The signature does not cover this header, so decide by the webhook-id, which then begins with `dlv_test-`. Verify the push, respond 200, and wake nobody.',
  ),
  header(
    'convoke-reply-url',
    false,
    'Where the instance can reply later, without a key; only for an instance with `replies`. The signature does not cover it.',
  ),
  header(
    'convoke-reply-token',
    false,
    'The token for that, for 24 hours and 20 replies. The signature does not cover it.',
  ),
  header(
    'traceparent',
    false,
    'The trace that the message belongs to, as in W3C Trace Context; absent when there is none. The signature does not cover it.',
  ),
  header('tracestate', false, 'The state of that trace. The signature does not cover it.'),
  header('user-agent', true, 'Convoke and its version.'),
];

const retried = {
  'retry-after': {
    description: 'When to try again: not before the next time of the schedule, and after one hour at most.',
    schema: Type.String(),
  },
};

/** The `webhooks` of the document. */
export const WEBHOOKS = {
  new_message: {
    post: {
      operationId: 'newMessage',
      tags: ['messages'],
      summary: 'A message was sent in a meeting that the instance is in',
      description:
        'Sent to the webhook_url of every instance in the meeting that is switched on and has an agent to notify, with its webhook_headers. The pushes of one meeting to an instance are sent one after the other, in the order of convoke-seq. The receiver must respond within 5 seconds; redirects are not followed. A push may repeat, with the same webhook-id.',
      security: [],
      parameters: PUSH_HEADERS,
      requestBody: {
        required: true,
        description: 'The message. Verify the signature over the bytes as they arrive.',
        content: { 'application/json': { schema: PushBody } },
      },
      responses: {
        200: {
          description:
            'It is delivered. The body is read only for an instance with `replies`: then JSON with `reply` or `replies`, of at most 64 KiB, is sent in the meeting first.',
        },
        '2XX': {
          description:
            'It is delivered if the success_statuses of the instance is 2xx. Otherwise it failed, and is not tried again: the receiver may have begun to work.',
        },
        410: { description: 'It failed, and the webhook of the instance is switched off.' },
        429: { description: 'It is tried again.', headers: retried },
        503: { description: 'It is tried again.', headers: retried },
        default: { description: 'It is tried again, by the schedule of the service.' },
      },
    },
  },
};
